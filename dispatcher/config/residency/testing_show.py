"""What running the tests gave, as text and as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dispatcher.config.residency.coverage import Coverage, Side
from dispatcher.config.residency.mutation import Survey
from dispatcher.config.residency.testing import Failure, Outcome, decisive
from residency.plans import Ruling


@dataclass(frozen=True, slots=True)
class Report:
    """All that `policy test` found. `wanted`: the coverage asked for, percent. `survey`: None when not asked for."""

    folder: str
    outcome: Outcome
    coverage: Coverage
    wanted: int
    survey: Survey | None = None

    @property
    def ok(self) -> bool:
        noticed = self.survey is None or not self.survey.survivors
        return self.outcome.ok and self.coverage.percent >= self.wanted and noticed


def failure_text(failure: Failure, folder: str) -> Iterator[str]:
    """The place, what was expected and came instead, and what the law says."""
    yield f"{_path(folder, failure.at)}: FAIL {failure.test} ({failure.plan})"
    width = max(len(one.what) for one in failure.differences)
    for one in failure.differences:
        yield f"    {one.what.ljust(width)}  expected {one.expected}"
        yield f"    {' '.ljust(width)}  got      {one.got}"
    yield f"    it says: {said(failure.ruling)}"


def said(ruling: Ruling) -> str:
    """A ruling in a line: the rule, its clause, what it saw, where it is written."""
    verdict = decisive(ruling)
    if verdict is None:
        permits = sorted({rule for one in ruling.verdicts for rule in one.permits})
        return f"allowed by {', '.join(permits)}"
    why = verdict.because
    at = why.clause_at if why.clause_at.file else why.at
    seen = f", saw {' '.join(why.seen)}" if why.seen else ""
    gap = f", {why.fact} is {why.gap.value}" if why.gap is not None else ""
    rule = f" by {why.rule}" if why.rule else ""
    clause = f": {why.clause}" if why.clause else ""
    where = f" ({at})" if at.file else ""
    return f"{verdict.answer.value}, {why.code.value}{rule}{clause}{seen}{gap}{where}, for label {verdict.label}"


def survey_text(survey: Survey, folder: str) -> Iterator[str]:
    for mutant in survey.survivors:
        yield f"{_path(folder, mutant.at)}: no test notices: {mutant.change.value} of {mutant.rule.id}: {mutant.what}"


def missing_text(coverage: Coverage, folder: str) -> Iterator[str]:
    """What no test sees, a line a clause."""
    for rule in coverage.rules:
        clauses: dict[str, list[str]] = {}
        places = {}
        for one in rule.missing:
            clauses.setdefault(one.cell.clause, []).append(one.cell.side.value)
            places[one.cell.clause] = one.at
        for clause, sides in clauses.items():
            what = clause or "the whole rule"
            yield f"{_path(folder, places[clause])}: not seen by any test: {rule.rule}: {what}: {', '.join(sides)}"


def summary(report: Report) -> str:
    outcome, coverage = report.outcome, report.coverage
    failed = len({failure.test for failure in outcome.failures})
    parts = [
        f"{report.folder}: {outcome.tests} tests, {outcome.asked} questions, {failed} failed",
        f"coverage {coverage.percent}% ({coverage.seen} of {coverage.cells})",
    ]
    if report.wanted and coverage.percent < report.wanted:
        parts.append(f"which is less than the {report.wanted}% wanted")
    if report.survey is not None:
        parts.append(f"{len(report.survey.survivors)} of {report.survey.tried} changes to the rules unnoticed")
    return ", ".join(parts)


def to_data(report: Report) -> dict[str, Any]:
    """For `-o json`; keys are stable."""
    return {
        "folder": report.folder,
        "ok": report.ok,
        "tests": report.outcome.tests,
        "questions": report.outcome.asked,
        "failures": [_failure(failure) for failure in report.outcome.failures],
        "coverage": {
            "percent": report.coverage.percent,
            "wanted": report.wanted,
            "rules": [
                {
                    "rule": rule.rule,
                    "seen": rule.seen,
                    "cells": rule.cells,
                    "missing": [{"clause": m.cell.clause, "side": m.cell.side.value} for m in rule.missing],
                }
                for rule in report.coverage.rules
            ],
        },
        "unnoticed": None
        if report.survey is None
        else [
            {"change": m.change.value, "rule": m.rule.id, "what": m.what, "at": str(m.at)}
            for m in report.survey.survivors
        ],
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "test": failure.test,
        "plan": failure.plan,
        "file": failure.at.file,
        "line": failure.at.line,
        "column": failure.at.column,
        "differences": [{"what": d.what, "expected": d.expected, "got": d.got} for d in failure.differences],
        "said": said(failure.ruling),
    }


def sides(coverage: Coverage) -> Iterable[tuple[str, str, str, str, str]]:
    """A row a rule: how many clauses some test saw letting through, refusing and not knowing."""
    for rule in coverage.rules:
        missing = {side: sum(1 for m in rule.missing if m.cell.side is side) for side in Side}
        totals = {side: missing[side] + rule.seen_of(side) for side in Side}
        counts = (f"{rule.seen_of(side)}/{totals[side]}" if totals[side] else "-" for side in Side)
        permit, deny, unknown = counts
        yield rule.rule, permit, deny, unknown, "" if not rule.missing else "incomplete"


def _path(folder: str, at: object) -> str:
    return f"{folder.rstrip('/')}/{at}"
