"""What decisions saw, so that they can be replayed: content-addressed, compressed pieces, shared between decisions.

A view is cut into pieces at places that its own keys determine, so that one pod that moved makes one new piece and the
rest of a cluster is stored once. Pieces live in segments: a segment is complete in itself, is filled in order and is
forgotten as a whole, which bounds the size without counting references (docs/adr/0012-replay.md).
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import json
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, get_type_hints

from sqlalchemy import Connection, delete, func, insert, literal, select, update

from dispatcher.core.ids import DecisionId
from dispatcher.core.plain import PlainCodec, PlainError, plain_codec
from dispatcher.core.policy import Policy
from dispatcher.core.replay import Inputs
from dispatcher.core.snapshot import ClusterSnapshot, Hold, NodeView, Snapshot, Stake, WorkerView
from dispatcher.core.traffic import EMPTY, Traffic
from dispatcher.core.workload import Request
from dispatcher.logs import get_logger
from dispatcher.store.codec import CodecError
from dispatcher.store.database import Database, rows_of
from dispatcher.store.tables import from_micros, input_pieces, input_segments, inputs, to_micros

_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_FORM = 1
"""Version of the layout of documents and cluster pieces."""
_BATCH = 400
_MOST_PENDING = 20_000
"""Contents of commits that failed are dropped beyond this number, unless the newest views still need them."""
_CUT = 32
"""A piece holds this many entries on average."""
_VOLATILE = ("observed_at", "generation")
"""Fields of a view that change without its content: they stand in each decision's own document."""
_UNREAD = ("lies",)
"""Fields that no decision reads, and that would be many: they are not kept."""
_HINTS = {name: hint for name, hint in get_type_hints(WorkerView).items() if name not in _UNREAD}
_PARTS: dict[str, PlainCodec[Any]] = {
    **{name: plain_codec(hint) for name, hint in _HINTS.items() if getattr(hint, "__origin__", None) is Mapping},
    "nodes": plain_codec(tuple[NodeView, ...]),
}
"""The fields of a view that are cut into pieces: all that hold many entries."""
_HEAD: dict[str, PlainCodec[Any]] = {
    name: plain_codec(hint) for name, hint in _HINTS.items() if name not in _PARTS and name not in _VOLATILE
}
_HOLD, _POLICY, _REQUEST = plain_codec(Hold), plain_codec(Policy), plain_codec(Request)
_TRAFFIC = plain_codec(Traffic)
_STAKES: PlainCodec[Any] = plain_codec(Mapping[str, Stake])
_CLUSTER = plain_codec(ClusterSnapshot)
_TOLD = ("name", "link", "multikueue", "cached")
_INSTANT: PlainCodec[Any] = plain_codec(datetime)


@dataclass(frozen=True, slots=True)
class InputLimits:
    """How much is kept: whichever of age and size is reached first. The newest of `segments` segments is never
    dropped, so the size may exceed `max_bytes` by one segment."""

    max_bytes: int = 512 * 2**20
    keep: timedelta = timedelta(days=14)
    segments: int = 8
    least_decisions: int = 64
    """A segment takes at least this many decisions, so that a large fleet's base is not stored over and over."""


# --- cutting and packing -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Packed:
    """A decision's document and the pieces that it needs and that are not stored yet."""

    decision: DecisionId
    document: bytes
    new: tuple[tuple[str, bytes], ...]
    segment: int = 0
    """The segment that these pieces complete: in another one, some of those left out would be missing."""

    @property
    def size(self) -> int:
        return len(self.document) + sum(len(content) for _, content in self.new)


