"""The Store port on SQL. One transaction a call, a deadline on each, idempotent by decision id."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, Row, Select, delete, func, insert, or_, select, text, update
from sqlalchemy.exc import IntegrityError

from dispatcher.core.audit import entries_of
from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.energy import EndedRun
from dispatcher.core.errors import Conflict, Fatal, Fenced, Refused
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.ports import Intent, IntentState
from dispatcher.core.replay import Inputs, Record
from dispatcher.core.snapshot import Hold
from dispatcher.store.audit import AuditLog
from dispatcher.store.codec import (
    CodecError,
    decode_decision,
    decode_hold,
    digest_of_bytes,
    encode_decision,
    encode_hold,
    wait_fingerprint,
)
from dispatcher.store.database import Database, rows_of, scalar_of
from dispatcher.store.inputs import InputLimits, InputLog
from dispatcher.store.lessons import LessonRows
from dispatcher.store.tables import decisions, from_micros, holds, intents, leadership, to_micros
from dispatcher.store.terms import require_term
from dispatcher.store.uses import UseRows

MAX_ROWS = 1000
_PRUNE_BATCH = 500
_NEWEST_BATCH = 250
"""Workloads of one query."""


_RECORD = (decisions.c.id, decisions.c.code_version, decisions.c.document)
"""All that a record is made of."""


class SqlStore:
    """Implements `dispatcher.core.ports.Store`; made by `open_store` or `open_records`."""

    def __init__(self, database: Database, replay: InputLimits | None = None) -> None:
        self._database = database
        self.input_log = InputLog(database, replay)
        self.audit_log = AuditLog(database)
        self.use_log = UseRows(database)
        self.lesson_log = LessonRows(database)

    # --- writing --------------------------------------------------------------------------------------------------

    async def commit(
        self, decision: Decision, hold: Hold | None, intent: Intent | None, seen: Inputs | None = None
    ) -> None:
        """Record a decision with its hold and intent, all or nothing. Repeating it changes nothing, not even after
        its hold was released: the first commit is the fact.

        Of a run of equal waits of one workload (see `wait_fingerprint`) the first and the newest record stay; the
        newest counts those between. So a job that waits for a week costs two rows. `seen` is kept beside it for
        replay, within bounds of its own (see `dispatcher.store.inputs`), and what the law said goes into the audit log.

        Raises:
            Transient: nothing is promised; the outcome may be unknown, a repeat is safe.
            Fenced: the intent's term is older than one that has begun.
            Conflict: another nomination of the Workload is open, or was decided on the same version of it.
            Refused: hold or intent is of another decision, or the store was opened for reading.
        """
        self._check_same(decision, hold, intent)
        row = _decision_row(decision)
        packed = (
            await self.input_log.pack(decision.id, seen) if seen is not None and not self._database.read_only else None
        )
        told = tuple(entries_of(decision, seen)) if seen is not None else ()

        def record(connection: Connection) -> bool:
            """Returns whether what it saw is kept with it."""
            known = connection.scalar(select(decisions.c.seq).where(decisions.c.id == decision.id))
            if known is not None:
                return True
            if intent is not None:
                require_term(connection, intent.term)
            connection.execute(insert(decisions).values(row))
            if hold is not None:
                connection.execute(insert(holds).values(_hold_row(hold)))
            if intent is not None:
                connection.execute(insert(intents).values(_intent_row(intent, decision)))
            if decision.outcome is Outcome.WAIT:
                _thin_waits(connection, decision.workload)
            kept = packed is None or self.input_log.write(connection, packed)
            self.audit_log.append(connection, told)
            return kept

        try:
            kept = await self._database.write("recording a decision", record)
        except IntegrityError:
            # Where writers do not exclude each other (PostgreSQL), another may have recorded it since our look.
            if await self.decision(decision.id) is None:
                raise Conflict(f"store: another nomination of {decision.key} is open or on the same version") from None
            return
        if packed is not None:
            self.input_log.committed(packed, kept)

    async def mark(self, decision: DecisionId, state: IntentState, now: datetime, term: int | None = None) -> None:
        """Move an intent on. ABANDONED also drops the decision's hold, in the same transaction.

        Raises:
            Refused: no such intent: it was never committed.
            Fenced: a later term than `term` has begun.
        """

        def mark(connection: Connection) -> None:
            if term is not None:
                require_term(connection, term)
            changed = connection.execute(
                update(intents)
                .where(intents.c.decision == decision)
                .values(state=state.value, changed_at=to_micros(now))
            )
            if changed.rowcount == 0:
                raise Refused(f"store: decision {decision} has no intent to mark {state.value}")
            if state is IntentState.ABANDONED:
                connection.execute(delete(holds).where(holds.c.decision == decision))

        await self._database.write("marking an intent", mark)

    async def release(self, workload: WorkloadUid, now: datetime, term: int | None = None) -> None:
        """Drop all holds of a workload; none is fine too. Raises Fenced when a later term than `term` has begun."""

        def release(connection: Connection) -> None:
            if term is not None:
                require_term(connection, term)
            connection.execute(delete(holds).where(holds.c.workload == workload))

        await self._database.write("releasing holds", release)

    async def lead(self, term: int, holder: str, now: datetime) -> None:
        """Begin a term. See `dispatcher.core.ports.Fence`."""

        def begin(connection: Connection) -> None:
            row = connection.execute(select(leadership).with_for_update()).one()
            if (row.term, row.holder) == (term, holder):
                return
            if row.term >= term:
                raise Fenced(f"store: term {row.term} of {row.holder or 'nobody'} has begun; {term} is over")
            begun = {"term": term, "holder": holder, "since": to_micros(now)}
            connection.execute(update(leadership).values(begun))

        await self._database.write("beginning a term", begin)

    async def term(self) -> int:
        """The newest term that began; 0 = none."""
        return int(await self._database.read("reading the term", scalar_of(select(leadership.c.term))) or 0)

    async def prune(self, before: datetime, live: Collection[WorkloadUid] = ()) -> int:
        """Forget decisions older than `before`, with their closed intents; returns how many.

        Kept whatever their age: a decision with a hold or a planned intent, and each live workload's newest decision
        and newest choice (why a long job is where it is). Works in batches, so that commits get their turn between.
        """
        cutoff, last, total = to_micros(before), 0, 0
        await self.input_log.expire(before)
        await self.use_log.prune(before)
        await self.lesson_log.prune(before, live)
        keep = await self._kept(sorted(live))
        while True:
            reached, gone = await self._database.write("pruning", partial(_prune, cutoff, last, keep))
            if reached is None:
                return total
            last, total = reached, total + gone

    async def compact(self, step_pages: int = 256) -> int:
        """Give the room of what was pruned back to the file system, in short steps; returns pages of SQLite.

        PostgreSQL's autovacuum does this by itself: there it is nothing.
        """
        freed = 0
        while self._database.is_file:
            before, after = await self._database.write("compacting", partial(_compact, step_pages))
            freed += before - after
            if after == 0 or after == before:
                break
        return freed

    # --- reading --------------------------------------------------------------------------------------------------

    async def holds(self) -> Sequence[Hold]:
        rows = await self._database.read(
            "reading holds", rows_of(select(holds).order_by(holds.c.made_at, holds.c.decision))
        )
        try:
            return tuple(decode_hold(row.document) for row in rows)
        except CodecError as error:
            # A promise that cannot be read may be broken by the next decision: better to stop than to go on.
            raise Fatal(f"store: {error}", fix="run the version that wrote the store, or release the holds") from None

    async def intents(self, state: IntentState) -> Sequence[Intent]:
        """Oldest first."""
        query = select(intents).where(intents.c.state == state.value).order_by(intents.c.made_at, intents.c.decision)
        rows = await self._database.read("reading intents", rows_of(query))
        return tuple(_intent(row) for row in rows)

    async def states(self, wanted: Sequence[DecisionId]) -> Mapping[DecisionId, tuple[IntentState, datetime]]:
        """Of these decisions, those with an intent, and since when it is in its state."""
        found: dict[DecisionId, tuple[IntentState, datetime]] = {}
        for start in range(0, len(wanted), _NEWEST_BATCH):
            batch = wanted[start : start + _NEWEST_BATCH]
            query = select(intents.c.decision, intents.c.state, intents.c.changed_at).where(
                intents.c.decision.in_(batch)
            )
            rows = await self._database.read("reading intents", rows_of(query))
            found |= {DecisionId(r.decision): (IntentState(r.state), from_micros(r.changed_at)) for r in rows}
        return found

    async def decision(self, decision: DecisionId) -> Decision | None:
        found = await self._decisions(select(decisions).where(decisions.c.id == decision), 1)
        return found[0] if found else None

    async def ids_like(self, start: str, limit: int = 10) -> Sequence[DecisionId]:
        """Ids that begin with `start`, in order."""
        query = select(decisions.c.id).where(decisions.c.id.startswith(start, autoescape=True))
        query = query.order_by(decisions.c.id).limit(_bounded(limit))
        return tuple(DecisionId(row.id) for row in await self._database.read("looking an id up", rows_of(query)))

    async def record(self, decision: DecisionId) -> Record | None:
        """A decision with what it saw, for replay; None when there is no such decision, or its inputs are gone."""
        rows = await self._database.read(
            "reading a record", rows_of(select(decisions).where(decisions.c.id == decision))
        )
        row = rows[0] if rows else None
        try:
            found = await self.input_log.read(decision) if row is not None else None
        except CodecError as error:
            raise Refused(f"store: decision {decision}: {error}") from None
        return Record(_decision(row), digest_of_bytes(row.document), found) if row is not None and found else None

    async def decisions_of(self, workload_key: str, limit: int = 20) -> Sequence[Decision]:
        """Newest first. `workload_key` is namespace/name of the Workload, or of its job."""
        wanted = or_(decisions.c.key == workload_key, decisions.c.job_key == workload_key)
        return await self._decisions(select(decisions).where(wanted), limit)

    async def ended_runs(self, key: str, limit: int) -> Sequence[EndedRun]:
        """See `Store.ended_runs`."""
        return await self.use_log.ended(key, limit)

    async def newest_of(self, workloads: Sequence[WorkloadUid]) -> Sequence[Decision]:
        """The newest decision of each of these Workloads that has one. A start asks for thousands: nothing is read but
        records, and these are decoded beside the event loop."""
        found: list[Decision] = []
        rank = func.row_number().over(
            partition_by=decisions.c.workload, order_by=(decisions.c.decided_at.desc(), decisions.c.seq.desc())
        )
        for start in range(0, len(workloads), _NEWEST_BATCH):
            batch = workloads[start : start + _NEWEST_BATCH]
            ranked = select(decisions.c.seq, rank.label("rank")).where(decisions.c.workload.in_(batch)).subquery()
            newest = select(ranked.c.seq).where(ranked.c.rank == 1)
            query = select(*_RECORD).where(decisions.c.seq.in_(newest))
            rows = await self._database.read("reading the newest decisions", rows_of(query))
            found += await asyncio.to_thread(lambda read: [_decision(row) for row in read], rows)
        return found

    async def recent(
        self, limit: int = 50, cluster: ClusterName | None = None, outcome: Outcome | None = None
    ) -> Sequence[Decision]:
        """Newest first, over all workloads; narrowed to those that chose `cluster` or came out as `outcome`."""
        query = select(decisions)
        if cluster is not None:
            query = query.where(decisions.c.chosen == cluster)
        if outcome is not None:
            query = query.where(decisions.c.outcome == outcome.value)
        return await self._decisions(query, limit)

    async def position(self) -> int:
        """Where the newest decision is recorded; 0 = there is none."""
        return int(await self._database.read("following decisions", scalar_of(select(func.max(decisions.c.seq)))) or 0)

    async def newer(self, after: int, limit: int = 500) -> tuple[int, Sequence[Decision]]:
        """Decisions recorded after position `after`, in the order of their recording, and the position reached.

        Positions of commits that ran side by side may become visible out of order: ask with a margin.
        """
        query = select(decisions).where(decisions.c.seq > after).order_by(decisions.c.seq).limit(_bounded(limit))
        rows = await self._database.read("following decisions", rows_of(query))
        return (rows[-1].seq if rows else after), tuple(_decision(row) for row in rows)

    async def keys_named(self, name: str, limit: int = 20) -> Sequence[str]:
        """Workload keys (namespace/name) that a bare workload or job name stands for, newest decision first."""
        query = (
            select(decisions.c.key)
            .where(or_(decisions.c.name == name, decisions.c.job_name == name))
            .group_by(decisions.c.key)
            .order_by(func.max(decisions.c.decided_at).desc(), decisions.c.key)
            .limit(_bounded(limit))
        )
        rows = await self._database.read("looking a name up", rows_of(query))
        return tuple(row.key for row in rows)

    async def close(self) -> None:
        await self._database.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _decisions(self, query: Select[tuple[object, ...]], limit: int) -> Sequence[Decision]:
        ordered = query.order_by(decisions.c.decided_at.desc(), decisions.c.seq.desc()).limit(_bounded(limit))
        rows = await self._database.read("reading decisions", rows_of(ordered))
        return tuple(_decision(row) for row in rows)

    async def _kept(self, live: Sequence[WorkloadUid]) -> frozenset[str]:
        """Ids of each live workload's newest decision and newest choice."""
        kept: set[str] = set()
        for start in range(0, len(live), _PRUNE_BATCH):
            kept |= await self._database.read("pruning", partial(_kept_of, live[start : start + _PRUNE_BATCH]))
        return frozenset(kept)

    @staticmethod
    def _check_same(decision: Decision, hold: Hold | None, intent: Intent | None) -> None:
        for what, part in (("hold", hold), ("intent", intent)):
            if part is not None and (part.decision, part.workload) != (decision.id, decision.workload):
                raise Refused(f"store: {what} of decision {part.decision} cannot be committed with {decision.id}")


