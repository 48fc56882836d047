"""Files and answers that carry what a decision sees: canonical JSON, versioned, readable by later versions.

Canonical: keys sorted, no spaces beyond what `indent` asks for, instants in UTC, one newline at the end. The same
values always give the same bytes. No document holds a secret: views keep names of Secrets, never their content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from dispatcher.core.decision import Decision
from dispatcher.core.ids import ClusterName, QueueName
from dispatcher.core.plain import PlainCodec, PlainError, plain_codec
from dispatcher.core.replay import Inputs, Record
from dispatcher.core.snapshot import Check, HubQueue, HubView, LocalQueueView, Snapshot
from dispatcher.core.stakes import Said, running_of
from dispatcher.core.version import CODE_VERSION
from dispatcher.core.work import Workbook
from dispatcher.core.workload import Request
from dispatcher.store.codec import CodecError, digest_of_bytes, encode_decision

T = TypeVar("T")
SNAPSHOT_FORMAT, RECORD_FORMAT, REQUEST_FORMAT, WORK_FORMAT = (
    "entrepot.dev/snapshot",
    "entrepot.dev/record",
    "entrepot.dev/request",
    "entrepot.dev/work",
)
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class HubRoutes:
    """The part of the hub by which a Workload becomes a request: which queue, which check, which clusters."""

    checks: Mapping[str, Check]
    configs: Mapping[str, tuple[ClusterName, ...]]
    queues: Mapping[QueueName, HubQueue]
    local_queues: Mapping[tuple[str, str], LocalQueueView]


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """A snapshot file: what a decision at `taken_at` sees. `policy_digest` is the policy then in force."""

    taken_at: datetime
    policy_digest: str
    code_version: str
    hub: HubRoutes
    snapshot: Snapshot
    book: Workbook | None = None
    """The work of the hub and the policy it is under, for previews; a file of an earlier version has none."""
    running: Mapping[str, Said] | None = None
    """What the hub knows of whoever a start might stop, by key; None: a file of an earlier version."""


_TAKEN: PlainCodec[TakenSnapshot] = plain_codec(TakenSnapshot)
_INPUTS: PlainCodec[Inputs] = plain_codec(Inputs)
_DECISION: PlainCodec[Decision] = plain_codec(Decision)
_REQUEST: PlainCodec[Request] = plain_codec(Request)
_BOOK: PlainCodec[Workbook] = plain_codec(Workbook)


def taken_snapshot(
    hub: HubView, snapshot: Snapshot, policy_digest: str, now: datetime, book: Workbook | None = None
) -> TakenSnapshot:
    """What a snapshot file holds of a live fleet. A decision on it brings its own request; `book` is for previews."""
    routes = HubRoutes(hub.checks, hub.configs, hub.queues, hub.local_queues)
    return TakenSnapshot(now, policy_digest, CODE_VERSION, routes, snapshot, book, running_of(hub, snapshot))


def encode_snapshot(taken: TakenSnapshot) -> bytes:
    return _written(SNAPSHOT_FORMAT, _TAKEN.encode(taken))


def decode_snapshot(content: bytes) -> TakenSnapshot:
    """Raises CodecError: not a snapshot file, or one of a newer version; names the place."""
    return _read(_TAKEN, _opened(content, SNAPSHOT_FORMAT))


def encode_workbook(book: Workbook) -> bytes:
    """All work with the policy in force: what `policy diff` and `policy explain` ask the daemon for."""
    body = {"policy_digest": book.policy.digest, "code_version": CODE_VERSION, "book": _BOOK.encode(book)}
    return _written(WORK_FORMAT, body)


def decode_workbook(content: bytes) -> Workbook:
    """The work of a work file or of a snapshot file. Raises CodecError: neither, of another version, or a snapshot that
    was taken before snapshots held work."""
    if _format_of(content) == SNAPSHOT_FORMAT:
        book = decode_snapshot(content).book
        if book is None:
            raise CodecError("this snapshot holds no work: take it with a daemon of this version")
        return book
    return _read(_BOOK, _opened(content, WORK_FORMAT).get("book"))


def encode_record(record: Record, indent: int | None = None) -> bytes:
    """A decision with its inputs and the digest of its stored bytes: enough to replay it anywhere."""
    body = {
        "decision": _DECISION.encode(record.decision),
        "decision_sha256": record.digest,
        "inputs": _INPUTS.encode(record.inputs),
    }
    return _written(RECORD_FORMAT, body, indent)


def decode_record(content: bytes) -> Record:
    """Raises CodecError: not a record file, of a newer version, or its decision is not the one that was digested."""
    body = _opened(content, RECORD_FORMAT)
    for name in ("decision", "decision_sha256", "inputs"):
        if name not in body:
            raise CodecError(f"the record has no {name!r}")
    return Record(_read(_DECISION, body["decision"]), str(body["decision_sha256"]), _read(_INPUTS, body["inputs"]))


def encode_request(request: Request) -> bytes:
    return _written(REQUEST_FORMAT, {"request": _REQUEST.encode(request)})


def decode_request(body: Mapping[str, Any]) -> Request:
    """A stored request: a request file, or the request of a record. Raises CodecError."""
    if body.get("format") == RECORD_FORMAT:
        inputs = body.get("inputs")
        found = inputs.get("request") if isinstance(inputs, dict) else None
    else:
        _check(body, REQUEST_FORMAT)
        found = body.get("request")
    return _read(_REQUEST, found)


def replayed_digest(decision: Decision) -> str:
    """The digest of a decision's bytes, as the store would write them."""
    return digest_of_bytes(encode_decision(decision))


def _written(kind: str, body: dict[str, Any], indent: int | None = None) -> bytes:
    separators = (",", ":") if indent is None else (",", ": ")
    document = {"format": kind, "version": FORMAT_VERSION, **body}
    text = json.dumps(document, sort_keys=True, separators=separators, indent=indent, ensure_ascii=False)
    return text.encode() + b"\n"


def _format_of(content: bytes) -> object:
    try:
        document = _parsed(content)
    except CodecError:
        return None
    return document.get("format") if isinstance(document, dict) else None


def _parsed(content: bytes) -> object:
    try:
        document = json.loads(content)
        if b"\\ud" in content.lower():  # halves of a letter, which no file and no store could hold again
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}") from None
    return document


def _opened(content: bytes, kind: str) -> dict[str, Any]:
    document = _parsed(content)
    if not isinstance(document, dict):
        raise CodecError(f"not a document of format {kind}")
    _check(document, kind)
    return {name: value for name, value in document.items() if name not in ("format", "version")}


def _check(document: Mapping[str, Any], kind: str) -> None:
    if "format" not in document:
        raise CodecError(f"names no format; {kind!r} is expected")
    if document["format"] != kind:
        raise CodecError(f"format is {document['format']!r}, not {kind!r}")
    if document.get("version") != FORMAT_VERSION:
        raise CodecError(f"version is {document.get('version')!r}; this program reads version {FORMAT_VERSION}")


def _read(codec: PlainCodec[T], plain: object) -> T:
    try:
        return codec.decode(plain)
    except PlainError as error:
        raise CodecError(str(error)) from None
