"""Remembering verdicts: the same question about the same label has the same answer until it says that it may change.

A memo belongs to one compiled bundle, so the bundle's digest is part of every key by construction. The rest of the key
is all that a verdict may depend on: the label, the rules that speak of it on the flow, which exceptions of theirs cover
the question, and those parts of the question that these rules read (`Reading`). Where none of them asks for the source,
say, one verdict serves every source and only says where it came from. Time is kept as the span in which the remembered
answer holds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from residency.exceptions import Waiver
from residency.facts import Place, Question, Tenant, earliest
from residency.judge import Law, judge
from residency.plans import Hop, Plan
from residency.recent import Recent
from residency.verdict import Verdict
from residency.vocabulary import Flow

MOST = 200_000
"""Entries, after which a memo begins anew: far more than labels x flows x places of a fleet."""

MOST_HOPS = 32_768
"""Hops of late whose verdicts are remembered by name as well. A preview over thousands of workloads has many times as
many as the decisions before and after it, which must not find that they have been forgotten."""

_Key = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the verdicts on a label on a flow may depend on, besides where it goes and when. `rules` are those that
    speak of it; `waivers` the exceptions that name one of them."""

    rules: tuple[str, ...]
    waivers: tuple[Waiver, ...]
    flow: Flow | None
    """None: the flow decides nothing but which rules speak."""
    source: bool
    tenant: bool
    cargo: bool
    """How many people are in it and where it lies."""
    products: bool


def reading_of(law: Law, label: str, flow: Flow) -> Reading:
    """Obligations are checked by the flow, and at either end of it."""
    compiled = law.rules_for(label, flow)
    rules = tuple(one.rule.id for one in compiled)
    named = (one for one in law.bundle.exceptions if one.scope.parts >= 2)
    waivers = tuple(one for one in named if not set(rules).isdisjoint(one.rules))
    bound = any(one.rule.obligations for one in compiled) or any(one.obligations for one in waivers)
    reads = frozenset(part for one in compiled for part in one.reads)
    return Reading(
        rules=rules,
        waivers=waivers,
        flow=flow if bound else None,
        source=bound or "source" in reads,
        tenant="tenant" in reads,
        cargo=not reads.isdisjoint(("home", "persons")),
        products="products" in reads,
    )


@dataclass(frozen=True, slots=True)
class _Heard:
    """The verdicts on a hop within half-open [since, until). The hop and the tenant are kept, so that no other place,
    cargo or tenant can have their ids."""

    hop: Hop
    tenant: Tenant | None
    since: datetime
    until: datetime | None
    verdicts: tuple[Verdict, ...]


@dataclass(slots=True)
class Memo:
    """Answers `judge` faster and never otherwise; that it does is a law of the tests."""

    law: Law
    _known: dict[_Key, tuple[datetime, Verdict]] = field(default_factory=dict)
    _tokens: dict[Place | Tenant, int] = field(default_factory=dict)
    _objects: dict[int, tuple[Place | Tenant, int]] = field(default_factory=dict)
    _readings: dict[tuple[str, Flow], tuple[int, Reading]] = field(default_factory=dict)
    _numbers: dict[Reading, int] = field(default_factory=dict)
    _hops: Recent[_Key, _Heard] = field(default_factory=lambda: Recent(MOST_HOPS))

    def judge(self, question: Question, label: str) -> Verdict:
        verdict = self._judge(question, label)
        source = question.source.name if question.source is not None else ""
        if verdict.flow is question.flow and verdict.source == source:
            return verdict
        return verdict.on("", (), question.flow, source)

    def hear(self, plan: Plan, hop: Hop, now: datetime) -> Sequence[Verdict]:
        """A verdict on each label of a hop, as `plans.one_by_one` has them judged. On whose behalf matters to
        exceptions alone, apart from the tenant."""
        scope = (plan.queue, plan.workload) if self.law.bundle.exceptions else None
        things = (id(hop.cargo), id(hop.destination), id(hop.source), id(plan.tenant))
        key = (hop.flow, things, plan.products, scope)
        known = self._hops.get(key)
        if known is None or now < known.since or (known.until is not None and now >= known.until):
            verdicts = self._stamped(plan, hop, now)
            until = earliest(*(verdict.valid_until for verdict in verdicts))
            known = _Heard(hop, plan.tenant, now, until, verdicts)
            self._hops.put(key, known)
        return known.verdicts

    def _stamped(self, plan: Plan, hop: Hop, now: datetime) -> tuple[Verdict, ...]:
        """The verdicts with the names of what is carried and where. Who brings a label matters to exceptions alone."""
        common, exceptions = plan.question(hop, now), self.law.bundle.exceptions
        source = hop.source.name if hop.source is not None else ""
        found = []
        for one in hop.cargo.labels.inherited:
            question = plan.question(hop, now, one) if exceptions and one.brought_by else common
            found.append(self._judge(question, one.label).on(hop.cargo.name, one.chain, hop.flow, source))
        return tuple(found)

    def _judge(self, question: Question, label: str) -> Verdict:
        """A verdict that holds for the question, though it may name another flow and another source."""
        if len(self._known) + len(self._objects) > MOST:
            self._known, self._tokens, self._objects = {}, {}, {}
        key = self._key(question, label)
        found = self._known.get(key)
        if found is not None:
            asked, verdict = found
            if asked <= question.now and (verdict.valid_until is None or question.now < verdict.valid_until):
                return verdict
        verdict = judge(self.law, question, label)
        self._known[key] = (question.now, verdict)
        return verdict

    def _key(self, question: Question, label: str) -> _Key:
        number, reading = self._reading(label, question.flow)
        source, tenant = question.source, question.tenant
        return (
            label,
            number,
            self._token(question.destination),
            self._token(source) if reading.source and source is not None else None,
            self._token(tenant) if reading.tenant and tenant is not None else None,
            (question.home, question.persons) if reading.cargo else None,
            question.products if reading.products else None,
            tuple(one.id for one in reading.waivers if one.scope.covers(question)) if reading.waivers else (),
        )

    def _reading(self, label: str, flow: Flow) -> tuple[int, Reading]:
        """With its number: hashing it for each question would cost more than judging."""
        known = self._readings.get((label, flow))
        if known is None:
            reading = reading_of(self.law, label, flow)
            known = (self._numbers.setdefault(reading, len(self._numbers)), reading)
            self._readings[(label, flow)] = known
        return known

    def _token(self, thing: Place | Tenant) -> int:
        """A number for a value, found by identity first: hashing all facts of a place for each question would cost more
        than judging."""
        known = self._objects.get(id(thing))
        if known is not None:
            return known[1]
        token = self._tokens.setdefault(thing, len(self._tokens))
        self._objects[id(thing)] = (thing, token)
        return token


def at(question: Question, now: datetime) -> Question:
    """The same question at another instant."""
    return replace(question, now=now)
