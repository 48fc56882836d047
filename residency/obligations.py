"""Obligations: what must be done for a flow to be legal. United over all rules that grant; the strictest wins.

A duty that contradicts another denies, and so does one that the place cannot fulfil: a promise that nobody keeps is no
condition (residency.md section 4.6). Duties that the platform itself can check are checked here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from residency.vocabulary import AS_USUAL, NOWHERE, At, Flow, OnChange, harshest


class Duty(StrEnum):
    ENCRYPT_AT_REST = "encrypt_at_rest"
    """Encrypted where it lies, with keys in one of `countries` (none named: anywhere)."""
    EPHEMERAL_CACHE = "ephemeral_cache"
    """Copies beside the computation live in memory or scratch space only."""
    CACHE_TTL = "cache_ttl"
    """Copies are gone after `seconds` at the latest."""
    DELETE_ON_COMPLETION = "delete_on_completion"
    """Copies of `flows` are gone when the run ends."""
    RETAIN = "retain"
    """What is written is kept for `seconds` at least."""
    NO_CHECKPOINT_EGRESS = "no_checkpoint_egress"
    """Checkpoints stay at the site where they are written, so the run cannot be moved out."""
    LOCAL_LOGS = "local_logs"
    """Logs stay in the country of the computation."""
    LOG_SCRUB = "log_scrub"
    """What the data says is taken out of logs before they leave."""
    RECORD = "record"
    """What `words` name (image digest, driver version ...) is recorded with the run."""


CHECKED_HERE = frozenset({Duty.NO_CHECKPOINT_EGRESS, Duty.LOCAL_LOGS, Duty.RECORD})
"""Duties that Entrepot sees to itself: it knows where checkpoints and logs would go, and it keeps the records."""

AT_THE_SOURCE = frozenset({Duty.LOG_SCRUB})
"""Duties of the place that sends; all others are of the place that receives."""


@dataclass(frozen=True, slots=True)
class Obligation:
    """A duty with what it needs. `countries` may name sets as "@name"; () of them with ENCRYPT_AT_REST is anywhere."""

    duty: Duty
    countries: tuple[str, ...] = ()
    seconds: int | None = None
    flows: tuple[Flow, ...] = ()
    words: tuple[str, ...] = ()
    at: At = field(default=NOWHERE, compare=False)
    rules: tuple[str, ...] = field(default=(), compare=False)
    """Which rules and exceptions ask for it. Who asks is told to people and changes nothing of the duty."""
    on_change: OnChange = field(default=AS_USUAL, compare=False)
    """What they want done about work for which it is no longer met."""

    @property
    def rule(self) -> str:
        """The one that is told of first: the line `at` is its."""
        return self.rules[0] if self.rules else ""

    def asked_by(self, rule: str, on_change: OnChange = AS_USUAL) -> Obligation:
        return replace(self, rules=(rule,), on_change=on_change)


@dataclass(frozen=True, slots=True)
class Union:
    """Obligations united: one of each duty, the strictest, in order of duty; and the pairs that contradict."""

    obligations: tuple[Obligation, ...]
    conflicts: tuple[tuple[Duty, Duty], ...]


def unite(obligations: Iterable[Obligation]) -> Union:
    """The strictest of each. Countries of sets must be written out before."""
    kept: dict[Duty, Obligation] = {}
    emptied = False
    for one in sorted(obligations, key=_order):
        other = kept.get(one.duty)
        kept[one.duty] = one if other is None else _stricter(other, one)
        if one.duty is Duty.ENCRYPT_AT_REST and other is not None and other.countries and one.countries:
            emptied = emptied or not kept[one.duty].countries
    conflicts = [(Duty.ENCRYPT_AT_REST, Duty.ENCRYPT_AT_REST)] if emptied else []
    return Union(tuple(kept[duty] for duty in sorted(kept)), tuple(conflicts + _against_retention(kept)))


def _order(one: Obligation) -> tuple[str, tuple[str, ...], int, tuple[str, ...], tuple[str, ...]]:
    return (one.duty.value, one.countries, one.seconds or 0, one.flows, one.words)


def _stricter(a: Obligation, b: Obligation) -> Obligation:
    """Fewer key countries, the shorter time to live, the longer retention, more flows and records. Told of first is
    the rule whose id comes first, wherever it is written."""
    first, other = sorted((a, b), key=lambda one: (one.rule, one.at))
    countries = a.countries or b.countries
    if a.countries and b.countries:
        countries = tuple(sorted(set(a.countries) & set(b.countries)))
    seconds = [value for value in (a.seconds, b.seconds) if value is not None]
    limit = None if not seconds else max(seconds) if a.duty is Duty.RETAIN else min(seconds)
    flows = tuple(sorted({*a.flows, *b.flows}))
    return Obligation(
        duty=a.duty,
        countries=countries,
        seconds=limit,
        flows=flows,
        words=tuple(sorted({*a.words, *b.words})),
        at=first.at,
        rules=tuple(dict.fromkeys((*first.rules, *other.rules))),
        on_change=harshest((a.on_change, b.on_change)),
    )


def _against_retention(kept: dict[Duty, Obligation]) -> list[tuple[Duty, Duty]]:
    """What must be kept cannot be gone before: by a time to live below the retention, or at the end of the run."""
    retain = kept.get(Duty.RETAIN)
    if retain is None:
        return []
    found = []
    ttl = kept.get(Duty.CACHE_TTL)
    if ttl is not None and (ttl.seconds or 0) < (retain.seconds or 0):
        found.append((Duty.CACHE_TTL, Duty.RETAIN))
    if Duty.DELETE_ON_COMPLETION in kept:
        found.append((Duty.DELETE_ON_COMPLETION, Duty.RETAIN))
    return found
