"""Reads the price book (design section 7). A price that is missing or too old is unknown, never zero.

All money is integer micro-USD. Products of amounts are formed first and divided once, rounded half up, so that a bill
is exact to the micro-dollar and the same on every machine.
"""

from __future__ import annotations

from datetime import date, datetime

from dispatcher.core.decision import Detail, Reason, Rejection, Resolver
from dispatcher.core.ids import RegionName
from dispatcher.core.policy import (
    ClusterPolicy,
    ComputePrice,
    EgressPrice,
    FlavorPolicy,
    PriceBook,
    PriceUnit,
    Purchase,
)

GB = 10**9
CPU_PRODUCT = "cpu"


def div_half_up(numerator: int, denominator: int) -> int:
    """`numerator / denominator` rounded to the nearest integer, halves up; both must be zero or more."""
    return (2 * numerator + denominator) // (2 * denominator)


def div_up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def is_old(dated: date, book: PriceBook, now: datetime) -> bool:
    return (now.date() - dated).days > book.max_age_days


def gpu_price(site: ClusterPolicy, flavor: FlavorPolicy, book: PriceBook, now: datetime) -> ComputePrice | Rejection:
    """The price of one GPU (or MIG slice) of a flavor for an hour, for the way that this flavor is paid for."""
    product = flavor.product or CPU_PRODUCT
    found = book.compute.get((site.provider, site.region, product, flavor.purchase))
    if found is None:
        return _unknown(site, product, flavor.purchase, flavor)
    return _fresh(found, book, now, product, flavor)


def cpu_price(site: ClusterPolicy, flavor: FlavorPolicy, book: PriceBook, now: datetime) -> ComputePrice | Rejection:
    """The price of a vCPU for an hour.

    Pods without GPUs on a GPU flavor pay for the CPU they take. Where the book has no CPU price for the purchase of
    that flavor, the dearest CPU price of the same place stands in: an estimate that is rather too high.
    """
    found = book.compute.get((site.provider, site.region, CPU_PRODUCT, flavor.purchase))
    if found is None and flavor.product is not None:
        others = [book.compute.get((site.provider, site.region, CPU_PRODUCT, purchase)) for purchase in Purchase]
        known = [price for price in others if price is not None]
        found = max(known, key=lambda p: (p.usd_micro_per_hour, p.purchase), default=None)
    if found is None or found.unit is not PriceUnit.VCPU_HOUR:
        return _unknown(site, CPU_PRODUCT, flavor.purchase, flavor)
    return _fresh(found, book, now, CPU_PRODUCT, flavor)


def _unknown(site: ClusterPolicy, product: str, purchase: Purchase, flavor: FlavorPolicy) -> Rejection:
    wanted = (site.provider, site.region, product, purchase.value)
    return Rejection(Reason.PRICE_UNKNOWN, Resolver.OPERATOR, Detail(product, flavor=flavor.name, expected=wanted))


def _fresh(
    price: ComputePrice, book: PriceBook, now: datetime, product: str, flavor: FlavorPolicy
) -> ComputePrice | Rejection:
    if not is_old(price.dated, book, now):
        return price
    limit = f"at most {book.max_age_days} days"
    detail = Detail(product, flavor=flavor.name, expected=(limit,), seen=(price.dated.isoformat(), price.source))
    return Rejection(Reason.PRICE_OLD, Resolver.OPERATOR, detail)


def egress_price(
    from_region: RegionName, to_region: RegionName, book: PriceBook, now: datetime
) -> EgressPrice | Reason | None:
    """The price of a route; PRICE_OLD for one that is too old, EGRESS_UNKNOWN for one that the book lacks.

    None: no price is needed, since the data does not leave its region and the book asks nothing for that.
    """
    found = book.egress.get((from_region, to_region))
    if found is None:
        return None if from_region == to_region else Reason.EGRESS_UNKNOWN
    return Reason.PRICE_OLD if is_old(found.dated, book, now) else found


def compute_amount(price: ComputePrice, quantity_milli: int, duration_s: int, speed_permille: int) -> int:
    """Micro-USD of `quantity_milli` thousandths of a unit for a run that takes `duration_s` at speed 1000.

    amount = quantity / 1000 x price / 3600 x duration x 1000 / speed, one division, half up.
    """
    return div_half_up(quantity_milli * price.usd_micro_per_hour * duration_s, 3600 * speed_permille)


def transfer_amount(price: EgressPrice, size_bytes: int, reads: int) -> int:
    """Micro-USD of moving a data set `reads` times over a route."""
    return div_half_up(size_bytes * reads * price.usd_micro_per_gb, GB)


def transfer_time_s(price: EgressPrice, size_bytes: int, reads: int) -> int | None:
    """Seconds that the route needs, rounded up; None where the book does not know its bandwidth."""
    if not price.bandwidth_mbit_s:
        return None
    return div_up(size_bytes * reads * 8, price.bandwidth_mbit_s * 10**6)
