"""prices.yaml: a dated price book. What is not in it has no price: unknown, never zero."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from dispatcher.config.values import Choice, Currency, Day, Duration, Positive, Size, Strict, Text, Usd, Word, fail
from dispatcher.core.policy import PriceUnit, Purchase

USD = "USD"


class Dated(Strict):
    """A row that somebody can check."""

    source: Annotated[Text, Field(description="Where the price is from.")]
    dated: Annotated[Day, Field(description="When it was true.")]


class RateRow(Dated):
    """What one unit of another currency is in USD."""

    currency: Annotated[Currency, Field(description="ISO 4217 code, such as EUR.")]
    usd: Annotated[Usd, Field(description="USD for one unit of it; at most 6 decimals.")]

    @model_validator(mode="after")
    def _worth_something(self) -> RateRow:
        if not self.usd:
            raise fail("a rate of nothing: every price in this currency would be free", "write what one unit is in USD")
        return self


class ComputeRow(Dated):
    """The price of one GPU, MIG slice or vCPU for an hour."""

    provider: Annotated[Word, Field(description="One of fleet.yaml's providers.")]
    region: Annotated[Word, Field(description="One of fleet.yaml's regions.")]
    product: Annotated[Text, Field(description="Canonical product, or cpu.")]
    purchase: Annotated[Choice[Purchase], Field(description="internal, reserved, on-demand or spot.")]
    unit: Annotated[
        Choice[PriceUnit] | None, Field(description="gpu-hour, mig-slice-hour or vcpu-hour; follows from the product.")
    ] = None
    usd_per_hour: Annotated[Usd | None, Field(description="USD for one unit; at most 6 decimals.")] = None
    currency: Annotated[Currency, Field(description="Of `per_hour` and `marginal_per_hour`; one of `rates`.")] = USD
    per_hour: Annotated[Usd | None, Field(description="The same in `currency`.")] = None
    marginal_per_hour: Annotated[
        Usd | None,
        Field(description="In `currency`: what an hour of use costs while a contract pays for the nodes anyway."),
    ] = None
    minimum_billing: Annotated[Duration | None, Field(description="The shortest time that is billed.")] = None
    interrupted_after: Annotated[
        Duration | None, Field(description="Spot: how long one node lasts on average until it is taken back.")
    ] = None

    @model_validator(mode="after")
    def _one_price(self) -> ComputeRow:
        _one_of("hour", self.usd_per_hour, self.per_hour)
        whole = self.per_hour if self.per_hour is not None else self.usd_per_hour if self.currency == USD else None
        if self.marginal_per_hour is not None and whole is not None and self.marginal_per_hour > whole:
            raise fail("marginal_per_hour is more than the whole price", "write the part of it that use adds")
        return self


class Tier(Strict):
    """The price of the bytes up to a size, above those of the tier before."""

    up_to: Annotated[Size, Field(description="Such as 10TB, counted from the first byte.")]
    per_gb: Annotated[Usd, Field(description="In the row's currency, for 10^9 bytes.")]


class EgressRow(Dated):
    """Moving data out of one region into another."""

    from_region: Annotated[Word, Field(description="One of fleet.yaml's regions.")]
    to_region: Annotated[
        Text, Field(description="One of fleet.yaml's regions, or * for every other region without a row of its own.")
    ]
    from_provider: Annotated[Word | None, Field(description="With to_provider: a route between these two only.")] = None
    to_provider: Annotated[Word | None, Field(description="One of fleet.yaml's providers.")] = None
    via: Annotated[Text | None, Field(description="Which way it goes: internet, peering, backbone.")] = None
    usd_per_gb: Annotated[Usd | None, Field(description="USD for 10^9 bytes.")] = None
    currency: Annotated[Currency, Field(description="Of `per_gb`, here and in `tiers`; one of `rates`.")] = USD
    per_gb: Annotated[Usd | None, Field(description="The same in `currency`: beyond the last of `tiers`.")] = None
    tiers: Annotated[tuple[Tier, ...], Field(description="Prices of the first bytes of a transfer.")] = ()
    bandwidth_mbit_s: Annotated[Positive | None, Field(description="What the route carries; absent = not known.")] = (
        None
    )

    @model_validator(mode="after")
    def _whole(self) -> EgressRow:
        _one_of("gb", self.usd_per_gb, self.per_gb)
        if self.usd_per_gb is not None and self.tiers and self.currency != USD:
            raise fail("tiers in another currency than usd_per_gb", "write per_gb: instead of usd_per_gb:")
        if (self.from_provider is None) != (self.to_provider is None):
            raise fail("one provider of a route", "write both from_provider: and to_provider:, or neither")
        sizes = [tier.up_to for tier in self.tiers]
        if sizes != sorted(set(sizes)) or 0 in sizes:
            raise fail("tiers out of order", "write each tier once, the smallest up_to: first")
        return self


class RequestRow(Dated):
    """What the stores of a provider in a region bill by the request. A store without a row bills none."""

    provider: Annotated[Word, Field(description="One of fleet.yaml's providers.")]
    region: Annotated[Word, Field(description="One of fleet.yaml's regions.")]
    currency: Annotated[Currency, Field(description="Of both prices; one of `rates`.")] = USD
    reads_per_million: Annotated[Usd, Field(description="For a million objects read.")]
    writes_per_million: Annotated[Usd, Field(description="For a million objects written.")]
    object_size: Annotated[Size, Field(description="Usual size of an object, where a data set says none.")]

    @model_validator(mode="after")
    def _objects_have_a_size(self) -> RequestRow:
        if not self.object_size:
            raise fail("objects without a size", "write the usual size of an object, such as 64MB")
        return self


class CarbonRow(Dated):
    """What a tonne of CO2 weighs in a choice: an internal price, on nobody's invoice."""

    currency: Annotated[Currency, Field(description="Of `per_tonne`; one of `rates`.")] = USD
    per_tonne: Annotated[Usd, Field(description="For one tonne of CO2.")]


class PricesFile(Strict):
    """Prices of computing and of moving data."""

    max_age_days: Annotated[Positive, Field(description="An older price, or rate, is not used.")]
    rates: Annotated[tuple[RateRow, ...], Field(description="One row a currency other than USD.")] = ()
    compute: Annotated[tuple[ComputeRow, ...], Field(description="One row a provider, region, product and purchase.")]
    egress: Annotated[tuple[EgressRow, ...], Field(description="One row a pair of regions, or with to_region: '*'.")]
    requests: Annotated[tuple[RequestRow, ...], Field(description="One row a provider and region.")] = ()
    carbon: Annotated[CarbonRow | None, Field(description="Absent: energy is recorded and weighs nothing.")] = None
    unknown_home: Annotated[
        Usd | None,
        Field(description="USD that checkpoints or outputs of unknown size weigh in a choice; absent: they reject."),
    ] = None


def _one_of(unit: str, in_usd: int | None, in_currency: int | None) -> None:
    if (in_usd is None) == (in_currency is None):
        raise fail(f"exactly one of 'usd_per_{unit}' and 'per_{unit}' is needed", f"write usd_per_{unit}: 2.49")
