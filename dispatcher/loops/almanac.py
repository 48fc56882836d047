"""What reservations are worked out from and outlasts a pass: what runs on each cluster and when it is to end, what
those who wait would take there, and the calendars and reservations that came of it. Each is made anew only where
something that it is made of has become another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import is_
from typing import NamedTuple, TypeVar

from dispatcher.core.backfill import Amounts, Ask, Calendar, Option, Reservation, Schedule
from dispatcher.core.bids import bid_of
from dispatcher.core.decision import Basis, Candidate, Decision, Estimate
from dispatcher.core.ids import ClusterName, FlavorName, WorkloadUid
from dispatcher.core.index import ClusterIndex, holds_quota
from dispatcher.core.instants import LONGEST_S
from dispatcher.core.keeping import (
    Grounds,
    Part,
    Taker,
    bare_of,
    calendar,
    free_of,
    grounds_of,
    lacks_only_room,
    option_of,
    parts_of,
    parts_of_usage,
    run_s,
    shelves_of,
    with_places,
)
from dispatcher.core.policy import Policy
from dispatcher.core.quota import QuotaTree
from dispatcher.core.snapshot import Hold, Lying, WorkerCopy, WorkerView
from dispatcher.core.traffic import claims
from dispatcher.core.workload import HubWorkload, PodSet, WorkloadClass, class_named
from dispatcher.state import FleetState

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED = 32
"""So many calendars, and so many lines, are remembered of a cluster: one pass asks for some tens of them."""

Options = tuple[tuple[Candidate, tuple[Part, ...]], ...]


@dataclass(slots=True)
class Waiting:
    """One that waits, and where only room is lacking for it."""

    uid: WorkloadUid
    key: str
    decision: Decision
    options: Options


Here = tuple[Waiting, Candidate, tuple[Part, ...]]
"""One that waits, a cluster where only room is lacking for it, and what it would take there."""


class Moment(NamedTuple):
    state: FleetState
    now: datetime


class _Running(NamedTuple):
    """What has quota on a cluster: every copy, the Workload that it was made for, and what it takes, if anything."""

    copies: Mapping[tuple[str, str], WorkerCopy]
    lies: Mapping[tuple[str, str], Lying]
    workloads: Mapping[WorkloadUid, HubWorkload]
    each: Mapping[tuple[str, str], tuple[WorkerCopy, HubWorkload | None, Taker | None]]
    takers: tuple[Taker, ...]


@dataclass(frozen=True, slots=True)
class Sight:
    """All that a calendar of a cluster depends on, but its grounds and the time: its numbers, what is promised there
    and what is known of the ends of that, and everything that runs there."""

    index: ClusterIndex
    holds: tuple[Hold, ...]
    promised: tuple[Taker, ...]
    takers: tuple[Taker, ...]

    def has_room_of(self, other: Sight) -> bool:
        """Whether as much is free, since nothing has changed that this is worked out from."""
        one, two = self.index, other.index
        return one.base is two.base and one.view.flavors is two.view.flavors and self.holds == other.holds

    def is_that_of(self, other: Sight) -> bool:
        return self.has_room_of(other) and self.takers is other.takers and self.promised == other.promised


class _Kept(NamedTuple):
    """A calendar, and what it was made of."""

    seen: Sight
    free: Amounts
    calendar: Calendar


class _Line(NamedTuple):
    """What those who wait for one cluster would take there, one option each (None: nothing that is counted), and all
    that this was worked out from."""

    here: tuple[Here, ...]
    quota: QuotaTree
    policy: Policy
    grounds: Grounds
    options: tuple[Option | None, ...]

    def is_of(self, here: tuple[Here, ...]) -> bool:
        """Whether these are they, by the same decisions: as many of them wait."""
        pairs = zip(self.here, here, strict=True)
        return all(one.decision is two.decision and this is that for (one, this, _), (two, that, _) in pairs)


class _Planned(NamedTuple):
    """Reservations, with whose they are, by which calendars they were made, and until when they would be made again."""

    asks: tuple[Ask, ...]
    calendars: tuple[Calendar, ...]
    until: datetime | None
    made: tuple[Reservation, ...]

    def stands(self, calendars: tuple[Calendar, ...], now: datetime) -> bool:
        same = len(calendars) == len(self.calendars) and all(map(is_, calendars, self.calendars))
        return same and (self.until is None or now < self.until)


class _Stood(NamedTuple):
    """Reservations, and what they were worked out from: whose they are, and the clusters where they would start."""

    decisions: tuple[Decision, ...]
    sights: tuple[Sight, ...]
    policy: Policy
    planned: _Planned

    def is_of(self, line: Sequence[Waiting], sights: Sequence[Sight], policy: Policy) -> bool:
        same = policy is self.policy and len(line) == len(self.decisions) and len(sights) == len(self.sights)
        same = same and all(map(is_, [each.decision for each in line], self.decisions))
        return same and all(one.is_that_of(two) for one, two in zip(self.sights, sights, strict=True))


@dataclass(slots=True)
class Almanac:
    """What outlasts a pass: where each had reserved before, what runs on each cluster, and when that is to end."""

    former: dict[WorkloadUid, ClusterName] = field(default_factory=dict)
    _running: dict[ClusterName, _Running] = field(default_factory=dict)
    _by_key: tuple[Mapping[WorkloadUid, HubWorkload], dict[tuple[str, str], HubWorkload]] | None = None
    _calendars: dict[ClusterName, dict[Grounds, _Kept]] = field(default_factory=dict)
    _lines: dict[ClusterName, dict[tuple[int, ...], _Line]] = field(default_factory=dict)
    """By the decisions of those in it."""
    _planned: dict[int, _Planned] = field(default_factory=dict)
    """By how many have reserved."""
    _stood: dict[int, _Stood] = field(default_factory=dict)
    """The same, by what they were worked out from."""
    _claims: dict[WorkloadUid, tuple[tuple[Candidate, ...], frozenset[tuple[ClusterName, FlavorName]]]] = field(
        default_factory=dict
    )
    _options: dict[WorkloadUid, tuple[tuple[Candidate, ...], tuple[PodSet, ...], Options]] = field(default_factory=dict)

    def claims(self, uid: WorkloadUid, candidates: tuple[Candidate, ...]) -> frozenset[tuple[ClusterName, FlavorName]]:
        """Where one that waits would take the next free capacity."""
        known = self._claims.get(uid)
        if known is None or known[0] is not candidates:
            known = self._claims[uid] = (candidates, claims(candidates))
        return known[1]

    def keep(self, alive: Mapping[WorkloadUid, HubWorkload]) -> None:
        for remembered in (self.former, self._options, self._claims):
            for uid in [uid for uid in remembered if uid not in alive]:
                del remembered[uid]

    def options(self, workload: HubWorkload, candidates: tuple[Candidate, ...]) -> Options:
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
        same = known is not None and known.copies is view.copies and known.lies is view.lies
        if known is not None and same and known.workloads is workloads:
            return known.takers
        if self._by_key is None or self._by_key[0] is not workloads:
            self._by_key = (workloads, {(w.namespace, w.name): w for w in workloads.values() if not w.finished})
        ours, before, each = self._by_key[1], known.each if known is not None else {}, {}
        for key, copy in view.copies.items():
            workload, entry, lies = ours.get(key), before.get(key), view.lies.get(key, ())
            moved = entry is not None and entry[2] is not None and entry[2].lies != lies
            if entry is None or entry[0] is not copy or entry[1] is not workload or moved:
                taker = _taker(copy, workload, view, state)
                entry = (copy, workload, entry[2] if entry is not None and entry[2] == taker else taker)
            each[key] = entry
        takers = tuple([taker for _, _, taker in each.values() if taker is not None])
        if known is not None and len(takers) == len(known.takers) and all(map(is_, takers, known.takers)):
            takers = known.takers
        self._running[view.cluster] = _Running(view.copies, view.lies, workloads, each, takers)
        return takers

    def calendar(self, seen: Sight, grounds: Grounds, now: datetime) -> tuple[Calendar, Calendar]:
        """The calendar of a cluster now, and as it was made: anew only where something it is made of is another."""
        there = self._calendars.setdefault(seen.index.view.cluster, {})
        known = there.get(grounds)
        same_room = known is not None and known.seen.has_room_of(seen)
        free = known.free if known is not None and same_room else free_of(grounds, seen.index, seen.holds)
        if known is not None and known.free == free:
            same = known.seen.takers is seen.takers and known.seen.promised == seen.promised
            found = known.calendar.at(now) if same else None
            if found is not None:
                there[grounds] = known._replace(seen=seen)
                return found, known.calendar
        found = _calendar(seen, grounds, free, now)
        _make_room(there)
        there[grounds] = _Kept(seen, free, found)
        return found, found

    def line(self, index: ClusterIndex, here: tuple[Here, ...], policy: Policy) -> _Line:
        """What those who wait for a cluster would take there: the same while it is they, by the same decisions."""
        there, key = self._lines.setdefault(index.view.cluster, {}), tuple([id(each.decision) for each, _, _ in here])
        known, quota = there.get(key), index.base.quota
        if (
            known is None
            or known.policy is not policy
            or not known.is_of(here)
            or not known.quota.has_cohorts_of(quota)
        ):
            _make_room(there)
            known = there[key] = _line(index, here, policy)
        return known

    def standing(self, line: Sequence[Waiting], sights: Sequence[Sight], moment: Moment) -> _Planned | None:
        """The reservations of a line, where nothing has changed that they were worked out from."""
        known = self._stood.get(len(line))
        found = known.planned if known is not None and known.is_of(line, sights, moment.state.policy) else None
        return found if found is not None and (found.until is None or moment.now < found.until) else None

    def stands(self, line: Sequence[Waiting], sights: Sequence[Sight], policy: Policy, planned: _Planned) -> None:
        """These are the reservations of a line."""
        self._stood[len(line)] = _Stood(tuple([each.decision for each in line]), tuple(sights), policy, planned)

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
        self._stood.clear()


def _make_room(remembered: dict[K, V]) -> None:
    """Before one more is remembered: all are made anew now and then."""
    if len(remembered) >= REMEMBERED:
        remembered.clear()


def _calendar(seen: Sight, grounds: Grounds, free: Amounts, now: datetime) -> Calendar:
    """Where somebody waits for a domain it counts where what runs lies, which is worked out for nobody else."""
    if not grounds.domains:
        return calendar(grounds, free, (*seen.takers, *seen.promised), now)
    takers = with_places(seen.takers, seen.promised, seen.index, seen.holds)
    found = calendar(grounds, free, takers, now, shelves_of(grounds, seen.index))
    return replace(found, bare=bare_of(grounds, seen.index))


def _line(index: ClusterIndex, here: tuple[Here, ...], policy: Policy) -> _Line:
    grounds = grounds_of([(c.queue, parts) for _, c, parts in here if c.queue is not None], index)
    site = policy.clusters.get(index.view.cluster)
    options = [
        option_of(
            c,
            parts,
            c.held_s + run_s(w.decision.estimate, [p.flavor for p in parts], site, kind_of(w.decision)),
            grounds,
        )
        for w, c, parts in here
    ]
    return _Line(here, index.base.quota, policy, grounds, tuple(options))


def _taker(copy: WorkerCopy, workload: HubWorkload | None, view: WorkerView, state: FleetState) -> Taker | None:
    begun_at = copy.admitted_at or copy.quota_reserved_at
    if not holds_quota(copy) or begun_at is None or not (parts := parts_of_usage(copy.pod_sets)):
        return None
    key = (copy.namespace, copy.name)
    estimate = _estimate(copy, workload, parts, view.cluster, state)
    return Taker(copy.cluster_queue, parts, begun_at, estimate, key, view.lies.get(key, ()))


def _estimate(
    copy: WorkerCopy, workload: HubWorkload | None, parts: Sequence[Part], cluster: ClusterName, state: FleetState
) -> Estimate | None:
    """Of a copy of ours as its owner says, else by its class; of local work the default of its queue; else unknown."""
    plan = state.policy.queues.get(copy.cluster_queue) if copy.cluster_queue is not None else None
    usual = plan.default_class if plan is not None else None
    if copy.ours and workload is not None:
        decided = state.latest.get(workload.uid)
        kind = kind_of(decided) if decided is not None else usual
        lasting = lasting_there(estimate_of(workload, state), parts, kind, cluster, state)
        return _held_first(lasting, decided, cluster) if decided is not None else lasting
    found = state.policy.classes.get(usual) if usual is not None else None
    if found is None:
        return None
    return lasting_there(Estimate(found.default_duration_s, Basis.CLASS_DEFAULT), parts, usual, cluster, state)


def promised_there(decided: Decision, parts: Sequence[Part], cluster: ClusterName, state: FleetState) -> Estimate:
    """For how long work that was sent to a cluster is expected to have what it takes there."""
    return _held_first(lasting_there(decided.estimate, parts, kind_of(decided), cluster, state), decided, cluster)


def _held_first(lasting: Estimate, decided: Decision, cluster: ClusterName) -> Estimate:
    """With the time until its data is there."""
    found = decided.candidate(cluster)
    if found is None or not found.held_s:
        return lasting
    return replace(lasting, duration_s=min(lasting.duration_s + found.held_s, LONGEST_S))


def lasting_there(
    estimate: Estimate, parts: Sequence[Part], kind: WorkloadClass | None, cluster: ClusterName, state: FleetState
) -> Estimate:
    """The run time on the flavors that it has there."""
    site = state.policy.clusters.get(cluster)
    return replace(estimate, duration_s=run_s(estimate, [part.flavor for part in parts], site, kind))


def kind_of(decision: Decision) -> WorkloadClass | None:
    """None: a class that only another version knows."""
    return class_named(decision.workload_class)


def estimate_of(workload: HubWorkload, state: FleetState) -> Estimate:
    decided = state.latest.get(workload.uid)
    if decided is not None:
        return decided.estimate
    owner = state.hub_view().owners.get(workload.owner.uid) if workload.owner is not None else None
    return bid_of(workload, owner, state.policy, state.usual).estimate