@dataclass(frozen=True, slots=True)
class _Piece:
    keys: tuple[object, ...]
    values: tuple[object, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class _Part:
    """A field of a view as last seen, and the pieces that it was cut into."""

    source: object
    pieces: tuple[_Piece, ...]
    digests: tuple[str, ...]


@dataclass(slots=True)
class Packer:
    """Turns inputs into pieces; remembers the newest views, so that only what changed is encoded again.

    `stored` are digests known to be in the current segment, `pending` contents that no commit has taken yet.
    """

    stored: set[str] = field(default_factory=set)
    pending: dict[str, bytes] = field(default_factory=dict)
    _parts: dict[tuple[str, str], _Part] = field(default_factory=dict)
    _clusters: dict[str, tuple[tuple[object, ...], str]] = field(default_factory=dict)
    _holds: dict[int, tuple[Hold, str]] = field(default_factory=dict)
    _policy: tuple[Policy, str] | None = None

    def pack(self, decision: DecisionId, seen: Inputs) -> Packed:
        """Raises PlainError for a value that has no plain form (an instant without a zone)."""
        if len(self.pending) > _MOST_PENDING:
            live = self.live()
            self.pending = {digest: content for digest, content in self.pending.items() if digest in live}
        needed: list[str] = []
        policy = self._policy_digest(seen.policy)
        holds = self._hold_digests(seen.snapshot.holds)
        clusters: list[list[object]] = []
        for cluster in seen.snapshot.clusters:
            digest = self._cluster(cluster)
            worker = cluster.worker
            at = _INSTANT.encode(worker.observed_at) if worker is not None and worker.observed_at is not None else None
            clusters.append([digest, at, worker.generation if worker is not None else 0])
            if digest not in self.stored:
                needed += [digest, *self._digests_of(cluster)]
        needed += [policy, *holds]
        new = {digest: self.pending[digest] for digest in needed if digest not in self.stored}
        document = {
            "form": _FORM,
            "now": _INSTANT.encode(seen.now),
            "request": _REQUEST.encode(seen.request),
            "policy": policy,
            "clusters": clusters,
            "holds": holds,
        }
        if seen.snapshot.traffic != EMPTY:
            document["traffic"] = _TRAFFIC.encode(seen.snapshot.traffic)
        if seen.snapshot.stakes:
            document["stakes"] = _STAKES.encode(seen.snapshot.stakes)
        if seen.snapshot.wall_ahead_s:
            document["wall_ahead_s"] = seen.snapshot.wall_ahead_s
        return Packed(decision, _compressed(document), tuple(sorted(new.items())))

    def committed(self, packed: Packed) -> None:
        """The pieces of `packed` are in the segment now."""
        for digest, _ in packed.new:
            self.stored.add(digest)
            self.pending.pop(digest, None)

    def live(self) -> frozenset[str]:
        """Digests that the next decision will most likely need: all that the newest views were cut into."""
        found = {digest for part in self._parts.values() for digest in part.digests}
        found |= {digest for _, digest in (*self._clusters.values(), *self._holds.values())}
        return frozenset(found | ({self._policy[1]} if self._policy is not None else set()))

    def _piece(self, plain: object) -> str:
        content = _JSON.encode(plain).encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()[:12]).decode()
        if digest not in self.stored and digest not in self.pending:
            self.pending[digest] = zlib.compress(content)
        return digest

    def _policy_digest(self, policy: Policy) -> str:
        if self._policy is None or self._policy[0] is not policy:
            self._policy = (policy, self._piece(_POLICY.encode(policy)))
        return self._policy[1]

    def _hold_digests(self, holds: tuple[Hold, ...]) -> list[str]:
        known = self._holds
        # By identity: a hold lives as long as its promise, and hashing it costs as much as encoding it.
        self._holds = {id(hold): known.get(id(hold)) or (hold, self._piece(_HOLD.encode(hold))) for hold in holds}
        return [self._holds[id(hold)][1] for hold in holds]

    def _cluster(self, cluster: ClusterSnapshot) -> str:
        worker = cluster.worker
        head = tuple(getattr(worker, name) for name in _HEAD) if worker is not None else None
        parts = tuple(self._part(cluster.name, name, getattr(worker, name)) for name in _PARTS) if worker else ()
        key = (cluster.link, cluster.multikueue, cluster.cached, head, tuple(part.digests for part in parts))
        known = self._clusters.get(cluster.name)
        if known is not None and known[0] == key:
            return known[1]
        view = None
        if worker is not None:
            view = {name: codec.encode(getattr(worker, name)) for name, codec in _HEAD.items()}
        told = _CLUSTER.encode(dataclasses.replace(cluster, worker=None))
        plain = {
            "form": _FORM,
            **{name: told[name] for name in _TOLD},
            "view": view,
            "parts": {name: part.digests for name, part in zip(_PARTS, parts, strict=bool(parts))},
        }
        digest = self._piece(plain)
        self._clusters[cluster.name] = (key, digest)
        return digest

    def _part(self, cluster: str, name: str, source: object) -> _Part:
        known = self._parts.get((cluster, name))
        if known is not None and known.source is source:
            return known
        before = {piece.keys[0]: piece for piece in known.pieces} if known is not None else {}
        pieces = tuple(self._cut(name, keys, values, before) for keys, values in _cuts(source))
        part = _Part(source, pieces, tuple(piece.digest for piece in pieces))
        self._parts[cluster, name] = part
        return part

    def _cut(
        self, name: str, keys: tuple[object, ...], values: tuple[object, ...], before: Mapping[object, _Piece]
    ) -> _Piece:
        known = before.get(keys[0])
        if known is not None and known.keys == keys and all(map(operator.is_, known.values, values)):
            return known
        entries: object = values if name == "nodes" else dict(zip(keys, values, strict=True))
        return _Piece(keys, values, self._piece(_PARTS[name].encode(entries)))

    def _digests_of(self, cluster: ClusterSnapshot) -> Iterator[str]:
        for name in _PARTS if cluster.worker is not None else ():
            yield from self._parts[cluster.name, name].digests


