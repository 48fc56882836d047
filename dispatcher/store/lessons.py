"""What was learnt of copies that came to harm: a row for each workload, cluster and cause, so that a restart sends
nothing back to a cluster that has refused it, and starts nothing again that may have run to its end unseen (FR-RAC-03).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection, Row, delete, insert, or_, select, tuple_

from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.workload import Avoided
from dispatcher.store.database import Database, rows_of
from dispatcher.store.tables import from_micros, lessons, to_micros
from dispatcher.store.terms import require_term

EVERYWHERE = ""
"""In place of a cluster: it concerns all."""
_KEY = tuple_(lessons.c.workload, lessons.c.cluster, lessons.c.code)
_BATCH = 250


class LessonRows:
    """Part of the store, on the same database; implements `dispatcher.core.ports.LessonLog`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, learnt: Sequence[tuple[WorkloadUid, Avoided]], term: int | None = None) -> None:
        """See `LessonLog.keep`."""
        rows = {(uid, each.cluster or EVERYWHERE, each.code): _values(uid, each) for uid, each in learnt}
        if not rows:
            return

        def record(connection: Connection) -> None:
            if term is not None:
                require_term(connection, term)
            connection.execute(delete(lessons).where(_KEY.in_(list(rows))))
            connection.execute(insert(lessons), list(rows.values()))

        await self._database.write("keeping what was learnt", record)

    async def recall(self, now: datetime) -> Sequence[tuple[WorkloadUid, Avoided]]:
        """See `LessonLog.recall`."""
        lasting = select(lessons).where(or_(lessons.c.until.is_(None), lessons.c.until > to_micros(now)))
        ordered = lasting.order_by(lessons.c.workload, lessons.c.cluster, lessons.c.code)
        rows = await self._database.read("reading what was learnt", rows_of(ordered))
        return tuple((WorkloadUid(row.workload), _avoided(row)) for row in rows)

    async def prune(self, before: datetime, live: Collection[WorkloadUid]) -> None:
        """Forget what was learnt before and of workloads that are gone, or is over. Raises Transient."""
        at, alive = to_micros(before), frozenset(live)

        def forget(connection: Connection) -> None:
            connection.execute(delete(lessons).where(lessons.c.until < at))
            old = select(lessons.c.workload).where(lessons.c.since < at).distinct()
            gone = sorted(uid for uid in connection.scalars(old).all() if uid not in alive)
            for start in range(0, len(gone), _BATCH):
                batch = gone[start : start + _BATCH]
                connection.execute(delete(lessons).where(lessons.c.since < at, lessons.c.workload.in_(batch)))

        await self._database.write("pruning what was learnt", forget)


def _values(uid: WorkloadUid, learnt: Avoided) -> dict[str, object]:
    return {
        "workload": uid,
        "cluster": learnt.cluster or EVERYWHERE,
        "code": learnt.code,
        "since": to_micros(learnt.since),
        "until": to_micros(learnt.until) if learnt.until is not None else None,
        "excluded": learnt.excluded,
        "while_borrowing": learnt.while_borrowing,
    }


def _avoided(row: Row[tuple[object, ...]]) -> Avoided:
    return Avoided(
        cluster=ClusterName(row.cluster) if row.cluster != EVERYWHERE else None,
        code=row.code,
        since=from_micros(row.since),
        until=from_micros(row.until) if row.until is not None else None,
        excluded=bool(row.excluded),
        while_borrowing=bool(row.while_borrowing),
    )
