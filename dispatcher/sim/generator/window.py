"""Which jobs of a trace are used: its densest stretch, and only gangs that some cluster could hold."""

from __future__ import annotations

from dataclasses import replace

from dispatcher.sim.trace import Counts, Rule, TraceJob

DAY_S = 86_400

Kept = tuple[tuple[TraceJob, ...], Counts]
"""The jobs that stay, and how many went by which rule."""


def densest(jobs: tuple[TraceJob, ...], days: int | None) -> Kept:
    """The `days` in which most jobs were submitted, from their first submission on; `jobs` in order of submission.

    Of equal stretches the first.
    """
    if days is None:
        return jobs, ()
    first = best_first = best_end = 0
    for end, job in enumerate(jobs, start=1):
        while jobs[first].submit_s <= job.submit_s - days * DAY_S:
            first += 1
        if end - first > best_end - best_first:
            best_first, best_end = first, end
    start = jobs[best_first].submit_s if jobs else 0
    kept = tuple(replace(job, submit_s=job.submit_s - start) for job in jobs[best_first:best_end])
    return kept, _gone(Rule.OUTSIDE_WINDOW, len(jobs) - len(kept))


def fitting(jobs: tuple[TraceJob, ...], widest: int) -> Kept:
    """Jobs of at most `widest` GPUs."""
    kept = tuple(job for job in jobs if job.gpus <= widest)
    return kept, _gone(Rule.LARGER_THAN_ANY_CLUSTER, len(jobs) - len(kept))


def _gone(rule: Rule, count: int) -> Counts:
    return ((rule, count),) if count else ()
