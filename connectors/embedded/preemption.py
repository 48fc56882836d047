"""Whom a Workload may push out of its queue or cohort: a simple form of Kueue's preemption."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from connectors.embedded.manifests import FlavorResource
from connectors.embedded.objects import Assignment, Workload
from connectors.embedded.quota import QuotaNode

if TYPE_CHECKING:
    from connectors.embedded.kueue import ActiveQueue

_Victim = tuple["ActiveQueue", Workload]
IN_QUEUE, RECLAIMED = "InClusterQueue", "InCohortReclamation"
"""Reasons of Kueue's Preempted condition."""


def victims_for(
    workload: Workload, wanted: Assignment, queue: ActiveQueue, others: Sequence[ActiveQueue]
) -> list[tuple[Workload, str]] | None:
    """The workloads to evict so that `workload` fits, each with the reason; None where evicting all candidates would
    not do.

    Those already on their way out count first and are not named again. Other queues of the cohort give back what a
    queue needs within its own quota, after its own work has given way; where it borrows, only a queue that may preempt
    while it does so takes from them.
    """
    keys = {key for key, value in wanted.usage if queue.node.available(key) < value}
    ask = _Ask(workload, wanted, queue, keys)
    cohort = list(_cohort_candidates(ask, others))
    leaving = [(q, v) for q in (queue, *others) for v in q.reserved.values() if v.evicted_at is not None]
    for borrowing in _attempts(ask, bool(cohort)):
        asked = [
            entry for entry in cohort if not (borrowing and wanted.borrows and not _while_borrowing(ask, entry[1]))
        ]
        found = _attempt(ask, leaving, asked, borrowing)
        if found is not None:
            return found
    return None


class _Ask(NamedTuple):
    """Who wants to start, with what, and of which of it there is not enough."""

    workload: Workload
    wanted: Assignment
    queue: ActiveQueue
    short: set[FlavorResource]

    def fits(self, borrowing: bool) -> bool:
        node, usage = self.queue.node, self.wanted.usage
        if not borrowing and any(node.borrows_with(key, value) for key, value in usage):
            return False
        return all(node.available(key) >= value for key, value in usage)


def _attempts(ask: _Ask, reclaims: bool) -> tuple[bool, ...]:
    """Whether the queue may borrow once all have gone, in Kueue's order."""
    if not reclaims:
        return (True,)
    if not ask.queue.spec.view.preempts_while_borrowing:
        if any(ask.queue.node.borrows_with(key, 1) for key in ask.short):
            return (True,)
        if ask.wanted.borrows:
            return (False, True)
    return (True, False)


def _attempt(
    ask: _Ask, leaving: Sequence[_Victim], cohort: Sequence[_Victim], borrowing: bool
) -> list[tuple[Workload, str]] | None:
    """Evict in order until it fits."""
    queue = ask.queue
    own = [(queue, v) for v in queue.reserved.values() if _may_evict_own(queue, ask.workload, v, ask.short)]
    freed: list[_Victim] = []
    try:
        for victim in leaving:
            _give_back(victim, freed)
        if ask.fits(borrowing):
            return []
        chosen: list[_Victim] = []
        for victim in [*sorted(cohort, key=_order), *sorted(own, key=_order)]:
            if victim[0] is not queue and not _borrows(victim[0], ask.short):
                continue
            _give_back(victim, freed)
            chosen.append(victim)
            if ask.fits(borrowing):
                named = _spare(chosen, freed, lambda: ask.fits(borrowing))
                return [(v, IN_QUEUE if source is queue else RECLAIMED) for source, v in named]
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


def _cohort_candidates(ask: _Ask, others: Iterable[ActiveQueue]) -> Iterable[_Victim]:
    within_cohort = ask.queue.spec.within_cohort
    if within_cohort == "Never":
        return
    for other in others:
        if not _borrows(other, ask.short):
            continue
        for victim in other.reserved.values():
            lower = victim.priority < ask.workload.priority
            if victim.evicted_at is None and _touches(victim, ask.short) and (lower or within_cohort == "Any"):
                yield other, victim


def _while_borrowing(ask: _Ask, victim: Workload) -> bool:
    """Whether it is evicted for somebody who borrows."""
    view = ask.queue.spec.view
    below = victim.priority < ask.workload.priority
    threshold = view.borrowing_threshold
    return view.preempts_while_borrowing and below and (threshold is None or victim.priority <= threshold)


def _order(victim: _Victim) -> tuple[int, float, int]:
    """Lowest priority first, then the one that started last."""
    workload = victim[1]
    assert workload.quota_reserved_at is not None
    return workload.priority, -workload.quota_reserved_at.timestamp(), -workload.seq


def _spare(chosen: list[_Victim], freed: list[_Victim], fits: Callable[[], bool]) -> list[_Victim]:
    """Put back whoever need not go, those named first being the least wanted ones kept longest in the list."""
    needed = list(chosen)
    for victim in chosen[-2::-1]:
        _use(victim[0].node, victim[1])
        if fits():
            needed.remove(victim)
            freed.remove(victim)
        else:
            _release(victim[0].node, victim[1])
    return needed


def _touches(victim: Workload, keys: set[FlavorResource]) -> bool:
    return victim.assignment is not None and any(key in keys for key, _ in victim.assignment.usage)


def _borrows(queue: ActiveQueue, keys: set[FlavorResource]) -> bool:
    return any(queue.node.borrows_with(key, 0) for key in keys)


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
