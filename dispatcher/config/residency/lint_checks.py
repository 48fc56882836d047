"""What in a sound bundle is probably not meant: rules that never matter, rules against each other, exceptions that do
nothing, rules that no test guards. Each check yields findings; `lint.py` puts them in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import combinations

from dispatcher.config.residency.lint_logic import Logic
from dispatcher.config.residency.mutation import Change, survey
from dispatcher.config.residency.testing import check
from dispatcher.config.residency.testing_files import Case
from dispatcher.config.residency.world import World
from residency.clauses import Finding as Found
from residency.clauses import Quantifier, Truth
from residency.exceptions import Waiver
from residency.facts import Kind, Place, Question
from residency.judge import Compiled, Law, judge, law_of
from residency.obligations import Obligation, unite
from residency.rules import Rule
from residency.vocabulary import EVERY_LABEL, At, Effect, Flow, Mode

TIERS = (timedelta(days=1), timedelta(days=3), timedelta(days=14))
"""How long before its end an exception is told of."""
HERE = ("destination.", "provider.", "support.", "kms.")
"""Facts of the place; all others are the question's, and may be anything."""
AT_STORES = frozenset({Flow.REPLICATE, Flow.REPLICATE_SEALED, Flow.CHECKPOINT, Flow.OUTPUT})


class Level(StrEnum):
    """ERROR: the rules are not taken. WARNING: probably not meant. NOTE: worth knowing, and often as it should be."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Code(StrEnum):
    """What is found here; what makes a bundle unsound has the codes of `residency.soundness.Flaw`."""

    UNREADABLE = "not-as-written"
    UNREACHABLE = "unreachable-rule"
    DEAD_PERMIT = "dead-permit"
    ALWAYS_FORBIDDEN = "permit-always-forbidden"
    NEVER_REQUIRED = "permit-against-requirement"
    CONFLICT = "obligations-conflict"
    NO_TEST = "rule-without-test"
    MODE_SLIP = "mode-without-test"
    BAD_TEST = "test-not-readable"
    FAILING_TEST = "test-fails"
    EXPIRES_SOON = "expires-soon"
    NO_EFFECT = "exception-without-effect"
    NOT_NEEDED = "exception-not-needed"
    UNUSED_SET = "unused-set"
    UNDATED_SET = "set-without-verify-by"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: place, code, what it is about, what is wrong, and what to do."""

    at: At
    level: Level
    code: str
    subject: str
    says: str
    fix: str = ""


# --- rules that never matter -------------------------------------------------------------------------------------


def unreachable(world: World) -> Iterator[Finding]:
    """A forbid or a requirement on labels that nothing permits: the default denies already."""
    permits = [rule for rule in world.bundle.rules if rule.effect is Effect.PERMIT]
    for rule in world.bundle.rules:
        if rule.effect is Effect.PERMIT or EVERY_LABEL in rule.labels:
            continue
        reached = any(_meet(rule, permit) for permit in permits)
        if not reached:
            labels = ", ".join(rule.labels)
            says = f"never decides: no permit speaks of {labels} on its flows, and what nothing permits is denied"
            yield Finding(rule.at, Level.WARNING, Code.UNREACHABLE, rule.id, says, "write a permit, or remove the rule")


def dead_permits(world: World, now: datetime) -> Iterator[Finding]:
    """A permit that no place of the fleet satisfies, whoever asks. A note where no data waits for it alone."""
    alive: set[str] = set()
    dead: list[tuple[Compiled, tuple[str, ...]]] = []
    for compiled in world.law.compiled:
        if compiled.rule.effect is not Effect.PERMIT:
            continue
        truths = [(_at_place(compiled, place, now), place) for place in _places(world, compiled.rule)]
        if any(truth is Truth.TRUE for truth, _ in truths):
            alive |= set(compiled.rule.labels)
        else:
            dead.append((compiled, tuple(p.name for truth, p in truths if truth is Truth.UNKNOWN)))
    for compiled, unknown in dead:
        rule = compiled.rule
        waits = [label for label in rule.labels if label in world.carried and label not in alive]
        says = "no cluster or store that is known satisfies it"
        if unknown:
            says += f"; facts are missing of {', '.join(unknown)}"
        level = Level.WARNING if waits else Level.NOTE
        fix = f"data with label {', '.join(waits)} goes nowhere" if waits else "nothing waits for it now"
        yield Finding(rule.at, level, Code.DEAD_PERMIT, rule.id, says, fix)


def _places(world: World, rule: Rule) -> list[Place]:
    """Stores for what is stored, clusters for the rest."""
    kinds = {Kind.STORE if flow in AT_STORES else Kind.CLUSTER for flow in rule.flows}
    return [place for place in world.places.values() if place.kind in kinds]