def _cuts(source: Any) -> Iterator[tuple[tuple[object, ...], tuple[object, ...]]]:
    """Cut entries after each key that happens to hash low: an entry more or less moves no other cut."""
    pairs = source.items() if isinstance(source, Mapping) else ((node.name, node) for node in source)
    keys: list[object] = []
    values: list[object] = []
    for key, value in pairs:
        keys.append(key)
        values.append(value)
        if zlib.crc32(repr(key).encode()) % _CUT == 0:
            yield tuple(keys), tuple(values)
            keys, values = [], []
    if keys:
        yield tuple(keys), tuple(values)


def _compressed(plain: object) -> bytes:
    return zlib.compress(_JSON.encode(plain).encode())


# --- the log -----------------------------------------------------------------------------------------------------


class InputLog:
    """The inputs of decisions in the store's database. One writer (the leader's store) at a time.

    Losing inputs never stops a decision: one that cannot be packed, or whose segment is gone, is stored without them.
    """

    def __init__(self, database: Database, limits: InputLimits | None = None) -> None:
        self.limits = limits or InputLimits()
        self._database = database
        self._packer = Packer()
        self._lock = asyncio.Lock()
        self._segment: int | None = None
        self._started_at = 0
        self._size = 0
        self._count = 0

    async def pack(self, decision: DecisionId, seen: Inputs) -> Packed | None:
        """Make ready what `write` will store; encoding happens in a thread, and only for what changed."""
        async with self._lock:
            segment = await self._current(to_micros(seen.now))
            try:
                packed = await asyncio.to_thread(self._packer.pack, decision, seen)
            except PlainError as error:
                get_logger().error("inputs_not_kept", decision=decision, error=str(error))
                return None
            return dataclasses.replace(packed, segment=segment)

    def write(self, connection: Connection, packed: Packed) -> bool:
        """Store a decision's inputs in the caller's transaction; returns whether their segment was still there."""
        segment = packed.segment
        grown = (
            update(input_segments)
            .where(input_segments.c.id == segment)
            .values(size=input_segments.c.size + packed.size, decisions=input_segments.c.decisions + 1)
        )
        if connection.execute(grown).rowcount == 0:
            return False
        rows = [{"segment": segment, "digest": digest, "content": content} for digest, content in packed.new]
        new = _insert_of(connection)
        for start in range(0, len(rows), _BATCH):
            connection.execute(new(input_pieces).on_conflict_do_nothing(), rows[start : start + _BATCH])
        row = {"decision": packed.decision, "segment": segment, "document": packed.document}
        connection.execute(new(inputs).on_conflict_do_nothing(), row)
        return True

    def committed(self, packed: Packed, kept: bool) -> None:
        """The transaction that wrote `packed` is durable; `kept` is what `write` said."""
        if not kept:
            get_logger().warning("inputs_not_kept", decision=packed.decision, error="its segment was dropped")
        if packed.segment != self._segment:
            return
        if kept:
            self._packer.committed(packed)
            self._size += packed.size
            self._count += 1
        else:
            self._packer, self._segment = Packer(), None

    async def _current(self, now: int) -> int:
        """The segment to write to: a new one at first, and when the last is full or old. Then the oldest may go.

        Whatever the newest views need is copied to the new segment inside the database.
        """
        limits, old = self.limits, self._segment
        full = self._size >= limits.max_bytes // limits.segments and self._count >= limits.least_decisions
        aged = now - self._started_at >= limits.keep // timedelta(microseconds=1) // limits.segments
        if old is not None and not full and not aged:
            return old
        carried = self._packer.live() & self._packer.stored if old is not None else frozenset[str]()

        def begin(connection: Connection) -> tuple[int, int]:
            begun = insert(input_segments).values(started_at=now, size=0, decisions=0).returning(input_segments.c.id)
            segment: int = connection.execute(begun).scalar_one()
            size = _copy(connection, old, segment, sorted(carried))
            _drop(connection, _too_many(connection, limits, now, segment))
            return segment, size

        segment, size = await self._database.write("beginning a segment of inputs", begin)
        self._packer.stored = set(carried)
        self._segment, self._started_at, self._size, self._count = segment, now, size, 0
        return segment

    async def expire(self, before: datetime) -> None:
        """Drop segments that began before `before` and are no longer written to."""
        query = select(input_segments.c.id).where(input_segments.c.started_at < to_micros(before))
        current = self._segment

        def drop(connection: Connection) -> None:
            _drop(connection, [segment for segment in connection.scalars(query).all() if segment != current])

        await self._database.write("dropping old inputs", drop)

    async def kept(self) -> tuple[int, datetime | None]:
        """Bytes of all segments, and since when inputs are kept; None when none are."""
        query = select(
            func.sum(input_segments.c.size).label("size"), func.min(input_segments.c.started_at).label("oldest")
        )
        (found,) = await self._database.read("measuring inputs", rows_of(query))
        return int(found.size or 0), from_micros(found.oldest) if found.oldest is not None else None

    async def read(self, decision: DecisionId) -> Inputs | None:
        """The inputs of a decision; None when they are not, or no longer, kept.

        Raises:
            CodecError: pieces are missing or not of this version's vocabulary.
        """
        query = select(inputs.c.segment, inputs.c.document).where(inputs.c.decision == decision)

        def read(connection: Connection) -> tuple[bytes, dict[str, bytes]] | None:
            row = connection.execute(query).first()
            if row is None:
                return None
            document = _plain(row.document, "document")
            _check_form(document)
            wanted = [digest for digest, _, _ in document["clusters"]]
            found = _pieces(connection, row.segment, wanted)
            parts = [d for digest in wanted for ds in _plain(found[digest], digest)["parts"].values() for d in ds]
            found |= _pieces(connection, row.segment, [document["policy"], *document["holds"], *parts])
            return row.document, found

        stored = await self._database.read("reading inputs", read)
        return await asyncio.to_thread(unpacked, *stored) if stored is not None else None


