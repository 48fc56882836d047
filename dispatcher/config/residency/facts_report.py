"""`entrepot policy facts`: what nobody has attested, or will have attested no longer soon, and what hangs on it.

An unknown fact denies. So every gap is ranked by what it keeps from going: first by the data sets that wait for it,
then by the questions (one label on one flow) that it leaves open, then by the rules that ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_values
from datetime import datetime, time, timedelta
from enum import StrEnum

from dispatcher.config.residency.world import World
from residency.clauses import Clause, Truth
from residency.facts import Attestation, Kind, Place, Question, Tenant
from residency.judge import NO_FLIPS, judge
from residency.vocabulary import Answer, Flow

WITHIN = timedelta(days=30)
ATTESTATION = "attestation"
"""Stands for all facts of a place or tenant that nobody vouches for."""
AT_STORES = (Flow.REPLICATE, Flow.REPLICATE_SEALED, Flow.CHECKPOINT, Flow.OUTPUT)
AT_CLUSTERS = (Flow.PROCESS, Flow.CACHE, Flow.LOGS, Flow.REMOTE_ACCESS)
OF_TENANTS = ("tenant.", "login.")


class Subject(StrEnum):
    CLUSTER = "cluster"
    STORE = "store"
    TENANT = "tenant"
    QUEUE = "queue"
    SET = "set"


class State(StrEnum):
    """What is the matter with a fact."""

    MISSING = "missing"
    UNATTESTED = "unattested"
    EXPIRED = "expired"
    ENDS = "ends"
    """It is known, and will not be for long."""


@dataclass(frozen=True, slots=True)
class Row:
    """One fact. `blocks` counts the questions (label and flow) that it leaves open now or, when it ends, turns to no;
    `data_sets` are those that carry such a label; `rules` ask for it."""

    subject: Subject
    name: str
    fact: str
    state: State
    ends: datetime | None
    blocks: int
    data_sets: tuple[str, ...]
    rules: tuple[str, ...]


@dataclass(slots=True)
class _Effect:
    """What hangs on one fact of one subject."""

    questions: set[tuple[str, Flow]] = field(default_factory=set)
    rules: set[str] = field(default_factory=set)


Effects = dict[str, _Effect]
About = Callable[[str], bool]
"""Whether a fact, by name, is one of the subject."""
Asked = list[tuple[str, Question]]
"""Labels, each with a question about it."""


@dataclass(frozen=True, slots=True)
class _Hearing:
    """One place or tenant, who vouches for it, and all that may be asked about it."""

    world: World
    subject: Subject
    name: str
    attested: Attestation | None
    asked: Asked
    now: datetime

    @property
    def ends(self) -> datetime | None:
        return self.attested.ends() if self.attested is not None else None

    def gaps(self, about: About) -> Iterator[Row]:
        """A row a fact that is not known; but where nobody vouches for the whole, one row for that."""
        effects = self._open(about)
        if self.attested is None or (self.ends is not None and self.ends <= self.now):
            whole = _Effect(
                {question for effect in effects.values() for question in effect.questions},
                {rule for effect in effects.values() for rule in effect.rules},
            )
            state = State.UNATTESTED if self.attested is None else State.EXPIRED
            yield self.row(ATTESTATION, state, self.ends, whole)
            return
        for fact, effect in effects.items():
            yield self.row(fact, State.MISSING, None, effect)

    def ending(self, fact: str, ends: datetime | None, soon: datetime) -> Iterator[Row]:
        """A row for what is known now, ends soon, and takes answers with it."""
        if ends is not None and self.now < ends <= soon:
            yield self.row(fact, State.ENDS, ends, self._turned(ends))

    def row(self, fact: str, state: State, ends: datetime | None, effect: _Effect) -> Row:
        labels = {label for label, _ in effect.questions}
        waiting = tuple(name for name, own in self.world.data.items() if not labels.isdisjoint(own))
        rules = tuple(sorted(effect.rules))
        return Row(self.subject, self.name, fact, state, ends, len(effect.questions), waiting, rules)

    def _open(self, about: About) -> Effects:
        """For each fact that is not known: the questions that are open for it, and the rules that ask."""
        effects: Effects = {}
        for label, question in self.asked:
            verdict = judge(self.world.law, question, label)
            open_now = verdict.answer is Answer.INDETERMINATE
            for compiled in self.world.law.rules_for(label, question.flow):
                outcome = compiled.ask(question, NO_FLIPS)
                for finding in outcome.all:
                    if finding.truth is Truth.UNKNOWN and about(finding.clause.fact):
                        effect = effects.setdefault(finding.clause.fact, _Effect())
                        effect.rules.add(compiled.rule.id)
                        if open_now and outcome.truth is Truth.UNKNOWN:
                            effect.questions.add((label, question.flow))
            for because in (verdict.because, *verdict.further):
                if because.duty is not None and because.gap is not None and about(because.fact):
                    effects.setdefault(because.fact, _Effect()).questions.add((label, question.flow))
        return effects

    def _turned(self, then: datetime) -> _Effect:
        """What is allowed now and is not at an instant, if nothing is done; and the rules that allow it."""
        effect = _Effect()
        for label, question in self.asked:
            verdict = judge(self.world.law, question, label)
            if verdict.allowed and not judge(self.world.law, with_values(question, now=then), label).allowed:
                effect.questions.add((label, question.flow))
                effect.rules |= set(verdict.permits)
        return effect


def facts_report(world: World, now: datetime, within: timedelta = WITHIN) -> tuple[Row, ...]:
    """Every gap, and all that ends within a time, by its effect: the worst first."""
    soon = now + within
    rows = [
        *(row for place in world.places.values() for row in _of_place(world, place, now, soon)),
        *(row for tenant in world.bundle.tenants for row in _of_tenant(world, tenant, now, soon)),
        *_of_queues(world),
        *_of_sets(world, soon),
    ]
    return tuple(sorted(rows, key=lambda r: (-len(r.data_sets), -r.blocks, -len(r.rules), r.subject, r.name, r.fact)))


# --- places ------------------------------------------------------------------------------------------------------


def _of_place(world: World, place: Place, now: datetime, soon: datetime) -> Iterator[Row]:
    subject = Subject.STORE if place.kind is Kind.STORE else Subject.CLUSTER
    tenant = next(iter(world.bundle.tenants), None)
    asked = list(_questions(world, place, tenant, now))
    hearing = _Hearing(world, subject, place.name, place.attested, asked, now)
    yield from hearing.gaps(_about_place)
    yield from hearing.ending(ATTESTATION, hearing.ends, soon)
    for record in (*(place.certifications or ()), *(place.records or ())):
        yield from hearing.ending(f"record {record.name}", record.until, soon)


def _about_place(fact: str) -> bool:
    return not fact.startswith((*OF_TENANTS, "source.", "data.", "gpu.", "time."))


def _questions(world: World, place: Place, tenant: Tenant | None, now: datetime) -> Iterator[tuple[str, Question]]:
    """Every label on every flow that may reach a place, with the GPUs that it has."""
    cluster = next((c for c in world.policy.clusters.values() if c.site.name == place.name), None)
    products = () if cluster is None else tuple(sorted({str(f.product) for f in cluster.flavors.values() if f.product}))
    home = (place.country,) if place.country is not None else ()
    for flow in AT_STORES if place.kind is Kind.STORE else AT_CLUSTERS:
        for label in world.labels:
            yield label, Question(flow, now, place, place, tenant, home, products)


# --- tenants -----------------------------------------------------------------------------------------------------


def _of_tenant(world: World, tenant: Tenant, now: datetime, soon: datetime) -> Iterator[Row]:
    asked = [one for place in world.places.values() for one in _questions(world, place, tenant, now)]
    hearing = _Hearing(world, Subject.TENANT, tenant.name, tenant.attested, asked, now)
    yield from hearing.gaps(lambda fact: fact.startswith(OF_TENANTS))
    yield from hearing.ending(ATTESTATION, hearing.ends, soon)


def _of_queues(world: World) -> Iterator[Row]:
    """Queues whose end user nobody has named."""
    named = {queue for tenant in world.bundle.tenants for queue in tenant.queues}
    rules = _rules_that_ask(world, lambda clause: clause.fact.startswith(OF_TENANTS))
    for queue in sorted(str(name) for name in world.policy.queues):
        if queue not in named and rules:
            yield Row(Subject.QUEUE, queue, "tenant", State.MISSING, None, 0, (), rules)


# --- sets --------------------------------------------------------------------------------------------------------


def _of_sets(world: World, soon: datetime) -> Iterator[Row]:
    """Sets whose source is to be looked up again."""
    for one in world.bundle.sets:
        if one.verify_by is not None and one.verify_by <= soon.date():
            rules = _rules_with(world, _around(world, one.id))
            ends = datetime.combine(one.verify_by, time(), soon.tzinfo)
            yield Row(Subject.SET, one.id, "verify_by", State.ENDS, ends, 0, (), rules)


def _around(world: World, name: str) -> frozenset[str]:
    """A set and all sets that it is in."""
    names, grown = {name}, True
    while grown:
        more = {one.id for one in world.bundle.sets if any(member.set in names for member in one.members)} - names
        names, grown = names | more, bool(more)
    return frozenset(names)


def _rules_with(world: World, names: frozenset[str]) -> tuple[str, ...]:
    return _rules_that_ask(world, lambda clause: not names.isdisjoint(clause.sets()))


def _rules_that_ask(world: World, wanted: Callable[[Clause], bool]) -> tuple[str, ...]:
    clauses = ((rule.id, clause) for rule in world.bundle.rules for group in rule.when for clause in group.clauses)
    return tuple(sorted({rule for rule, clause in clauses if wanted(clause)}))


def to_data(rows: Iterable[Row], now: datetime, within: timedelta) -> Mapping[str, object]:
    """For `-o json`; keys are stable, what is not known is null."""
    return {
        "now": now.isoformat(),
        "within_days": within.days,
        "facts": [
            {
                "subject": row.subject.value,
                "name": row.name,
                "fact": row.fact,
                "state": row.state.value,
                "ends": row.ends.isoformat() if row.ends is not None else None,
                "blocks": row.blocks,
                "data_sets": list(row.data_sets),
                "rules": list(row.rules),
            }
            for row in rows
        ],
    }
