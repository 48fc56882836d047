"""Would a test notice? Take one thing out of the rules, ask the tests again: if all pass, nobody guards that thing."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from dispatcher.config.residency.testing import check, duty_text
from dispatcher.config.residency.testing_files import Case
from residency.bundle import Bundle
from residency.clauses import Group
from residency.judge import Law, law_of
from residency.rules import Rule
from residency.vocabulary import EVERY_LABEL, At, Mode


class Change(StrEnum):
    """What is taken out."""

    CLAUSE = "clause dropped"
    OBLIGATION = "obligation dropped"
    RULE = "rule dropped"
    MODE = "mode slipped"
    FLOW = "flow dropped"
    LABEL = "label dropped"


@dataclass(frozen=True, slots=True)
class Mutant:
    """The rules with one thing taken out of `rule`."""

    change: Change
    rule: Rule
    what: str
    at: At
    bundle: Bundle


@dataclass(frozen=True, slots=True)
class Survey:
    """How many mutants were tried, and those that no test noticed."""

    tried: int
    survivors: tuple[Mutant, ...]


def survey(bundle: Bundle, cases: Iterable[Case], changes: Container[Change] = frozenset(Change)) -> Survey:
    """Try every mutant of some kinds. The tests must pass on the bundle as it is."""
    listed = tuple(cases)
    tried, survivors = 0, []
    for mutant in (one for one in mutants(bundle) if one.change in changes):
        tried += 1
        if not _noticed(mutant, listed):
            survivors.append(mutant)
    return Survey(tried, tuple(survivors))


_SLIP = {Mode.ENFORCE: Mode.WARN, Mode.WARN: Mode.SHADOW, Mode.SHADOW: Mode.WARN}
"""The edit of one word that nobody sees in a review."""


def mutants(bundle: Bundle) -> Iterator[Mutant]:
    """Every rule without each of its clauses, obligations, flows and labels; in another mode; and not there at all."""
    for rule in bundle.rules:
        for change, what, at, changed in _changed(rule):
            rules = tuple(changed if one is rule else one for one in bundle.rules)
            yield Mutant(change, rule, what, at, replace(bundle, rules=tuple(one for one in rules if one is not None)))


def _changed(rule: Rule) -> Iterator[tuple[Change, str, At, Rule | None]]:
    yield Change.RULE, rule.id, rule.at, None
    yield Change.MODE, rule.mode.value, rule.at, replace(rule, mode=_SLIP[rule.mode])
    for index, group in enumerate(rule.when):
        for clause in group.clauses:
            rest = tuple(one for one in group.clauses if one is not clause)
            when = (*rule.when[:index], *((Group(group.quantifier, rest),) if rest else ()), *rule.when[index + 1 :])
            yield Change.CLAUSE, clause.text(), clause.at, replace(rule, when=when)
    for one in rule.obligations:
        kept = tuple(other for other in rule.obligations if other is not one)
        yield Change.OBLIGATION, duty_text(one), one.at, replace(rule, obligations=kept)
    for flow in rule.flows if len(rule.flows) > 1 else ():
        yield Change.FLOW, flow.value, rule.at, replace(rule, flows=tuple(f for f in rule.flows if f is not flow))
    for label in rule.labels if len(rule.labels) > 1 else ():
        yield Change.LABEL, label, rule.at, replace(rule, labels=tuple(one for one in rule.labels if one != label))


def _noticed(mutant: Mutant, cases: tuple[Case, ...]) -> bool:
    """Tests that name the rule are asked first: one of them most likely turns red."""
    law = law_of(mutant.bundle)
    hearing = [case for case in cases if _hears(mutant.rule, case)]
    return any(_fails(law, case) for case in sorted(hearing, key=lambda case: not _names(mutant.rule, case)))


def _fails(law: Law, case: Case) -> bool:
    return next(check(law, case), None) is not None


def _names(rule: Rule, case: Case) -> bool:
    return rule.id == case.expected.rule or any(one.rule == rule.id for one in case.expected.would or ())


def _hears(rule: Rule, case: Case) -> bool:
    """Whether the rule as it was speaks of anything that a test asks. Others cannot notice."""
    return any(
        hop.flow in rule.flows
        and (EVERY_LABEL in rule.labels or not set(rule.labels).isdisjoint(hop.cargo.labels.names))
        for _, plan in case.plans
        for hop in plan.hops
    )
