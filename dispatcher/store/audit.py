"""The audit log in the store: rows are added one after the other, in the transaction of what they tell.

Writers queue at the one row that says where the chain ends, so that no two rows are chained to the same one; a kill
leaves both the row and what it tells, or neither. Rows are never changed. Old ones are dropped from the front, and a
checkpoint row carries the chain on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher.core.audit import AuditKind, Entry, Head, Row, checkpoint, link
from dispatcher.store.tables import audit, audit_head, bundles, from_micros, to_micros

Transaction = Callable[[str], AbstractAsyncContextManager[AsyncConnection]]
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


class AuditLog:
    """Part of the store; `writing` and `reading` are the store's transactions with their deadlines."""

    def __init__(self, writing: Transaction, reading: Transaction) -> None:
        self._writing = writing
        self._reading = reading

    async def append(self, connection: AsyncConnection, entries: Iterable[Entry]) -> int:
        """Chain entries to the log inside a transaction of the caller's; returns how many were new."""
        wanted = list(entries)
        if not wanted:
            return 0
        head, at = await _locked_head(connection)
        known = select(audit.c.event).where(audit.c.event.in_([entry.event for entry in wanted]))
        seen = set((await connection.scalars(known)).all())
        count = 0
        for entry in wanted:
            if entry.event in seen:
                continue
            row = link(head, entry)
            await connection.execute(insert(audit).values(_values(row, entry)))
            head, at = Head(row.seq, row.digest), max(at, to_micros(entry.at))
            seen.add(entry.event)
            count += 1
        if count:
            await connection.execute(update(audit_head).values(seq=head.seq, digest=head.digest, at=at))
        return count

    async def add(self, entries: Sequence[Entry]) -> int:
        """The same in a transaction of its own; what is there already is not written again. Raises Transient."""
        async with self._writing("writing the audit log") as connection:
            return await self.append(connection, entries)

    async def ruled(self, entry: Entry, tree: str, now: datetime) -> None:
        """Record that a bundle rules, beside its row in the log. A start under the same bundle is no news."""
        async with self._writing("recording a bundle") as connection:
            of_bundles = select(audit.c.event).where(audit.c.kind == AuditKind.BUNDLE.value)
            last = await connection.scalar(of_bundles.order_by(audit.c.seq.desc()).limit(1))
            if last is None or last.rpartition("/")[0] != entry.event.rpartition("/")[0]:
                await self.append(connection, [entry])
            known = await connection.scalar(select(bundles.c.tree).where(bundles.c.tree == tree))
            if known is None:
                values = {"tree": tree, "serial": entry.serial, "first_at": to_micros(now), "last_at": to_micros(now)}
                await connection.execute(insert(bundles).values(values))
            else:
                mine = update(bundles).where(bundles.c.tree == tree)
                await connection.execute(mine.values(serial=entry.serial, last_at=to_micros(now)))

    async def bundle_record(self) -> BundleRecord:
        """What is known of earlier bundles; asked once, when a daemon starts."""
        signed = select(bundles).where(bundles.c.serial.is_not(None)).order_by(bundles.c.serial.desc()).limit(1)
        newest = select(bundles).order_by(bundles.c.last_at.desc(), bundles.c.tree).limit(1)
        async with self._reading("reading bundles") as connection:
            top = (await connection.execute(signed)).first()
            last = (await connection.execute(newest)).first()
            at = int(await connection.scalar(select(audit_head.c.at)) or 0)
        return BundleRecord(
            serial=top.serial if top is not None else None,
            tree=top.tree if top is not None else "",
            unsigned=(last.tree, from_micros(last.first_at)) if last is not None and last.serial is None else None,
            newest_at=from_micros(at) if at else None,
        )

    async def head(self) -> Head:
        async with self._reading("reading the audit log") as connection:
            row = (await connection.execute(select(audit_head))).one()
        return Head(row.seq, row.digest)

    async def rows(self, after: int = 0) -> AsyncIterator[Row]:
        """Every row after a place, oldest first, read in batches: the log may be long."""
        while True:
            query = select(audit).where(audit.c.seq > after).order_by(audit.c.seq).limit(_BATCH)
            async with self._reading("reading the audit log") as connection:
                found = (await connection.execute(query)).all()
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
        async with self._writing("trimming the audit log") as connection:
            head, _ = await _locked_head(connection)
            young = select(func.min(audit.c.seq)).where(audit.c.at >= to_micros(before))
            first_kept = int(await connection.scalar(young) or head.seq)
            through = min(max(first_kept - 1, head.seq - most), head.seq - 1)
            last = (await connection.execute(select(audit).where(audit.c.seq == through))).first()
            if last is None:
                return 0
            dropped = Row(last.seq, last.previous, last.body, last.digest)
            await self.append(connection, [checkpoint(dropped, now)])
            gone = await connection.execute(delete(audit).where(audit.c.seq <= through))
            await _drop_old_bundles(connection)
            return int(gone.rowcount)


async def _drop_old_bundles(connection: AsyncConnection) -> None:
    """Keep the newest, and always the one with the highest serial: it is what an older one is measured by."""
    newest = select(bundles.c.tree).order_by(bundles.c.last_at.desc()).limit(MOST_BUNDLES)
    top = select(bundles.c.tree).where(bundles.c.serial.is_not(None)).order_by(bundles.c.serial.desc()).limit(1)
    kept = [*(await connection.scalars(newest)).all(), *(await connection.scalars(top)).all()]
    await connection.execute(delete(bundles).where(bundles.c.tree.not_in(kept)))


async def _locked_head(connection: AsyncConnection) -> tuple[Head, int]:
    row = (await connection.execute(select(audit_head).with_for_update())).one()
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
