"""Clauses: one fact, one operator, one operand; compiled to total functions in three-valued logic.

This is the seam (docs/adr/0015). Whatever may be said of a fact is an operator of `OPERATORS`: a function from what is
seen to a truth, which never raises and answers UNKNOWN when the fact is not known. There is no expression language:
each clause can be named when it fails, and everything that it can say can be enumerated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from types import MappingProxyType

from residency.facts import FACTS, Fact, Gap, Question, Seen, Shape, earliest
from residency.sets import NOBODY, Membership
from residency.vocabulary import NOWHERE, At


class Truth(IntEnum):
    """Kleene's three values, in order: `all` is the least, `any` the greatest."""

    FALSE = 0
    UNKNOWN = 1
    TRUE = 2


class Operator(StrEnum):
    """What a clause may ask. No more than these (residency.md, end of section 2)."""

    IN = "in"
    NOT_IN = "not_in"
    ALL_OF = "all_of"
    ANY_OF = "any_of"
    NONE_OF = "none_of"
    SUBSET_OF = "subset_of"
    EQUALS = "equals"
    AT_MOST = "at_most"
    AT_LEAST = "at_least"
    BETWEEN = "between"


_SINGLE = frozenset({Operator.IN, Operator.NOT_IN, Operator.EQUALS})
_SEVERAL = frozenset({Operator.ALL_OF, Operator.ANY_OF, Operator.NONE_OF, Operator.SUBSET_OF})
ALLOWED: Mapping[Shape, frozenset[Operator]] = MappingProxyType(
    {
        Shape.COUNTRY: _SINGLE,
        Shape.WORD: _SINGLE,
        Shape.COUNTRIES: _SEVERAL,
        Shape.WORDS: _SEVERAL,
        Shape.PRODUCTS: _SEVERAL,
        Shape.BOOL: frozenset({Operator.EQUALS}),
        Shape.NUMBER: frozenset({Operator.EQUALS, Operator.AT_MOST, Operator.AT_LEAST}),
        Shape.TIME: frozenset({Operator.BETWEEN}),
    }
)
"""Which operators a fact takes, by its shape. Anything else is an error of the bundle."""


@dataclass(frozen=True, slots=True)
class Clause:
    """`values` are texts: countries, words, products, "true"; a set is written "@name". `number` is the operand of a
    comparison of numbers, `since` and `until` that of `between` (half-open, UTC)."""

    fact: str
    operator: Operator
    values: tuple[str, ...] = ()
    number: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    at: At = field(default=NOWHERE, compare=False)

    def text(self) -> str:
        """ "destination.country in @eea", as it is quoted in verdicts."""
        if self.operator is Operator.BETWEEN:
            ends = (end.isoformat() if end is not None else "-" for end in (self.since, self.until))
            return f"{self.fact} between {' and '.join(ends)}"
        operand = str(self.number) if self.number is not None else " ".join(self.values)
        return f"{self.fact} {self.operator.value} {operand}"

    def sets(self) -> tuple[str, ...]:
        """Names of the sets that it refers to."""
        return tuple(value[1:] for value in self.values if value.startswith("@"))


