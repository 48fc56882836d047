"""Replaying a decision: from everything that it saw to the same decision again, and what differs when it is not.

The record of a decision is complete (design section 5): request, snapshot, policy and `now` are all that `decide`
reads. The same bytes must come out of the same inputs under the same decision code; under another version of the code
the answer is compared without what that version alone changes (its name and the digests), and the version is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dispatcher.core.decide import decide
from dispatcher.core.decision import Decision
from dispatcher.core.instants import later
from dispatcher.core.plain import plain_codec
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import Snapshot
from dispatcher.core.workload import Request

Scalar = str | int | None

_KEYS = {"candidates": "cluster", "terms": "kind"}
"""Lists whose entries have a name: they are compared by it, so that one more candidate is one difference."""
_OF_THE_VERSION = frozenset({"id", "code_version", "request_digest", "snapshot_digest", "view_digest"})
"""Fields that another version of the code may fill differently for the same answer."""
_CODEC = plain_codec(Decision)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that one decision may depend on. `request` carries the attempt that was decided."""

    request: Request
    snapshot: Snapshot
    policy: Policy
    now: datetime

    @property
    def dated(self) -> datetime:
        """By what dates of the blueprint were judged."""
        return later(self.now, self.snapshot.wall_ahead_s)


@dataclass(frozen=True, slots=True)
class Record:
    """A stored decision with its inputs. `digest` is the SHA-256 of its stored bytes, in hexadecimal."""

    decision: Decision
    digest: str
    inputs: Inputs


class Verdict(StrEnum):
    """SAME: the same bytes. SAME_ANSWER: another version of the code, which decides the same. DIFFERS: neither."""

    SAME = "same"
    SAME_ANSWER = "same-answer"
    DIFFERS = "differs"


class Change(StrEnum):
    """CHANGED: both have it. MISSING: only the record has it. EXTRA: only the replay has it."""

    CHANGED = "changed"
    MISSING = "missing"
    EXTRA = "extra"


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where record and replay disagree, e.g. `candidates[cloud-a].terms[run].amount_usd_micro`."""

    path: str
    change: Change
    recorded: Scalar
    replayed: Scalar


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay found. Digests are of the bytes of both decisions; `differences` is empty when they are equal."""

    verdict: Verdict
    recorded_digest: str
    replayed_digest: str
    recorded_version: str
    replayed_version: str
    differences: tuple[Difference, ...]


def replay(inputs: Inputs) -> Decision:
    """Decide again. Raises ValueError as `decide` does, for inputs of which no decision can have been made."""
    return decide(inputs.request, inputs.snapshot, inputs.policy, inputs.now)


def compare(record: Record, replayed: Decision, replayed_digest: str) -> Replay:
    """Hold a replay against the record; `replayed_digest` is of its bytes, as the store would write them."""
    found = differences(record.decision, replayed)
    if record.digest == replayed_digest:
        verdict = Verdict.SAME
    elif record.decision.code_version != replayed.code_version and all(_of_the_version(d) for d in found):
        verdict = Verdict.SAME_ANSWER
    else:
        verdict = Verdict.DIFFERS
    return Replay(
        verdict=verdict,
        recorded_digest=record.digest,
        replayed_digest=replayed_digest,
        recorded_version=record.decision.code_version,
        replayed_version=replayed.code_version,
        differences=found,
    )


def _of_the_version(difference: Difference) -> bool:
    return difference.path.rpartition(".")[2] in _OF_THE_VERSION


def differences(recorded: Decision, replayed: Decision) -> tuple[Difference, ...]:
    """Every place where two decisions disagree, in the order of the record's fields."""
    found: list[Difference] = []
    _compare("", _CODEC.encode(recorded), _CODEC.encode(replayed), found)
    return tuple(found)


def _compare(path: str, old: object, new: object, found: list[Difference]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        _compare_named(path, old, new, found, "{path}.{name}" if path else "{name}")
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        key = _KEYS.get(path.rpartition(".")[2])
        before, after = _named(old, key), _named(new, key)
        _compare_named(path, before, after, found, "{path}[{name}]")
        if before.keys() == after.keys() and list(before) != list(after):
            found.append(Difference(f"{path}.order", Change.CHANGED, " ".join(before), " ".join(after)))
    elif old != new:
        found.append(Difference(path, Change.CHANGED, _scalar(old), _scalar(new)))


def _compare_named(
    path: str, old: dict[str, object], new: dict[str, object], found: list[Difference], form: str
) -> None:
    for name in [*old, *(name for name in new if name not in old)]:
        place = form.format(path=path, name=name)
        if name not in new:
            found.append(Difference(place, Change.MISSING, _scalar(old[name]), None))
        elif name not in old:
            found.append(Difference(place, Change.EXTRA, None, _scalar(new[name])))
        else:
            _compare(place, old[name], new[name], found)


def _named(entries: list[object] | tuple[object, ...], key: str | None) -> dict[str, object]:
    """List entries by their name; by their position where they have none, or share one."""
    named: dict[str, object] = {
        str(entry[key]): entry for entry in entries if key is not None and isinstance(entry, dict)
    }
    return named if len(named) == len(entries) else {str(index): entry for index, entry in enumerate(entries)}


def _scalar(value: object) -> Scalar:
    """A value that fits a cell: a compound stands for itself only by its size."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return f"{len(value)} entries"
    return "present"
