"""The numbers of a report: each contender over all seeds, in whole and by group of jobs, beside the first one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dispatcher.core.prices import div_half_up
from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.report.percentiles import P50, P95, P99, mean, percentile, weighted_percentile
from dispatcher.sim.report.usage import Usage, usage
from dispatcher.sim.results import Comparison, ContenderResult, JobOutcome

LARGE_GANG = 8
"""Gangs of more GPUs need more than one node; how they fare is shown on its own, since ordering starves them first."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What a quantity is over the jobs of all seeds (utilisation: over their time)."""

    p50: int
    p95: int
    p99: int
    mean: int

    @classmethod
    def of(cls, values: Iterable[int]) -> Spread:
        """Raises IndexError where there is no value."""
        ordered = sorted(values)
        return cls(percentile(ordered, P50), percentile(ordered, P95), percentile(ordered, P99), mean(ordered))

    @classmethod
    def over_time(cls, found: Usage) -> Spread | None:
        """Of shares in permille that held for so many seconds; None where no time passed."""
        seconds = found.total()
        if not seconds:
            return None
        p50, p95, p99 = (weighted_percentile(found, permille) for permille in (P50, P95, P99))
        return cls(p50, p95, p99, div_half_up(sum(share * weight for share, weight in found.items()), seconds))


@dataclass(frozen=True, slots=True)
class Ratio:
    """A sum by that of the first contender on the same jobs, in permille; over the seeds from `least` to `most`."""

    permille: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Of a seed on average, rounded: jobs that never ended, copies on workers, runs that were stopped for others, and
    those of them from which nobody gained."""

    unfinished: int
    copies: int
    preemptions: int
    needless_preemptions: int

    @classmethod
    def of(cls, outcomes: Sequence[JobOutcome], seeds: int) -> Counts:
        sums = (
            sum(o.finish_s is None for o in outcomes),
            sum(o.copies for o in outcomes),
            sum(o.preemptions for o in outcomes),
            sum(o.needless_preemptions for o in outcomes),
        )
        return cls(*(div_half_up(whole, seeds) for whole in sums))


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group of jobs: all, those of one class, or the large gangs. Times in seconds, money in micro-USD, utilisation
    in permille of the fleet. A job that never ran or never ended counts as if it had at the end of the simulation:
    it waited at least so long. Ratios are None where the first contender's sum is zero."""

    name: str
    jobs: int
    wait_s: Spread
    completion_s: Spread
    cost: Spread
    egress: Spread
    used: Spread | None
    wait_ratio: Ratio | None
    completion_ratio: Ratio | None
    cost_ratio: Ratio | None
    egress_ratio: Ratio | None
    counts: Counts


@dataclass(frozen=True, slots=True)
class ContenderSummary:
    """One contender. Sums are the means of a seed, rounded; `groups` begins with all jobs."""

    contender: str
    is_bound: bool
    seeds: tuple[int, ...]
    groups: tuple[GroupSummary, ...]
    cost_usd_micro: int
    egress_usd_micro: int
    egress_bytes: int

    @property
    def all_jobs(self) -> GroupSummary:
        return self.groups[0]


Value = Callable[[JobOutcome, int], int]
"""What is measured of a job; the second argument is when the simulation ended."""


def _wait_s(outcome: JobOutcome, end_s: int) -> int:
    return max(0, (end_s if outcome.start_s is None else outcome.start_s) - outcome.submit_s)


def _completion_s(outcome: JobOutcome, end_s: int) -> int:
    return max(0, (end_s if outcome.finish_s is None else outcome.finish_s) - outcome.submit_s)


def _cost(outcome: JobOutcome, _: int) -> int:
    return outcome.cost_usd_micro


def _egress(outcome: JobOutcome, _: int) -> int:
    return outcome.egress_usd_micro


