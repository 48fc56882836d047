"""What teams used of the fleet, fading, kept up from one instant to the next: the sums of `shares.py`, run by run only
when a run begins or ends.

The begin and the end of a use are *marks*. What a use counts is the weight of its begin less that of its end
(`shares.Window`), and as long as a mark stays within one half-life of age, its weight is a polynomial of its time. So
the marks of a half-life are three sums (of amounts, amounts x time, amounts x time squared), and a mark is touched
again only when it passes into the next half-life. All is integers, so the shares are those of adding up run by run.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from dispatcher.core.resources import Resources
from dispatcher.core.shares import HALVINGS, Share, Usage, Window, counts, dominant_share

MOST_MARKS = 40_000
"""Begins and ends that are remembered. Beyond these the oldest go, half as many, as if the window began after them."""
_SECOND = timedelta(seconds=1)


class _Mark(NamedTuple):
    """`at_s`: seconds since the origin. `amounts` are below zero for what ends."""

    at_s: int
    number: int
    team: str
    amounts: tuple[tuple[str, int], ...]


@lru_cache(maxsize=4096)
def _counted(amounts: Resources, sign: int) -> tuple[tuple[str, int], ...]:
    """What counts of a use; the same object for the same amounts, since thousands of marks are kept."""
    return tuple((resource, sign * amount) for resource, amount in amounts if amount and counts(resource))


_Key = tuple[str, str]
"""(team, resource)"""


@dataclass(slots=True)
class _Age:
    """The marks of one half-life of age, oldest first, and their sums."""

    marks: list[_Mark] = field(default_factory=list)
    sums: dict[_Key, tuple[int, int, int]] = field(default_factory=dict)

    def put(self, mark: _Mark) -> None:
        heapq.heappush(self.marks, mark)
        self._count(mark, 1)

    def pop(self) -> _Mark:
        mark = heapq.heappop(self.marks)
        self._count(mark, -1)
        return mark

    def _count(self, mark: _Mark, sign: int) -> None:
        at_s = mark.at_s
        for resource, amount in mark.amounts:
            key, more = (mark.team, resource), sign * amount
            plain, by_time, by_square = self.sums.get(key, (0, 0, 0))
            found = (plain + more, by_time + more * at_s, by_square + more * at_s * at_s)
            if any(found):
                self.sums[key] = found
            else:
                del self.sums[key]


class Fading:
    """The use of all teams in one window. Times are whole seconds, of which a part does not count."""

    def __init__(self, window: Window, origin: datetime) -> None:
        self.window, self._origin = window, origin.replace(microsecond=0)
        self._ages = [_Age() for _ in range(HALVINGS + 1)]
        """By half-lives; the last one is of all that is older, where each mark weighs the whole."""
        self._coming: list[_Mark] = []
        """What lies after the instant that was last asked for."""
        self._teams: dict[str, int] = {}
        """How many marks of each team are remembered."""
        self._made = 0

    def in_window(self, window: Window) -> Fading:
        """The same use where the past counts otherwise. What is older than all that counted till now stays so."""
        found = Fading(window, self._origin)
        found._coming = [*self._coming, *(mark for age in self._ages for mark in age.marks)]
        heapq.heapify(found._coming)
        found._ages[HALVINGS].sums = dict(self._ages[HALVINGS].sums)
        found._teams, found._made = dict(self._teams), self._made
        return found

    def add(self, usage: Usage, sign: int = 1) -> None:
        """Enter a use, with its end where it has one; `sign` -1 takes it back."""
        self._mark(usage.team, usage.begun_at, usage.amounts, sign)
        if usage.ended_at is not None:
            self.end(usage, usage.ended_at, sign)

    def end(self, usage: Usage, ended_at: datetime, sign: int = 1) -> None:
        """A use that was entered without its end has one. One that would lie before its begin counts as nothing."""
        self._mark(usage.team, max(usage.begun_at, ended_at), usage.amounts, -sign)

    def _mark(self, team: str, at: datetime, amounts: Resources, sign: int) -> None:
        self._made += 1
        self._teams[team] = self._teams.get(team, 0) + 1
        heapq.heappush(self._coming, _Mark((at - self._origin) // _SECOND, self._made, team, _counted(amounts, sign)))

    def shares(self, capacity: Resources, now: datetime) -> Mapping[str, Share]:
        """As `shares.shares` of everything that was entered and still counts. `now` must not go back."""
        now_s = (now - self._origin) // _SECOND
        self._move(now_s)
        used: dict[str, dict[str, int]] = {team: {} for team in self._teams}
        for halvings, age in enumerate(self._ages):
            if not age.sums:
                continue
            constant, linear, square = self.window.powers(halvings, now_s)
            for (team, resource), (plain, by_time, by_square) in age.sums.items():
                of_team = used.setdefault(team, {})
                weighed = plain * constant + by_time * linear + by_square * square
                of_team[resource] = of_team.get(resource, 0) + weighed
        return {team: dominant_share(team, used[team], capacity, self.window.whole) for team in sorted(used)}

    def _move(self, now_s: int) -> None:
        """Let every mark be where its age is now."""
        half_s, coming, ages = self.window.half_s, self._coming, self._ages
        if sum(len(age.marks) for age in ages) > MOST_MARKS:
            self._forget()
        while coming and coming[0].at_s <= now_s:
            mark = heapq.heappop(coming)
            ages[min(HALVINGS, (now_s - mark.at_s) // half_s)].put(mark)
        for halvings in range(HALVINGS):
            age = ages[halvings]
            while age.marks and now_s - age.marks[0].at_s >= (halvings + 1) * half_s:
                mark = age.pop()
                ages[min(HALVINGS, (now_s - mark.at_s) // half_s)].put(mark)
        self._settle(ages[HALVINGS].marks)
        ages[HALVINGS].marks.clear()

    def _settle(self, gone: Iterable[_Mark]) -> None:
        """Marks whose weight will not change any more are known by their sum alone."""
        for mark in gone:
            self._teams[mark.team] -= 1
        for team in [team for team, count in self._teams.items() if not count]:
            if not any(key[0] == team for age in self._ages for key in age.sums):
                del self._teams[team]

    def _forget(self) -> None:
        """The oldest marks go, and what was in use at the last of them began then."""
        left, latest_s, began = MOST_MARKS // 2, 0, dict[_Key, int]()
        for age in reversed(self._ages[:HALVINGS]):
            while age.marks and left:
                mark = age.pop()
                left, latest_s = left - 1, mark.at_s
                self._teams[mark.team] -= 1
                for resource, amount in mark.amounts:
                    began[mark.team, resource] = began.get((mark.team, resource), 0) + amount
        for (team, resource), amount in sorted(began.items()):
            if amount:
                self._made += 1
                self._teams[team] += 1
                heapq.heappush(self._coming, _Mark(latest_s, self._made, team, ((resource, amount),)))
