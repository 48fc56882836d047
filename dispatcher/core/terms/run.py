"""What running costs: the GPU hours."""

from __future__ import annotations

from dispatcher.core.context import Context
from dispatcher.core.decision import Detail, Line, Reason, Rejection, Resolver, Term, TermKind
from dispatcher.core.ids import FlavorName
from dispatcher.core.policy import ClusterPolicy, ComputePrice, FlavorPolicy, PriceUnit
from dispatcher.core.prices import as_paid, billed_milli_s, compute_amount, cpu_price, div_half_up, gpu_price
from dispatcher.core.terms.bills import amount_milli, billed, placed, speed_of
from dispatcher.core.workload import PodSet

_UNITS = {
    PriceUnit.GPU_HOUR: "gpu-second",
    PriceUnit.MIG_SLICE_HOUR: "mig-slice-second",
    PriceUnit.VCPU_HOUR: "vcpu-second",
}
"""The quantity of a run line is in seconds of a unit, its unit price by the hour of the same unit."""


def run(context: Context) -> Term:
    """Pods x GPUs x price of the flavor x expected duration at the flavor's speed; pods without GPUs by vCPU.

    One price per concrete offer, the one of the flavor that the pods would take (FR-BUD-04). A provider that bills
    for an hour at least is paid an hour; capacity that is paid anyway costs what using it costs.
    """
    bill: list[Line] = []
    flavors = dict(context.fit.flavors)
    for pod_set in context.request.pod_sets:
        name = flavors.get(pod_set.name)
        if context.site is None or name is None:
            return Term(TermKind.RUN, None, tuple(bill))
        line = _line(context, context.site, pod_set, name)
        if isinstance(line, Rejection):
            return Term(TermKind.RUN, None, tuple(bill), line)
        bill.append(line)
    return billed(TermKind.RUN, bill)


def hourly(context: Context) -> int | None:
    """Micro-USD of one hour of the whole gang; None where a price is not known, which `run` tells."""
    total = 0
    for pod_set, flavor in placed(context):
        found = price_of(context, pod_set, flavor) if flavor is not None else None
        if not isinstance(found, ComputePrice):
            return None
        total += amount_milli(pod_set) * found.usd_micro_per_hour
    return div_half_up(total, 1000)


def price_of(context: Context, pod_set: PodSet, flavor: FlavorPolicy) -> ComputePrice | Rejection:
    """The price by which a pod set is billed on a flavor."""
    assert context.site is not None
    gpus = pod_set.per_pod.gpus()
    found = (gpu_price if gpus else cpu_price)(context.site, flavor, context.policy.prices, context.dated)
    if gpus and isinstance(found, ComputePrice) and found.unit is PriceUnit.VCPU_HOUR:
        detail = Detail(
            found.product, flavor=flavor.name, expected=(PriceUnit.GPU_HOUR.value,), seen=(found.unit.value,)
        )
        return Rejection(Reason.PRICE_UNKNOWN, Resolver.OPERATOR, detail)
    return as_paid(found, flavor, context.dated) if isinstance(found, ComputePrice) else found


def _line(context: Context, site: ClusterPolicy, pod_set: PodSet, name: FlavorName) -> Line | Rejection:
    flavor = site.flavors.get(name)
    if flavor is None:
        return Rejection(Reason.PRICE_UNKNOWN, Resolver.OPERATOR, Detail(pod_set.name, flavor=name, expected=(name,)))
    found = price_of(context, pod_set, flavor)
    if isinstance(found, Rejection):
        return found
    milli, speed = amount_milli(pod_set), speed_of(context, flavor)
    seconds = context.setting.estimate.duration_s
    billed_longer = found.minimum_billing_s * speed > seconds * 1000
    least = f", billed for {found.minimum_billing_s} s at least" if billed_longer else ""
    return Line(
        what=f"{pod_set.name} on {name}{least}",
        quantity=div_half_up(billed_milli_s(found, milli, seconds, speed), 1000 * speed),
        unit=_UNITS[found.unit],
        unit_price_usd_micro=found.usd_micro_per_hour,
        amount_usd_micro=compute_amount(found, milli, seconds, speed),
        source=found.source,
    )
