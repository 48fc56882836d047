"""What teams had of the fleet: a row for each run, from its begin on, so that shares outlast the daemon.

Nothing but an order of turns depends on it: a row that cannot be read is left out, and the same run told again is one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, Row, delete, insert, select, tuple_

from dispatcher.core.ids import WorkloadUid
from dispatcher.core.resources import Resources
from dispatcher.core.shares import Run, Usage
from dispatcher.store.database import Database, run_of
from dispatcher.store.tables import from_micros, to_micros, uses


class UseRows:
    """Part of the store, on the same database; implements `dispatcher.core.ports.UseLog`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, runs: Sequence[Run]) -> None:
        """Record begins and ends, all or nothing. Raises Transient."""
        rows = {(row["workload"], row["begun_at"]): row for row in map(_values, runs)}
        if not rows:
            return

        def record(connection: Connection) -> None:
            connection.execute(delete(uses).where(tuple_(uses.c.workload, uses.c.begun_at).in_(list(rows))))
            connection.execute(insert(uses), list(rows.values()))

        await self._database.write("keeping what teams use", record)

    async def recall(self, since: datetime, most: int) -> Sequence[Run]:
        """Those that go on, then those that ended since, newest first; at most so many. Raises Transient."""
        going = select(uses).where(uses.c.ended_at.is_(None)).order_by(uses.c.begun_at.desc(), uses.c.workload)
        ended = (
            select(uses)
            .where(uses.c.ended_at >= to_micros(since))
            .order_by(uses.c.ended_at.desc(), uses.c.begun_at.desc(), uses.c.workload)
        )

        def read(connection: Connection) -> list[Run]:
            rows = list(connection.execute(going.limit(most)).all())
            rows += connection.execute(ended.limit(most - len(rows))).all()
            return [run for run in map(_run, rows) if run is not None]

        return await self._database.read("reading what teams used", read)

    async def prune(self, before: datetime) -> None:
        """Forget what ended before. Raises Transient."""
        await self._database.write("pruning uses", run_of(delete(uses).where(uses.c.ended_at < to_micros(before))))


def _values(run: Run) -> dict[str, object]:
    usage = run.usage
    return {
        "workload": run.workload,
        "begun_at": to_micros(usage.begun_at),
        "ended_at": to_micros(usage.ended_at) if usage.ended_at is not None else None,
        "team": usage.team,
        "amounts": json.dumps(dict(usage.amounts), separators=(",", ":"), sort_keys=True),
    }


def _run(row: Row[tuple[object, ...]]) -> Run | None:
    """None where it is not what this version writes."""
    try:
        amounts = json.loads(row.amounts)
        found = Resources.of({str(name): int(amount) for name, amount in amounts.items()})
    except (ValueError, TypeError, AttributeError):
        return None
    ended_at = from_micros(row.ended_at) if row.ended_at is not None else None
    return Run(WorkloadUid(row.workload), Usage(row.team, found, from_micros(row.begun_at), ended_at))
