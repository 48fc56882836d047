"""What one condition says about another: implies it, or excludes it. Everything a clause can say can be enumerated, so
this needs no solver (residency.md, end of section 2). When in doubt the answer is no: a finding is then not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import islice, product
from types import MappingProxyType

from residency.clauses import Clause, Group, Operator, Quantifier, Sets
from residency.rules import Rule
from residency.sets import NOBODY

MOST_WAYS = 256
"""Ways of meeting a condition that are looked at; beyond, nothing is said about it."""

Way = tuple[Clause, ...]
"""Clauses of which all hold: one way of meeting a condition."""
Names = frozenset[str]
Relation = Callable[[Names, Names], bool]


class Logic:
    """Conditions with the sets as they are at an instant."""

    def __init__(self, sets: Sets, now: datetime) -> None:
        self._sets = sets
        self._now = now

    def always_within(self, inner: Rule, outer: Rule) -> bool:
        """Whether the condition of `outer` holds wherever that of `inner` does."""
        ways = _ways(inner)
        return bool(ways) and all(self._implied(way, group) for way in ways for group in outer.when)

    def never_together(self, one: Rule, other: Rule) -> bool:
        """Whether the two conditions cannot hold at once."""
        pairs = [(a, b) for a in _ways(one) for b in _ways(other)]
        return bool(pairs) and all(any(self.excludes(x, y) for x in a for y in b) for a, b in pairs)

    def _implied(self, way: Way, group: Group) -> bool:
        held = (any(self.implies(clause, wanted) for clause in way) for wanted in group.clauses)
        return all(held) if group.quantifier is Quantifier.ALL else any(held)

    def implies(self, one: Clause, other: Clause) -> bool:
        """Whether the second holds wherever the first does."""
        if one.fact != other.fact:
            return False
        if one == other:
            return True
        if one.number is not None and other.number is not None:
            return _numbers_imply(one, other)
        relation = _IMPLIES.get((one.operator, other.operator))
        return relation is not None and relation(self._names(one), self._names(other))

    def excludes(self, one: Clause, other: Clause) -> bool:
        """Whether the two cannot hold at once."""
        if one.fact != other.fact:
            return False
        if one.number is not None and other.number is not None:
            return _numbers_exclude(one, other)
        for a, b in ((one, other), (other, one)):
            relation = _EXCLUDES.get((a.operator, b.operator))
            if relation is not None and relation(self._names(a), self._names(b)):
                return True
        return False

    def _names(self, clause: Clause) -> Names:
        plain = {value for value in clause.values if not value.startswith("@")}
        return frozenset(plain.union(*(self._sets.get(name, NOBODY).names(self._now) for name in clause.sets())))


def _ways(rule: Rule) -> tuple[Way, ...]:
    """Every way of meeting a rule's condition; none when there are too many to look at."""

    def alternatives(group: Group) -> tuple[Way, ...]:
        return (group.clauses,) if group.quantifier is Quantifier.ALL else tuple((one,) for one in group.clauses)

    ways = list(islice(_joined(rule, alternatives), MOST_WAYS + 1))
    return tuple(ways) if len(ways) <= MOST_WAYS else ()


def _joined(rule: Rule, alternatives: Callable[[Group], tuple[Way, ...]]) -> Iterator[Way]:
    for parts in product(*(alternatives(group) for group in rule.when)):
        yield tuple(clause for part in parts for clause in part)


# --- tables ------------------------------------------------------------------------------------------------------


def _within(a: Names, b: Names) -> bool:
    return a <= b


def _around(a: Names, b: Names) -> bool:
    return a >= b


def _apart(a: Names, b: Names) -> bool:
    return a.isdisjoint(b)


def _touching(a: Names, b: Names) -> bool:
    return not a.isdisjoint(b)


def _lacking(a: Names, b: Names) -> bool:
    return not a >= b


_IN, _NOT_IN, _EQUALS = Operator.IN, Operator.NOT_IN, Operator.EQUALS
_ALL, _ANY, _NONE, _SUBSET = Operator.ALL_OF, Operator.ANY_OF, Operator.NONE_OF, Operator.SUBSET_OF

_IMPLIES: Mapping[tuple[Operator, Operator], Relation] = MappingProxyType(
    {
        **{(a, b): _within for a in (_IN, _EQUALS) for b in (_IN, _EQUALS)},
        **{(a, _NOT_IN): _apart for a in (_IN, _EQUALS)},
        (_NOT_IN, _NOT_IN): _around,
        (_SUBSET, _SUBSET): _within,
        (_SUBSET, _NONE): _apart,
        (_NONE, _NONE): _around,
        (_ANY, _ANY): _within,
        (_ALL, _ALL): _around,
        (_ALL, _ANY): _touching,
    }
)
"""For operators a and b: what their names must be to each other so that `a` implies `b`."""

_EXCLUDES: Mapping[tuple[Operator, Operator], Relation] = MappingProxyType(
    {
        **{(a, b): _apart for a in (_IN, _EQUALS) for b in (_IN, _EQUALS)},
        **{(a, _NOT_IN): _within for a in (_IN, _EQUALS)},
        (_SUBSET, _ANY): _apart,
        (_SUBSET, _ALL): _lacking,
        (_NONE, _ANY): _around,
        (_NONE, _ALL): _touching,
    }
)
"""The same for `a` and `b` not to hold at once."""


def _numbers_imply(one: Clause, other: Clause) -> bool:
    a, b = one.number or 0, other.number or 0
    if other.operator is Operator.AT_MOST:
        return one.operator in (Operator.AT_MOST, Operator.EQUALS) and a <= b
    if other.operator is Operator.AT_LEAST:
        return one.operator in (Operator.AT_LEAST, Operator.EQUALS) and a >= b
    return one.operator is Operator.EQUALS and a == b


def _numbers_exclude(one: Clause, other: Clause) -> bool:
    low, high = _span(one), _span(other)
    return low[0] > high[1] or high[0] > low[1]


def _span(clause: Clause) -> tuple[float, float]:
    number = float(clause.number or 0)
    return {
        Operator.AT_MOST: (float("-inf"), number),
        Operator.AT_LEAST: (number, float("inf")),
    }.get(clause.operator, (number, number))
