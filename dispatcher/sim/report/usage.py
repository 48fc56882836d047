"""How much of the fleet is busy over time, as weights of time by share: what utilisation by class is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dispatcher.sim.results import ContenderResult, JobOutcome

Usage = Counter[int]
"""Seconds by permille of the fleet's GPUs in use."""


def usage(outcomes: Iterable[JobOutcome], result: ContenderResult) -> Usage:
    """For how long which share of the fleet was used by these jobs, while work was coming: from 0 to the last
    submission of the run. What the fleet does while the last jobs run out says nothing of who chose well.

    Time in which the fleet has no GPU is left out.
    """
    until = max((outcome.submit_s for outcome in result.outcomes), default=0)
    busy = Counter[int]()
    for outcome in outcomes:
        for run in outcome.runs:
            busy[run.start_s] += outcome.gpus
            busy[run.end_s] -= outcome.gpus
    capacity = _changes(result)
    found: Usage = Counter()
    now = used = gpus = 0
    for at in sorted({*busy, *capacity}):
        if at > now and gpus > 0 and now < until:
            found[1000 * used // gpus] += min(at, until) - now
        used += busy[at]
        gpus += capacity[at]
        now = max(now, at)
    if now < until and gpus > 0:
        found[1000 * used // gpus] += until - now
    return found


def _changes(result: ContenderResult) -> Counter[int]:
    """By how many GPUs the whole fleet grows or shrinks, by instant; what was there before 0 is there at 0."""
    known: dict[str, int] = {}
    changes = Counter[int]()
    for step in sorted(result.capacity, key=lambda step: (step.at_s, step.cluster)):
        changes[max(0, step.at_s)] += step.gpus - known.get(step.cluster, 0)
        known[step.cluster] = step.gpus
    return changes
