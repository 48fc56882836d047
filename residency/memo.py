"""Remembering verdicts: the same question about the same label has the same answer until it says that it may change.

A memo belongs to one compiled bundle, so the bundle's digest is part of every key by construction. The rest of the key
is all that a verdict may depend on: label, flow, the facts of both places, the tenant, what the data is, which
exceptions cover the question. Time is kept as the span in which the remembered answer holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from residency.facts import Place, Question, Tenant
from residency.judge import Law, judge
from residency.verdict import Verdict

MOST = 200_000
"""Entries, after which a memo begins anew: far more than labels x flows x places of a fleet."""

_Key = tuple[object, ...]


@dataclass(slots=True)
class Memo:
    """Answers `judge` faster and never otherwise; that it does is a law of the tests."""

    law: Law
    _known: dict[_Key, tuple[datetime, Verdict]] = field(default_factory=dict)
    _tokens: dict[Place | Tenant, int] = field(default_factory=dict)
    _objects: dict[int, tuple[Place | Tenant, int]] = field(default_factory=dict)

    def judge(self, question: Question, label: str) -> Verdict:
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
        source, tenant = question.source, question.tenant
        covering = (
            tuple(waiver.id for waiver in self.law.exceptions_for(question)) if self.law.bundle.exceptions else ()
        )
        return (
            label,
            question.flow,
            self._token(question.destination),
            None if source is None else self._token(source),
            None if tenant is None else self._token(tenant),
            question.home,
            question.products,
            question.persons,
            covering,
        )

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
