"""Records as canonical bytes: the same value always gives the same bytes, and comes back as an equal value.

Canonical means: UTF-8 JSON, keys in the order of the dataclass fields, no spaces, datetimes in UTC. The bytes are what
is stored; the columns beside them only find them.
"""

from __future__ import annotations

import dataclasses
import hashlib
from datetime import UTC, datetime
from typing import TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from dispatcher.core.decision import Candidate, Decision
from dispatcher.core.explain_shapes import place_text, shape_text
from dispatcher.core.snapshot import Hold

T = TypeVar("T")

_DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)
_HOLD: TypeAdapter[Hold] = TypeAdapter(Hold)


class CodecError(ValueError):
    """Stored bytes are not a record of this version's vocabulary; the message names the field."""


def encode_decision(decision: Decision) -> bytes:
    """Canonical bytes of a decision. Raises ValueError on a datetime without a zone: it names no instant."""
    return _DECISION.dump_json(_in_utc(decision))


def decode_decision(document: bytes) -> Decision:
    """The decision that `encode_decision` wrote. Raises CodecError."""
    return _decode(_DECISION, document, "decision")


def encode_hold(hold: Hold) -> bytes:
    """Canonical bytes of a hold; see encode_decision."""
    return _HOLD.dump_json(_in_utc(hold))


def decode_hold(document: bytes) -> Hold:
    """The hold that `encode_hold` wrote. Raises CodecError."""
    return _decode(_HOLD, document, "hold")


def digest_of_bytes(document: bytes) -> str:
    """SHA-256 of a record's canonical bytes, in hexadecimal: what a replay is held against."""
    return hashlib.sha256(document).hexdigest()


def wait_fingerprint(decision: Decision) -> str:
    """Equal for two decisions that came to the same result for the same reasons.

    Amounts, ages and prices are left out: a free GPU more or a cent less is the same wait. A new attempt, policy,
    cluster, reason or subject is another one.
    """
    reasons = (
        decision.outcome.value,
        decision.attempt,
        decision.policy_digest,
        *((decision.kept.reason.value,) if decision.kept is not None else ()),
        tuple(_candidate_reasons(candidate) for candidate in decision.candidates),
    )
    return hashlib.sha256(repr(reasons).encode()).hexdigest()[:16]


def _candidate_reasons(candidate: Candidate) -> tuple[object, ...]:
    return (
        candidate.cluster,
        candidate.fit.value,
        tuple(
            (rejection.reason.value, rejection.resolver.value, rejection.detail.subject, rejection.detail.flavor)
            for rejection in candidate.rejections
        ),
    )


def _decode(adapter: TypeAdapter[T], document: bytes, what: str) -> T:
    try:
        return _in_utc(adapter.validate_json(document, strict=True))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where, rule = place_text(first["loc"]) or "document", shape_text(first["type"], first.get("ctx", {}))
        raise CodecError(f"stored {what} cannot be read: {where}: {rule}") from None


def _in_utc(value: T) -> T:
    """The same value with every datetime in `datetime.UTC`: equal instants must have equal bytes and equal reprs."""
    return cast(T, _utc(value))


def _utc(value: object) -> object:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone and names no instant: use UTC")
        return value if value.tzinfo is UTC else value.astimezone(UTC)
    if isinstance(value, tuple):
        items = tuple(_utc(item) for item in value)
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes: dict[str, object] = {}
        for field in dataclasses.fields(value):
            old = getattr(value, field.name)
            new = _utc(old)
            if new is not old:
                changes[field.name] = new
        return dataclasses.replace(value, **changes) if changes else value
    return value
