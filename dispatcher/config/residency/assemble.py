"""From checked files to the bundle of the law: every rule, set and exception with the place where it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import Any, TypeVar

from dispatcher.config.fleet_file import Attested, RecordEntry
from dispatcher.config.problems import Mark, Problem, problem_at
from dispatcher.config.residency.conditions import Span
from dispatcher.config.residency.model import (
    DeclassificationEntry,
    ExceptionEntry,
    ObligationEntry,
    ResidencyFile,
    RuleEntry,
    SetEntry,
    SettingsEntry,
    TenantEntry,
)
from dispatcher.config.strictyaml import Node, locate
from residency.bundle import Bundle, Settings, bundle_of
from residency.clauses import Clause, Group, Operator, Quantifier
from residency.derivation import Declassification
from residency.exceptions import Scope, Waiver
from residency.facts import FACTS, Attestation, Record, Shape, Tenant
from residency.obligations import Duty, Obligation
from residency.rules import Exceptable, Rule
from residency.sets import Member, Set
from residency.vocabulary import NOWHERE, At, OnChange

RESIDENCY = "residency"
"""The folder of rule files inside a blueprint, and the first word of their names."""
E = TypeVar("E")
Path = tuple[str | int, ...]
Spell = Callable[[str], str]
"""The canonical name of a GPU product, or the text as it is written."""


def is_rule_file(name: str) -> bool:
    return name.startswith(f"{RESIDENCY}/")


@dataclass(frozen=True, slots=True)
class RuleFile:
    """One file as read: its name below the blueprint, its model, its tree for the places."""

    name: str
    model: ResidencyFile
    tree: Node

    def at(self, *path: str | int) -> At:
        """The place of the key (or list entry) at a path."""
        mark, _ = locate(self.tree, path)
        return At(self.name, mark.line, mark.column)


@dataclass(slots=True)
class _Assembly:
    spell: Spell
    problems: list[Problem] = field(default_factory=list)
    _first: dict[tuple[str, str], At] = field(default_factory=dict)

    def each(self, files: Iterable[RuleFile], key: str) -> Iterator[tuple[RuleFile, str, Any]]:
        """Every entry under a key of all files. A name that is there twice, in two files, is an error."""
        for file in files:
            entries: Mapping[str, Any] = getattr(file.model, key)
            for name, entry in entries.items():
                here = file.at(key, name)
                first = self._first.setdefault((key, name), here)
                if first is not here:
                    said = f"there already, in {first}"
                    self.problems.append(
                        problem_at(file.name, Mark(here.line, here.column), name, said, "remove or rename one of them")
                    )
                yield file, name, entry


def assemble(files: Iterable[RuleFile], spell: Spell) -> tuple[Bundle, tuple[Problem, ...]]:
    """The bundle, and what is wrong between the files. What is wrong with the law itself `residency.soundness` says."""
    ordered = tuple(sorted(files, key=lambda file: file.name))
    work = _Assembly(spell)
    bundle = Bundle(
        rules=tuple(_rule(file, name, entry, work) for file, name, entry in work.each(ordered, "rules")),
        sets=tuple(_set(file, name, entry, work) for file, name, entry in work.each(ordered, "sets")),
        exceptions=tuple(_exception(file, name, entry) for file, name, entry in work.each(ordered, "exceptions")),
        declassifications=tuple(
            _declassification(file, name, entry) for file, name, entry in work.each(ordered, "declassifications")
        ),
        tenants=tuple(_tenant(name, entry) for _, name, entry in work.each(ordered, "tenants")),
        settings=_settings(ordered, work),
    )
    return bundle_of(bundle), tuple(work.problems)


# --- rules -------------------------------------------------------------------------------------------------------


def _rule(file: RuleFile, name: str, entry: RuleEntry, work: _Assembly) -> Rule:
    at: Path = ("rules", name)
    exceptable, change = entry.exceptable, entry.on_change
    return Rule(
        id=name,
        labels=entry.labels,
        flows=entry.flows,
        effect=entry.effect,
        when=_when(file, (*at, "when"), entry.when, work),
        obligations=_obligations(file, (*at, "obligations"), entry.obligations),
        mode=entry.mode,
        exceptable=Exceptable(tuple(sorted(exceptable.approvers)), exceptable.max_days) if exceptable else None,
        on_change=OnChange(change.running, change.grace or 0, change.queued),
        since=entry.valid.since if entry.valid else None,
        until=entry.valid.until if entry.valid else None,
        law=entry.law or "",
        at=file.at(*at),
    )


def _when(file: RuleFile, at: Path, when: Any, work: _Assembly) -> tuple[Group, ...]:
    """The facts of the mapping itself and the list `all` are one conjunction; `any` is a group of its own."""
    if when is None:
        return ()
    together = list(_clauses(file, at, when, work))
    for index, entry in enumerate(when.all or ()):
        together += _clauses(file, (*at, "all", index), entry, work)
    groups = [Group(Quantifier.ALL, _in_order(together))] if together else []
    either = [
        clause
        for index, entry in enumerate(when.any or ())
        for clause in _clauses(file, (*at, "any", index), entry, work)
    ]
    if either:
        groups.append(Group(Quantifier.ANY, _in_order(either)))
    return tuple(groups)


def _in_order(clauses: Iterable[Clause]) -> tuple[Clause, ...]:
    """In the order of their text: how a person lists them changes neither answer nor digest."""
    return tuple(sorted(clauses, key=lambda clause: clause.text()))


def _clauses(file: RuleFile, at: Path, entry: Any, work: _Assembly) -> Iterator[Clause]:
    for name, fact in FACTS.items():
        test = getattr(entry, name)
        if test is None:
            continue
        for operator in sorted(Operator(key) for key in test.model_fields_set):
            operand = getattr(test, operator.value)
            place = file.at(*at, name)
            if isinstance(operand, Span):
                yield Clause(name, operator, since=operand.since, until=operand.until, at=place)
            elif isinstance(operand, bool):
                yield Clause(name, operator, ("true" if operand else "false",), at=place)
            elif isinstance(operand, int):
                yield Clause(name, operator, number=operand, at=place)
            else:
                values = (operand,) if isinstance(operand, str) else tuple(operand)
                spelled = (work.spell(v) for v in values) if fact.shape is Shape.PRODUCTS else iter(values)
                yield Clause(name, operator, tuple(sorted(set(spelled))), at=place)


def _obligations(file: RuleFile, at: Path, entries: tuple[ObligationEntry, ...]) -> tuple[Obligation, ...]:
    found = [obligation(entry, file.at(*at, index)) for index, entry in enumerate(entries)]
    return tuple(sorted(found, key=lambda one: (one.duty, one.countries, one.seconds or 0, one.flows, one.words)))


def obligation(entry: ObligationEntry, at: At = NOWHERE) -> Obligation:
    """The one duty of an entry."""
    duty = next(Duty(key) for key in type(entry).model_fields if getattr(entry, key) not in (None, False))
    value = getattr(entry, duty.value)
    countries = tuple(sorted(value.kms_country or ())) if duty is Duty.ENCRYPT_AT_REST else ()
    flows = tuple(sorted(value.flows)) if duty is Duty.DELETE_ON_COMPLETION else ()
    words = tuple(sorted(value)) if duty is Duty.RECORD else ()
    seconds = value if duty in (Duty.CACHE_TTL, Duty.RETAIN) else None
    return Obligation(duty, countries, seconds, flows, words, at)


# --- sets, exceptions, declassifications -------------------------------------------------------------------------


def _set(file: RuleFile, name: str, entry: SetEntry, work: _Assembly) -> Set:
    members = tuple(
        Member(
            name=member.country or (work.spell(member.product) if member.product else ""),
            set=member.set or "",
            since=member.since,
            until=member.until,
            source=member.source or "",
            at=file.at("sets", name, "members", index),
        )
        for index, member in enumerate(entry.members)
    )
    ordered = tuple(sorted(members, key=lambda m: (m.name, m.set, str(m.since), str(m.until), m.source)))
    return Set(name, entry.of, ordered, entry.source, entry.verify_by, entry.until, file.at("sets", name))


def _exception(file: RuleFile, name: str, entry: ExceptionEntry) -> Waiver:
    at: Path = ("exceptions", name)
    scope = entry.scope
    return Waiver(
        id=name,
        rules=tuple(sorted(entry.rules)),
        scope=Scope(
            tuple(sorted(scope.queues)),
            tuple(sorted(scope.workloads)),
            tuple(sorted(scope.data_sets)),
            tuple(sorted(scope.clusters)),
        ),
        reason=entry.reason,
        ticket=entry.ticket,
        requested_by=entry.requested_by,
        approved_by=entry.approved_by,
        approver_role=entry.approver_role,
        since=entry.valid.since,
        expires=entry.valid.until,
        category=entry.category,
        obligations=_obligations(file, (*at, "obligations"), entry.obligations),
        at=file.at(*at),
    )


def _declassification(file: RuleFile, name: str, entry: DeclassificationEntry) -> Declassification:
    return Declassification(
        id=name,
        transformation=entry.transformation,
        image=entry.image,
        removes=tuple(sorted(entry.removes)),
        becomes=tuple(sorted(entry.becomes)),
        evidence=entry.evidence,
        requested_by=entry.requested_by,
        approved_by=entry.approved_by,
        since=entry.valid.since,
        expires=entry.valid.until,
        at=file.at("declassifications", name),
    )


# --- people and settings -----------------------------------------------------------------------------------------


def attestation(entry: Attested | None) -> Attestation | None:
    """A last day counts to its end, in UTC."""
    if entry is None:
        return None
    until = _midnight(entry.until) + timedelta(days=1) if entry.until is not None else None
    return Attestation(entry.by, until, _midnight(entry.at) if entry.at is not None else None, entry.max_age)


def records(entries: tuple[RecordEntry, ...] | None) -> tuple[Record, ...] | None:
    if entries is None:
        return None
    found = (Record(e.name, _midnight(e.until) + timedelta(days=1) if e.until is not None else None) for e in entries)
    return tuple(sorted(found, key=lambda record: (record.name, str(record.until))))


def _midnight(day: Any) -> datetime:
    return datetime.combine(day, time(), UTC)


def _tenant(name: str, entry: TenantEntry) -> Tenant:
    return Tenant(
        name=name,
        queues=tuple(sorted(entry.queues)),
        country=entry.country,
        parent_country=entry.parent_country,
        login_countries=tuple(sorted(entry.login_countries)) if entry.login_countries is not None else None,
        login_nationalities=tuple(sorted(entry.login_nationalities)) if entry.login_nationalities is not None else None,
        attested=attestation(entry.attested),
    )


def _settings(files: tuple[RuleFile, ...], work: _Assembly) -> Settings:
    found: list[tuple[RuleFile, SettingsEntry]] = [(f, f.model.settings) for f in files if f.model.settings is not None]
    for file, _ in found[1:]:
        at = file.at("settings")
        said = f"there already, in {found[0][0].at('settings')}"
        work.problems.append(problem_at(file.name, Mark(at.line, at.column), "settings", said, "keep one of them"))
    if not found:
        return Settings()
    entry = found[0][1]
    return Settings(entry.max_ttl, entry.must_cover_expected_runtime, entry.max_age)