def _insert_of(connection: Connection) -> Callable[[Any], Any]:
    """The dialect's own `insert`, which knows what to do on a conflict; the other dialect is not loaded."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as insert_postgresql

        return insert_postgresql
    from sqlalchemy.dialects.sqlite import insert as insert_sqlite

    return insert_sqlite


def _copy(connection: Connection, old: int | None, new: int, digests: list[str]) -> int:
    """Copy pieces into another segment; returns their bytes."""
    size = 0
    for start in range(0, len(digests), _BATCH):
        chosen = (input_pieces.c.segment == old) & input_pieces.c.digest.in_(digests[start : start + _BATCH])
        query = select(literal(new), input_pieces.c.digest, input_pieces.c.content).where(chosen)
        connection.execute(insert(input_pieces).from_select(["segment", "digest", "content"], query))
        size += int(connection.scalar(select(func.sum(func.length(input_pieces.c.content))).where(chosen)) or 0)
    connection.execute(update(input_segments).where(input_segments.c.id == new).values(size=size))
    return size


def _too_many(connection: Connection, limits: InputLimits, now: int, newest: int) -> list[int]:
    """The oldest segments, as far as they must go for size or age."""
    keep_after = now - limits.keep // timedelta(microseconds=1)
    rows = connection.execute(select(input_segments).order_by(input_segments.c.id)).all()
    total = sum(row.size for row in rows)
    gone: list[int] = []
    for row, later in zip(rows, [*rows[1:], None], strict=True):
        # A segment was written to until the next one began.
        aged = later is not None and later.started_at < keep_after
        if row.id == newest or (total <= limits.max_bytes and not aged):
            break
        total -= row.size
        gone.append(row.id)
    return gone


def _drop(connection: Connection, segments: list[int]) -> None:
    for table, column in ((inputs, inputs.c.segment), (input_pieces, input_pieces.c.segment)):
        connection.execute(delete(table).where(column.in_(segments)))
    connection.execute(delete(input_segments).where(input_segments.c.id.in_(segments)))


def _pieces(connection: Connection, segment: int, digests: list[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    wanted = sorted(set(digests))
    for start in range(0, len(wanted), _BATCH):
        batch = wanted[start : start + _BATCH]
        query = select(input_pieces.c.digest, input_pieces.c.content).where(
            input_pieces.c.segment == segment, input_pieces.c.digest.in_(batch)
        )
        found |= {row.digest: row.content for row in connection.execute(query).all()}
    missing = [digest for digest in wanted if digest not in found]
    if missing:
        raise CodecError(f"stored inputs are not complete: {len(missing)} of {len(wanted)} pieces are missing")
    return found


# --- putting together --------------------------------------------------------------------------------------------


def unpacked(content: bytes, pieces: Mapping[str, bytes]) -> Inputs:
    """The inputs that `Packer.pack` cut up, from their document and at least the pieces that it names.

    Raises:
        CodecError: a piece is damaged, or not of this version's vocabulary.
    """
    document = _plain(content, "document")
    _check_form(document)
    try:
        holds = tuple(_HOLD.decode(_plain(pieces[digest], digest)) for digest in document["holds"])
        clusters = tuple(_joined(entry, pieces) for entry in document["clusters"])
        return Inputs(
            request=_REQUEST.decode(document["request"]),
            snapshot=Snapshot(
                clusters,
                holds,
                _TRAFFIC.decode(document.get("traffic", {})),
                document.get("wall_ahead_s", 0),
                _STAKES.decode(document.get("stakes", [])),
            ),
            policy=_POLICY.decode(_plain(pieces[document["policy"]], "policy")),
            now=_INSTANT.decode(document["now"]),
        )
    except PlainError as error:
        raise CodecError(f"stored inputs cannot be read: {error}") from None


def _joined(entry: list[Any], pieces: Mapping[str, bytes]) -> ClusterSnapshot:
    digest, observed_at, generation = entry
    plain = _plain(pieces[digest], digest)
    _check_form(plain)
    worker = None
    if plain["view"] is not None:
        values: dict[str, Any] = {name: _HEAD[name].decode(value) for name, value in plain["view"].items()}
        for name, digests in plain["parts"].items():
            decoded = [_PARTS[name].decode(_plain(pieces[d], d)) for d in digests]
            many = [item for part in decoded for item in (part.items() if isinstance(part, dict) else part)]
            values[name] = tuple(many) if name == "nodes" else dict(many)
        instant = _INSTANT.decode(observed_at) if observed_at is not None else None
        worker = WorkerView(**values, observed_at=instant, generation=generation)
    told = {name: plain[name] for name in _TOLD if name in plain}  # older ones know no caches
    return dataclasses.replace(_CLUSTER.decode({**told, "worker": None}), worker=worker)


def _check_form(plain: Any) -> None:
    if plain.get("form") != _FORM:
        raise CodecError(f"stored inputs have form {plain.get('form')!r}; this version reads form {_FORM}")


def _plain(content: bytes, what: str) -> Any:
    try:
        return json.loads(zlib.decompress(content))
    except (zlib.error, ValueError):
        raise CodecError(f"stored inputs cannot be read: {what} is damaged") from None
