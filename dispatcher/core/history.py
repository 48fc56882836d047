"""How long runs of a queue and class usually last: what stands where an owner declares nothing (design section 5).

A run counts that ended well, with the time that it would have taken at speed 1000. Of each queue and class the newest
KEPT are remembered, and fewer than LEAST of them say nothing. The figure is their median: one run that hung, or that
had nothing to do, does not move it. It is rounded up to a step of at most a few percent, so that it is another figure
only where runs have become others: every figure that changes is a reason to decide anew on all that wait by it.

Runs are kept by when they ended, so the order in which they are told makes no difference.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from dispatcher.core.decision import Basis, Estimate
from dispatcher.core.ids import QueueName, WorkloadUid
from dispatcher.core.workload import Request, UsualRun, WorkloadClass

KEPT = 32
LEAST = 5
MOST_KINDS = 1024
"""Queues and classes that are remembered. Beyond these, the one goes of which nothing has ended for longest."""
_STEPS = ((2 * 3600, 60), (24 * 3600, 600))
"""Below so many seconds a figure is rounded up to so many; to an hour beyond."""

Kind = tuple[QueueName, WorkloadClass]
Usual = Mapping[Kind, UsualRun]
NO_HISTORY: Usual = MappingProxyType({})


class Ended(NamedTuple):
    """A run that ended well; `duration_s` is at speed 1000, and above zero."""

    ended_at: datetime
    workload: WorkloadUid
    duration_s: int


@dataclass(slots=True)
class History:
    """The newest runs of each queue and class, oldest first, and what they say."""

    _runs: dict[Kind, list[Ended]] = field(default_factory=dict)
    _usual: dict[Kind, UsualRun] = field(default_factory=dict)

    def add(self, kind: Kind, run: Ended) -> None:
        """Enter a run; one of no length tells nothing, and a run that is known already counts once."""
        runs = self._runs.get(kind, [])
        if run.duration_s <= 0 or run in runs:
            return
        self._runs[kind] = runs
        insort(runs, run)
        del runs[:-KEPT]
        found = _usual_of(runs)
        if found is not None:
            self._usual[kind] = found
        while len(self._runs) > MOST_KINDS:
            oldest = min(self._runs, key=lambda known: (self._runs[known][-1].ended_at, known))
            del self._runs[oldest]
            self._usual.pop(oldest, None)

    def says(self, usual: Usual) -> bool:
        """Whether this is what is known."""
        return self._usual == usual

    def usual(self) -> Usual:
        """What is known, by queue and class; a kind that is not in it is unknown."""
        return dict(sorted(self._usual.items()))


def _usual_of(runs: list[Ended]) -> UsualRun | None:
    if len(runs) < LEAST:
        return None
    median = sorted(run.duration_s for run in runs)[len(runs) // 2]
    step = next((step for below, step in _STEPS if median < below), 3600)
    return UsualRun(-(-median // step) * step, len(runs))


def estimated(declared_s: int | None, usual: UsualRun | None, default_s: int) -> Estimate:
    """How long a run is expected to take at speed 1000: what its owner declares, else how long runs of its queue and
    class usually last, else the default."""
    if declared_s is not None:
        return Estimate(declared_s, Basis.DECLARED)
    if usual is not None:
        return Estimate(usual.duration_s, Basis.HISTORY, usual.runs)
    return Estimate(default_s, Basis.CLASS_DEFAULT)


def usual_of(request: Request, usual: Usual) -> UsualRun | None:
    """What a decision on a request may know of it: nothing where its owner says how long it runs."""
    kind = request.declared.workload_class
    if request.declared.expected_duration_s is not None or kind is None:
        return None
    return usual.get((request.hub_queue, kind))
