"""Who was told to wait, and would be told so again: nobody needs to be decided on twice for one answer.

Thousands may wait while one cluster changes a little. Of each that waits is remembered what it met and, where it holds
out for a cheaper cluster, what would have been decided without that. While these say the same, so does a decision.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dispatcher.core.backfill import Opening
from dispatcher.core.context import Setting
from dispatcher.core.decide import setting_of, steps
from dispatcher.core.decision import Candidate, Decision, Outcome
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.opening import worth_waiting
from dispatcher.core.replay import Inputs
from dispatcher.core.snapshot import Snapshot
from dispatcher.core.traffic import Traffic, choose_ahead, waits_for_others
from dispatcher.core.workload import Request
from dispatcher.loops.hold_back import HoldBack
from dispatcher.loops.slices import Slices
from dispatcher.state import FleetState


class Pass(NamedTuple):
    """What one pass over those that wait decides with."""

    memo: CandidateMemo
    back: HoldBack
    slices: Slices


@dataclass(slots=True)
class Retelling:
    """What each that waits was told on, by workload. `unrecorded`: those whose newest wait is still to be recorded."""

    state: FleetState
    unrecorded: Container[WorkloadUid]
    roads: dict[WorkloadUid, Traffic] = field(default_factory=dict)
    """What stood between each that waits and its clusters, apart from these."""
    weighed: dict[WorkloadUid, Decision] = field(default_factory=dict)
    """Of each that was told of openings: what would have been decided without them."""

    async def newly_met(self, request: Request, snapshot: Snapshot, traffic: Traffic, now: Pass) -> Traffic | None:
        """What a request that has to be decided on meets, with what is reserved where that held it up before; None: it
        was told to wait, and would be told so again."""
        before, back = self.roads.get(request.uid), now.back
        if before is not None and before.reserved:
            if not before.openings and await self._held_up_as_before(request, snapshot, traffic, now):
                return None
            traffic = replace(traffic, reserved=await back.reserved(snapshot, now.slices.pause))
        if before is not None and before.openings and (soonest := min(o.start for o in before.openings)) > back.now:
            traffic = replace(traffic, openings=before.openings)  # until then, while nothing else changes
            back.turns.append(soonest)
        return None if await self._waits_as_before(request, snapshot, traffic, now) else traffic

    def known_openings(self, seen: Inputs, decision: Decision, back: HoldBack) -> tuple[Opening, ...]:
        """Those that it was told of last, while none has come and no candidate has become another: when one looks
        changes nothing."""
        uid = seen.request.uid
        met, before = self.roads.get(uid), self.weighed.get(uid)
        if met is None or not met.openings or before is None or _found(before) != _found(decision):
            return ()
        soonest = min(opening.start for opening in met.openings)
        back.turns.append(soonest)
        return met.openings if soonest > seen.now else ()

    async def _waits_as_before(self, request: Request, snapshot: Snapshot, traffic: Traffic, now: Pass) -> bool:
        """Whether the newest decision on a request says to wait, and another would say the same of the same: since
        nothing has changed, or since weighing anew where something has finds the same."""
        if self._told_to_wait(request) is None or self.roads.get(request.uid) != traffic:
            return False
        memo, policy = now.memo, self.state.policy
        memo.look(snapshot, policy, now.back.now)
        if memo.unchanged(request):
            return True
        if traffic.reserved:
            return False  # what is kept free depends on the instant
        for _ in steps(request, snapshot, policy, now.back.now, memo):
            await now.slices.pause()
        if not memo.found_again(request):
            return bool(traffic.openings) and await self._holds_out_again(request, snapshot, traffic, now)
        without = self.weighed.get(request.uid) if traffic.openings else None
        return without is None or not await now.back.in_the_way(request, without, snapshot, now.slices.pause)

    def _told_to_wait(self, request: Request) -> Decision | None:
        """The newest decision on just this version of a request, where it says to wait by the rules in force."""
        known = self.state.latest.get(request.uid)
        if known is None or known.outcome is not Outcome.WAIT or known.policy_digest != self.state.policy.digest:
            return None
        return known if known.resource_version == request.resource_version else None

    async def _held_up_as_before(self, request: Request, snapshot: Snapshot, traffic: Traffic, now: Pass) -> bool:
        """Whether a request that somebody ahead has held up would delay them still, everywhere where it fits: where
        the memo knows that without weighing, what is told of it may be a little older."""
        known, met = self._told_to_wait(request), self.roads[request.uid]
        if known is None or not met.like(traffic):
            return False
        now.memo.look(snapshot, self.state.policy, now.back.now)
        places = now.memo.places(request)
        if places is None:
            return False
        reserved = await now.back.reserved(snapshot, now.slices.pause)
        return all(now.back.delays(place, request, known, reserved) for place in places)

    async def _holds_out_again(self, request: Request, snapshot: Snapshot, traffic: Traffic, now: Pass) -> bool:
        """Whether a request that waits for a cheaper cluster would wait for one still, where but for amounts its
        candidates were just found as before: then what is told of it may be a little older, where the memo allows that.

        The same as deciding, in the same steps: what would be chosen now, whom that would delay, when which cluster
        has room, and whether waiting for it pays.
        """
        uid, candidates, before = request.uid, now.memo.weighed_anew(request), self.weighed.get(request.uid)
        if candidates is None or before is None or uid in self.unrecorded or not _alike(before.candidates, candidates):
            return False
        without = replace(before, candidates=candidates)
        if await now.back.in_the_way(request, without, snapshot, now.slices.pause):
            return False
        seen = Inputs(request, snapshot.amid(replace(traffic, openings=())), self.state.policy, now.back.now)
        openings = self.known_openings(seen, without, now.back)
        openings = openings or await now.back.openings(seen, without, now.slices.pause)
        if not _holds_out(setting_of(request, snapshot, seen.policy, seen.now), candidates, traffic, openings):
            return False
        self.weighed[uid], self.roads[uid] = without, replace(traffic, openings=openings)
        now.memo.told(request)
        return True


def _found(decision: Decision) -> object:
    return tuple((c.cluster, c.fit, c.total_usd_micro, c.rejections) for c in decision.candidates)


def _alike(before: tuple[Candidate, ...], after: tuple[Candidate, ...]) -> bool:
    return len(before) == len(after) and all(one.like(two) for one, two in zip(before, after, strict=True))


def _holds_out(
    setting: Setting, candidates: tuple[Candidate, ...], traffic: Traffic, openings: tuple[Opening, ...]
) -> bool:
    """Whether waiting for one of the openings pays, and nothing is sent ahead to where it comes."""
    found = worth_waiting(candidates, setting, openings)
    if found is None:
        return False
    limit, uid = setting.plan.look_ahead, setting.request.uid
    full = [c for c in candidates if c.cluster == found.opening.cluster and waits_for_others(c)] if limit else []
    return not limit or choose_ahead(uid, full, traffic, setting.plan.workload_class, limit) is None
