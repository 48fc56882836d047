"""Reads the price book (design section 7). A price that is missing or too old is unknown, never zero.

All money is integer micro-USD. Products of amounts are formed first and divided once, rounded half up, so that a bill
is exact to the micro-dollar and the same on every machine.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from math import isqrt

from dispatcher.core.decision import Detail, Reason, Rejection, Resolver
from dispatcher.core.ids import RegionName
from dispatcher.core.instants import LONGEST_S
from dispatcher.core.policy import (
    ClusterPolicy,
    ComputePrice,
    EgressPrice,
    FlavorPolicy,
    Measured,
    PriceBook,
    PriceUnit,
    Purchase,
    RequestPrice,
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


def as_paid(price: ComputePrice, flavor: FlavorPolicy, now: datetime) -> ComputePrice | Rejection:
    """The price of using capacity that a contract may have paid for already.

    As long as the contract runs, an hour more costs what using it costs (energy, say), where the book knows that:
    what is paid either way must not drive work to capacity that is paid once more. After its last day nobody knows.
    """
    if flavor.reserved_until is None:
        return price
    if now.date() > flavor.reserved_until:
        ended = f"under contract until {flavor.reserved_until.isoformat()}"
        detail = Detail(price.product, flavor=flavor.name, expected=(ended,), seen=(now.date().isoformat(),))
        return Rejection(Reason.PRICE_OLD, Resolver.OPERATOR, detail)
    if price.marginal_usd_micro_per_hour is None:
        return price
    source = f"{price.source}; paid until {flavor.reserved_until.isoformat()}, used or not"
    return replace(price, usd_micro_per_hour=price.marginal_usd_micro_per_hour, minimum_billing_s=0, source=source)


def compute_amount(
    price: ComputePrice, quantity_milli: int, duration_s: int, speed_permille: int, held_s: int = 0
) -> int:
    """Micro-USD of `quantity_milli` thousandths of a unit for a run that takes `duration_s` at speed 1000, and is held
    for `held_s` before its work begins.

    = quantity / 1000 x price / 3600 x (held + duration x 1000 / speed, or what is billed at least): one division.
    """
    billed = billed_milli_s(price, quantity_milli, duration_s, speed_permille, held_s)
    return div_half_up(billed * price.usd_micro_per_hour, 3600 * 1000 * speed_permille)


def billed_milli_s(
    price: ComputePrice, quantity_milli: int, duration_s: int, speed_permille: int, held_s: int = 0
) -> int:
    """Unit-seconds that are billed, x 1000 x speed: kept whole, so that a bill is rounded once."""
    return quantity_milli * max(duration_s * 1000 + held_s * speed_permille, price.minimum_billing_s * speed_permille)


# --- moving data -------------------------------------------------------------------------------------------------

Site = tuple[str, RegionName]
"""Where data leaves or arrives: a provider in a region."""


def egress_price(
    from_region: RegionName, to_region: RegionName, book: PriceBook, now: datetime
) -> EgressPrice | Reason | None:
    """The price of a route; PRICE_OLD for one that is too old, EGRESS_UNKNOWN for one that the book lacks.

    None: no price is needed, since the data does not leave its region and the book asks nothing for that.
    """
    found = book.egress.get((from_region, to_region))
    if found is None:
        return None if from_region == to_region else Reason.EGRESS_UNKNOWN
    if is_old(found.dated, book, now):
        return Reason.PRICE_OLD
    return as_measured(found, book, now)


def as_measured(price: EgressPrice, book: PriceBook, now: datetime) -> EgressPrice:
    """A route with the bandwidth that was measured on it, where that counts yet: it stands before the declared one."""
    found = book.measured.get((price.from_region, price.to_region))
    if found is None or found.at > now:
        return price
    if now >= measured_until(found, book):
        return replace(price, outdated_at=found.at)
    return replace(price, bandwidth_mbit_s=found.mbit_s, measured_at=found.at)


def measured_until(measured: Measured, book: PriceBook) -> datetime:
    """From when on it does not count any more."""
    return measured.at + timedelta(seconds=min(book.measured_max_age_s, LONGEST_S))


def route_price(source: Site, target: Site, book: PriceBook, now: datetime) -> EgressPrice | Reason | None:
    """As `egress_price`; a price of its own between two providers (a peering) goes before that of their regions.

    One that is too old does not fall back to the other: which of the two holds then, nobody knows.
    """
    if book.peerings:
        found = book.peerings.get((*source, *target))
        if found is not None:
            return Reason.PRICE_OLD if is_old(found.dated, book, now) else found
    return egress_price(source[1], target[1], book, now)


def request_price(store: Site, book: PriceBook, now: datetime) -> RequestPrice | Reason | None:
    """What a store asks for each request; None where it asks nothing, PRICE_OLD where that is not known any more."""
    found = book.requests.get(store) if book.requests else None
    return Reason.PRICE_OLD if found is not None and is_old(found.dated, book, now) else found


def transfer_amount(price: EgressPrice, size_bytes: int, reads: int) -> int:
    """Micro-USD of moving a data set `reads` times over a route.

    With tiers, each part of the whole costs the price of its tier, as if nothing else went that way in the month:
    what others have used up is not known, and the first tiers are the dear ones.
    """
    left, whole, below = size_bytes * reads, 0, 0
    for tier in price.tiers:
        part = min(left, tier.up_to_bytes - below)
        whole, left, below = whole + part * tier.usd_micro_per_gb, left - part, tier.up_to_bytes
        if not left:
            break
    return div_half_up(whole + left * price.usd_micro_per_gb, GB)


def mean_price(price: EgressPrice, size_bytes: int) -> int:
    """Micro-USD of 10^9 bytes of a transfer, over all of its tiers."""
    if not price.tiers or not size_bytes:
        return price.usd_micro_per_gb
    return div_half_up(transfer_amount(price, size_bytes, 1) * GB, size_bytes)


def requests_of(price: RequestPrice, size_bytes: int, objects: int | None) -> int:
    """How many requests it takes to read or write all of something once."""
    return objects if objects is not None else max(1, div_up(size_bytes, price.object_bytes))


def request_amount(usd_micro_per_million: int, requests: int) -> int:
    return div_half_up(usd_micro_per_million * requests, 10**6)


def transfer_time_s(price: EgressPrice, size_bytes: int, reads: int) -> int | None:
    """Seconds that the route needs, rounded up; None where the book does not know its bandwidth."""
    return carried_in_s(price.bandwidth_mbit_s, size_bytes * reads) if price.bandwidth_mbit_s else None


def carried_in_s(mbit_s: int, size_bytes: int) -> int:
    """Seconds for so many bytes, rounded up."""
    return div_up(size_bytes * 8, mbit_s * 10**6)


def taken_mbit_s(price: EgressPrice, book: PriceBook, now: datetime) -> int | None:
    """What a route is taken to carry: what is known of it, else as little as the slowest of which it is known. None:
    it is known of none.

    A route must not seem faster than others since nobody says what it carries.
    """
    return price.bandwidth_mbit_s or _slowest_mbit_s(book, now)


def _slowest_mbit_s(book: PriceBook, now: datetime) -> int | None:
    routes = (*(as_measured(price, book, now) for price in book.egress.values()), *book.peerings.values())
    return min((price.bandwidth_mbit_s for price in routes if price.bandwidth_mbit_s), default=None)


# --- interruptions and checkpoints ---------------------------------------------------------------------------------


_ONE = 1 << 80
_STEEP = 6
"""Beyond so many interruptions a stretch of work the loss grows with their square, as it does below one: such a run is
dear enough to be chosen by nobody, and its amount stays one."""


def lost_to_interruptions(lasting_s: int, stretch_s: int, restart_s: int, rate: tuple[int, int]) -> tuple[int, int]:
    """Seconds (numerator, denominator) that a run is expected to lose which lasts `lasting_s` by itself. Each
    interruption sets it back to where its stretch began (from one checkpoint to the next, or all of it), and it takes
    `restart_s` to go on from there. `rate`: interruptions a second (numerator, denominator), at any time alike.

    A stretch of s seconds with x = rate x s interruptions is begun e^x times, and takes s (e^x - 1) / x until it is
    done. Where interruptions are rare that is half a stretch lost to each; where they are not, far more.
    """
    count, whole = rate
    if not lasting_s or not stretch_s:
        return 0, 1
    again = _exp_less_one(_ONE * stretch_s * count // whole)
    lost = max(0, again * whole + (again * restart_s - stretch_s * _ONE) * count)
    return lasting_s * lost, stretch_s * count * _ONE


def _exp_less_one(x: int) -> int:
    """e^x - 1, both in 1 / _ONE: integers, so that it is the same on every machine."""
    most = _STEEP * _ONE
    found, part, at = 0, _ONE, 1
    while part:
        part = part * min(x, most) // (at * _ONE)
        found, at = found + part, at + 1
    return found if x <= most else found * x * x // (most * most)


def best_interval_s(write_s: int, mean_time_s: int) -> int | None:
    """The checkpoint interval that loses least, in seconds: sqrt(2 C M) - C for checkpoints that take C where the run
    is interrupted every M (Young 1974; the second term is of Daly 2006, for C < M / 2).

    None where a checkpoint takes half as long as the run lasts on average: then no interval helps.
    """
    if not 0 < 2 * write_s < mean_time_s:
        return None
    return max(1, isqrt(2 * write_s * mean_time_s) - write_s)
