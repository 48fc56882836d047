"""Who had how much of the fleet lately: the dominant share of each team over a window that fades.

A team's share of one resource is what it used, over what the fleet has; its dominant share is the largest of these
(dominant resource fairness: who needs CPU and who needs GPUs can be compared). Use counts less the longer ago it was:
half after one half-life. The weight falls in straight lines between powers of two, so its integral is exact in
integers, and the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from dispatcher.core.resources import CPU, MEMORY, Resources, is_gpu

PPM = 1_000_000
_HALVINGS = 24
"""What is longer ago than so many half-lives counts nothing."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A workload that holds, or held, `amounts` of the fleet. `ended_at` None: it still does."""

    team: str
    amounts: Resources
    begun_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """`share_ppm`: millionths of the fleet over the fading window, of the resource `dominant` ("" = nothing used)."""

    team: str
    share_ppm: int
    dominant: str


@dataclass(frozen=True, slots=True)
class Window:
    """How much the past counts. `half_life_s` is at least one second."""

    half_life_s: int

    def weight(self, begun_at: datetime, ended_at: datetime | None, now: datetime) -> int:
        """What the time from `begun_at` to `ended_at` (None: until now) counts, against `whole`. Never below zero,
        and never more than `whole`; what lies after `now` has not happened."""
        until = now if ended_at is None else min(ended_at, now)
        if until <= begun_at:
            return 0
        return self._up_to(_seconds(now - begun_at)) - self._up_to(_seconds(now - until))

    @property
    def whole(self) -> int:
        """The weight of all time."""
        return self._up_to(_HALVINGS * self._half)

    @property
    def _half(self) -> int:
        return max(1, self.half_life_s)

    def _up_to(self, age_s: int) -> int:
        """The weight of the last `age_s` seconds, times 4 half-lives and 2^_HALVINGS.

        In the n-th half-life the weight is 2^-n (1 - y / 2h), y seconds into it, so its integral there is
        2^-n (y - y^2 / 4h), and 2^-n * 3h / 4 over the whole of it.
        """
        half = self._half
        halvings, rest = divmod(min(age_s, _HALVINGS * half), half)
        # 3h^2 (1 + 1/2 + ... ) over the half-lives that are complete, then the part of the next one.
        complete = 6 * half * half * ((1 << _HALVINGS) - (1 << (_HALVINGS - halvings)))
        return complete + (4 * half * rest - rest * rest) * (1 << (_HALVINGS - halvings))


class Tally:
    """Adds up usage. One by one, so that a caller with thousands of them can let others have their turn."""

    __slots__ = ("_now", "_teams", "_used", "_window")

    def __init__(self, window: Window, now: datetime) -> None:
        self._window, self._now = window, now
        self._used: dict[tuple[str, str], int] = {}
        self._teams: set[str] = set()

    def add(self, usage: Usage) -> bool:
        """Whether it counts for anything: what does not is past, and stays so."""
        self._teams.add(usage.team)
        weight = self._window.weight(usage.begun_at, usage.ended_at, self._now)
        for resource, amount in usage.amounts if weight else ():
            if _counts(resource):
                key = (usage.team, resource)
                self._used[key] = self._used.get(key, 0) + amount * weight
        return weight > 0

    def shares(self, capacity: Resources) -> Mapping[str, Share]:
        """The share of every team that was seen, by its name. Of a resource that the fleet is not known to have,
        nobody has a share: unknown is not all of it."""
        counted = [(resource, amount) for resource, amount in capacity if amount > 0 and _counts(resource)]
        return {team: self._share(team, counted) for team in sorted(self._teams)}

    def _share(self, team: str, capacity: Iterable[tuple[str, int]]) -> Share:
        best, dominant = Fraction(0), ""
        for resource, amount in capacity:
            share = Fraction(self._used.get((team, resource), 0), amount * self._window.whole)
            if share > best:
                best, dominant = share, resource
        return Share(team, min(PPM, int(best * PPM)), dominant)


def shares(usage: Iterable[Usage], capacity: Resources, window: Window, now: datetime) -> Mapping[str, Share]:
    """The share of every team in `usage`, in whatever order it is given."""
    tally = Tally(window, now)
    for each in usage:
        tally.add(each)
    return tally.shares(capacity)


def _counts(resource: str) -> bool:
    return is_gpu(resource) or resource in (CPU, MEMORY)


def _seconds(span: timedelta) -> int:
    return span // timedelta(seconds=1)
