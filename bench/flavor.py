"""`flavor`: what it is worth to know what a job costs on which GPU type, beside one who does not and beside a bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.contest import Course, contest, seeds, summaries
from bench.rows import Bar, Row
from bench.transport import bound_usd
from dispatcher.sim.results import Comparison
from dispatcher.sim.world import set_up

COURSE = Course("three-types")
BLIND, OWN, CHEAPEST = "type-blind", "entrepot", "cheapest"
BEST = "transport bound (HiGHS)"
USD = 10**6
AGAINST_BLIND = Bar("ratio", "at most", 0.75)
AGAINST_BOUND = Bar("ratio", "at most", 1.10)


def run(say: Callable[[str], None]) -> Sequence[Row]:
    comparison = contest(COURSE, (BLIND, OWN, CHEAPEST), say)
    found = summaries(comparison)
    blind, own, cheapest = found[BLIND], found[OWN], found[CHEAPEST]
    cost = own.cost_usd_micro / USD
    known, told = (_bound(comparison, by_class=by_class) for by_class in (True, False))
    say(f"bounds: {known:.0f} USD by class, {told:.0f} USD told every job's own speeds")
    return (
        Row("cost", cost, "USD", BLIND, blind.cost_usd_micro / USD, AGAINST_BLIND),
        Row("cost", cost, "USD", BEST, known, AGAINST_BOUND),
        Row("cost beside a bound that is told each job's own speeds", cost, "USD", BEST, told),
        Row("cost beside the lowest price of the run", cost, "USD", CHEAPEST, cheapest.cost_usd_micro / USD),
        Row("mean wait", own.all_jobs.wait_s.mean, "s", BLIND, blind.all_jobs.wait_s.mean),
        Row("mean completion", own.all_jobs.completion_s.mean, "s", BLIND, blind.all_jobs.completion_s.mean),
        Row("jobs a seed", own.all_jobs.jobs, "jobs"),
        Row("jobs that never ended", own.all_jobs.counts.unfinished, "jobs", BLIND, blind.all_jobs.counts.unfinished),
    )


def _bound(comparison: Comparison, *, by_class: bool) -> float:
    """The mean over the seeds, each for the time that Entrepot took."""
    ends = {result.seed: result.end_s for result in comparison.results if result.contender == OWN}
    found = [bound_usd(set_up(COURSE.scenario(seed)), ends[seed], by_class=by_class) for seed in seeds()]
    return sum(found) / len(found)
