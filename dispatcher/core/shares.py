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
from typing import NamedTuple

from dispatcher.core.ids import WorkloadUid
from dispatcher.core.resources import CPU, MEMORY, Resources, is_gpu

PPM = 1_000_000
HALVINGS = 24
"""What is longer ago than so many half-lives counts nothing."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A workload that holds, or held, `amounts` of the fleet. `ended_at` None: it still does."""

    team: str
    amounts: Resources
    begun_at: datetime
    ended_at: datetime | None = None


class Run(NamedTuple):
    """A use, and whose it is: what outlasts the daemon."""

    workload: WorkloadUid
    usage: Usage


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
        return self._up_to(HALVINGS * self.half_s)

    @property
    def half_s(self) -> int:
        return max(1, self.half_life_s)

    def powers(self, halvings: int, now_s: int) -> tuple[int, int, int]:
        """What the time since second t counts at second `now_s`, as a polynomial of t (constant, linear, square), for
        every t that lies between `halvings` and one more half-lives back; from HALVINGS on it is the whole."""
        if halvings >= HALVINGS:
            return self.whole, 0, 0
        half, scale, since = self.half_s, 1 << (HALVINGS - halvings), now_s - halvings * self.half_s
        constant = self._up_to(halvings * half) + scale * since * (4 * half - since)
        return constant, scale * (2 * since - 4 * half), -scale

    def _up_to(self, age_s: int) -> int:
        """The weight of the last `age_s` seconds, times 4 half-lives and 2^HALVINGS.

        In the n-th half-life the weight is 2^-n (1 - y / 2h), y seconds into it, so its integral there is
        2^-n (y - y^2 / 4h), and 2^-n * 3h / 4 over the whole of it.
        """
        half = self.half_s
        halvings, rest = divmod(min(age_s, HALVINGS * half), half)
        # 3h^2 (1 + 1/2 + ... ) over the half-lives that are complete, then the part of the next one.
        complete = 6 * half * half * ((1 << HALVINGS) - (1 << (HALVINGS - halvings)))
        return complete + (4 * half * rest - rest * rest) * (1 << (HALVINGS - halvings))


def shares(usage: Iterable[Usage], capacity: Resources, window: Window, now: datetime) -> Mapping[str, Share]:
    """The share of every team in `usage`, by its name, in whatever order it is given: the definition, run by run
    (`fading.py` keeps the same sums up as time goes on)."""
    used: dict[str, dict[str, int]] = {}
    for each in usage:
        weight, of_team = window.weight(each.begun_at, each.ended_at, now), used.setdefault(each.team, {})
        for resource, amount in each.amounts:
            if counts(resource):
                of_team[resource] = of_team.get(resource, 0) + amount * weight
    return {team: dominant_share(team, used[team], capacity, window.whole) for team in sorted(used)}


def dominant_share(team: str, used: Mapping[str, int], capacity: Resources, whole: int) -> Share:
    """The largest share of one resource, where `used` has amounts x weight and `whole` is the weight of all time. Of a
    resource that the fleet is not known to have, nobody has a share: unknown is not all of it."""
    best, of, dominant = 0, 1, ""
    for resource, amount in capacity:
        weighed = used.get(resource, 0)
        if amount > 0 and counts(resource) and weighed * of > best * amount:
            best, of, dominant = weighed, amount, resource
    return Share(team, min(PPM, best * PPM // (of * whole)), dominant)


def counts(resource: str) -> bool:
    """Whether a resource is one of which a team can have a share."""
    return is_gpu(resource) or resource in (CPU, MEMORY)


def _seconds(span: timedelta) -> int:
    return span // timedelta(seconds=1)
