"""How much of the rules their tests see: each clause once letting through, once refusing, once not knowing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from dispatcher.config.residency.testing_files import Case
from residency.clauses import Clause, Truth
from residency.judge import Law
from residency.rules import Rule
from residency.vocabulary import At, Effect

ALWAYS_KNOWN = frozenset({"destination.name", "destination.kind", "time.now"})
"""Facts that nothing can hide: a clause on them is never unknown."""
WHOLE = ""
"""Stands for the clause of a rule that has none: it always holds."""


class Side(StrEnum):
    """What a clause does to a flow: a clause of a forbid that holds refuses, one of a permit lets through."""

    PERMIT = "permit"
    DENY = "deny"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One thing that a test can see."""

    rule: str
    clause: str
    side: Side


@dataclass(frozen=True, slots=True)
class Missing:
    """A cell that no test sees, with where its clause is written."""

    cell: Cell
    at: At


@dataclass(frozen=True, slots=True)
class RuleCoverage:
    """What of one rule is seen: how many of its cells of each side, and which are not."""

    rule: str
    at: At
    by_side: tuple[tuple[Side, int], ...]
    missing: tuple[Missing, ...]

    def seen_of(self, side: Side) -> int:
        return dict(self.by_side).get(side, 0)

    @property
    def seen(self) -> int:
        return sum(count for _, count in self.by_side)

    @property
    def cells(self) -> int:
        return self.seen + len(self.missing)


@dataclass(frozen=True, slots=True)
class Coverage:
    """By rule, in order of id."""

    rules: tuple[RuleCoverage, ...]

    @property
    def seen(self) -> int:
        return sum(rule.seen for rule in self.rules)

    @property
    def cells(self) -> int:
        return sum(rule.cells for rule in self.rules)

    @property
    def percent(self) -> int:
        """Rounded down: 100 means all."""
        return 100 if self.cells == 0 else self.seen * 100 // self.cells

    @property
    def missing(self) -> tuple[Missing, ...]:
        return tuple(one for rule in self.rules for one in rule.missing)


def cover(law: Law, cases: Iterable[Case]) -> Coverage:
    """Which cells of the rules some test sees. A test sees every rule that speaks of its labels and flows."""
    seen = {cell for case in cases for cell in _seen(law, case)}
    found = []
    for rule in law.bundle.rules:
        cells = dict(_cells(rule))
        missing = tuple(Missing(cell, at) for cell, at in sorted(cells.items()) if cell not in seen)
        counts = Counter(cell.side for cell in cells if cell in seen)
        found.append(RuleCoverage(rule.id, rule.at, tuple(sorted(counts.items())), missing))
    return Coverage(tuple(found))


def _cells(rule: Rule) -> Iterator[tuple[Cell, At]]:
    clauses = [clause for group in rule.when for clause in group.clauses]
    if not clauses:
        yield Cell(rule.id, WHOLE, _side(rule, Truth.TRUE)), rule.at
    for clause in clauses:
        for truth in Truth:
            if truth is not Truth.UNKNOWN or clause.fact not in ALWAYS_KNOWN:
                yield Cell(rule.id, clause.text(), _side(rule, truth)), _at(clause, rule)


def _at(clause: Clause, rule: Rule) -> At:
    return clause.at if clause.at.file else rule.at


def _side(rule: Rule, truth: Truth) -> Side:
    if truth is Truth.UNKNOWN:
        return Side.UNKNOWN
    return Side.PERMIT if (truth is Truth.TRUE) is not (rule.effect is Effect.FORBID) else Side.DENY


def _seen(law: Law, case: Case) -> Iterator[Cell]:
    for _, plan in case.plans:
        for hop in plan.hops:
            question = plan.question(hop, case.now)
            for label in hop.cargo.labels.names:
                for compiled in law.rules_for(label, hop.flow):
                    rule = compiled.rule
                    if not rule.in_force(case.now):
                        continue
                    findings = compiled.ask(question, frozenset()).all
                    if not findings:
                        yield Cell(rule.id, WHOLE, _side(rule, Truth.TRUE))
                    for finding in findings:
                        yield Cell(rule.id, finding.clause.text(), _side(rule, finding.truth))
