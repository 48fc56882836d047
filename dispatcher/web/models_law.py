"""The shape of answers about rules, and about work that is not as it should be where it is."""

from __future__ import annotations

from datetime import datetime

from dispatcher.web.wire import Wire


class FindingView(Wire):
    """What is wrong with it where it is, beside its decision (docs/on-call.md)."""

    code: str
    cluster: str | None
    since: datetime | None
    text: str


class LawView(Wire):
    """The rules in force: whose they are, and whether they may still be used."""

    digest: str
    trust: str
    serial: int | None
    revision: str
    actor: str
    confirmed_at: datetime | None
    stops_at: datetime | None
    """When classified work stops unless the rules are vouched for again; null = never for their age."""
    trouble: str | None
    text: str


class WorkDocument(Wire):
    """All work of the hub with the policy in force: canonical JSON, keys sorted, for `entrepot policy diff|explain`."""

    format: str
    version: int
    policy_digest: str
    code_version: str
    book: dict[str, object]
    """`taken_at`, `policy`, `work`, and `unread`: workloads whose declarations cannot be understood."""


class TrialView(Wire):
    """A live rule in mode warn or shadow, and what it would have denied."""

    rule: str
    mode: str
    clause: str
    at: str


class BesideView(Wire):
    """What rules that do not rule would do to one workload. `effects` are the candidate's."""

    workload: str
    stage: str
    effects: tuple[str, ...]
    legal_before: tuple[str, ...]
    legal_after: tuple[str, ...]
    reasons: tuple[str, ...]
    trials: tuple[TrialView, ...]


class ShadowView(Wire):
    """The candidate bundle beside the rules in force, at the newest look. No decision depends on it."""

    live: str
    candidate: str | None
    loaded_at: datetime | None
    errors: tuple[str, ...]
    """Why the newest edit of the candidate is not used."""
    failures: int
    looked_at: int
    items: tuple[BesideView, ...]