def _at_place(compiled: Compiled, place: Place, now: datetime) -> Truth:
    """The rule's condition as far as the place decides it."""
    worst = Truth.TRUE
    for flow in compiled.rule.flows[:1]:
        question = Question(flow, now, place)
        for quantifier, tests in compiled.groups:
            truths = [_of_place(test(question)) for test in tests]
            held = min(truths, default=Truth.TRUE) if quantifier is Quantifier.ALL else max(truths, default=Truth.FALSE)
            worst = min(worst, held)
    return worst


def _of_place(found: Found) -> Truth:
    return found.truth if found.clause.fact.startswith(HERE) else Truth.TRUE


# --- rules against each other ------------------------------------------------------------------------------------


def contradictions(world: World, now: datetime) -> Iterator[Finding]:
    """A permit wholly inside a forbid, or outside of what is required: it can never grant."""
    logic = Logic(world.law.sets, now)
    rules = [rule for rule in world.bundle.rules if rule.mode is Mode.ENFORCE and rule.in_force(now)]
    for permit in rules:
        if permit.effect is not Effect.PERMIT:
            continue
        for other in rules:
            if not _covers(other, permit):
                continue
            if other.effect is Effect.FORBID and logic.always_within(permit, other):
                says = f"never grants: rule '{other.id}' ({other.at}) forbids all that it permits"
                yield Finding(permit.at, Level.WARNING, Code.ALWAYS_FORBIDDEN, permit.id, says, _RECONCILE)
            if other.effect is Effect.REQUIRE and other.when and logic.never_together(permit, other):
                says = f"never grants: what rule '{other.id}' ({other.at}) requires cannot hold where it does"
                yield Finding(permit.at, Level.WARNING, Code.NEVER_REQUIRED, permit.id, says, _RECONCILE)


_RECONCILE = "change one of the two"


def conflicting_obligations(world: World, now: datetime) -> Iterator[Finding]:
    """Two rules that may bind the same copy to what cannot be done together."""
    logic = Logic(world.law.sets, now)
    together = [set(labels) for labels in _label_sets(world)]
    rules = [rule for rule in world.bundle.rules if rule.obligations and rule.mode is not Mode.SHADOW]
    for rule in rules:
        for left, right in _conflicts(rule.obligations, world.law, now):
            says = f"{left} and {right} cannot be fulfilled together"
            yield Finding(rule.at, Level.WARNING, Code.CONFLICT, rule.id, says, "keep one of them")
    for one, other in combinations(rules, 2):
        if not _share(one, other, together) or logic.never_together(one, other):
            continue
        if _conflicts(one.obligations, world.law, now) or _conflicts(other.obligations, world.law, now):
            continue
        for left, right in _conflicts((*one.obligations, *other.obligations), world.law, now):
            says = f"{left} and {right} cannot be fulfilled together: the other is of rule '{other.id}' ({other.at})"
            yield Finding(one.at, Level.WARNING, Code.CONFLICT, one.id, says, _RECONCILE)


def _conflicts(obligations: Iterable[Obligation], law: Law, now: datetime) -> tuple[tuple[str, str], ...]:
    written = [replace(one, countries=_countries(one, law, now)) for one in obligations]
    return tuple((left.value, right.value) for left, right in unite(written).conflicts)


def _countries(one: Obligation, law: Law, now: datetime) -> tuple[str, ...]:
    names: set[str] = set()
    for value in one.countries:
        known = law.sets.get(value[1:]) if value.startswith("@") else None
        names.update((value,) if known is None else known.names(now))
    return tuple(sorted(names))


def _label_sets(world: World) -> Iterator[tuple[str, ...]]:
    for label in world.labels:
        yield (label,)
    yield from world.data.values()


def _share(one: Rule, other: Rule, together: list[set[str]]) -> bool:
    """Whether some copy is under both: a flow of both, and labels that some data carries together."""
    if set(one.flows).isdisjoint(other.flows):
        return False
    return any(_speaks(one, labels) and _speaks(other, labels) for labels in together)


def _speaks(rule: Rule, labels: set[str]) -> bool:
    return EVERY_LABEL in rule.labels or not labels.isdisjoint(rule.labels)


def _meet(one: Rule, other: Rule) -> bool:
    return not set(one.flows).isdisjoint(other.flows) and not set(one.labels).isdisjoint(other.labels)


def _covers(other: Rule, permit: Rule) -> bool:
    """Whether a rule speaks of everything that a permit does."""
    labels = EVERY_LABEL in other.labels or set(permit.labels) <= set(other.labels)
    return labels and set(permit.flows) <= set(other.flows)


# --- exceptions --------------------------------------------------------------------------------------------------


def ending_exceptions(world: World, now: datetime) -> Iterator[Finding]:
    """Those that end within 14, 3 or 1 days, with what loses its cover."""
    for waiver in world.bundle.exceptions:
        left = waiver.expires - now
        tier = next((tier for tier in TIERS if timedelta(0) < left <= tier), None)
        if tier is None:
            continue
        days = "a day" if tier.days == 1 else f"{tier.days} days"
        says = f"expires within {days}, on {waiver.expires.isoformat()}: then {_cover(waiver)} is under the rule again"
        level = Level.WARNING if tier.days < 14 else Level.NOTE
        yield Finding(waiver.at, level, Code.EXPIRES_SOON, waiver.id, says, "renew it, or move what it covers")


