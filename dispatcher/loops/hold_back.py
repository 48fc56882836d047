"""What those ahead that cannot start keep free (core/backfill.py), worked out from the views of one pass.

Worked out only when somebody behind could start: while nothing fits anybody, a reservation is in nobody's way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import is_
from typing import NamedTuple

from dispatcher.core.backfill import SHOWN, Amounts, Ask, Calendar, Expected, Opening, Option, Reservation, Schedule
from dispatcher.core.bids import bid_of
from dispatcher.core.context import Setting, class_of
from dispatcher.core.decision import Basis, Candidate, Decision, Estimate, Outcome, Reason
from dispatcher.core.holds import live_holds
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.index import ClusterIndex, ViewIndex, holds_quota
from dispatcher.core.keeping import (
    Grounds,
    Part,
    Taker,
    calendar,
    free_of,
    grounds_of,
    lacks_only_room,
    option_of,
    parts_of,
    parts_of_usage,
    run_s,
)
from dispatcher.core.opening import cheaper_elsewhere
from dispatcher.core.passing import delayed, ends_at, once_started
from dispatcher.core.replay import Inputs
from dispatcher.core.snapshot import Hold, Snapshot, WorkerCopy, WorkerView
from dispatcher.core.workload import HubWorkload, PodSet, Request, WorkloadClass
from dispatcher.loops.turns import Pause
from dispatcher.state import FleetState

_Options = tuple[tuple[Candidate, tuple[Part, ...]], ...]


class _Asks(NamedTuple):
    """What a line asks for, and the calendars of the clusters there as they were made, in their order."""

    line: list[Ask]
    calendars: list[Calendar]


class _Moment(NamedTuple):
    state: FleetState
    now: datetime


class _Running(NamedTuple):
    """What has quota on a cluster: every copy, the Workload that it was made for, and what it takes, if anything."""

    copies: Mapping[tuple[str, str], WorkerCopy]
    workloads: Mapping[WorkloadUid, HubWorkload]
    each: Mapping[tuple[str, str], tuple[WorkerCopy, HubWorkload | None, Taker | None]]
    takers: tuple[Taker, ...]


class _Kept(NamedTuple):
    """A calendar, and all that it was made of but the time."""

    made_of: tuple[Grounds, Amounts, tuple[Taker, ...]]
    takers: tuple[Taker, ...]
    calendar: Calendar


class _Planned(NamedTuple):
    """Reservations, with whose they are, by which calendars they were made, and until when they would be made again."""

    asks: tuple[Ask, ...]
    calendars: tuple[Calendar, ...]
    until: datetime | None
    made: tuple[Reservation, ...]

    def stands(self, calendars: tuple[Calendar, ...], now: datetime) -> bool:
        same = len(calendars) == len(self.calendars) and all(map(is_, calendars, self.calendars))
        return same and (self.until is None or now < self.until)


@dataclass(slots=True)
class Memory:
    """What outlasts a pass: where each had reserved before, what runs on each cluster, and when that is to end."""

    former: dict[WorkloadUid, ClusterName] = field(default_factory=dict)
    _running: dict[ClusterName, _Running] = field(default_factory=dict)
    _by_key: tuple[Mapping[WorkloadUid, HubWorkload], dict[tuple[str, str], HubWorkload]] | None = None
    _calendars: dict[ClusterName, _Kept] = field(default_factory=dict)
    _planned: dict[int, _Planned] = field(default_factory=dict)
    """By how many have reserved."""
    _options: dict[WorkloadUid, tuple[tuple[Candidate, ...], tuple[PodSet, ...], _Options]] = field(
        default_factory=dict
    )

    def keep(self, alive: Mapping[WorkloadUid, HubWorkload]) -> None:
        for remembered in (self.former, self._options):
            for uid in [uid for uid in remembered if uid not in alive]:
                del remembered[uid]

    def options(self, workload: HubWorkload, candidates: tuple[Candidate, ...]) -> _Options:
        """Where only room is lacking for a workload, and what it would take there."""
        known = self._options.get(workload.uid)
        if known is None or known[0] is not candidates or known[1] is not workload.pod_sets:
            found = tuple(
                (candidate, parts)
                for candidate in candidates
                if lacks_only_room(candidate) and (parts := parts_of(candidate, workload.pod_sets))
            )
            known = self._options[workload.uid] = (candidates, workload.pod_sets, found)
        return known[2]

    def takers(self, view: WorkerView, state: FleetState) -> tuple[Taker, ...]:
        """Everything that has quota on a cluster, with what is known of its end: one object while it is the same."""
        workloads = state.hub_view().workloads
        known = self._running.get(view.cluster)
        if known is not None and known.copies is view.copies and known.workloads is workloads:
            return known.takers
        if self._by_key is None or self._by_key[0] is not workloads:
            self._by_key = (workloads, {(w.namespace, w.name): w for w in workloads.values() if not w.finished})
        ours, before, each = self._by_key[1], known.each if known is not None else {}, {}
        for key, copy in view.copies.items():
            workload, entry = ours.get(key), before.get(key)
            if entry is None or entry[0] is not copy or entry[1] is not workload:
                taker = _taker(copy, workload, view.cluster, state)
                entry = (copy, workload, entry[2] if entry is not None and entry[2] == taker else taker)
            each[key] = entry
        takers = tuple([taker for _, _, taker in each.values() if taker is not None])
        if known is not None and len(takers) == len(known.takers) and all(map(is_, takers, known.takers)):
            takers = known.takers
        self._running[view.cluster] = _Running(view.copies, workloads, each, takers)
        return takers

    def calendar(
        self,
        index: ClusterIndex,
        grounds: Grounds,
        holds: tuple[Hold, ...],
        promised: tuple[Taker, ...],
        moment: _Moment,
    ) -> tuple[Calendar, Calendar]:
        """The calendar of a cluster now, and as it was made: anew only where something it is made of is another."""
        takers, now = self.takers(index.view, moment.state), moment.now
        made_of = (grounds, free_of(grounds, index, holds), promised)
        known = self._calendars.get(index.view.cluster)
        if known is not None and known.takers is takers and known.made_of == made_of:
            found = known.calendar.at(now)
            if found is not None:
                return found, known.calendar
        found = calendar(grounds, made_of[1], (*takers, *promised), now)
        self._calendars[index.view.cluster] = _Kept(made_of, takers, found)
        return found, found

    def planned(self, plan: Schedule, asks: tuple[Ask, ...], calendars: tuple[Calendar, ...]) -> _Planned:
        """All reservations of a line: made anew only where a calendar as it was made, or somebody in it, is another."""
        known = self._planned.get(len(asks))
        if known is None or known.asks != asks or not known.stands(calendars, plan.now):
            for ask in asks:
                plan.reserve(ask)
            known = self._planned[len(asks)] = _Planned(asks, calendars, plan.until(), plan.reservations())
            self.former.update({made.holder: made.cluster for made in known.made})
        return known

    def forget(self) -> None:
        self.former.clear()
        self._planned.clear()


def _taker(copy: WorkerCopy, workload: HubWorkload | None, cluster: ClusterName, state: FleetState) -> Taker | None:
    begun_at = copy.admitted_at or copy.quota_reserved_at
    if not holds_quota(copy) or begun_at is None or not (parts := parts_of_usage(copy.pod_sets)):
        return None
    return Taker(copy.cluster_queue, parts, begun_at, _estimate(copy, workload, parts, cluster, state))


def _estimate(
    copy: WorkerCopy, workload: HubWorkload | None, parts: Sequence[Part], cluster: ClusterName, state: FleetState
) -> Estimate | None:
    """Of a copy of ours as its owner says, else by its class; of local work the default of its queue; else unknown."""
    plan = state.policy.queues.get(copy.cluster_queue) if copy.cluster_queue is not None else None
    usual = plan.default_class if plan is not None else None
    if copy.ours and workload is not None:
        decided = state.latest.get(workload.uid)
        kind = _class_of(decided) if decided is not None else usual
        return _there(estimate_of(workload, state), parts, kind, cluster, state)
    found = state.policy.classes.get(usual) if usual is not None else None
    if found is None:
        return None
    return _there(Estimate(found.default_duration_s, Basis.CLASS_DEFAULT), parts, usual, cluster, state)


def _there(
    estimate: Estimate, parts: Sequence[Part], kind: WorkloadClass | None, cluster: ClusterName, state: FleetState
) -> Estimate:
    """The run time on the flavors that it has there."""
    site = state.policy.clusters.get(cluster)
    return replace(estimate, duration_s=run_s(estimate, [part.flavor for part in parts], site, kind))


def _class_of(decision: Decision) -> WorkloadClass | None:
    """None: a class that only another version knows."""
    return next((known for known in WorkloadClass if known.value == decision.workload_class), None)


def estimate_of(workload: HubWorkload, state: FleetState) -> Estimate:
    decided = state.latest.get(workload.uid)
    if decided is not None:
        return decided.estimate
    owner = state.hub_view().owners.get(workload.owner.uid) if workload.owner is not None else None
    return bid_of(workload, owner, state.policy, state.usual).estimate


@dataclass(slots=True)
class _Waiting:
    """One that waits, and where only room is lacking for it."""

    uid: WorkloadUid
    key: str
    decision: Decision
    options: _Options


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
    beyond: set[WorkloadUid] = field(default_factory=set)
    """Those of whom nobody works out when they start: too many wait before them."""
    _made: tuple[Reservation, ...] = ()
    _counted: int = 0
    """How many of those that wait the reservations contain."""
    turns: list[datetime] = field(default_factory=list)
    """When, by time alone, the reservations of this pass would be made otherwise, or an opening has come; empty where
    nobody asked for any."""

    def waits(self, workload: HubWorkload, decision: Decision) -> None:
        """A workload could not start; where it is a gang that only lacks room, it reserves."""
        reserves = len(self._waiting) < self.state.policy.order.reservations and _is_gang(workload)
        reserves = reserves and not _by_choice(decision)
        there = self._waiting if reserves else self._behind
        if not reserves and len(self._behind) >= SHOWN:
            self.beyond.add(workload.uid)
            return
        if decision.outcome is not Outcome.WAIT or id(decision.candidates) in self._barren:
            return
        options = self.memory.options(workload, decision.candidates)
        if options:
            there.append(_Waiting(workload.uid, workload.key, decision, options))
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
        return reserved if self.delays(candidate, request, decision, reserved) else ()

    def delays(
        self, candidate: Candidate, request: Request, decision: Decision, reserved: Sequence[Reservation]
    ) -> bool:
        """Whether starting there now would delay one of those who have reserved."""
        until = self._ends_at(candidate, decision)
        return delayed(candidate, request.pod_sets, until, reserved) is not None

    def started(self, request: Request, decision: Decision) -> None:
        """A nomination is on its way: what it takes is no longer left over."""
        candidate = decision.candidate(decision.chosen) if decision.chosen is not None else None
        if candidate is not None and self._made:
            until = self._ends_at(candidate, decision)
            self._made = once_started(candidate, request.pod_sets, until, self._made)

    def _ends_at(self, candidate: Candidate, decision: Decision) -> datetime:
        return ends_at(candidate, decision.estimate, self.state.policy, self.now, _class_of(decision))

    async def reserved(self, snapshot: Snapshot, pause: Pause) -> tuple[Reservation, ...]:
        """What is reserved by all who were passed so far. `pause` is awaited cluster by cluster."""
        if self._counted != len(self._waiting):
            plan, asks = Schedule({}, self.now, self.memory.former), _Asks([], [])
            for _ in self._ask(snapshot, self._waiting, plan, asks):
                await pause()
            found = self.memory.planned(plan, tuple(asks.line), tuple(asks.calendars))
            self._made, self._counted = found.made, len(self._waiting)
            if found.until is not None:
                self.turns.append(found.until)
        return self._made

    async def openings(self, seen: Inputs, decision: Decision, pause: Pause) -> tuple[Opening, ...]:
        """When the clusters have room that are full and cheaper than the chosen one, behind those who wait for them.

        None where too many wait: then nobody knows, and it is late.
        """
        chosen = decision.candidate(decision.chosen) if decision.chosen is not None else None
        if chosen is None or seen.request.already_nominated or len(self._behind) >= SHOWN:
            return ()
        plan = seen.policy.classes[class_of(seen.request, seen.policy)]
        setting = Setting(seen.request, seen.policy, seen.now, plan, decision.estimate)
        full = tuple(c for c in decision.candidates if lacks_only_room(c))
        options = tuple(
            (c, parts)
            for c in cheaper_elsewhere(full, chosen, setting)
            if (parts := parts_of(c, seen.request.pod_sets))
        )
        if not options:
            return ()
        names = {c.cluster for c, _ in options}
        ahead = [each for each in (*self._waiting, *self._behind) if names & {c.cluster for c, _ in each.options}]
        line = [*ahead, _Waiting(seen.request.uid, seen.request.key, decision, options)]
        schedule, asks = Schedule({}, self.now, self.memory.former), _Asks([], [])
        for _ in self._ask(seen.snapshot, line, schedule, asks):
            await pause()
        *before, own = asks.line
        for ask in before:
            schedule.reserve(ask)
        known = (schedule.opening(option) for option in own.options)
        openings = tuple(opening for opening in known if opening is not None)
        self.turns += [opening.start for opening in openings]
        return openings

    def _ask(self, snapshot: Snapshot, line: Sequence[_Waiting], plan: Schedule, asks: _Asks) -> Iterator[None]:
        """The calendars that all of a line would reserve in, a cluster in each step, and what they ask for."""
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
                grounds = grounds_of([(c.queue, parts) for _, c, parts in here if c.queue is not None], index)
                plan.calendars[name], as_made = self._calendar(grounds, index, there)
                asks.calendars.append(as_made)
                self._options(here, name, grounds, options)
                yield
        for each in line:
            asks.line.append(Ask(each.uid, each.key, tuple(options.get(each.uid, ()))))

    def _calendar(self, grounds: Grounds, index: ClusterIndex, holds: tuple[Hold, ...]) -> tuple[Calendar, Calendar]:
        promised = tuple(self._promised(hold) for hold in holds)
        return self.memory.calendar(index, grounds, holds, promised, _Moment(self.state, self.now))

    def _options(
        self, here: Sequence[_Here], name: ClusterName, grounds: Grounds, options: dict[WorkloadUid, list[Option]]
    ) -> None:
        """What each that waits would take of a cluster."""
        site = self.state.policy.clusters.get(name)
        for each, candidate, parts in here:
            lasts_s = run_s(each.decision.estimate, [p.flavor for p in parts], site, _class_of(each.decision))
            option = option_of(candidate, parts, lasts_s, grounds)
            if option is not None:
                options.setdefault(each.uid, []).append(option)

    def _promised(self, hold: Hold) -> Taker:
        decided, parts = self.state.latest.get(hold.workload), parts_of_usage(hold.usage)
        if decided is None:
            return Taker(hold.queue, parts, hold.made_at, None)
        there = _there(decided.estimate, parts, _class_of(decided), hold.cluster, self.state)
        return Taker(hold.queue, parts, hold.made_at, there)

    def expected(self, snapshot: Snapshot) -> dict[WorkloadUid, Expected]:
        """The starts of the first that wait, for people: of those that reserve, and of some more behind them."""
        reserving = {each.uid for each in self._waiting}
        plan, asks = Schedule({}, self.now, self.memory.former), _Asks([], [])
        for _ in self._ask(snapshot, [*self._waiting, *self._behind], plan, asks):
            pass
        for ask in asks.line:
            plan.reserve(ask)
        return {
            made.holder: Expected(made.start, made.cluster, made.basis, made.overdue, made.holder in reserving)
            for made in plan.reservations()
        }


def _by_choice(decision: Decision) -> bool:
    """Whether it could start somewhere: then nothing is kept free for it."""
    return any(r.reason is Reason.WORTH_WAITING for c in decision.candidates for r in c.rejections)


def _is_gang(workload: HubWorkload) -> bool:
    """Whether anything smaller could pass it: a single GPU is taken or not."""
    return sum(pod_set.count * max(1, pod_set.per_pod.gpus()) for pod_set in workload.pod_sets) > 1
