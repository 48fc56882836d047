"""Jobs made of nothing but a seed and the published tables: how many GPUs, how long, and when they come."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from dispatcher.sim.generator.draws import UNIT, Draws
from dispatcher.sim.generator.published import PHILLY_GPUS, PHILLY_HOURS, PHILLY_RUN_TIMES
from dispatcher.sim.generator.quantiles import Quantiles
from dispatcher.sim.jobs import Recipe
from dispatcher.sim.trace import TraceJob, gang

DAY_S = 86_400
HOUR_S = 3_600


class Arrivals(StrEnum):
    """POISSON: at an even rate. DIURNAL: at the rate of the hour of the day."""

    POISSON = "poisson"
    DIURNAL = "diurnal"


@dataclass(frozen=True, slots=True)
class Shape:
    """What generated jobs look like. `longest_s` cuts the tail of the run times: without it a handful of month-long
    jobs carry most of the work of a short scenario, and say more of themselves than of who is compared."""

    run_times: Quantiles = PHILLY_RUN_TIMES
    gpus: tuple[tuple[int, int], ...] = PHILLY_GPUS
    longest_s: int = DAY_S
    shortest_s: int = 30
    arrivals: Arrivals = Arrivals.DIURNAL
    hours: tuple[int, ...] = PHILLY_HOURS

    def recipe(self) -> Recipe:
        """What a report prints of it."""
        times = self.run_times.between(self.shortest_s, self.longest_s)
        p50, p90, p99 = (times.at(UNIT * permille // 1000) for permille in (500, 900, 990))
        parts = sum(weight for _, weight in self.gpus)
        mix = ", ".join(f"{gpus}: {weight * 1000 / parts:.1f}" for gpus, weight in self.gpus)
        return (
            ("run times", f"p50 {p50} s, p90 {p90} s, p99 {p99} s, cut to {self.shortest_s}..{self.longest_s} s"),
            ("GPUs", f"permille of jobs by GPUs: {mix}"),
            ("arrivals", self.arrivals.value),
        )


def jobs(count: int, seed: int, shape: Shape) -> tuple[TraceJob, ...]:
    """`count` jobs with sizes and run times, all submitted at 0: when they come depends on the load (`submissions`)."""
    times = shape.run_times.between(shape.shortest_s, shape.longest_s)
    digits = len(str(count - 1))
    made = []
    for number in range(count):
        name = f"job-{number:0{digits}d}"
        draws = Draws(seed, "job", name)
        pods, each = gang(draws.weighted(shape.gpus))
        made.append(TraceJob(name, 0, pods, each, times.at(draws.even())))
    return tuple(made)


def submissions(count: int, span_s: int, seed: int, shape: Shape) -> tuple[int, ...]:
    """`count` instants within `span_s`, in order.

    A Poisson process that is known to have brought `count` jobs is `count` independent draws from its rate.
    """
    draws = Draws(seed, "arrivals")
    rate = shape.hours if shape.arrivals is Arrivals.DIURNAL else (1,)
    clock = _Clock(span_s, rate)
    return tuple(sorted(clock.instant(draws.even()) for _ in range(count)))


class _Clock:
    """Turns even draws into instants that are dense where the rate is high."""

    def __init__(self, span_s: int, rate: tuple[int, ...]) -> None:
        hours = range(-(-span_s // HOUR_S))
        self._lengths = [min(HOUR_S, span_s - hour * HOUR_S) for hour in hours]
        self._areas = [length * rate[hour % len(rate)] for hour, length in zip(hours, self._lengths, strict=True)]
        self._ends = list(accumulate(self._areas))

    def instant(self, draw: int) -> int:
        point = draw * self._ends[-1] // UNIT
        hour = bisect_right(self._ends, point)
        within = point - (self._ends[hour] - self._areas[hour])
        return hour * HOUR_S + within * self._lengths[hour] // self._areas[hour]
