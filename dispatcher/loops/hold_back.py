"""What those ahead that cannot start keep free (core/backfill.py), worked out from the views of one pass.

Worked out only when somebody behind could start: while nothing fits anybody, a reservation is in nobody's way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dispatcher.core.backfill import Ask, Calendar, Expected, Option, Reservation, Schedule
from dispatcher.core.bids import bid_of
from dispatcher.core.decision import Basis, Candidate, Decision, Estimate, Outcome
from dispatcher.core.holds import live_holds
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.index import ClusterIndex, ViewIndex, holds_quota
from dispatcher.core.keeping import (
    Grounds,
    Part,
    Taker,
    calendar,
    grounds_of,
    lacks_only_room,
    option_of,
    parts_of,
    parts_of_usage,
    run_s,
)
from dispatcher.core.passing import delayed, ends_at, once_started
from dispatcher.core.snapshot import Hold, Snapshot, WorkerCopy, WorkerView
from dispatcher.core.workload import HubWorkload, Request
from dispatcher.loops.turns import Pause
from dispatcher.state import FleetState

SHOWN = 16
"""Of how many that wait, beside those that reserve, the start is worked out where somebody asks."""


@dataclass(slots=True)
class Memory:
    """What outlasts a pass: where each had reserved before, and what runs on each cluster."""

    former: dict[WorkloadUid, ClusterName] = field(default_factory=dict)
    _takers: dict[ClusterName, tuple[WorkerView, Mapping[WorkloadUid, HubWorkload], tuple[Taker, ...]]] = field(
        default_factory=dict
    )
    _by_key: tuple[Mapping[WorkloadUid, HubWorkload], dict[tuple[str, str], HubWorkload]] | None = None

    def keep(self, alive: Mapping[WorkloadUid, HubWorkload]) -> None:
        for uid in [uid for uid in self.former if uid not in alive]:
            del self.former[uid]

    def takers(self, view: WorkerView, state: FleetState) -> tuple[Taker, ...]:
        """Everything that has quota on a cluster, with what is known of its end."""
        workloads = state.hub_view().workloads
        known = self._takers.get(view.cluster)
        if known is not None and known[0].copies is view.copies and known[1] is workloads:
            return known[2]
        if self._by_key is None or self._by_key[0] is not workloads:
            self._by_key = (workloads, {(w.namespace, w.name): w for w in workloads.values() if not w.finished})
        ours = self._by_key[1]
        found = tuple(
            Taker(copy.cluster_queue, parts, begun_at, _estimate(copy, ours.get(key), state))
            for key, copy in view.copies.items()
            if holds_quota(copy)
            and (begun_at := copy.admitted_at or copy.quota_reserved_at) is not None
            and (parts := parts_of_usage(copy.pod_sets))
        )
        self._takers[view.cluster] = (view, workloads, found)
        return found


def _estimate(copy: WorkerCopy, workload: HubWorkload | None, state: FleetState) -> Estimate | None:
    """Of a copy of ours as its owner says, else by its class; of local work the default of its queue; else unknown."""
    if copy.ours and workload is not None:
        return estimate_of(workload, state)
    plan = state.policy.queues.get(copy.cluster_queue) if copy.cluster_queue is not None else None
    found = state.policy.classes.get(plan.default_class) if plan is not None else None
    return Estimate(found.default_duration_s, Basis.CLASS_DEFAULT) if found is not None else None


def estimate_of(workload: HubWorkload, state: FleetState) -> Estimate:
    decided = state.latest.get(workload.uid)
    if decided is not None:
        return decided.estimate
    owner = state.hub_view().owners.get(workload.owner.uid) if workload.owner is not None else None
    return bid_of(workload, owner, state.policy).estimate


@dataclass(slots=True)
class _Waiting:
    """A gang that waits, and where only room is lacking for it."""

    workload: HubWorkload
    decision: Decision
    options: tuple[tuple[Candidate, tuple[Part, ...]], ...]


_Here = tuple[_Waiting, Candidate, tuple[Part, ...]]
"""One that waits, a cluster where only room is lacking for it, and what it would take there."""


@dataclass(slots=True)
class HoldBack:
    """The reservations of one pass, in the order in which those that wait are passed."""

    state: FleetState
    views: ViewIndex
    memory: Memory
    now: datetime
    _waiting: list[_Waiting] = field(default_factory=list)
    _behind: list[_Waiting] = field(default_factory=list)
    """Those that reserve nothing."""
    _barren: set[int] = field(default_factory=set)
    """Candidates, by identity, among which nothing lacks but room; decisions that are newest keep them alive."""
    _made: tuple[Reservation, ...] = ()
    _counted: int = 0
    """How many of those that wait the reservations contain."""
    turns: list[datetime] = field(default_factory=list)
    """When, by time alone, the reservations of this pass would be made otherwise; empty where nobody asked for any."""

    def waits(self, workload: HubWorkload, decision: Decision) -> None:
        """A workload could not start; where it is a gang that only lacks room, it reserves."""
        reserves = len(self._waiting) < self.state.policy.order.reservations and _is_gang(workload)
        there = self._waiting if reserves else self._behind
        if not reserves and len(self._behind) >= SHOWN:
            return
        if decision.outcome is not Outcome.WAIT or id(decision.candidates) in self._barren:
            return
        options = tuple(
            (candidate, parts)
            for candidate in decision.candidates
            if lacks_only_room(candidate) and (parts := parts_of(candidate, workload.pod_sets))
        )
        if options:
            there.append(_Waiting(workload, decision, options))
        else:
            self._barren.add(id(decision.candidates))

    async def in_the_way(
        self, request: Request, decision: Decision, snapshot: Snapshot, pause: Pause
    ) -> tuple[Reservation, ...]:
        """All reservations, where the nomination that was decided would delay one of them; else none."""
        candidate = decision.candidate(decision.chosen) if decision.chosen is not None else None
        if candidate is None or not self._waiting:
            return ()
        reserved = await self.reserved(snapshot, pause)
        until = ends_at(candidate, decision.estimate, self.state.policy, self.now)
        return reserved if delayed(candidate, request.pod_sets, until, reserved) is not None else ()

    def started(self, request: Request, decision: Decision) -> None:
        """A nomination is on its way: what it takes is no longer left over."""
        candidate = decision.candidate(decision.chosen) if decision.chosen is not None else None
        if candidate is not None and self._made:
            until = ends_at(candidate, decision.estimate, self.state.policy, self.now)
            self._made = once_started(candidate, request.pod_sets, until, self._made)

    async def reserved(self, snapshot: Snapshot, pause: Pause) -> tuple[Reservation, ...]:
        """What is reserved by all who were passed so far. `pause` is awaited cluster by cluster."""
        if self._counted != len(self._waiting):
            plan = Schedule({}, self.now, self.memory.former)
            for _ in self._plan(snapshot, self._waiting, plan):
                await pause()
            self._made, self._counted = plan.reservations(), len(self._waiting)
            if (until := plan.until()) is not None:
                self.turns.append(until)
            self.memory.former.update({made.holder: made.cluster for made in self._made})
        return self._made

    def _plan(self, snapshot: Snapshot, line: Sequence[_Waiting], plan: Schedule) -> Iterator[None]:
        """Reserve for all of a line, a cluster or a gang in each step."""
        workers = {c.name: c.worker for c in snapshot.clusters}
        holds = live_holds(snapshot.holds, workers, self.now)
        names = sorted({candidate.cluster for each in line for candidate, _ in each.options})
        options: dict[WorkloadUid, list[Option]] = {}
        for name in names:
            cluster = snapshot.cluster(name)
            index = self.views.of(cluster) if cluster is not None else None
            if index is not None:
                there = tuple(hold for hold in holds if hold.cluster == name)
                here = [
                    (each, candidate, parts)
                    for each in line
                    for candidate, parts in each.options
                    if candidate.cluster == name and candidate.queue is not None
                ]
                plan.calendars[name] = self._calendar(here, index, there)
                self._options(here, index, options)
                yield
        for each in line:
            uid = each.workload.uid
            plan.reserve(Ask(uid, each.workload.key, tuple(options.get(uid, ()))))
            yield

    def _calendar(self, here: Sequence[_Here], index: ClusterIndex, holds: tuple[Hold, ...]) -> Calendar:
        takers = (*self.memory.takers(index.view, self.state), *(self._promised(hold) for hold in holds))
        return calendar(_grounds(here, index), index, holds, takers, self.now)

    def _options(self, here: Sequence[_Here], index: ClusterIndex, options: dict[WorkloadUid, list[Option]]) -> None:
        """What each that waits would take of a cluster."""
        grounds, site = _grounds(here, index), self.state.policy.clusters.get(index.view.cluster)
        for each, candidate, parts in here:
            option = option_of(candidate, parts, run_s(each.decision.estimate, candidate, site), grounds, index)
            if option is not None:
                options.setdefault(each.workload.uid, []).append(option)

    def _promised(self, hold: Hold) -> Taker:
        decided = self.state.latest.get(hold.workload)
        return Taker(hold.queue, parts_of_usage(hold.usage), hold.made_at, decided.estimate if decided else None)

    def expected(self, snapshot: Snapshot) -> dict[WorkloadUid, Expected]:
        """The starts of the first that wait, for people: of those that reserve, and of some more behind them."""
        reserving = {each.workload.uid for each in self._waiting}
        plan = Schedule({}, self.now, self.memory.former)
        for _ in self._plan(snapshot, [*self._waiting, *self._behind], plan):
            pass
        return {
            made.holder: Expected(made.start, made.cluster, made.basis, made.overdue, made.holder in reserving)
            for made in plan.reservations()
        }


def _grounds(here: Sequence[_Here], index: ClusterIndex) -> Grounds:
    return grounds_of([(c.queue, parts) for _, c, parts in here if c.queue is not None], index)


def _is_gang(workload: HubWorkload) -> bool:
    """Whether anything smaller could pass it: a single GPU is taken or not."""
    return sum(pod_set.count * max(1, pod_set.per_pod.gpus()) for pod_set in workload.pod_sets) > 1
