"""Whether a bundle is sound: what must never be taken, and what is probably not meant.

Pure, so that whoever loads bundles (the daemon, the command line, a test) refuses the same ones. An unsound bundle is
refused as a whole; nothing of it is dropped in silence (residency.md case 12).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from residency.bundle import Bundle
from residency.clauses import ALLOWED, Clause
from residency.exceptions import Waiver
from residency.facts import FACTS, Shape
from residency.rules import Rule
from residency.sets import Of, rings
from residency.vocabulary import EVERY_LABEL, UNLABELLED, At, Effect, Mode


class Flaw(StrEnum):
    """Errors first; those from EXCEPTION_WITHOUT_EFFECT on are warnings."""

    NO_RULES = "no-rules"
    FACT = "unknown-fact"
    OPERATOR = "operator-misfit"
    SET = "unknown-set"
    SET_OF_OTHERS = "set-of-others"
    RING = "ring-of-sets"
    LABEL = "unknown-label"
    PERMIT_EVERYTHING = "permit-for-every-label"
    EMPTY_GROUP = "empty-group"
    NO_TIME = "no-time"
    RULE = "unknown-rule"
    SCOPE = "scope-too-wide"
    SELF_APPROVED = "self-approved"
    NOT_AN_APPROVER = "not-an-approver"
    TOO_LONG = "too-long"
    DECLASSIFIES_UNLABELLED = "declassifies-unlabelled"
    EXCEPTION_WITHOUT_EFFECT = "exception-without-effect"
    EXPIRED = "expired"
    EXPIRES_SOON = "expires-soon"
    VERIFY = "verify-source"
    LABEL_WITHOUT_RULE = "label-without-rule"
    HARD_SHADOW = "hard-forbid-in-shadow"


WARNINGS = frozenset(
    {
        Flaw.EXCEPTION_WITHOUT_EFFECT,
        Flaw.EXPIRED,
        Flaw.EXPIRES_SOON,
        Flaw.VERIFY,
        Flaw.LABEL_WITHOUT_RULE,
        Flaw.HARD_SHADOW,
    }
)
SOON = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class Fault:
    """`subject` is what stands there, `known` what could stand there instead or what the flaw is about."""

    flaw: Flaw
    at: At
    subject: str
    known: tuple[str, ...] = ()

    @property
    def is_error(self) -> bool:
        return self.flaw not in WARNINGS


def faults(bundle: Bundle, labels: Collection[str], now: datetime) -> tuple[Fault, ...]:
    """Everything that is wrong with a bundle, in order of place. `labels` are those that the catalog declares."""
    found = [
        *_rules(bundle, labels, now),
        *_sets(bundle, now),
        *(fault for waiver in bundle.exceptions for fault in _exception(bundle, waiver, now)),
        *_declassifications(bundle, labels, now),
    ]
    if not bundle.rules:
        found.append(Fault(Flaw.NO_RULES, At(), ""))
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (one.at, one.flaw, one.subject)))


def _rules(bundle: Bundle, labels: Collection[str], now: datetime) -> Iterator[Fault]:
    known = {*labels, UNLABELLED}
    spoken = {label for rule in bundle.rules for label in rule.labels if rule.effect is Effect.PERMIT}
    for label in sorted({label for rule in bundle.rules for label in rule.labels} - known - {EVERY_LABEL}):
        rule = next(rule for rule in bundle.rules if label in rule.labels)
        yield Fault(Flaw.LABEL, rule.at, label, tuple(sorted(known)))
    for label in sorted(known - spoken - {UNLABELLED}):
        yield Fault(Flaw.LABEL_WITHOUT_RULE, At(), label)
    for rule in bundle.rules:
        if EVERY_LABEL in rule.labels and rule.effect is Effect.PERMIT:
            yield Fault(Flaw.PERMIT_EVERYTHING, rule.at, rule.id)
        if rule.since is not None and rule.until is not None and rule.since >= rule.until:
            yield Fault(Flaw.NO_TIME, rule.at, rule.id)
        if rule.until is not None and rule.until <= now:
            yield Fault(Flaw.EXPIRED, rule.at, rule.id)
        if rule.effect is Effect.FORBID and rule.hard and rule.mode is not Mode.ENFORCE:
            yield Fault(Flaw.HARD_SHADOW, rule.at, rule.id, (rule.mode.value,))
        yield from _clauses(bundle, rule)


def _clauses(bundle: Bundle, rule: Rule) -> Iterator[Fault]:
    for group in rule.when:
        if not group.clauses:
            yield Fault(Flaw.EMPTY_GROUP, rule.at, rule.id, (group.quantifier.value,))
        for clause in group.clauses:
            yield from _clause(bundle, clause)
    for one in rule.obligations:
        yield from _set_names(bundle, tuple(v[1:] for v in one.countries if v.startswith("@")), Of.COUNTRIES, one.at)


def _clause(bundle: Bundle, clause: Clause) -> Iterator[Fault]:
    fact = FACTS.get(clause.fact)
    if fact is None:
        yield Fault(Flaw.FACT, clause.at, clause.fact, tuple(FACTS))
        return
    if clause.operator not in ALLOWED[fact.shape]:
        allowed = tuple(sorted(operator.value for operator in ALLOWED[fact.shape]))
        yield Fault(Flaw.OPERATOR, clause.at, clause.operator.value, allowed)
    of = Of.PRODUCTS if fact.shape is Shape.PRODUCTS else Of.COUNTRIES
    yield from _set_names(bundle, clause.sets(), of, clause.at)


def _set_names(bundle: Bundle, names: tuple[str, ...], of: Of, at: At) -> Iterator[Fault]:
    known = {one.id: one for one in bundle.sets}
    for name in names:
        if name not in known:
            yield Fault(Flaw.SET, at, name, tuple(sorted(known)))
        elif known[name].of is not of:
            yield Fault(Flaw.SET_OF_OTHERS, at, name, (known[name].of.value, of.value))


def _sets(bundle: Bundle, now: datetime) -> Iterator[Fault]:
    known = {one.id: one for one in bundle.sets}
    for one in bundle.sets:
        for member in one.members:
            if member.set:
                yield from _set_names(bundle, (member.set,), one.of, member.at)
            if member.since is not None and member.until is not None and member.since >= member.until:
                yield Fault(Flaw.NO_TIME, member.at, member.name or member.set)
        if one.verify_by is not None and one.verify_by < now.date():
            yield Fault(Flaw.VERIFY, one.at, one.id, (one.verify_by.isoformat(), one.source))
    for ring in rings(known):
        yield Fault(Flaw.RING, known[ring[0]].at, ring[0], (*ring, ring[0]))


def _exception(bundle: Bundle, waiver: Waiver, now: datetime) -> Iterator[Fault]:
    known = {rule.id: rule for rule in bundle.rules}
    if waiver.scope.parts < 2:
        yield Fault(Flaw.SCOPE, waiver.at, waiver.id)
    if waiver.approved_by == waiver.requested_by:
        yield Fault(Flaw.SELF_APPROVED, waiver.at, waiver.id, (waiver.approved_by,))
    if waiver.since >= waiver.expires:
        yield Fault(Flaw.NO_TIME, waiver.at, waiver.id)
    for name in waiver.rules:
        if name not in known:
            yield Fault(Flaw.RULE, waiver.at, name, tuple(known))
        else:
            yield from _against(waiver, known[name])
    if waiver.expires <= now:
        yield Fault(Flaw.EXPIRED, waiver.at, waiver.id, (waiver.expires.isoformat(),))
    elif waiver.expires - now <= SOON:
        yield Fault(Flaw.EXPIRES_SOON, waiver.at, waiver.id, (waiver.expires.isoformat(),))


def _against(waiver: Waiver, rule: Rule) -> Iterator[Fault]:
    if rule.exceptable is None:
        yield Fault(Flaw.EXCEPTION_WITHOUT_EFFECT, waiver.at, waiver.id, (rule.id,))
        return
    if waiver.expires - waiver.since > timedelta(days=rule.exceptable.max_days):
        yield Fault(Flaw.TOO_LONG, waiver.at, waiver.id, (rule.id, str(rule.exceptable.max_days)))
    if waiver.approver_role not in rule.exceptable.approvers:
        yield Fault(Flaw.NOT_AN_APPROVER, waiver.at, waiver.approver_role, rule.exceptable.approvers)


def _declassifications(bundle: Bundle, labels: Collection[str], now: datetime) -> Iterator[Fault]:
    known = tuple(sorted({*labels, UNLABELLED}))
    for one in bundle.declassifications:
        for label in (*one.removes, *one.becomes):
            if label not in known:
                yield Fault(Flaw.LABEL, one.at, label, known)
        if UNLABELLED in one.removes:
            yield Fault(Flaw.DECLASSIFIES_UNLABELLED, one.at, one.id)
        if one.approved_by == one.requested_by:
            yield Fault(Flaw.SELF_APPROVED, one.at, one.id, (one.approved_by,))
        if one.since >= one.expires:
            yield Fault(Flaw.NO_TIME, one.at, one.id)
        if one.expires <= now:
            yield Fault(Flaw.EXPIRED, one.at, one.id, (one.expires.isoformat(),))
