"""What the terms share: how a bill becomes a term, and how long a run is on a flavor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatcher.core.context import Context
from dispatcher.core.decision import Line, Term, TermKind
from dispatcher.core.policy import FlavorPolicy
from dispatcher.core.prices import div_half_up
from dispatcher.core.resources import CPU
from dispatcher.core.workload import PodSet


def billed(kind: TermKind, bill: Iterable[Line]) -> Term:
    lines = tuple(bill)
    return Term(kind, sum([line.amount_usd_micro for line in lines]), lines)


def delay_line(what: str, seconds: int, hourly_usd_micro: int, source: str = "") -> Line:
    """Seconds at a price by the hour."""
    amount = div_half_up(seconds * hourly_usd_micro, 3600)
    return Line(what, seconds, "second", hourly_usd_micro, amount, source)


def placed(context: Context) -> Iterator[tuple[PodSet, FlavorPolicy | None]]:
    """Every pod set with the flavor that it would take; None where none accepts it, or the blueprint lacks it."""
    flavors = dict(context.fit.flavors)
    for pod_set in context.request.pod_sets:
        name = flavors.get(pod_set.name)
        known = context.site.flavors.get(name) if context.site is not None and name is not None else None
        yield pod_set, known


def speed_of(context: Context, flavor: FlavorPolicy) -> int:
    return flavor.speed(context.setting.plan.workload_class)


def amount_milli(pod_set: PodSet) -> int:
    """Thousandths of what a pod set is billed by: its GPUs (MIG slices), or its cores where it has none."""
    gpus = pod_set.per_pod.gpus()
    return pod_set.count * (gpus * 1000 if gpus else pod_set.per_pod.get(CPU))
