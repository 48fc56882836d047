"""Results to report on, made by the simplest of schedulers: one pool, first come first served, no cluster ever full
longer than it must be. What it decides is of no interest; that it is the same in every run is."""

from __future__ import annotations

from heapq import heappop, heappush

from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.jobs import Scenario
from dispatcher.sim.results import CapacityStep, Comparison, ContenderResult, JobOutcome, Run


def outcome(
    job: str = "job-1",
    *,
    submit_s: int = 0,
    start_s: int | None = 60,
    finish_s: int | None = 3_660,
    gpus: int = 1,
    workload_class: WorkloadClass = WorkloadClass.TRAINING,
    cost: int = 2_000_000,
    egress: int = 0,
) -> JobOutcome:
    """One job that ran once, or never (`start_s` None), or had not ended (`finish_s` None, then at 10,000 s)."""
    end = 10_000 if finish_s is None else finish_s
    runs = () if start_s is None else (Run("onprem-eu", "h100", start_s, end),)
    costs = (("run", cost - egress), ("egress", egress)) if egress else (("run", cost),)
    return JobOutcome(
        job, workload_class, "models", "team-1", gpus, submit_s, runs, finish_s, costs, egress, egress, 1, 0, 0
    )


def result(
    *outcomes: JobOutcome, contender: str = "all-at-once", seed: int = 1, gpus: int = 10, is_bound: bool = False
) -> ContenderResult:
    """A run of one contender on a fleet of `gpus`, over at 10,000 s."""
    return ContenderResult(contender, seed, outcomes, (CapacityStep(0, "onprem-eu", gpus),), 10_000, is_bound)


def comparison(*results: ContenderResult) -> Comparison:
    return Comparison("small", 1_200, (("load", "1.2"),), ("a trace: CC-BY-4.0",), results)


def served_in_order(scenario: Scenario, contender: str, gpus: int, usd_micro_per_gpu_hour: int) -> ContenderResult:
    """The jobs of a scenario one after another as they came, as soon as enough GPUs of the pool are free."""
    ends: list[tuple[int, int]] = []
    free, now = gpus, 0
    outcomes = []
    for job in scenario.jobs:
        now = max(now, job.submit_s)
        while ends and (ends[0][0] <= now or free < job.gpus):
            end, released = heappop(ends)
            now, free = max(now, end), free + released
        free -= job.gpus
        heappush(ends, (now + job.duration_s, job.gpus))
        read = sum(scenario.catalog[reading.data_set].size_bytes * reading.epochs for reading in job.data)
        costs = (("run", job.gpu_seconds * usd_micro_per_gpu_hour // 3_600), ("egress", read // 50_000))
        run = Run("onprem-eu", "h100", now, now + job.duration_s)
        outcomes.append(
            JobOutcome(
                job.name, job.workload_class, job.queue, job.team, job.gpus, job.submit_s, (run,), run.end_s, costs,
                read // 50_000, read, 4, 0, 0,
            )
        )  # fmt: skip
    end_s = max(o.finish_s or 0 for o in outcomes)
    return ContenderResult(contender, scenario.seed, tuple(outcomes), (CapacityStep(0, "onprem-eu", gpus),), end_s)
