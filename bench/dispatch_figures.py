"""From timelines and counters to figures: pure arithmetic, so that it can be tested without a fleet."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.dispatch_observer import Requests, Timeline, looks, writes

PLACED = ("placed", "finished")
"""The hub says that a job is on a cluster; of one that ends before MultiKueue looks again, only that it is finished."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One contender's turn: its backlog, all of it submitted at `started_s`, the urgent jobs that came behind it, and
    what everything together asked of the apiservers."""

    contender: str
    started_s: float
    backlog: tuple[Timeline, ...]
    urgent: tuple[Timeline, ...]
    copies: int
    requests: Requests

    @property
    def jobs(self) -> int:
        return len(self.backlog) + len(self.urgent)

    @property
    def to_cluster_per_s(self) -> float | None:
        return self._rate(PLACED)

    @property
    def half_to_cluster_per_s(self) -> float | None:
        """The same for the first half of the backlog; None when it did not get there."""
        reached = sorted(at for t in self.backlog if (at := first_of(t, PLACED)) is not None)
        half = len(self.backlog) // 2
        return half / (reached[half - 1] - self.started_s) if 0 < half <= len(reached) else None

    @property
    def to_finished_per_s(self) -> float | None:
        return self._rate(("finished",))

    def _rate(self, states: tuple[str, ...]) -> float | None:
        """Jobs of the backlog by the time until the last of them got there; None when one did not."""
        reached = [first_of(timeline, states) for timeline in self.backlog]
        if not reached or None in reached:
            return None
        return len(reached) / (max(at for at in reached if at is not None) - self.started_s)

    @property
    def reserved_to_cluster_s(self) -> list[float]:
        return waits(self.backlog, "quotareserved", PLACED)

    @property
    def urgent_wait_s(self) -> list[float]:
        """From an urgent job's creation to its cluster."""
        return waits(self.urgent, "created", PLACED)

    @property
    def copies_per_job(self) -> float:
        return self.copies / self.jobs

    def writes_per_job(self, *, on_hub: bool) -> float:
        return writes(self.requests, on_hub=on_hub) / self.jobs

    def looks_per_job(self, workers: int) -> float:
        """How often MultiKueue looked at a job: a look reads it once on every worker."""
        return looks(self.requests) / workers / self.jobs


@dataclass(frozen=True, slots=True)
class Idle:
    """Jobs that came one after the other to a hub that had nothing else to do."""

    jobs: tuple[Timeline, ...]

    @property
    def reserved_to_nominated_s(self) -> list[float]:
        return waits(self.jobs, "quotareserved", ("nominated",))

    @property
    def waiting_to_nominated_s(self) -> list[float]:
        """The same from when MultiKueue's check was open as well: no nomination counts before (kueue-contract, section
        4). What lies between the two is Kueue's own time."""
        found = [
            nominated - max(reserved, opened)
            for seen in (timeline.seen_s for timeline in self.jobs)
            if (reserved := seen.get("quotareserved")) is not None
            and (opened := seen.get("pending")) is not None
            and (nominated := seen.get("nominated")) is not None
        ]
        return sorted(found)


def first_of(timeline: Timeline, states: tuple[str, ...]) -> float | None:
    return min((timeline.seen_s[state] for state in states if state in timeline.seen_s), default=None)


def waits(timelines: Sequence[Timeline], begin: str, end: tuple[str, ...]) -> list[float]:
    """Seconds from one state to the first of others, of those that reached both, shortest first."""
    found = [(timeline.seen_s.get(begin), first_of(timeline, end)) for timeline in timelines]
    return sorted(then - since for since, then in found if since is not None and then is not None)


def percentile(values: Sequence[float], percent: int) -> float | None:
    """By nearest rank: a value that occurred. None of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else None


def mean(values: Sequence[float | None]) -> float | None:
    """Over the repeats of one contender; unknown when one of them is."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None
