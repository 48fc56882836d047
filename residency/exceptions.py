"""Exceptions: a kind of their own. They lift named rules, inside a scope, until a day that must be written.

`is_live` is the one function that says whether an exception counts. The daemon, the command line, tests and shadow
evaluation all come through here (kyverno/kyverno#17473 is what happens otherwise).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from residency.facts import Question, earliest
from residency.obligations import Obligation
from residency.vocabulary import NOWHERE, At


class Category(StrEnum):
    """WAIVER: the risk is taken. MITIGATED: something else stands in for the rule, as `obligations` say."""

    WAIVER = "waiver"
    MITIGATED = "mitigated"


@dataclass(frozen=True, slots=True)
class Scope:
    """What an exception is for: each part that is set must match, and at least two must be set."""

    queues: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    data_sets: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()

    @property
    def parts(self) -> int:
        return sum(1 for part in (self.queues, self.workloads, self.data_sets, self.clusters) if part)

    def covers(self, question: Question) -> bool:
        ends = {question.destination.name} | ({question.source.name} if question.source is not None else set())
        return (
            (not self.queues or question.queue in self.queues)
            and (not self.workloads or question.workload in self.workloads)
            and (not self.data_sets or self._names_all(question.data_sets))
            and (not self.clusters or not ends.isdisjoint(self.clusters))
        )

    def _names_all(self, data_sets: tuple[str, ...]) -> bool:
        """A log of two data sets is excepted by what excepts both: one of them may not speak for the other."""
        return bool(data_sets) and set(data_sets) <= set(self.data_sets)


@dataclass(frozen=True, slots=True)
class Waiver:
    """An exception (residency.md section 1.2.7). It counts in half-open [since, expires), UTC, and stays on record."""

    id: str
    rules: tuple[str, ...]
    scope: Scope
    reason: str
    ticket: str
    requested_by: str
    approved_by: str
    approver_role: str
    since: datetime
    expires: datetime
    category: Category = Category.WAIVER
    obligations: tuple[Obligation, ...] = ()
    at: At = field(default=NOWHERE, compare=False)


def is_live(waiver: Waiver, now: datetime) -> bool:
    """Whether an exception counts at an instant: from `since` on, and at the instant of its expiry no more."""
    return waiver.since <= now < waiver.expires


def changes(waiver: Waiver, now: datetime) -> datetime | None:
    """The next instant at which it begins or stops to count."""
    return earliest(*(end for end in (waiver.since, waiver.expires) if end > now))
