"""Who may pass a gang that cannot start: only work that does not delay it.

A gang that fits nowhere now reserves its earliest start on the cluster where that comes first: the first instant from
which, by the expected ends of what runs there, its capacity is free for as long as it runs. Those behind it may go
there all the same if they end before that start, or if what they take is still left over while the gang runs.

Reservations are made in order, each around those before it (conservative backfill), for the first few that wait; with
one only the head of the line reserves (EASY). What was reserved by somebody ahead never moves for somebody behind, so
none of those behind can make one of those ahead later. Among those behind there is no such promise: when one of them
goes away, the next may take its place and stand where a third one stood.

Expected ends are estimates, and noisy. Each reservation names the weakest source that it depends on, and work that is
overdue is given another quarter of its time, again and again, rather than taken for gone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dispatcher.core.decision import Basis
from dispatcher.core.ids import ClusterName, QueueName, WorkloadUid

Pool = tuple[str, ...]
"""One thing that runs out by itself: a resource on the nodes of a flavor, or in the quota of a queue."""
Amounts = Mapping[Pool, int]

STAY = timedelta(seconds=60)
"""A gang that has reserved on one cluster reserves on another only where it starts at least so much earlier, and a
tenth of the time until then: with every change of place what was kept free for it was kept in vain."""
RESOLUTION = timedelta(microseconds=1)
_BASES = tuple(Basis)


@dataclass(frozen=True, slots=True)
class Release:
    """Capacity that comes back when something that runs, or is promised, ends. `overdue`: it should have by now."""

    at: datetime
    amounts: Amounts
    basis: Basis
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """What a workload would take on one cluster, and for how long there. `cost_usd_micro` decides between clusters
    where it would start at the same instant."""

    cluster: ClusterName
    amounts: Amounts
    duration_s: int
    cost_usd_micro: int = 0
    queue: QueueName | None = None
    """The queue there whose quota it takes; `sharers` are all queues that take of the same quota."""
    sharers: tuple[QueueName, ...] = ()
    within: Pool = ()
    """It takes `together` of one more pool, any one of those that begin so (the domains of a topology's level)."""
    together: int = 0

    def is_of_domain(self, pool: Pool) -> bool:
        return bool(self.within) and pool[: len(self.within)] == self.within

    def ways(self, free: Amounts) -> Iterator[Amounts]:
        """What it may take, the pools with least free now first: of domains that open at the same instant one is best
        that keeps little idle until then."""
        if not self.within:
            yield self.amounts
            return
        for _, pool in sorted((left, pool) for pool, left in free.items() if self.is_of_domain(pool)):
            yield {pool: self.together, **self.amounts}


@dataclass(frozen=True, slots=True)
class Ask:
    """A workload that waits for room, with every cluster where only room is lacking."""

    uid: WorkloadUid
    key: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    """From `start` on the cluster is to have `holder`'s capacity. `spare` is the least that is left over of each pool
    until `end`, after everything that is reserved. `basis`: the weakest estimate that `start` depends on."""

    cluster: ClusterName
    holder: WorkloadUid
    holder_key: str
    start: datetime
    end: datetime
    spare: Amounts
    basis: Basis
    overdue: bool = False
    queue: QueueName | None = None
    sharers: tuple[QueueName, ...] = ()
    exposed: Amounts = field(default_factory=dict)
    """What is free now of the domain that is to hold it, promises left aside: nobody who starts now can take more of
    that one."""

    def lets_pass(self, amounts: Amounts, until: datetime) -> bool:
        """Whether work that runs from now until then leaves the reservation its start and its capacity."""
        if until <= self.start:
            return True
        return all(amount <= self.spare[pool] for pool, amount in amounts.items() if amount and pool in self.spare)

    def after(self, amounts: Amounts, until: datetime) -> Reservation:
        """The reservation once that work has passed it."""
        if until <= self.start:
            return self
        spare = {pool: left - amounts.get(pool, 0) for pool, left in self.spare.items()}
        exposed = {pool: left - amounts.get(pool, 0) for pool, left in self.exposed.items()}
        return replace(self, spare=spare, exposed=exposed)


SHOWN = 16
"""Of how many that wait for room, beside those that reserve, the start is worked out where somebody asks."""


@dataclass(frozen=True, slots=True)
class Expected:
    """When and where a workload that waits is expected to start, for people. `reserved`: nothing behind it may delay
    that."""

    start: datetime
    cluster: ClusterName
    basis: Basis
    overdue: bool
    reserved: bool


@dataclass(frozen=True, slots=True)
class Opening:
    """From `start` on, a cluster that is full is expected to have room for a request. `basis`: the weakest estimate
    that `start` depends on; `overdue`: something has to end before that should have ended already."""

    cluster: ClusterName
    start: datetime
    basis: Basis
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class Calendar:
    """What one cluster has free from now on: `free[i]` from `times[i]` until `times[i + 1]`, the last one for ever.

    `weakest[i]` and `overdue[i]` say on which estimates it depends that `times[i]` comes when it does. `until`: when
    the first of these ends is to come; if it does not, all is expected otherwise from then on. None: none is to come.
    """

    times: tuple[datetime, ...]
    free: tuple[Amounts, ...]
    weakest: tuple[Basis, ...]
    overdue: tuple[bool, ...]
    until: datetime | None = None
    bare: Amounts = field(default_factory=dict)
    """What is free now of the domains of a topology, before anything that is promised or on its way: where that comes
    is only guessed."""

    def earliest(self, amounts: Amounts, duration_s: int, before: datetime | None = None) -> datetime | None:
        """The first instant from which the amounts are free for so long; None: never, as far as is known, or not
        `before`."""
        lasts, start = timedelta(seconds=max(1, duration_s)), 0
        for at, free in enumerate(self.free):
            if at > start and self.times[at] >= self.times[start] + lasts:
                break
            if before is not None and start == at and self.times[at] >= before:
                return None
            if not _fits(amounts, free):
                start = at + 1
        found = self.times[start] if start < len(self.times) else None
        return found if found is None or before is None or found < before else None

    def latest(self, amounts: Amounts, duration_s: int) -> datetime | None:
        """Until when the amounts, free now for so long, can be taken before what is promised; None: for ever."""
        full = next((at for at, free in zip(self.times, self.free, strict=True) if not _fits(amounts, free)), None)
        return full - timedelta(seconds=max(1, duration_s)) if full is not None else None

    def with_taken(self, amounts: Amounts, start: datetime, end: datetime) -> Calendar:
        """The calendar once the amounts are promised from `start` to `end`."""
        split = self._split_at(start)._split_at(end)
        first, last = bisect_left(split.times, start), bisect_left(split.times, end)
        free = (*split.free[:first], *[_less(have, amounts) for have in split.free[first:last]], *split.free[last:])
        return replace(split, free=free)

    def least(self, start: datetime, end: datetime, pools: Iterable[Pool]) -> Amounts:
        """What is free of these pools all the time from `start` to `end`."""
        inside = [
            free
            for at, free in enumerate(self.free)
            if self.times[at] < end and (at + 1 == len(self.times) or self.times[at + 1] > start)
        ]
        return {pool: min(free.get(pool, 0) for free in inside) for pool in pools}

    def depends_on(self, start: datetime) -> tuple[Basis, bool]:
        """The weakest source of the ends up to `start`, and whether one of them is overdue."""
        count = bisect_right(self.times, start)
        weakest = max(self.weakest[:count], key=_BASES.index, default=Basis.DECLARED)
        return weakest, any(self.overdue[:count])

    def at(self, now: datetime) -> Calendar | None:
        """The same calendar at another instant; None where an end was to come by then, or that lies before it."""
        if now < self.times[0] or (self.until is not None and now >= self.until):
            return None
        return replace(self, times=(now, *self.times[1:]))

    def _split_at(self, time: datetime) -> Calendar:
        at = bisect_left(self.times, time)
        if at == 0 or (at < len(self.times) and self.times[at] == time):
            return self
        # Nothing ends at a cut, so the cut depends on nothing.
        return Calendar(
            (*self.times[:at], time, *self.times[at:]),
            (*self.free[:at], self.free[at - 1], *self.free[at:]),
            (*self.weakest[:at], Basis.DECLARED, *self.weakest[at:]),
            (*self.overdue[:at], False, *self.overdue[at:]),
            self.until,
            self.bare,
        )


def calendar_of(free: Amounts, releases: Iterable[Release], now: datetime) -> Calendar:
    """From what is free now and what comes back when. Ends at the same instant count together, in no order."""
    ends: dict[datetime, list[Release]] = {}
    for release in releases:
        ends.setdefault(max(now, release.at), []).append(release)
    times, steps = [now], [dict(free)]
    weakest, overdue = [Basis.DECLARED], [False]
    for at, ending in sorted(ends.items()):
        if at > now:
            times.append(at)
            steps.append(dict(steps[-1]))
            weakest.append(Basis.DECLARED)
            overdue.append(False)
        for release in ending:
            for pool, amount in release.amounts.items():
                steps[-1][pool] = steps[-1].get(pool, 0) + amount
        weakest[-1] = max((weakest[-1], *(r.basis for r in ending)), key=_BASES.index)
        overdue[-1] = overdue[-1] or any(r.overdue for r in ending)
    return Calendar(tuple(times), tuple(steps), tuple(weakest), tuple(overdue))


@dataclass(slots=True)
class Schedule:
    """The reservations of a line, made one after the other, first in order first.

    `former` is where each of them had reserved before. `turns` are the instants at which, by time alone, one of them
    would be made otherwise.
    """

    calendars: dict[ClusterName, Calendar]
    now: datetime
    former: Mapping[WorkloadUid, ClusterName] = field(default_factory=dict)
    made: list[tuple[Ask, Option, datetime]] = field(default_factory=list)
    turns: list[datetime] = field(default_factory=list)

    def reserve(self, ask: Ask) -> datetime | None:
        """Reserve its earliest start, around everything that is reserved; None: no end is known after which it fits.

        It waits, so it fits nowhere now. Where by our numbers it does, these lack what stands in its way, and no start
        that they give can be kept free.
        """
        starts = [
            (found[0], option.cost_usd_micro, option.cluster, replace(option, amounts=found[1]))
            for option in ask.options
            if (found := self._earliest(option)) is not None and found[0] > self.now
        ]
        if not starts:
            return None
        start, _, _, option = min(starts, key=lambda found: found[:3])
        stayed = next((found for found in starts if found[2] == self.former.get(ask.uid)), None)
        if stayed is not None and self._stays(stayed[0] - start, start):
            start, option = stayed[0], stayed[3]
        end = start + timedelta(seconds=max(1, option.duration_s))
        calendar = self.calendars[option.cluster]
        self.calendars[option.cluster] = calendar.with_taken(option.amounts, start, end)
        self.made.append((ask, option, start))
        return start

    def _stays(self, later: timedelta, start: datetime) -> bool:
        """Whether so much later is too little to leave for a start: a tenth of the time until then grows less."""
        if later < STAY:
            return True
        self.turns.append(start - 10 * later)
        return 10 * later < start - self.now

    def _earliest(self, option: Option) -> tuple[datetime, Amounts] | None:
        """Its first start on a cluster, and what it then takes there."""
        calendar = self.calendars.get(option.cluster)
        if calendar is None:
            return None
        best: tuple[datetime, Amounts] | None = None
        for amounts in option.ways(calendar.free[0]):
            start = calendar.earliest(amounts, option.duration_s, best[0] if best is not None else None)
            if start is not None:
                best = start, amounts
        if best is not None and best[0] == self.now:
            latest = calendar.latest(best[1], option.duration_s)
            self.turns += [latest + RESOLUTION] if latest is not None else []
        return best

    def until(self) -> datetime | None:
        """The first instant after `now` at which, by time alone, other reservations would be made; None: never."""
        ends = [calendar.until for calendar in self.calendars.values() if calendar.until is not None]
        return min((at for at in (*ends, *self.turns) if at > self.now), default=None)

    def opening(self, option: Option) -> Opening | None:
        """When it could start there, behind everything that is reserved; None: not known, or now by our numbers, which
        then lack what stands in its way."""
        found = self._earliest(option)
        if found is None or found[0] <= self.now:
            return None
        return Opening(option.cluster, found[0], *self.calendars[option.cluster].depends_on(found[0]))

    def reservations(self) -> tuple[Reservation, ...]:
        """All that was reserved, in the order in which it was, with what is left over beside it."""
        found = []
        for ask, option, start in self.made:
            calendar = self.calendars[option.cluster]
            end = start + timedelta(seconds=max(1, option.duration_s))
            basis, overdue = calendar.depends_on(start)
            spare = calendar.least(start, end, sorted(pool for pool, amount in option.amounts.items() if amount))
            made = Reservation(option.cluster, ask.uid, ask.key, start, end, spare, basis, overdue)
            exposed = {
                pool: max(calendar.bare.get(pool, 0), calendar.free[0].get(pool, 0))
                for pool in spare
                if option.is_of_domain(pool)
            }
            found.append(replace(made, queue=option.queue, sharers=option.sharers, exposed=exposed))
        return tuple(found)


def in_the_way(
    reservations: Sequence[Reservation], cluster: ClusterName, amounts: Amounts, until: datetime
) -> Reservation | None:
    """The first reservation on the cluster that work would delay which starts now and runs until then."""
    return next((r for r in reservations if r.cluster == cluster and not r.lets_pass(amounts, until)), None)


def passing(
    reservations: Sequence[Reservation], cluster: ClusterName, amounts: Amounts, until: datetime
) -> tuple[Reservation, ...]:
    """The reservations once such work has started there."""
    return tuple(r.after(amounts, until) if r.cluster == cluster else r for r in reservations)


def expected_end(begun_at: datetime, duration_s: int, now: datetime) -> tuple[datetime, bool]:
    """When something that runs is expected to end, and whether it should have already.

    Overdue work is given a quarter more of the time that it was given before, until its end lies ahead: what has run
    long is expected to run on for long. Between two of these steps the expectation stands still.
    """
    lasts_s, elapsed_s = max(1, duration_s), (now - begun_at) // timedelta(seconds=1)
    overdue = lasts_s <= elapsed_s
    while lasts_s <= elapsed_s:
        lasts_s += max(1, lasts_s // 4)
    return begun_at + timedelta(seconds=lasts_s), overdue


def _fits(amounts: Amounts, free: Amounts) -> bool:
    for pool, amount in amounts.items():  # noqa: SIM110 - asked a hundred times a decision: `all` takes twice as long
        if amount and amount > free.get(pool, 0):
            return False
    return True


def _less(free: Amounts, amounts: Amounts) -> Amounts:
    left = dict(free)
    for pool, amount in amounts.items():
        left[pool] = left.get(pool, 0) - amount
    return left
