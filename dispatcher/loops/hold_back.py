"""What those ahead that cannot start keep free (core/backfill.py), worked out from the views of one pass.

Worked out only when somebody behind could start: while nothing fits anybody, a reservation is in nobody's way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from dispatcher.core.backfill import SHOWN, Ask, Calendar, Expected, Opening, Option, Reservation, Schedule
from dispatcher.core.context import Setting, class_of
from dispatcher.core.decision import Candidate, Decision, Outcome, Reason
from dispatcher.core.holds import live_holds
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.index import ViewIndex
from dispatcher.core.keeping import (
    Taker,
    lacks_only_room,
    parts_of,
    parts_of_usage,
)
from dispatcher.core.opening import cheaper_elsewhere
from dispatcher.core.passing import delayed, ends_at, once_started
from dispatcher.core.replay import Inputs
from dispatcher.core.resources import CPU, Resources
from dispatcher.core.snapshot import Hold, Snapshot
from dispatcher.core.workload import HubWorkload, Request
from dispatcher.loops.almanac import Almanac, Moment, Sight, Waiting, kind_of, promised_there
from dispatcher.loops.turns import Pause
from dispatcher.state import FleetState

ONE_CORE = 1000
"""In millicores."""


class _Asks(NamedTuple):
    """What a line asks for, and the calendars of the clusters there as they were made, in their order."""

    line: list[Ask]
    calendars: list[Calendar]


@dataclass(slots=True)
class HoldBack:
    """The reservations of one pass, in the order in which those that wait are passed."""

    state: FleetState
    views: ViewIndex
    memory: Almanac
    now: datetime
    _waiting: list[Waiting] = field(default_factory=list)
    _behind: list[Waiting] = field(default_factory=list)
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
            there.append(Waiting(workload.uid, workload.key, decision, options))
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
        return ends_at(candidate, decision.estimate, self.state.policy, self.now, kind_of(decision))

    async def reserved(self, snapshot: Snapshot, pause: Pause) -> tuple[Reservation, ...]:
        """What is reserved by all who were passed so far. `pause` is awaited cluster by cluster."""
        if self._counted != len(self._waiting):
            sights, moment = await self._seen(snapshot, self._waiting, pause), Moment(self.state, self.now)
            found = self.memory.standing(self._waiting, sights, moment)
            if found is None:
                plan, asks = Schedule({}, self.now, self.memory.former), _Asks([], [])
                for _ in self._ask(sights, self._waiting, plan, asks):
                    await pause()
                found = self.memory.planned(plan, tuple(asks.line), tuple(asks.calendars))
                self.memory.stands(self._waiting, sights, self.state.policy, found)
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
        line = [*ahead, Waiting(seen.request.uid, seen.request.key, decision, options)]
        schedule, asks = Schedule({}, self.now, self.memory.former), _Asks([], [])
        for _ in self._ask(await self._seen(seen.snapshot, line, pause), line, schedule, asks):
            await pause()
        *before, own = asks.line
        for ask in before:
            schedule.reserve(ask)
        known = (schedule.opening(option) for option in own.options)
        openings = tuple(opening for opening in known if opening is not None)
        self.turns += [opening.start for opening in openings]
        return openings

    async def _seen(self, snapshot: Snapshot, line: Sequence[Waiting], pause: Pause) -> list[Sight]:
        found = []
        for sight in self._sights(snapshot, line):
            found.append(sight)
            await pause()
        return found

    def _sights(self, snapshot: Snapshot, line: Sequence[Waiting]) -> Iterator[Sight]:
        """The clusters that somebody of a line waits for, by name, and what is seen of them."""
        holds = live_holds(snapshot.holds, {c.name: c.worker for c in snapshot.clusters}, self.now)
        for name in sorted({candidate.cluster for each in line for candidate, _ in each.options}):
            cluster = snapshot.cluster(name)
            index = self.views.of(cluster) if cluster is not None else None
            if index is not None:
                there = tuple([hold for hold in holds if hold.cluster == name])
                promised = tuple([self._promised(hold) for hold in there])
                yield Sight(index, there, promised, self.memory.takers(index.view, self.state))

    def _ask(self, sights: Sequence[Sight], line: Sequence[Waiting], plan: Schedule, asks: _Asks) -> Iterator[None]:
        """The calendars that all of a line would reserve in, a cluster in each step, and what they ask for."""
        options: dict[WorkloadUid, list[Option]] = {}
        for seen in sights:
            name = seen.index.view.cluster
            here = tuple(
                [
                    (each, candidate, parts)
                    for each in line
                    for candidate, parts in each.options
                    if candidate.cluster == name and candidate.queue is not None
                ]
            )
            known = self.memory.line(seen.index, here, self.state.policy)
            plan.calendars[name], as_made = self.memory.calendar(seen, known.grounds, self.now)
            asks.calendars.append(as_made)
            for (each, _, _), option in zip(here, known.options, strict=True):
                if option is not None:
                    options.setdefault(each.uid, []).append(option)
            yield
        for each in line:
            asks.line.append(Ask(each.uid, each.key, tuple(options.get(each.uid, ()))))

    def _promised(self, hold: Hold) -> Taker:
        decided, parts = self.state.latest.get(hold.workload), parts_of_usage(hold.usage)
        if decided is None:
            return Taker(hold.queue, parts, hold.made_at, None)
        return Taker(hold.queue, parts, hold.made_at, promised_there(decided, parts, hold.cluster, self.state))

    def expected(self, snapshot: Snapshot) -> dict[WorkloadUid, Expected]:
        """The starts of the first that wait, for people: of those that reserve, and of some more behind them."""
        reserving = {each.uid for each in self._waiting}
        plan, asks = Schedule({}, self.now, self.memory.former), _Asks([], [])
        line = [*self._waiting, *self._behind]
        for _ in self._ask([*self._sights(snapshot, line)], line, plan, asks):
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
    """Whether anything smaller could pass it: a single GPU is taken or not, and so is a single core."""
    pods = sum([pod_set.count for pod_set in workload.pod_sets])
    return pods > 1 or any(pod_set.count and _has_parts(pod_set.per_pod) for pod_set in workload.pod_sets)


def _has_parts(per_pod: Resources) -> bool:
    gpus = per_pod.gpus()
    return gpus > 1 or (not gpus and per_pod.get(CPU) > ONE_CORE)
