"""What teams had of the fleet: a row for each run, from its begin on, so that shares outlast the daemon. With it what
the run draws, so that what it used is on record when it has ended.

Nothing but an order of turns depends on it: a row that cannot be read is left out, and the same run told again is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from sqlalchemy import Connection, Row, delete, insert, select, tuple_

from dispatcher.core.energy import Drawn, EndedRun
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.resources import Resources
from dispatcher.core.shares import Run, Usage
from dispatcher.store.database import Database, run_of
from dispatcher.store.tables import from_micros, to_micros, uses
from dispatcher.store.terms import require_term

NOTHING: Mapping[tuple[WorkloadUid, datetime], Drawn | None] = MappingProxyType({})
_DRAWN = ("key", "cluster", "draw_mw", "grid_g_per_kwh")


class UseRows:
    """Part of the store, on the same database; implements `dispatcher.core.ports.UseLog`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(
        self,
        runs: Sequence[Run],
        drawn: Mapping[tuple[WorkloadUid, datetime], Drawn | None] = NOTHING,
        term: int | None = None,
    ) -> None:
        """See `UseLog.keep`."""
        rows: dict[tuple[str, int], dict[str, object]] = {}
        weak: list[tuple[str, int]] = []
        for run in runs:
            key, at = (run.workload, run.usage.begun_at), (run.workload, to_micros(run.usage.begun_at))
            told = drawn.get(key)
            rows[at] = _values(run, told)
            if key not in drawn or (told is not None and told.guessed):
                weak.append(at)
        if not rows:
            return

        def record(connection: Connection) -> None:
            if term is not None:
                require_term(connection, term)
            these = tuple_(uses.c.workload, uses.c.begun_at).in_(weak)
            for known in connection.execute(select(uses).where(these, uses.c.cluster.is_not(None))).all():
                rows[known.workload, known.begun_at] |= {name: getattr(known, name) for name in _DRAWN}
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

    async def ended(self, key: str, limit: int) -> Sequence[EndedRun]:
        """The ended runs of a workload of which it is known where they ran, newest first. Raises Transient."""
        chosen = select(uses).where(uses.c.key == key, uses.c.ended_at.is_not(None), uses.c.cluster.is_not(None))
        newest = chosen.order_by(uses.c.begun_at.desc(), uses.c.workload).limit(limit)

        def read(connection: Connection) -> list[EndedRun]:
            found = map(_ended, connection.execute(newest).all())
            return [run for run in found if run is not None]

        return await self._database.read("reading what runs used", read)

    async def prune(self, before: datetime) -> None:
        """Forget what ended before. Raises Transient."""
        await self._database.write("pruning uses", run_of(delete(uses).where(uses.c.ended_at < to_micros(before))))


def _values(run: Run, drawn: Drawn | None) -> dict[str, object]:
    usage = run.usage
    return {
        "workload": run.workload,
        "begun_at": to_micros(usage.begun_at),
        "ended_at": to_micros(usage.ended_at) if usage.ended_at is not None else None,
        "team": usage.team,
        "amounts": json.dumps(dict(usage.amounts), separators=(",", ":"), sort_keys=True),
        **{name: getattr(drawn, name) if drawn is not None else None for name in _DRAWN},
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


def _ended(row: Row[tuple[object, ...]]) -> EndedRun | None:
    run = _run(row)
    if run is None or run.usage.ended_at is None:
        return None
    drawn = Drawn(row.key, ClusterName(row.cluster), row.draw_mw, row.grid_g_per_kwh)
    return EndedRun(run.workload, run.usage.begun_at, run.usage.ended_at, run.usage.amounts.gpus(), drawn)
