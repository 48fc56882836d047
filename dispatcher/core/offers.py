"""What a candidate would take of each pod set, and by what it is billed. Worked out once for all terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dispatcher.core.decision import Detail, Reason, Rejection, Resolver
from dispatcher.core.ids import FlavorName
from dispatcher.core.policy import ClusterPolicy, ComputePrice, FlavorPolicy, PriceBook, PriceUnit
from dispatcher.core.prices import as_paid, cpu_price, div_half_up, gpu_price
from dispatcher.core.workload import PodSet, Request, WorkloadClass


@dataclass(frozen=True, slots=True)
class Offer:
    """One pod set on the flavor that it would take there.

    `milli` are thousandths of what it is billed by: its GPUs (MIG slices), or its cores where it has none. `speed` is
    in 1/1000. `price` None: no flavor accepts it, which the fit tells, or the cluster is not in the blueprint.
    """

    pod_set: PodSet
    flavor: FlavorPolicy | None
    has_gpus: bool
    milli: int
    speed: int
    price: ComputePrice | Rejection | None


def offers_of(
    request: Request,
    workload_class: WorkloadClass,
    site: ClusterPolicy | None,
    flavors: tuple[tuple[str, FlavorName], ...],
    book: PriceBook,
    dated: datetime,
) -> tuple[Offer, ...]:
    """One offer a pod set, in their order; `flavors` are those of the fit."""
    chosen = dict(flavors)
    found: list[Offer] = []
    for pod_set in request.pod_sets:
        gpus = pod_set.per_pod.gpus()
        milli = pod_set.count * pod_set.per_pod.billed_milli()
        name = chosen.get(pod_set.name)
        if site is None or name is None:
            found.append(Offer(pod_set, None, bool(gpus), milli, 1000, None))
            continue
        flavor = site.flavors.get(name)
        if flavor is None:
            missing = Detail(pod_set.name, flavor=name, expected=(name,))
            unknown = Rejection(Reason.PRICE_UNKNOWN, Resolver.OPERATOR, missing)
            found.append(Offer(pod_set, None, bool(gpus), milli, 1000, unknown))
            continue
        price = price_of(site, flavor, bool(gpus), book, dated)
        found.append(Offer(pod_set, flavor, bool(gpus), milli, flavor.speed(workload_class), price))
    return tuple(found)


def price_of(
    site: ClusterPolicy, flavor: FlavorPolicy, has_gpus: bool, book: PriceBook, dated: datetime
) -> ComputePrice | Rejection:
    """The price by which a pod set is billed on a flavor: cores pay for cores, and never stand for GPUs."""
    found = (gpu_price if has_gpus else cpu_price)(site, flavor, book, dated)
    if isinstance(found, Rejection):
        return found
    if has_gpus and found.unit is PriceUnit.VCPU_HOUR:
        wanted = (PriceUnit.GPU_HOUR.value,)
        detail = Detail(found.product, flavor=flavor.name, expected=wanted, seen=(found.unit.value,))
        return Rejection(Reason.PRICE_UNKNOWN, Resolver.OPERATOR, detail)
    return as_paid(found, flavor, dated)


def hourly_of(offers: Iterable[Offer]) -> int | None:
    """Micro-USD of one hour of the whole gang; None where a price is not known, which the run term tells."""
    total = 0
    for offer in offers:
        if not isinstance(offer.price, ComputePrice):
            return None
        total += offer.milli * offer.price.usd_micro_per_hour
    return div_half_up(total, 1000)


def lasting_s(offers: Iterable[Offer], duration_s: int) -> int:
    """How long a gang runs there that takes `duration_s` at speed 1000: as long as on its slowest flavor."""
    slowest = min([offer.speed for offer in offers if offer.flavor is not None], default=1000)
    return div_half_up(duration_s * 1000, slowest)
