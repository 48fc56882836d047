"""Results as CSV for other tools: a row a job, and a row a contender and group of jobs. Same results, same bytes.

CSV alone: the reader of these files has a data frame library already, and we would carry one for a single function
(docs/adr/0019-simulation-outputs.md). Times are seconds, money is micro-USD, an empty field is unknown.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from dispatcher.sim.report.summary import ContenderSummary, GroupSummary, Ratio, Spread, summarise
from dispatcher.sim.results import Comparison, ContenderResult, JobOutcome

Cell = str | int | None

JOB_COLUMNS: tuple[str, ...] = (
    "scenario", "contender", "bound", "seed", "job", "class", "queue", "team", "gpus", "submit_s", "start_s",
    "finish_s", "wait_s", "completion_s", "runs", "cluster", "flavor", "gpu_seconds", "cost_usd_micro",
    "egress_usd_micro", "egress_bytes", "copies", "preemptions", "needless_preemptions",
)  # fmt: skip
"""Then `cost_TERM_usd_micro` for each term that occurs, by name. Cluster and flavor are those of the last run."""

_SPREADS = ("wait_s", "completion_s", "cost_usd_micro", "egress_usd_micro", "used_permille")
_RATIOS = ("wait", "completion", "cost", "egress")
_COUNTS = ("unfinished", "copies", "preemptions", "needless_preemptions")
SUMMARY_COLUMNS: tuple[str, ...] = (
    "scenario", "contender", "bound", "seeds", "group", "jobs",
    *(f"{name}_{part}" for name in _SPREADS for part in ("p50", "p95", "p99", "mean")),
    *(f"{name}_ratio_permille" for name in _RATIOS), *_COUNTS,
)  # fmt: skip
"""Ratios are by the first contender, counts those of one seed."""


def write_jobs_csv(comparison: Comparison, path: Path) -> None:
    """A row for each job of each contender and seed.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        jobs_csv(comparison, file)


def write_summary_csv(comparison: Comparison, path: Path) -> None:
    """A row for each contender and group of jobs.

    Raises:
        OSError: the file cannot be written.
        ValueError: nothing was simulated.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        summary_csv(comparison, file)


def jobs_csv(comparison: Comparison, file: TextIO) -> None:
    """As `write_jobs_csv`, into an open file."""
    terms = sorted({term for r in comparison.results for o in r.outcomes for term, _ in o.costs})
    table = csv.writer(file, lineterminator="\n")
    table.writerow((*JOB_COLUMNS, *(f"cost_{term}_usd_micro" for term in terms)))
    for result in comparison.results:
        for outcome in result.outcomes:
            costs = dict(outcome.costs)
            row = _job(outcome, result, comparison.scenario)
            table.writerow((*row, *(costs.get(term, 0) for term in terms)))


def summary_csv(comparison: Comparison, file: TextIO) -> None:
    """As `write_summary_csv`, into an open file."""
    table = csv.writer(file, lineterminator="\n")
    table.writerow(SUMMARY_COLUMNS)
    for summary in summarise(comparison):
        for group in summary.groups:
            table.writerow((*_head(summary, comparison.scenario), *_group(group)))


def _job(outcome: JobOutcome, result: ContenderResult, scenario: str) -> tuple[Cell, ...]:
    last = outcome.runs[-1] if outcome.runs else None
    return (
        scenario, result.contender, int(result.is_bound), result.seed, outcome.job, outcome.workload_class.value,
        outcome.queue, outcome.team, outcome.gpus, outcome.submit_s, outcome.start_s, outcome.finish_s, outcome.wait_s,
        outcome.completion_s, len(outcome.runs), last.cluster if last else None, last.flavor if last else None,
        outcome.gpu_seconds, outcome.cost_usd_micro, outcome.egress_usd_micro, outcome.egress_bytes, outcome.copies,
        outcome.preemptions, outcome.needless_preemptions,
    )  # fmt: skip


def _head(summary: ContenderSummary, scenario: str) -> tuple[Cell, ...]:
    return scenario, summary.contender, int(summary.is_bound), " ".join(map(str, summary.seeds))


def _group(group: GroupSummary) -> Iterator[Cell]:
    yield group.name
    yield group.jobs
    for spread in (group.wait_s, group.completion_s, group.cost, group.egress, group.used):
        yield from _spread(spread)
    for ratio in (group.wait_ratio, group.completion_ratio, group.cost_ratio, group.egress_ratio):
        yield _permille(ratio)
    counts = group.counts
    yield from (counts.unfinished, counts.copies, counts.preemptions, counts.needless_preemptions)


def _spread(spread: Spread | None) -> tuple[Cell, ...]:
    return (None,) * 4 if spread is None else (spread.p50, spread.p95, spread.p99, spread.mean)


def _permille(ratio: Ratio | None) -> int | None:
    return None if ratio is None else ratio.permille
