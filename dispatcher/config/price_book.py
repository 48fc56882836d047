"""From prices.yaml to the book that decisions read: every price in micro-USD, every route by its ends.

A price in another currency is worth what its rate says, and is as old as the older of the two: a rate that nobody has
looked up for long makes the price old, and a rate that is missing leaves the price out, so that it is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import TypeVar

from dispatcher.config.prices_file import USD, CarbonRow, ComputeRow, Dated, EgressRow, PricesFile, RateRow, RequestRow
from dispatcher.core.ids import ProductName, RegionName
from dispatcher.core.literals import USD_MICRO
from dispatcher.core.policy import (
    CarbonPrice,
    ComputePrice,
    EgressPrice,
    EgressTier,
    PriceBook,
    PriceUnit,
    Product,
    RequestPrice,
)
from dispatcher.core.prices import div_half_up
from dispatcher.core.products import product_of

CPU_ONLY = "cpu"
ANY_OTHER = "*"
Products = Mapping[ProductName, Product]
K = TypeVar("K", bound=tuple[str, ...])
V = TypeVar("V")


def price_book(prices: PricesFile, products: Products, regions: tuple[str, ...]) -> PriceBook:
    """The book of a checked file; `regions` are those of the fleet, for routes to every other region."""
    rates = {row.currency: row for row in prices.rates}
    compute = [_compute(row, products, worth) for row in prices.compute if (worth := _worth(row, row.currency, rates))]
    requests = [_requests(row, worth) for row in prices.requests if (worth := _worth(row, row.currency, rates))]
    routes = egress_routes(prices.egress, regions).items()
    peerings = peering_routes(prices.egress, regions).items()
    return PriceBook(
        max_age_days=prices.max_age_days,
        compute=_sorted({(p.provider, p.region, p.product, str(p.purchase)): p for p in compute}),
        egress=_sorted({at: p for at, row in routes if (p := _egress(*at, row, rates)) is not None}),
        peerings=_sorted({at: p for at, row in peerings if (p := _egress(at[1], at[3], row, rates)) is not None}),
        requests=_sorted({(p.provider, str(p.region)): p for p in requests}),
        carbon=_carbon(prices.carbon, rates),
        unknown_home_usd_micro=prices.unknown_home,
    )


def _sorted(entries: dict[K, V]) -> Mapping[K, V]:
    return MappingProxyType(dict(sorted(entries.items(), key=lambda entry: entry[0])))


def canonical_product(text: str, products: Products) -> str | None:
    """A price row's product: "cpu", or the canonical name behind a spelling; None when there is none."""
    return CPU_ONLY if text == CPU_ONLY else product_of(text, products)


def unit_for(product: str, products: Products) -> PriceUnit:
    if product == CPU_ONLY:
        return PriceUnit.VCPU_HOUR
    is_slice = products[ProductName(product)].mig_profile is not None
    return PriceUnit.MIG_SLICE_HOUR if is_slice else PriceUnit.GPU_HOUR


# --- currencies --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Worth:
    """How a row's amounts become micro-USD, and what then vouches for them."""

    usd_micro: int
    source: str
    dated: date

    def of(self, amount_micro: int) -> int:
        return div_half_up(amount_micro * self.usd_micro, USD_MICRO)


def _worth(row: Dated, currency: str, rates: Mapping[str, RateRow]) -> Worth | None:
    if currency == USD:
        return Worth(USD_MICRO, row.source, row.dated)
    rate = rates.get(currency)
    if rate is None:
        return None
    return Worth(rate.usd, f"{row.source}; {currency} by {rate.source}", min(row.dated, rate.dated))


def _compute(row: ComputeRow, products: Products, worth: Worth) -> ComputePrice:
    product = canonical_product(row.product, products) or row.product
    in_usd = row.usd_per_hour
    return ComputePrice(
        provider=row.provider,
        region=RegionName(row.region),
        product=product,
        purchase=row.purchase,
        unit=unit_for(product, products),
        usd_micro_per_hour=in_usd if in_usd is not None else worth.of(row.per_hour or 0),
        source=worth.source,
        dated=worth.dated,
        minimum_billing_s=row.minimum_billing or 0,
        marginal_usd_micro_per_hour=worth.of(row.marginal_per_hour) if row.marginal_per_hour is not None else None,
        interruption_s=row.interrupted_after,
    )


def _requests(row: RequestRow, worth: Worth) -> RequestPrice:
    return RequestPrice(
        provider=row.provider,
        region=RegionName(row.region),
        usd_micro_per_million_reads=worth.of(row.reads_per_million),
        usd_micro_per_million_writes=worth.of(row.writes_per_million),
        object_bytes=row.object_size,
        source=worth.source,
        dated=worth.dated,
    )


def _carbon(row: CarbonRow | None, rates: Mapping[str, RateRow]) -> CarbonPrice | None:
    """Without its rate a carbon price is not known, and no choice by it can be made: it is as old as can be."""
    if row is None:
        return None
    worth = _worth(row, row.currency, rates)
    if worth is None:
        return CarbonPrice(0, f"{row.source}; no rate for {row.currency}", date.min)
    return CarbonPrice(worth.of(row.per_tonne), worth.source, worth.dated)


# --- routes ------------------------------------------------------------------------------------------------------


def egress_routes(rows: tuple[EgressRow, ...], regions: tuple[str, ...]) -> dict[tuple[str, str], EgressRow]:
    """The row that rules each pair of regions: its own, else the source's declared default `*` (FR-CFG-02).

    The default is for other regions: what moving within a region costs must be written out to be known.
    """
    found: dict[tuple[str, str], EgressRow] = {}
    for row in _exact_first(rows):
        if row.from_provider is None:
            for region in _targets(row, regions):
                found.setdefault((row.from_region, region), row)
    return found


def peering_routes(rows: tuple[EgressRow, ...], regions: tuple[str, ...]) -> dict[tuple[str, str, str, str], EgressRow]:
    """The same for the rows that name both providers: (provider, region) of source and target."""
    found: dict[tuple[str, str, str, str], EgressRow] = {}
    for row in _exact_first(rows):
        if row.from_provider is not None and row.to_provider is not None:
            for region in _targets(row, regions):
                found.setdefault((row.from_provider, row.from_region, row.to_provider, region), row)
    return found


def _exact_first(rows: tuple[EgressRow, ...]) -> list[EgressRow]:
    return sorted(rows, key=lambda row: row.to_region == ANY_OTHER)


def _targets(row: EgressRow, regions: tuple[str, ...]) -> tuple[str, ...]:
    if row.to_region != ANY_OTHER:
        return (row.to_region,)
    return tuple(region for region in regions if region != row.from_region)


def _egress(source: str, target: str, row: EgressRow, rates: Mapping[str, RateRow]) -> EgressPrice | None:
    worth = _worth(row, row.currency, rates)
    if worth is None:
        return None
    in_usd = row.usd_per_gb
    return EgressPrice(
        from_region=RegionName(source),
        to_region=RegionName(target),
        usd_micro_per_gb=in_usd if in_usd is not None else worth.of(row.per_gb or 0),
        bandwidth_mbit_s=row.bandwidth_mbit_s,
        source=worth.source,
        dated=worth.dated,
        tiers=tuple(EgressTier(tier.up_to, worth.of(tier.per_gb)) for tier in row.tiers),
        via=row.via or "",
    )