def _cover(waiver: Waiver) -> str:
    scope = waiver.scope
    parts = (*scope.queues, *scope.workloads, *scope.data_sets, *scope.clusters)
    return ", ".join(parts) or "nothing"


def idle_exceptions(world: World, now: datetime) -> Iterator[Finding]:
    """An exception that changes no answer inside its scope: another rule still denies, or nothing did."""
    for waiver in world.bundle.exceptions:
        if waiver.expires <= now or not any(not rule.hard and rule.id in waiver.rules for rule in world.bundle.rules):
            continue
        at = max(now, waiver.since)
        without = law_of(replace(world.bundle, exceptions=()))
        only = law_of(replace(world.bundle, exceptions=(waiver,)))
        tried = [one for one in _inside(world, waiver, at) if _concerns(world, waiver, *one)]
        before = [(judge(without, question, label), judge(only, question, label)) for question, label in tried]
        if any(not old.allowed and new.allowed for old, new in before):
            continue
        refused = [new for old, new in before if waiver.id in new.exceptions and not new.allowed]
        if refused:
            why = refused[0].because
            says = f"has no effect: rule '{why.rule}' ({why.at}) denies all the same" if why.rule else "has no effect"
            fix = "see what that rule allows" if why.rule else "write a permit"
            yield Finding(waiver.at, Level.WARNING, Code.NO_EFFECT, waiver.id, says, fix)
        elif all(old.allowed for old, _ in before):
            says = "is not needed: nothing in its scope is refused by its rules"
            yield Finding(waiver.at, Level.NOTE, Code.NOT_NEEDED, waiver.id, says, "remove it")


def _concerns(world: World, waiver: Waiver, question: Question, label: str) -> bool:
    return any(compiled.rule.id in waiver.rules for compiled in world.law.rules_for(label, question.flow))


def _inside(world: World, waiver: Waiver, at: datetime) -> Iterator[tuple[Question, str]]:
    """Every question on known places that an exception covers."""
    tenants = {queue: tenant for tenant in world.bundle.tenants for queue in tenant.queues}
    for data_set in waiver.scope.data_sets or ("",):
        labels = world.data.get(data_set, ())
        for queue in waiver.scope.queues or ("",):
            for place in world.places.values():
                for label in labels or world.labels:
                    for flow in Flow:
                        question = Question(
                            flow=flow,
                            now=at,
                            destination=place,
                            source=place,
                            tenant=tenants.get(queue),
                            products=(),
                            queue=queue,
                            workload=next(iter(waiver.scope.workloads), ""),
                            data_sets=(data_set,),
                        )
                        if waiver.scope.covers(question):
                            yield question, label


# --- sets and tests ----------------------------------------------------------------------------------------------


def sets(world: World) -> Iterator[Finding]:
    """Sets that nothing asks for, and such that nobody is to look up again."""
    used = {name for rule in world.bundle.rules for group in rule.when for c in group.clauses for name in c.sets()}
    used |= {v[1:] for rule in world.bundle.rules for o in rule.obligations for v in o.countries if v.startswith("@")}
    used |= {member.set for one in world.bundle.sets for member in one.members if member.set}
    for one in world.bundle.sets:
        if one.id not in used:
            yield Finding(one.at, Level.NOTE, Code.UNUSED_SET, one.id, "no rule and no set asks for it", "remove it")
        if one.verify_by is None and any(member.name for member in one.members):
            says = "nobody is told to look its source up again"
            yield Finding(one.at, Level.WARNING, Code.UNDATED_SET, one.id, says, "add verify_by:")


def untested(world: World, cases: tuple[Case, ...]) -> Iterator[Finding]:
    """Rules that could go, or slip into another mode, without a test that turns red."""
    passing: list[Case] = []
    for case in cases:
        failure = next(check(world.law, case), None)
        if failure is None:
            passing.append(case)
        else:
            says = f"fails: {failure.differences[0].what} is {failure.differences[0].got}"
            yield Finding(case.at, Level.WARNING, Code.FAILING_TEST, case.name, says, "see: entrepot policy test")
    found = survey(world.bundle, passing, frozenset({Change.RULE, Change.MODE})).survivors
    gone = {mutant.rule.id for mutant in found if mutant.change is Change.RULE}
    for mutant in found:
        rule = mutant.rule
        if mutant.change is Change.RULE:
            says = "no test notices when it is removed"
            yield Finding(rule.at, Level.WARNING, Code.NO_TEST, rule.id, says, "write one beside it (*.test.yaml)")
        elif rule.id not in gone:
            says = f"no test notices when its mode ({rule.mode.value}) slips"
            fix = "name the rule in a test's expect, or what it would do in would"
            yield Finding(rule.at, Level.WARNING, Code.MODE_SLIP, rule.id, says, fix)
