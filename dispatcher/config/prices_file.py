"""prices.yaml: a dated price book. What is not in it has no price: unknown, never zero."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dispatcher.config.values import Choice, Day, Duration, Positive, Strict, Text, Usd, Word
from dispatcher.core.policy import PriceUnit, Purchase


class ComputeRow(Strict):
    """The price of one GPU, MIG slice or vCPU for an hour."""

    provider: Annotated[Word, Field(description="One of fleet.yaml's providers.")]
    region: Annotated[Word, Field(description="One of fleet.yaml's regions.")]
    product: Annotated[Text, Field(description="Canonical product, or cpu.")]
    purchase: Annotated[Choice[Purchase], Field(description="internal, reserved, on-demand or spot.")]
    unit: Annotated[
        Choice[PriceUnit] | None, Field(description="gpu-hour, mig-slice-hour or vcpu-hour; follows from the product.")
    ] = None
    usd_per_hour: Annotated[Usd, Field(description="USD for one unit; at most 6 decimals.")]
    minimum_billing: Annotated[Duration | None, Field(description="The shortest time that is billed.")] = None
    source: Annotated[Text, Field(description="Where the price is from.")]
    dated: Annotated[Day, Field(description="When it was true.")]


class EgressRow(Strict):
    """Moving data out of one region into another."""

    from_region: Annotated[Word, Field(description="One of fleet.yaml's regions.")]
    to_region: Annotated[
        Text, Field(description="One of fleet.yaml's regions, or * for every other region without a row of its own.")
    ]
    usd_per_gb: Annotated[Usd, Field(description="USD for 10^9 bytes.")]
    bandwidth_mbit_s: Annotated[Positive | None, Field(description="What the route carries; absent = not known.")] = (
        None
    )
    source: Annotated[Text, Field(description="Where the price is from.")]
    dated: Annotated[Day, Field(description="When it was true.")]


class PricesFile(Strict):
    """Prices of computing and of moving data."""

    max_age_days: Annotated[Positive, Field(description="An older price is not used.")]
    compute: Annotated[tuple[ComputeRow, ...], Field(description="One row a provider, region, product and purchase.")]
    egress: Annotated[tuple[EgressRow, ...], Field(description="One row a pair of regions, or with to_region: '*'.")]
