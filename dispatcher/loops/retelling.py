"""Who was told to wait, and would be told so again: nobody needs to be decided on twice for one answer.

Thousands may wait while one cluster changes a little. Of each that waits is remembered what it met and, where it holds
out for a cheaper cluster, what would have been decided without that. While these say the same, so does a decision.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import is_
from typing import NamedTuple

from dispatcher.core.backfill import Opening, Reservation
from dispatcher.core.context import Setting
from dispatcher.core.decide import setting_of, steps
from dispatcher.core.decision import Candidate, Decision, Outcome, Reason
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


class Apart(NamedTuple):
    """What would have been decided without openings, and the candidates as they were last found: like those of the
    decision, and the same where it is of that instant."""

    decision: Decision
    candidates: tuple[Candidate, ...]
    found_at: datetime


class HeldUp(NamedTuple):
    """Where a request fitted and would have delayed somebody of those who had reserved. The later it starts, the more
    so: while these are the same, it need not be asked again."""

    places: tuple[Candidate, ...]
    reserved: tuple[Reservation, ...]

    def stands(self, places: tuple[Candidate, ...], reserved: tuple[Reservation, ...]) -> bool:
        same = reserved is self.reserved and len(places) == len(self.places)
        return same and all(map(is_, places, self.places))


@dataclass(slots=True)
class Retelling:
    """What each that waits was told on, by workload. `unrecorded`: those whose newest wait is still to be recorded."""

    state: FleetState
    unrecorded: Container[WorkloadUid]
    roads: dict[WorkloadUid, Traffic] = field(default_factory=dict)
    """What stood between each that waits and its clusters, apart from these."""
    apart: dict[WorkloadUid, Apart] = field(default_factory=dict)
    """Of each that was told of openings: what would have been decided without them."""
    held_up: dict[WorkloadUid, HeldUp] = field(default_factory=dict)

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

    def known_openings(self, seen: Inputs, candidates: tuple[Candidate, ...], back: HoldBack) -> tuple[Opening, ...]:
        """Those that it was told of last, while none has come and no candidate has become another: when one looks
        changes nothing."""
        uid = seen.request.uid
        met, before = self.roads.get(uid), self.apart.get(uid)
        if met is None or not met.openings or before is None or _found(before.candidates) != _found(candidates):
            return ()
        soonest = min(opening.start for opening in met.openings)
        back.turns.append(soonest)
        return met.openings if soonest > seen.now else ()

    async def _waits_as_before(self, request: Request, snapshot: Snapshot, traffic: Traffic, now: Pass) -> bool:
        """Whether the newest decision on a request says to wait, and another would say the same of the same: since
        nothing has changed, or since weighing anew where something has finds the same."""
        known = self._told_to_wait(request)
        if known is None:
            return False
        memo, policy = now.memo, self.state.policy
        memo.look(snapshot, policy, now.back.now)
        if self.roads.get(request.uid) != traffic:
            return await self._waits_again(request, known, snapshot, traffic, now)
        if memo.unchanged(request):
            return True
        if traffic.reserved:  # what is kept free depends on the instant
            return await self._waits_again(request, known, snapshot, traffic, now)
        for _ in steps(request, snapshot, policy, now.back.now, memo):
            await now.slices.pause()
        if not memo.found_again(request):
            return await self._waits_again(request, known, snapshot, traffic, now)
        without = self.apart.get(request.uid) if traffic.openings else None
        return without is None or not await now.back.in_the_way(request, without.decision, snapshot, now.slices.pause)

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
        before = self.held_up.get(request.uid)
        if before is not None and before.stands(places, reserved):
            return True
        found = all(now.back.delays(place, request, known, reserved) for place in places)
        if found:
            self.held_up[request.uid] = HeldUp(places, reserved)
        return found

    async def _waits_again(
        self, request: Request, known: Decision, snapshot: Snapshot, traffic: Traffic, now: Pass
    ) -> bool:
        """Whether a request that waits would be told to wait once more, and but for amounts in the same words: then
        what is told of it may be a little older, where the memo allows that.

        It takes the steps of a decision, and makes none: what fits now, whom that would delay, when a cheaper cluster
        has room, whether waiting for it pays, and whether it may queue where all is taken.
        """
        if known.kept is not None or traffic.keeps_back() is not None or request.uid in self.unrecorded:
            return False
        found = await self._weighed_anew(request, snapshot, now)
        if found is None:
            return False
        closed = [c for c in found if c.eligible and now.back.delays(c, request, known, traffic.reserved)]
        if [c.cluster for c in closed] != [c.cluster for c in known.candidates if _has(c, Reason.RESERVED)]:
            return False
        setting = setting_of(request, snapshot, self.state.policy, now.back.now)
        free = [c for c in found if c.eligible and c not in closed]
        if not free:
            if traffic.openings or _goes_ahead(setting, found, traffic):
                return False
            self.roads[request.uid] = traffic
        elif not await self._holds_out_again(setting, found, free, snapshot.amid(traffic), now):
            return False
        now.memo.told(request)
        return True

    async def _weighed_anew(self, request: Request, snapshot: Snapshot, now: Pass) -> tuple[Candidate, ...] | None:
        """The candidates as they are now, where they differ from those of the last decision in amounts at most."""
        for _ in steps(request, snapshot, self.state.policy, now.back.now, now.memo):
            await now.slices.pause()
        found = now.memo.weighed_anew(request)
        return found.after if found is not None and found.differ_in_amounts() else None

    async def _holds_out_again(
        self,
        setting: Setting,
        found: tuple[Candidate, ...],
        free: Sequence[Candidate],
        snapshot: Snapshot,
        now: Pass,
    ) -> bool:
        """Whether one that waits for a cheaper cluster, though these are free, would wait for one still."""
        request, traffic, before = setting.request, snapshot.traffic, self.apart.get(setting.request.uid)
        if before is None or not traffic.openings or (traffic.reserved and before.found_at == setting.now):
            return False
        without = before.decision
        if not traffic.reserved and await now.back.in_the_way(request, without, snapshot, now.slices.pause):
            return False
        seen = Inputs(request, snapshot.amid(replace(traffic, openings=())), setting.policy, setting.now)
        openings = self.known_openings(seen, found, now.back) if not traffic.reserved else ()
        openings = openings or await now.back.openings(seen, without, now.slices.pause)
        better = worth_waiting(free, found, setting, openings)
        if better is None or _goes_ahead(setting, [c for c in found if c.cluster == better.opening.cluster], traffic):
            return False
        self.apart[request.uid] = Apart(without, found, setting.now)
        self.roads[request.uid] = replace(traffic, openings=openings)
        return True

    def told_apart(self, decision: Decision) -> None:
        """What was decided before openings were looked at."""
        self.apart[decision.workload] = Apart(decision, decision.candidates, decision.decided_at)

    def keep(self, alive: Container[WorkloadUid]) -> None:
        """Drop what is remembered of workloads that are no longer on the hub."""
        cells: tuple[dict[WorkloadUid, object], ...] = (self.roads, self.apart, self.held_up)  # type: ignore[assignment]
        for cell in cells:
            for uid in [uid for uid in cell if uid not in alive]:
                del cell[uid]


def _goes_ahead(setting: Setting, candidates: Sequence[Candidate], traffic: Traffic) -> bool:
    """Whether it would be sent to one of these where others are to leave, to queue there."""
    limit = setting.plan.look_ahead
    if not limit or setting.request.already_nominated:
        return False
    full = [candidate for candidate in candidates if waits_for_others(candidate)]
    return choose_ahead(setting.request.uid, full, traffic, setting.plan.workload_class, limit) is not None


def _has(candidate: Candidate, reason: Reason) -> bool:
    return any(rejection.reason is reason for rejection in candidate.rejections)


def _found(candidates: tuple[Candidate, ...]) -> object:
    return [(c.cluster, c.fit, c.total_usd_micro, c.rejections) for c in candidates]
