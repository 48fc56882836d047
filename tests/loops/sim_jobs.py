"""Small scenarios for the simulator's tests, on the fleet that comes with it: four sites of 48 H100 each."""

from __future__ import annotations

from typing import Any

from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.jobs import Checkpoint, Reading, Scenario, SimDataSet, SimJob

SITES = ("cloud-a-fi", "cloud-b-fr", "cloud-c-us", "onprem-eu")
REGIONS = ("fi-helsinki", "fr-paris", "us-ohio", "de-stuttgart")


def sim_job(name: str, at: int = 10, lasts: int = 600, pods: int = 1, gpus: int = 8, **more: Any) -> SimJob:
    """A training job of `pods` x `gpus` whose owner knows how long it takes."""
    return SimJob(
        name=name,
        submit_s=at,
        queue=more.pop("queue", "models"),
        team="team-1",
        workload_class=more.pop("workload_class", WorkloadClass.TRAINING),
        pods=pods,
        gpus_per_pod=gpus,
        duration_s=lasts,
        estimate_s=more.pop("estimate", lasts),
        home_region=more.pop("home", "de-stuttgart"),
        **more,
    )


def scenario(*jobs: SimJob, data: tuple[SimDataSet, ...] = (), seed: int = 1) -> Scenario:
    ordered = tuple(sorted(jobs, key=lambda job: (job.submit_s, job.name)))
    span_s = max((job.submit_s for job in jobs), default=0) + 1
    return Scenario("tiny", "four-sites", seed, 1000, span_s, ordered, data, (("made", "by hand"),))


def crowd(count: int, *, urgent: bool = False) -> Scenario:
    """Jobs of many sizes and lengths that come faster than they end, so that some wait, some queue ahead of capacity,
    and with `urgent` some stop others."""
    sizes = ((1, 8), (3, 8), (1, 4), (2, 8), (1, 1), (5, 8), (1, 2), (6, 8))
    kinds = (("models", WorkloadClass.TRAINING), ("simulation", WorkloadClass.SIMULATION))
    jobs = []
    for number in range(count):
        pods, gpus = sizes[number % len(sizes)]
        queue, kind = kinds[number % 3 == 0]
        lasts = 900 + 613 * (number % 7)
        jobs.append(
            sim_job(
                f"job-{number:03d}",
                7 * number,
                lasts,
                pods,
                gpus,
                queue=queue,
                workload_class=kind,
                estimate=lasts // 2 + 100 * (number % 5),
                home=REGIONS[number % 4],
                priority="production" if urgent and number % 9 == 8 else "",
                checkpoint=Checkpoint(10**10, 300, 10) if number % 2 else None,
                data=(Reading("radar"),) if number % 4 == 0 else (),
            )
        )
    return scenario(*jobs, data=(SimDataSet("radar", 2 * 10**11, ("internal",), ("fr-paris",)),))
