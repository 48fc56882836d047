"""The instants at which the law's answers may change by themselves: all ends of what bundle and facts hold.

They are known beforehand. Between two of them the same question has the same answer, which is what lets whoever
remembers answers know for how long (`Verdict.valid_until` says it of one answer).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from residency.facts import Place, Tenant
from residency.judge import Law


def moments(law: Law, known: Iterable[Place | Tenant]) -> tuple[datetime, ...]:
    """All of them, in order, each once."""
    found = {instant for instant in _of_bundle(law) if instant is not None}
    for one in known:
        found.update(instant for instant in _of_facts(one) if instant is not None)
    return tuple(sorted(found))


def _of_bundle(law: Law) -> Iterator[datetime | None]:
    for rule in law.bundle.rules:
        yield from (rule.since, rule.until)
        for group in rule.when:
            for clause in group.clauses:
                yield from (clause.since, clause.until)
    for membership in law.sets.values():
        for spans in membership.spans.values():
            for span in spans:
                yield from span
    for waiver in law.bundle.exceptions:
        yield from (waiver.since, waiver.expires)
    for declassification in law.bundle.declassifications:
        yield from (declassification.since, declassification.expires)


def _of_facts(one: Place | Tenant) -> Iterator[datetime | None]:
    if one.attested is not None:
        yield from (one.attested.at, one.attested.ends())
    if isinstance(one, Place):
        for record in (*(one.certifications or ()), *(one.records or ())):
            yield record.until
