"""Rules: which labels and flows they speak of, what they say, how hard, since when, and by which law."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from residency.clauses import Group
from residency.facts import earliest
from residency.obligations import Obligation
from residency.vocabulary import AS_USUAL, EVERY_LABEL, NOWHERE, At, Effect, Flow, Mode, OnChange


@dataclass(frozen=True, slots=True)
class Exceptable:
    """Who may grant an exception from a rule, and for how long at most. A rule without it is hard: it takes none."""

    approvers: tuple[str, ...]
    max_days: int = 30


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `when` is a conjunction of groups; of none it always holds. Valid in half-open [since, until), UTC.

    `labels` may be EVERY_LABEL for forbid and require. There is no priority and no order: forbid wins, require must
    hold, and without a permit that holds there is no grant.
    """

    id: str
    labels: tuple[str, ...]
    flows: tuple[Flow, ...]
    effect: Effect
    when: tuple[Group, ...] = ()
    obligations: tuple[Obligation, ...] = ()
    mode: Mode = Mode.ENFORCE
    exceptable: Exceptable | None = None
    on_change: OnChange = AS_USUAL
    since: datetime | None = None
    until: datetime | None = None
    law: str = ""
    at: At = field(default=NOWHERE, compare=False)

    @property
    def hard(self) -> bool:
        return self.exceptable is None

    def speaks_of(self, label: str, flow: Flow) -> bool:
        return flow in self.flows and (label in self.labels or EVERY_LABEL in self.labels)

    def in_force(self, now: datetime) -> bool:
        return (self.since is None or self.since <= now) and (self.until is None or now < self.until)

    def changes(self, now: datetime) -> datetime | None:
        """The next instant at which it comes into force or leaves it."""
        return earliest(*(end for end in (self.since, self.until) if end is not None and end > now))
