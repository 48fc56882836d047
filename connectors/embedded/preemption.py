"""Whom a Workload may push out of its queue or cohort: a simple form of Kueue's preemption."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from connectors.embedded.manifests import FlavorResource
from connectors.embedded.objects import Assignment, Workload
from connectors.embedded.quota import QuotaNode

if TYPE_CHECKING:
    from connectors.embedded.kueue import ActiveQueue

_Victim = tuple["ActiveQueue", Workload]


def victims_for(
    workload: Workload, wanted: Assignment, queue: ActiveQueue, others: Sequence[ActiveQueue]
) -> list[Workload] | None:
    """The workloads to evict so that `workload` fits; None where evicting all candidates would not do.

    Those already on their way out count first and are not named again. Reclaiming from other queues of the cohort is
    for a queue that stays within its own quota; within the own queue it may borrow.
    """
    keys = {key for key, _ in wanted.usage}
    leaving = [(q, v) for q in (queue, *others) for v in q.reserved.values() if v.evicted_at is not None]
    own = [(queue, v) for v in queue.reserved.values() if _may_evict_own(queue, workload, v, keys)]
    cohort = [] if wanted.borrows else list(_cohort_candidates(workload, queue, others, keys))
    freed: list[_Victim] = []
    try:
        for victim in leaving:
            _give_back(victim, freed)
        if _fits(queue.node, wanted):
            return []
        chosen: list[_Victim] = []
        for victim in [*sorted(cohort, key=_order), *sorted(own, key=_order)]:
            if victim[0] is not queue and not _borrows(victim[0], keys):
                continue
            _give_back(victim, freed)
            chosen.append(victim)
            if _fits(queue.node, wanted):
                return [v for _, v in _spare(chosen, freed, queue.node, wanted)]
        return None
    finally:
        for source, victim_workload in freed:
            _use(source.node, victim_workload)


def _may_evict_own(queue: ActiveQueue, workload: Workload, victim: Workload, keys: set[FlavorResource]) -> bool:
    if victim.evicted_at is not None or not _touches(victim, keys):
        return False
    if queue.spec.within_queue == "Never":
        return False
    if victim.priority < workload.priority:
        return True
    newer = victim.priority == workload.priority and victim.queue_order_at > workload.queue_order_at
    return queue.spec.within_queue == "LowerOrNewerEqualPriority" and newer


def _cohort_candidates(
    workload: Workload, queue: ActiveQueue, others: Iterable[ActiveQueue], keys: set[FlavorResource]
) -> Iterable[_Victim]:
    if queue.spec.within_cohort == "Never":
        return
    for other in others:
        if not _borrows(other, keys):
            continue
        for victim in other.reserved.values():
            lower = victim.priority < workload.priority
            if victim.evicted_at is None and _touches(victim, keys) and (lower or queue.spec.within_cohort == "Any"):
                yield other, victim


def _order(victim: _Victim) -> tuple[int, float, int]:
    """Lowest priority first, then the one that started last."""
    workload = victim[1]
    assert workload.quota_reserved_at is not None
    return workload.priority, -workload.quota_reserved_at.timestamp(), -workload.seq


def _spare(chosen: list[_Victim], freed: list[_Victim], node: QuotaNode, wanted: Assignment) -> list[_Victim]:
    """Put back whoever need not go, those named first being the least wanted ones kept longest in the list."""
    needed = list(chosen)
    for victim in chosen[-2::-1]:
        _use(victim[0].node, victim[1])
        if _fits(node, wanted):
            needed.remove(victim)
            freed.remove(victim)
        else:
            _release(victim[0].node, victim[1])
    return needed


def _touches(victim: Workload, keys: set[FlavorResource]) -> bool:
    return victim.assignment is not None and any(key in keys for key, _ in victim.assignment.usage)


def _borrows(queue: ActiveQueue, keys: set[FlavorResource]) -> bool:
    return any(queue.node.borrows_with(key, 0) for key in keys)


def _fits(node: QuotaNode, wanted: Assignment) -> bool:
    return all(node.available(key) >= value for key, value in wanted.usage)


def _give_back(victim: _Victim, freed: list[_Victim]) -> None:
    _release(victim[0].node, victim[1])
    freed.append(victim)


def _release(node: QuotaNode, workload: Workload) -> None:
    assert workload.assignment is not None
    for key, value in workload.assignment.usage:
        node.give_back(key, value)


def _use(node: QuotaNode, workload: Workload) -> None:
    assert workload.assignment is not None
    for key, value in workload.assignment.usage:
        node.use(key, value)