class Quantifier(StrEnum):
    ALL = "all"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Group:
    """Clauses of which all, or at least one, must hold. Of no clauses all hold and none does (FR-POL-02)."""

    quantifier: Quantifier
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a clause found: its truth, what was seen, why it is not known, and when it may change by itself."""

    clause: Clause
    truth: Truth
    seen: tuple[str, ...] = ()
    gap: Gap | None = None
    changes: datetime | None = None


Test = Callable[[Question], Finding]
"""A compiled clause: total, pure, never raises on any question."""

Sets = Mapping[str, Membership]


# --- operands ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operand:
    """The names and sets of a clause, ready to ask."""

    names: frozenset[str]
    sets: tuple[Membership, ...]

    def has(self, name: str, now: datetime) -> bool:
        return name in self.names or any(known.holds(name, now) for known in self.sets)

    def next_change(self, names: tuple[str, ...], now: datetime) -> datetime | None:
        if not self.sets:
            return None
        return earliest(*(known.next_change(name, now) for known in self.sets for name in names))

    def everybody(self, now: datetime) -> frozenset[str]:
        return self.names.union(*(known.names(now) for known in self.sets))

    def any_change(self, now: datetime) -> datetime | None:
        return earliest(*(known.next_change(name, now) for known in self.sets for name in known.spans))


def _operand(clause: Clause, sets: Sets) -> Operand:
    return Operand(
        frozenset(value for value in clause.values if not value.startswith("@")),
        tuple(sets.get(name, NOBODY) for name in clause.sets()),
    )


# --- operators ---------------------------------------------------------------------------------------------------

Judge = Callable[[tuple[str, ...], Clause, Operand, datetime], bool]
"""Whether a clause holds for values that are known."""


def _is_in(values: tuple[str, ...], clause: Clause, operand: Operand, now: datetime) -> bool:
    return all(operand.has(value, now) for value in values)


def _is_not_in(values: tuple[str, ...], clause: Clause, operand: Operand, now: datetime) -> bool:
    return not any(operand.has(value, now) for value in values)


def _has_any(values: tuple[str, ...], clause: Clause, operand: Operand, now: datetime) -> bool:
    return any(operand.has(value, now) for value in values)


def _has_all(values: tuple[str, ...], clause: Clause, operand: Operand, now: datetime) -> bool:
    return operand.everybody(now) <= set(values)


def _at_most(values: tuple[str, ...], clause: Clause, operand: Operand, now: datetime) -> bool:
    return clause.number is not None and all(int(value) <= clause.number for value in values)


def _at_least(values: tuple[str, ...], clause: Clause, operand: Operand, now: datetime) -> bool:
    return clause.number is not None and all(int(value) >= clause.number for value in values)


def _equals(values: tuple[str, ...], clause: Clause, operand: Operand, now: datetime) -> bool:
    if clause.number is not None:
        return all(int(value) == clause.number for value in values)
    return _is_in(values, clause, operand, now)


def _between(values: tuple[str, ...], clause: Clause, operand: Operand, now: datetime) -> bool:
    return (clause.since is None or clause.since <= now) and (clause.until is None or now < clause.until)


OPERATORS: Mapping[Operator, Judge] = MappingProxyType(
    {
        Operator.IN: _is_in,
        Operator.NOT_IN: _is_not_in,
        Operator.ALL_OF: _has_all,
        Operator.ANY_OF: _has_any,
        Operator.NONE_OF: _is_not_in,
        Operator.SUBSET_OF: _is_in,
        Operator.EQUALS: _equals,
        Operator.AT_MOST: _at_most,
        Operator.AT_LEAST: _at_least,
        Operator.BETWEEN: _between,
    }
)


# --- compiling ---------------------------------------------------------------------------------------------------


def compile_clause(clause: Clause, sets: Sets) -> Test:
    """A total function for a clause. A fact that nobody knows or an operator that does not fit it is UNKNOWN for ever,
    which denies: `soundness.py` refuses such a bundle before it gets here."""
    fact = FACTS.get(clause.fact)
    if fact is None or clause.operator not in ALLOWED[fact.shape]:
        never = Finding(clause, Truth.UNKNOWN, (), Gap.MISSING)
        return lambda question: never
    return _test(clause, fact, _operand(clause, sets))


def _test(clause: Clause, fact: Fact, operand: Operand) -> Test:
    judge, read = OPERATORS[clause.operator], fact.read

    def test(question: Question) -> Finding:
        seen = read(question)
        if seen.values is None:
            return Finding(clause, Truth.UNKNOWN, (), seen.gap, seen.changes)
        held = judge(seen.values, clause, operand, question.now)
        changes = earliest(seen.changes, _changes(clause, operand, seen, question.now))
        return Finding(clause, Truth.TRUE if held else Truth.FALSE, seen.values, None, changes)

    return test


def _changes(clause: Clause, operand: Operand, seen: Seen, now: datetime) -> datetime | None:
    """When the operand may change for what is seen: an end of a membership, or of the clause's own times."""
    if clause.operator is Operator.BETWEEN:
        return earliest(*(end for end in (clause.since, clause.until) if end is not None and end > now))
    if clause.operator is Operator.ALL_OF:
        return operand.any_change(now)
    return operand.next_change(seen.values or (), now)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a conjunction of groups found: its truth, and the clauses that decided it, in the order they are written.

    TRUE has no deciding clauses. `all` findings are kept for explanations.
    """

    truth: Truth
    deciding: tuple[Finding, ...]
    all: tuple[Finding, ...]
    changes: datetime | None


def evaluate(groups: tuple[tuple[Quantifier, tuple[Test, ...]], ...], question: Question) -> Outcome:
    """Every clause is evaluated, always in the same order: no answer depends on which one came first."""
    truth, findings, deciding = Truth.TRUE, [], []
    for quantifier, tests in groups:
        found = [test(question) for test in tests]
        findings += found
        truths = [finding.truth for finding in found]
        held = min(truths, default=Truth.TRUE) if quantifier is Quantifier.ALL else max(truths, default=Truth.FALSE)
        if held is not Truth.TRUE:
            deciding += [finding for finding in found if finding.truth is not Truth.TRUE]
        truth = min(truth, held)
    worst = tuple(finding for finding in deciding if finding.truth is truth) or tuple(deciding)
    changes = earliest(*(finding.changes for finding in findings))
    return Outcome(truth, worst, tuple(findings), changes)
