"""Verdicts: what the law says of one label of one artefact on one flow, with everything that a person needs to argue.

A verdict is data. It names the rule and the clause with their places, what was seen, what must be done, and until when
the answer holds. Its canonical bytes leave the places out, so that moving a rule in its file changes no digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime
from enum import Enum, StrEnum

from residency.facts import Gap
from residency.obligations import Duty, Obligation
from residency.vocabulary import AS_USUAL, NOWHERE, Answer, At, Flow, Mode, OnChange


class Code(StrEnum):
    """Why. Stable: codes are in records, metrics and tests."""

    PERMITTED = "permitted"
    FORBIDDEN = "forbidden"
    """A forbid rule holds."""
    REQUIREMENT = "requirement-not-met"
    """A require rule does not hold."""
    NO_PERMIT = "no-permit"
    """Rules speak of the label on this flow, and no permit holds: the default is to deny."""
    NO_RULE = "no-rule"
    """No permit speaks of the label on this flow at all. That differs from "allowed" (FR-POL-03)."""
    LABEL_MISSING = "label-missing"
    """Nobody classified the data, so it stays where it is."""
    FACT_UNKNOWN = "fact-unknown"
    """INDETERMINATE: a fact that would decide is missing, not attested or too old."""
    OBLIGATIONS_CONFLICT = "obligations-conflict"
    OBLIGATION_UNSUPPORTED = "obligation-unsupported"
    """The place does not fulfil a duty, or what can be checked of it does not hold."""
    OUTLIVES_AUTHORITY = "outlives-authority"
    """The run is expected to last longer than the grant does."""


@dataclass(frozen=True, slots=True)
class Would:
    """What a rule that does not decide (warn, shadow) would do: say "would have denied", never "denied"."""

    rule: str
    mode: Mode
    answer: Answer
    clause: str = ""
    seen: tuple[str, ...] = ()
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Because:
    """The reason: the rule and clause that decide, what the clause saw, and which fact would decide it if unknown.

    `expected` is the operand as it is written (sets as "@name"). Without a rule (no permit at all) most of it is empty.
    """

    code: Code
    rule: str = ""
    clause: str = ""
    fact: str = ""
    gap: Gap | None = None
    seen: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    duty: Duty | None = None
    law: str = ""
    at: At = field(default=NOWHERE, compare=False)
    clause_at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One label of one artefact on one flow. `because` is the reason that decides; `further` are all others, in order.

    `chain` leads from the artefact to where the label comes from. `valid_until` (exclusive) is when the answer may
    change by itself: the end of a rule, exception, attestation, membership or declassification, or the longest time
    that the bundle lets a verdict live. None: never by itself.
    """

    answer: Answer
    flow: Flow
    artefact: str
    label: str
    source: str
    destination: str
    because: Because
    further: tuple[Because, ...] = ()
    chain: tuple[str, ...] = ()
    permits: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    obligations: tuple[Obligation, ...] = ()
    would: tuple[Would, ...] = ()
    on_change: OnChange = AS_USUAL
    valid_until: datetime | None = None

    @property
    def code(self) -> Code:
        return self.because.code

    @property
    def allowed(self) -> bool:
        return self.answer is Answer.ALLOW

    def on(self, artefact: str, chain: tuple[str, ...], flow: Flow | None = None, source: str | None = None) -> Verdict:
        """The same verdict for an artefact by its name; on another flow and from elsewhere where those decide nothing
        (memo.py). Written out, since it is the commonest step of judging a plan and `replace` costs more than a
        remembered verdict."""
        return Verdict(
            self.answer,
            self.flow if flow is None else flow,
            artefact,
            self.label,
            self.source if source is None else source,
            self.destination,
            self.because,
            self.further,
            chain,
            self.permits,
            self.exceptions,
            self.obligations,
            self.would,
            self.on_change,
            self.valid_until,
        )


def canonical(value: object) -> bytes:
    """The same bytes for the same content: no places, no order of mappings, nothing of the process that made it."""
    return _text(value).encode()


def digest(value: object) -> str:
    """SHA-256 of the canonical bytes, in hexadecimal, shortened as everywhere in records."""
    return hashlib.sha256(canonical(value)).hexdigest()[:16]


def _text(value: object) -> str:
    if isinstance(value, Enum):
        return repr(value.value)
    if value is None or isinstance(value, str | int | bool):
        return repr(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_text(key)}:{_text(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, tuple | list):
        return "(" + ",".join(_text(item) for item in value) + ")"
    if is_dataclass(value) and not isinstance(value, type):
        parts = (f"{f.name}={_text(getattr(value, f.name))}" for f in fields(value) if f.compare)
        return f"{type(value).__name__}({','.join(parts)})"
    raise TypeError(f"{type(value).__name__} has no canonical form")
