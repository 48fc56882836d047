"""The audit log in the store: rows are added one after the other, in the transaction of what they tell.

Writers queue at the one row that says where the chain ends, so that no two rows are chained to the same one; a kill
leaves both the row and what it tells, or neither. Rows are never changed. Old ones are dropped from the front, and a
checkpoint row carries the chain on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update

from dispatcher.core.audit import AuditKind, Entry, Head, Row, checkpoint, link
from dispatcher.store.database import Database, rows_of
from dispatcher.store.tables import audit, audit_head, bundles, from_micros, last_good, to_micros

_BATCH = 500
MOST_ROWS = 500_000
"""Older rows go beyond this many, whatever their age: some 500 MB."""
MOST_BUNDLES = 1000


@dataclass(frozen=True, slots=True)
class BundleRecord:
    """What the store knows of bundles that ruled: the highest serial and its tree, and the newest unsigned files."""

    serial: int | None = None
    tree: str = ""
    unsigned: tuple[str, datetime] | None = None
    newest_at: datetime | None = None
    """The newest instant in the audit log: a clock that shows less has gone back."""
    kept: bytes | None = None
    """The files of the bundle that ruled last (config/residency/kept.py)."""


class AuditLog:
    """Part of the store, on the same database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, connection: Connection, entries: Sequence[Entry]) -> int:
        """Chain entries to the log inside a transaction of the caller's; returns how many were new."""
        if not entries:
            return 0
        head, at = _locked_head(connection)
        known = select(audit.c.event).where(audit.c.event.in_([entry.event for entry in entries]))
        seen = set(connection.scalars(known).all())
        count = 0
        for entry in entries:
            if entry.event in seen:
                continue
            row = link(head, entry)
            connection.execute(insert(audit).values(_values(row, entry)))
            head, at = Head(row.seq, row.digest), max(at, to_micros(entry.at))
            seen.add(entry.event)
            count += 1
        if count:
            connection.execute(update(audit_head).values(seq=head.seq, digest=head.digest, at=at))
        return count

    async def add(self, entries: Sequence[Entry]) -> int:
        """The same in a transaction of its own; what is there already is not written again. Raises Transient."""
        return await self._database.write("writing the audit log", lambda found: self.append(found, entries))

    async def ruled(self, entry: Entry, tree: str, now: datetime, files: bytes | None = None) -> None:
        """Record that a bundle rules, beside its row in the log. A start under the same bundle is no news.

        `files` is what a later start may fall back to; without them it is what it was.
        """

        def record(connection: Connection) -> None:
            of_bundles = select(audit.c.event).where(audit.c.kind == AuditKind.BUNDLE.value)
            last = connection.scalar(of_bundles.order_by(audit.c.seq.desc()).limit(1))
            if last is None or last.rpartition("/")[0] != entry.event.rpartition("/")[0]:
                self.append(connection, [entry])
            known = connection.scalar(select(bundles.c.tree).where(bundles.c.tree == tree))
            if known is None:
                values = {"tree": tree, "serial": entry.serial, "first_at": to_micros(now), "last_at": to_micros(now)}
                connection.execute(insert(bundles).values(values))
            else:
                mine = update(bundles).where(bundles.c.tree == tree)
                connection.execute(mine.values(serial=entry.serial, last_at=to_micros(now)))
            if files is not None and connection.scalar(select(last_good.c.files)) != files:  # or only signed anew
                connection.execute(delete(last_good))
                connection.execute(insert(last_good).values(id=1, tree=tree, at=to_micros(now), files=files))

        await self._database.write("recording a bundle", record)

    async def bundle_record(self) -> BundleRecord:
        """What is known of earlier bundles; asked once, when a daemon starts."""
        signed = select(bundles).where(bundles.c.serial.is_not(None)).order_by(bundles.c.serial.desc()).limit(1)
        newest = select(bundles).order_by(bundles.c.last_at.desc(), bundles.c.tree).limit(1)

        def read(connection: Connection) -> BundleRecord:
            top = connection.execute(signed).first()
            last = connection.execute(newest).first()
            at = int(connection.scalar(select(audit_head.c.at)) or 0)
            return BundleRecord(
                serial=top.serial if top is not None else None,
                tree=top.tree if top is not None else "",
                unsigned=(last.tree, from_micros(last.first_at)) if last is not None and last.serial is None else None,
                newest_at=from_micros(at) if at else None,
                kept=connection.scalar(select(last_good.c.files)),
            )

        return await self._database.read("reading bundles", read)

    async def head(self) -> Head:
        (row,) = await self._database.read("reading the audit log", rows_of(select(audit_head)))
        return Head(row.seq, row.digest)

    async def rows(self, after: int = 0) -> AsyncIterator[Row]:
        """Every row after a place, oldest first, read in batches: the log may be long."""
        while True:
            query = select(audit).where(audit.c.seq > after).order_by(audit.c.seq).limit(_BATCH)
            found = await self._database.read("reading the audit log", rows_of(query))
            for row in found:
                yield Row(row.seq, row.previous, row.body, row.digest)
            if len(found) < _BATCH:
                return
            after = found[-1].seq

    async def trim(self, before: datetime, now: datetime, most: int = MOST_ROWS) -> int:
        """Drop rows that are older, or too many, from the front; a checkpoint row carries the chain on.

        Returns how many. The newest row always stays. Dropped and accounted for in one transaction: the chain verifies
        at every instant.
        """

        def trim(connection: Connection) -> int:
            head, _ = _locked_head(connection)
            young = select(func.min(audit.c.seq)).where(audit.c.at >= to_micros(before))
            first_kept = int(connection.scalar(young) or head.seq)
            through = min(max(first_kept - 1, head.seq - most), head.seq - 1)
            last = connection.execute(select(audit).where(audit.c.seq == through)).first()
            if last is None:
                return 0
            dropped = Row(last.seq, last.previous, last.body, last.digest)
            self.append(connection, [checkpoint(dropped, now)])
            gone = connection.execute(delete(audit).where(audit.c.seq <= through))
            _drop_old_bundles(connection)
            return int(gone.rowcount)

        return await self._database.write("trimming the audit log", trim)


def _drop_old_bundles(connection: Connection) -> None:
    """Keep the newest, and always the one with the highest serial: it is what an older one is measured by."""
    newest = select(bundles.c.tree).order_by(bundles.c.last_at.desc()).limit(MOST_BUNDLES)
    top = select(bundles.c.tree).where(bundles.c.serial.is_not(None)).order_by(bundles.c.serial.desc()).limit(1)
    kept = [*connection.scalars(newest).all(), *connection.scalars(top).all()]
    connection.execute(delete(bundles).where(bundles.c.tree.not_in(kept)))


def _locked_head(connection: Connection) -> tuple[Head, int]:
    row = connection.execute(select(audit_head).with_for_update()).one()
    return Head(row.seq, row.digest), int(row.at)


def _values(row: Row, entry: Entry) -> dict[str, object]:
    return {
        "seq": row.seq,
        "event": entry.event,
        "at": to_micros(entry.at),
        "kind": AuditKind(entry.kind).value,
        "body": row.body,
        "previous": row.previous,
        "digest": row.digest,
    }
