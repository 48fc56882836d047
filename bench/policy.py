"""`policy`: a million random (bundle, data, fleet) triples through the production path, none of which may end in a
forbidden flow; what a preview of other rules costs; what one set of verdicts costs.

The paths that exist today: dispatch (a workload without a nomination), escalation (one more cluster while the first
stands), reload while waiting (other rules arrive: what stands is judged again, and the next decision is by the new
ones). Every placement is judged by the oracle, which shares no code with the engine, beside what a chooser that is
blind to the law would have taken of the very same candidates. The count is fixed; chunks only show how far it is.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

from bench.policy_law import figures
from bench.policy_oracle import Job, forbidden
from bench.policy_world import TRIPLES, Draw, draw, snapshot
from bench.rows import Bar, Row
from dispatcher.core.decide import decide, rank
from dispatcher.core.decision import Candidate, Decision, Reason
from dispatcher.core.ids import ClusterName
from dispatcher.core.index import ViewIndex
from dispatcher.core.legality import ruling_on
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.workload import Request
from tests.core_builders import NOW

COUNT = 1_000_000
CHUNK = 320
"""Draws a chunk: about ten thousand triples."""
_OF_THE_LAW = frozenset({Reason.RESIDENCY, Reason.RESIDENCY_INDETERMINATE})


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of some triples. `placed` are nominations made, `unseen` nominations that other rules made illegal
    and that judging again did not find. `refused`: the engine said no where the oracle found nothing against it."""

    triples: int = 0
    placed: int = 0
    wrong: int = 0
    unseen: int = 0
    blind: int = 0
    blind_wrong: int = 0
    refused: int = 0
    examples: tuple[str, ...] = ()

    def plus(self, other: Tally) -> Tally:
        return Tally(
            self.triples + other.triples,
            self.placed + other.placed,
            self.wrong + other.wrong,
            self.unseen + other.unseen,
            self.blind + other.blind,
            self.blind_wrong + other.blind_wrong,
            self.refused + other.refused,
            (*self.examples, *other.examples)[:5],
        )


def run(say: Callable[[str], None]) -> Sequence[Row]:
    rows = list(figures(say))
    started_s, total = time.monotonic(), Tally()
    draws = -(-COUNT // TRIPLES)
    firsts = range(0, draws, CHUNK)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        chunks = pool.map(tally, firsts, (min(CHUNK, draws - first) for first in firsts))
        for at, found in enumerate(chunks, 1):
            total = total.plus(found)
            if at % 5 == 0 or total.wrong:
                rate = total.triples / (time.monotonic() - started_s)
                say(f"{total.triples:,} triples, {rate:,.0f}/s, {total.wrong} forbidden, blind {total.blind_wrong:,}")
    for example in total.examples:
        say(example)
    return [*_rows(total), *rows]


def _rows(total: Tally) -> list[Row]:
    blind = f"a chooser that is blind to the law, {total.blind:,} placements on the same triples"
    return [
        Row("random triples of bundle, data and fleet", total.triples, "", bar=Bar("value", "at least", COUNT)),
        Row("nominations made for them", total.placed, ""),
        Row("forbidden flows", total.wrong, "", blind, total.blind_wrong, Bar("value", "at most", 0)),
        Row("nominations made illegal by a reload and not found", total.unseen, "", bar=Bar("value", "at most", 0)),
        Row("clusters refused where nothing forbids them", total.refused, "", bar=Bar("value", "at most", 0)),
    ]


def tally(first: int, count: int) -> Tally:
    """All paths over some draws, from their numbers."""
    gc.disable()
    total = Tally()
    for number in range(first, first + count):
        total = total.plus(one_draw(draw(number)))
    gc.enable()
    gc.collect()
    return total


def one_draw(drawn: Draw) -> Tally:
    """With a memo of its own. What it has read of the clusters, which are as free in every draw, is read once."""
    total = Tally()
    memo = CandidateMemo(_views())
    for job, request in drawn.jobs:
        total = total.plus(_one_job(drawn, job, request, memo))
    return total


@cache
def _views() -> ViewIndex:
    return ViewIndex()


def _one_job(drawn: Draw, job: Job, request: Request, memo: CandidateMemo) -> Tally:
    """Dispatch and escalation under the first bundle; then the second arrives while the job waits."""
    seen = snapshot()
    decision = decide(request, seen, drawn.policies[0], NOW, memo)
    total = _judged(drawn, 0, job, decision)
    standing: tuple[ClusterName, ...] = (decision.chosen,) if decision.chosen is not None else ()
    if standing:
        further = decide(replace(request, already_nominated=standing), seen, drawn.policies[0], NOW, memo)
        total = total.plus(_counted(drawn, 0, job, further.chosen))
        standing += (further.chosen,) if further.chosen is not None else ()
    for cluster in standing:
        total = total.plus(_found_again(drawn, job, request, cluster))
    waiting = replace(request, already_nominated=standing)
    return total.plus(_judged(drawn, 1, job, decide(waiting, seen, drawn.policies[1], NOW, memo)))


def _judged(drawn: Draw, at: int, job: Job, decision: Decision) -> Tally:
    """A triple: the choice, the blind choice among the same candidates, and refusals without a reason."""
    total = replace(_counted(drawn, at, job, decision.chosen), triples=1)
    blind = rank(decision.workload, tuple(_blind(candidate) for candidate in decision.candidates))
    if blind:
        why = forbidden(drawn.told[at], drawn.world, job, blind[0])
        total = replace(total, blind=1, blind_wrong=1 if why else 0)
    refused = sum(
        1
        for candidate in decision.candidates
        if any(r.reason in _OF_THE_LAW for r in candidate.rejections)
        and not forbidden(drawn.told[at], drawn.world, job, candidate.cluster)
    )
    return replace(total, refused=refused)


def _blind(candidate: Candidate) -> Candidate:
    return replace(candidate, rejections=tuple(r for r in candidate.rejections if r.reason not in _OF_THE_LAW))


def _counted(drawn: Draw, at: int, job: Job, chosen: ClusterName | None) -> Tally:
    if chosen is None:
        return Tally()
    why = forbidden(drawn.told[at], drawn.world, job, chosen)
    return Tally(placed=1, wrong=1 if why else 0, examples=(f"{job} on {chosen}: {why}",) if why else ())


def _found_again(drawn: Draw, job: Job, request: Request, cluster: ClusterName) -> Tally:
    """A nomination that stands when other rules arrive: what judges it again is what the loop over standing work asks
    (`core/illegal.py`)."""
    policy = drawn.policies[1]
    ruling = ruling_on(request, policy.clusters[cluster], policy, NOW)
    unseen = ruling.allowed and bool(forbidden(drawn.told[1], drawn.world, job, cluster))
    return Tally(unseen=1 if unseen else 0)