def _thin_waits(connection: Connection, workload: WorkloadUid) -> None:
    """Drop the middle of the three newest records when all three are the same wait."""
    newest = (
        select(decisions.c.seq, decisions.c.reasons, decisions.c.repeats)
        .where(decisions.c.workload == workload)
        .order_by(decisions.c.decided_at.desc(), decisions.c.seq.desc())
        .limit(3)
    )
    rows = connection.execute(newest).all()
    if len(rows) < 3 or rows[0].reasons is None or len({row.reasons for row in rows}) != 1:
        return
    last, middle, _ = rows
    counted = update(decisions).where(decisions.c.seq == last.seq).values(repeats=last.repeats + middle.repeats + 1)
    connection.execute(counted)
    connection.execute(delete(decisions).where(decisions.c.seq == middle.seq))


def _kept_of(workloads: Sequence[WorkloadUid], connection: Connection) -> set[str]:
    by_time = select(decisions.c.id).order_by(decisions.c.decided_at.desc(), decisions.c.seq.desc()).limit(1)
    kept: set[str] = set()
    for uid in workloads:
        mine = by_time.where(decisions.c.workload == uid)
        for query in (mine, mine.where(decisions.c.chosen.is_not(None))):
            found = connection.scalar(query)
            if found is not None:
                kept.add(found)
    return kept