def summarise(comparison: Comparison) -> tuple[ContenderSummary, ...]:
    """All contenders in the order of their first result.

    Raises:
        ValueError: there is no result, or one without jobs.
    """
    by_contender: dict[str, list[ContenderResult]] = {}
    for result in comparison.results:
        by_contender.setdefault(result.contender, []).append(result)
    if not by_contender or not all(result.outcomes for result in comparison.results):
        raise ValueError(f"{comparison.scenario}: nothing was simulated")
    first = next(iter(by_contender.values()))
    return tuple(_contender(results, first) for results in by_contender.values())


def _contender(results: Sequence[ContenderResult], first: Sequence[ContenderResult]) -> ContenderSummary:
    def of_a_seed(value: Callable[[JobOutcome], int]) -> int:
        return div_half_up(sum(value(o) for result in results for o in result.outcomes), len(results))

    return ContenderSummary(
        contender=results[0].contender,
        is_bound=results[0].is_bound,
        seeds=tuple(result.seed for result in results),
        groups=tuple(_group(name, belongs, results, first) for name, belongs in _groups(results)),
        cost_usd_micro=of_a_seed(lambda o: o.cost_usd_micro),
        egress_usd_micro=of_a_seed(lambda o: o.egress_usd_micro),
        egress_bytes=of_a_seed(lambda o: o.egress_bytes),
    )


Belongs = Callable[[JobOutcome], bool]


def _groups(results: Sequence[ContenderResult]) -> list[tuple[str, Belongs]]:
    """All jobs, each class that occurs, the large gangs where there are any."""
    outcomes = [outcome for result in results for outcome in result.outcomes]
    classes = {outcome.workload_class for outcome in outcomes}
    groups: list[tuple[str, Belongs]] = [("all", lambda _: True)]
    groups += [(wanted.value, _is_of(wanted)) for wanted in WorkloadClass if wanted in classes]
    if any(outcome.gpus > LARGE_GANG for outcome in outcomes):
        groups.append((f"over {LARGE_GANG} GPUs", lambda outcome: outcome.gpus > LARGE_GANG))
    return groups


def _is_of(wanted: WorkloadClass) -> Belongs:
    return lambda outcome: outcome.workload_class is wanted


def _group(
    name: str, belongs: Belongs, results: Sequence[ContenderResult], first: Sequence[ContenderResult]
) -> GroupSummary:
    own = [(o, result.end_s) for result in results for o in result.outcomes if belongs(o)]
    used: Usage = Counter()
    for result in results:
        used.update(usage(filter(belongs, result.outcomes), result))

    def ratio(value: Value) -> Ratio | None:
        return _ratio(_sums(results, belongs, value), _sums(first, belongs, value))

    return GroupSummary(
        name=name,
        jobs=div_half_up(len(own), len(results)),
        wait_s=Spread.of(_wait_s(o, end) for o, end in own),
        completion_s=Spread.of(_completion_s(o, end) for o, end in own),
        cost=Spread.of(_cost(o, end) for o, end in own),
        egress=Spread.of(_egress(o, end) for o, end in own),
        used=Spread.over_time(used),
        wait_ratio=ratio(_wait_s),
        completion_ratio=ratio(_completion_s),
        cost_ratio=ratio(_cost),
        egress_ratio=ratio(_egress),
        counts=Counts.of([o for o, _ in own], len(results)),
    )


def _sums(results: Sequence[ContenderResult], belongs: Belongs, value: Value) -> dict[int, int]:
    """The sum of each seed."""
    return {r.seed: sum(value(o, r.end_s) for o in r.outcomes if belongs(o)) for r in results}


def _ratio(own: dict[int, int], base: dict[int, int]) -> Ratio | None:
    shared = sorted(own.keys() & base.keys())
    whole = sum(base[seed] for seed in shared)
    if not whole:
        return None
    each = [div_half_up(1000 * own[seed], base[seed]) for seed in shared if base[seed]]
    return Ratio(div_half_up(1000 * sum(own[seed] for seed in shared), whole), min(each), max(each))
