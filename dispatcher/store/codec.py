"""Records as canonical bytes: the same value always gives the same bytes, and comes back as an equal value.

Canonical means: UTF-8 JSON, keys in the order of the dataclass fields, no spaces, datetimes in UTC. The bytes are what
is stored; the columns beside them only find them.
"""

from __future__ import annotations

import dataclasses
import hashlib
from datetime import UTC, datetime
from typing import Any, TypeVar, cast, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from dispatcher.core.decision import Candidate, Decision
from dispatcher.core.explain_shapes import place_text, shape_text
from dispatcher.core.snapshot import Hold

T = TypeVar("T")

_DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)
_HOLD: TypeAdapter[Hold] = TypeAdapter(Hold)
_DATED: dict[type, tuple[str, ...]] = {}
"""What `_dated` has found."""


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
    changes: dict[str, object] = {}
    for name in _dated(type(value)):
        old = getattr(value, name)
        new = _utc(old)
        if new is not old:
            changes[name] = new
    return dataclasses.replace(value, **changes) if changes else value  # type: ignore[type-var]


def _dated(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass below which there may be a datetime; none of anything else. A record has thousands of
    values, and few of them are or hold dates."""
    found = _DATED.get(kind)
    if found is None:
        hints = get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        found = _DATED[kind] = tuple(name for name, hint in hints.items() if _may_hold_dates(hint))
    return found


def _may_hold_dates(hint: Any) -> bool:
    if isinstance(hint, type) and not get_args(hint):
        return issubclass(hint, datetime) or bool(_dated(hint))
    return any(_may_hold_dates(part) for part in get_args(hint))