def _prune(cutoff: int, after: int, keep: frozenset[str], connection: Connection) -> tuple[int | None, int]:
    """One batch: how far it reached (None: there was nothing left), and how many decisions went."""
    rows = connection.execute(_prunable(cutoff, after)).all()
    if not rows:
        return None, 0
    ids = [row.id for row in rows if row.id not in keep]
    connection.execute(delete(intents).where(intents.c.decision.in_(ids)))
    connection.execute(delete(decisions).where(decisions.c.id.in_(ids)))
    return rows[-1].seq, len(ids)


def _compact(step_pages: int, connection: Connection) -> tuple[int, int]:
    """One step: free pages before and after it."""
    before = int(connection.scalar(text("PRAGMA freelist_count")) or 0)
    connection.exec_driver_sql(f"PRAGMA incremental_vacuum({step_pages})").close()
    return before, int(connection.scalar(text("PRAGMA freelist_count")) or 0)


def _prunable(cutoff: int, after: int) -> Select[tuple[int, str]]:
    held = select(holds.c.decision)
    planned = select(intents.c.decision).where(intents.c.state == IntentState.PLANNED.value)
    return (
        select(decisions.c.seq, decisions.c.id)
        .where(decisions.c.seq > after, decisions.c.decided_at < cutoff)
        .where(decisions.c.id.not_in(held), decisions.c.id.not_in(planned))
        .order_by(decisions.c.seq)
        .limit(_PRUNE_BATCH)
    )


