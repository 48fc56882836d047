"""What decisions saw, so that they can be replayed: content-addressed, compressed pieces, shared between decisions.

Pieces (`pieces.py`) live in segments: a segment is complete in itself, is filled in order and is forgotten as a whole,
which bounds the size without counting references (docs/adr/0012-replay.md).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, func, insert, literal, select, update

from dispatcher.core.ids import DecisionId
from dispatcher.core.plain import PlainError
from dispatcher.core.replay import Inputs
from dispatcher.logs import get_logger
from dispatcher.store.codec import CodecError
from dispatcher.store.database import Database, rows_of
from dispatcher.store.pieces import Packed, Packer, clusters_in, others_in, unpacked
from dispatcher.store.tables import from_micros, input_pieces, input_segments, inputs, to_micros

_BATCH = 400


@dataclass(frozen=True, slots=True)
class InputLimits:
    """How much is kept: whichever of age and size is reached first. The newest of `segments` segments is never
    dropped, so the size may exceed `max_bytes` by one segment."""

    max_bytes: int = 512 * 2**20
    keep: timedelta = timedelta(days=14)
    segments: int = 8
    least_decisions: int = 64
    """A segment takes at least this many decisions, so that a large fleet's base is not stored over and over."""


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
            found = _pieces(connection, row.segment, clusters_in(row.document))
            found |= _pieces(connection, row.segment, others_in(row.document, found))
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
