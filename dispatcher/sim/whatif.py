"""What-if on the live queue: everything that waits in a snapshot, decided in order under the blueprint of now and under
a changed one, and what that changes by name.

Both passes run the production decision on the same fleet at the instant of the snapshot, each nomination holding what
it takes from those behind it, as a dispatch cycle would. Nothing is written anywhere. What other rules do to work that
runs is `policy diff`'s answer (core/impact.py); this one is about where the queue would go, and for how much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from dispatcher.core.decide import hold_of
from dispatcher.core.decision import Candidate, Decision
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import ClusterSnapshot, Snapshot
from dispatcher.core.stakes import Said, decide_knowing
from dispatcher.core.traffic import EMPTY
from dispatcher.core.work import Stage, Work, Workbook
from dispatcher.core.workload import Request


class Effect(StrEnum):
    """What another blueprint does to one workload of the queue. Stable codes, the worst first."""

    UNREADABLE = "unreadable"
    """Its queue or class is not in the changed plan, so that it could not be decided at all."""
    KEPT_BACK = "kept-back"
    """It would be nominated now, and would wait then."""
    RELEASED = "released"
    """It waits now, and would be nominated then."""
    ELSEWHERE = "elsewhere"
    DEARER = "dearer"
    CHEAPER = "cheaper"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Turn:
    """One workload of the queue under both blueprints. `then` None: it cannot be decided under the changed one."""

    key: str
    job: str
    effect: Effect
    now: Decision
    then: Decision | None

    @property
    def change_usd_micro(self) -> int | None:
        """What the chosen place costs more then; None where one of the two is not known."""
        before, after = cost_of(self.now), cost_of(self.then)
        return None if before is None or after is None else after - before

    @property
    def closed(self) -> Candidate | None:
        """The place that it has now, where the changed blueprint closes it: a law, or a cap on what it may cost."""
        if self.then is None or self.now.chosen is None or self.now.chosen == self.then.chosen:
            return None
        former = self.then.candidate(self.now.chosen)
        return former if former is not None and former.rejections else None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The whole queue, in deciding order. `unread` are workloads of which nothing can be said, before and after."""

    policy_now: str
    policy_then: str
    turns: tuple[Turn, ...]
    unread: tuple[str, ...] = ()

    def of(self, effect: Effect) -> tuple[Turn, ...]:
        return tuple(turn for turn in self.turns if turn.effect is effect)


NOTHING_SAID: Mapping[str, Said] = MappingProxyType({})


def what_if(book: Workbook, snapshot: Snapshot, changed: Policy, running: Mapping[str, Said] = NOTHING_SAID) -> WhatIf:
    """Decide the queue of a snapshot under the policy then in force and under a changed one. `running`: what the hub
    knows of work that a start might stop."""
    queue = [work for work in book.work if work.stage is Stage.QUEUED]
    now = _decided(queue, book, snapshot, book.policy, running)
    then = _decided(queue, book, without(snapshot, book.policy, changed), changed, running)
    turns = []
    for work in queue:
        before, after = now.get(work.request.uid), then.get(work.request.uid)
        if before is not None:
            turns.append(Turn(work.key, work.request.job_name, _effect(before, after), before, after))
    return WhatIf(book.policy.digest, changed.digest, tuple(turns), book.unread)


def without(snapshot: Snapshot, before: Policy, after: Policy) -> Snapshot:
    """The fleet as the changed blueprint knows it: what it no longer names is gone, what it adds nobody has seen."""
    gone = before.clusters.keys() - after.clusters.keys()
    clusters: tuple[ClusterSnapshot, ...] = tuple(c for c in snapshot.clusters if c.name not in gone)
    return replace(
        snapshot, clusters=clusters, holds=tuple(hold for hold in snapshot.holds if hold.cluster not in gone)
    )


def _decided(
    queue: Sequence[Work], book: Workbook, snapshot: Snapshot, policy: Policy, running: Mapping[str, Said]
) -> dict[WorkloadUid, Decision]:
    """One pass over the queue. Whoever is nominated takes its place from those behind it."""
    memo = CandidateMemo()
    found: dict[WorkloadUid, Decision] = {}
    seen = snapshot.amid(EMPTY)
    for work in queue:
        request = work.request
        if not _known(request, policy):
            continue
        decision = decide_knowing(request, seen, policy, book.taken_at, running, memo)
        hold = hold_of(decision, request, policy, book.taken_at, seen)
        if hold is not None:
            seen = seen.with_hold(hold)
        found[request.uid] = decision
    return found


def _known(request: Request, policy: Policy) -> bool:
    declared = request.declared.workload_class
    return (declared in policy.classes) if declared is not None else (request.hub_queue in policy.queues)


def _effect(now: Decision, then: Decision | None) -> Effect:
    if then is None:
        return Effect.UNREADABLE
    if now.chosen != then.chosen:
        if then.chosen is None:
            return Effect.KEPT_BACK
        return Effect.RELEASED if now.chosen is None else Effect.ELSEWHERE
    before, after = cost_of(now), cost_of(then)
    if before is None or after is None or before == after:
        return Effect.SAME
    return Effect.DEARER if after > before else Effect.CHEAPER


def cost_of(decision: Decision | None) -> int | None:
    """Expected cost of the chosen place in micro-USD; None where none was chosen."""
    if decision is None or decision.chosen is None:
        return None
    candidate = decision.candidate(decision.chosen)
    return candidate.total_usd_micro if candidate is not None else None