def _bounded(limit: int) -> int:
    return max(1, min(limit, MAX_ROWS))


def _decision_row(decision: Decision) -> dict[str, object]:
    namespace, _, name = decision.key.rpartition("/")
    return {
        "id": decision.id,
        "workload": decision.workload,
        "key": decision.key,
        "job_key": f"{namespace}/{decision.job_name}",
        "name": name,
        "job_name": decision.job_name,
        "attempt": decision.attempt,
        "decided_at": to_micros(decision.decided_at),
        "outcome": decision.outcome.value,
        "chosen": decision.chosen,
        "request_digest": decision.request_digest,
        "snapshot_digest": decision.snapshot_digest,
        "policy_digest": decision.policy_digest,
        "code_version": decision.code_version,
        "document": encode_decision(decision),
        "reasons": wait_fingerprint(decision) if decision.outcome is Outcome.WAIT else None,
    }


def _hold_row(hold: Hold) -> dict[str, object]:
    return {
        "decision": hold.decision,
        "workload": hold.workload,
        "cluster": hold.cluster,
        "made_at": to_micros(hold.made_at),
        "expires_at": to_micros(hold.expires_at),
        "document": encode_hold(hold),
    }


def _intent_row(intent: Intent, decision: Decision) -> dict[str, object]:
    return {
        "decision": intent.decision,
        "workload": intent.workload,
        "clusters": json.dumps(list(intent.clusters)),
        "state": intent.state.value,
        "made_at": to_micros(intent.made_at),
        "changed_at": to_micros(intent.made_at),
        "resource_version": decision.resource_version,
        "term": intent.term,
    }


def _intent(row: Row[tuple[object, ...]]) -> Intent:
    return Intent(
        decision=DecisionId(row.decision),
        workload=WorkloadUid(row.workload),
        clusters=tuple(ClusterName(name) for name in json.loads(row.clusters)),
        state=IntentState(row.state),
        made_at=from_micros(row.made_at),
        term=row.term,
    )


def _decision(row: Row[tuple[object, ...]]) -> Decision:
    try:
        return decode_decision(row.document)
    except CodecError as error:
        raise Refused(f"store: decision {row.id}, written by version {row.code_version}: {error}") from None
