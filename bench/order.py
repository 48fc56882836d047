"""`order`: how long jobs wait, just under what the fleet can do and over it, on generated jobs and on a trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.contest import Course, contest, summaries
from bench.rows import Bar, Row
from dispatcher.sim.report.summary import LARGE_GANG, ContenderSummary, GroupSummary

TRACE = "ENTREPOT_BENCH_TRACE"
"""The path of a trace (docs/simulate.md says of which schemas), run beside the generated jobs where it is given."""
DAYS = 14
"""So much of a trace: its densest stretch."""
PEER, OWN = "all-at-once", "entrepot"
LOADS: tuple[tuple[int, str, float], ...] = (
    (960, "steady-0.96", 1.02),
    (1200, "busy-1.2", 0.6),
    (1600, "overload-1.6", 0.7),
)
"""Load in permille, its named scenario, and what the mean wait may be of the peer's."""
GANGS = Bar("ratio", "at most", 1.1)


def run(say: Callable[[str], None]) -> Sequence[Row]:
    rows: list[Row] = []
    for course, limit in _courses():
        found = summaries(contest(course, (PEER, OWN), say))
        rows += _rows(course.name, found[OWN], found[PEER], Bar("ratio", "at most", limit))
    return rows


def _courses() -> Iterator[tuple[Course, float]]:
    for _, name, limit in LOADS:
        yield Course(name), limit
    path = os.environ.get(TRACE)
    for load, _, limit in LOADS if path else ():
        yield Course(f"trace-{load / 1000:g}", Path(str(path)), load, DAYS), limit


def _rows(name: str, own: ContenderSummary, peer: ContenderSummary, limit: Bar) -> Iterator[Row]:
    mine, theirs = own.all_jobs, peer.all_jobs
    yield Row(f"{name}: mean wait", mine.wait_s.mean, "s", PEER, theirs.wait_s.mean, limit)
    large, base = _gangs(own), _gangs(peer)
    if large is not None and base is not None:
        what = f"{name}: p99 wait of gangs over {LARGE_GANG} GPUs"
        yield Row(what, large.wait_s.p99, "s", PEER, base.wait_s.p99, GANGS)
        yield Row(f"{name}: mean wait of these {large.jobs} a seed", large.wait_s.mean, "s", PEER, base.wait_s.mean)
    yield Row(f"{name}: p99 wait", mine.wait_s.p99, "s", PEER, theirs.wait_s.p99)
    yield Row(f"{name}: jobs a seed", mine.jobs, "jobs")


def _gangs(summary: ContenderSummary) -> GroupSummary | None:
    return next((group for group in summary.groups if group.name == f"over {LARGE_GANG} GPUs"), None)
