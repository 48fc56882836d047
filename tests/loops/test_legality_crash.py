"""kill -9 around every durable step of ending illegal work: it ends once, it is on record, and the chain holds."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from dispatcher.core.audit import AuditKind, Entry
from dispatcher.core.ports import Eviction, HubPort
from dispatcher.core.waiting import Phase
from dispatcher.loops.legality import AuditPort
from residency.vocabulary import Running
from tests.loops.beside import FusedRows
from tests.loops.lawful import LawBench, close_all, forbidden, lawful, permitted, reader
from tests.loops.test_crash import Fuse, FusedHub, killed

STEPS = 3
"""The bundle's row, the row of what is illegal, the write on the hub."""


class FusedAudit(FusedRows):
    log: AuditPort

    async def ruled(self, entry: Entry, tree: str, now: datetime, files: bytes | None = None) -> None:
        self.fuse.before_step()
        await self.log.ruled(entry, tree, now, files)
        self.fuse.after_step()


class EvictingHub(FusedHub):
    """The real hub, on which every end that was asked for is counted."""

    asked: list[Eviction]

    def __init__(self, hub: HubPort, fuse: Fuse) -> None:
        super().__init__(hub, fuse)
        self.asked = []

    async def evict(self, eviction: Eviction, now: datetime) -> str:
        self.fuse.before_step()
        version = await self.hub.evict(eviction, now)
        self.asked.append(eviction)
        self.fuse.after_step()
        return version


async def run_into(found: LawBench, fuse: Fuse) -> EvictingHub:
    """The loop until nothing more happens or the process is gone."""
    hub = EvictingHub(found.bench.fleet.hub, fuse)
    found.loop.audit = FusedAudit(found.bench.store.audit_log, fuse)
    found.bench.state.hub = hub
    try:
        for _ in range(3):
            await found.loop.cycle()
            found.bench.clock.advance(1)
            found.bench.fleet.advance()
    except BaseException as gone:
        if not killed(gone):
            raise
    return hub


@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after the step"])
@pytest.mark.parametrize("at", range(STEPS), ids=["the bundle's row", "the row of what is illegal", "the end itself"])
async def test_a_kill_at_every_step_ends_the_work_once_and_leaves_a_whole_log(
    tmp_path: Path, at: int, after: bool
) -> None:
    found = await lawful(tmp_path, permitted(Running.STOP_NOW))
    try:
        found.bench.fleet.submit(reader("job"))
        await found.until("job", Phase.PLACED)
        await found.steps(2)
        law = forbidden(Running.STOP_NOW)
        found.rule(law)
        dead = await run_into(found, Fuse(at, after))
        await found.bench.restart()
        found.wire()
        found.rule(law)
        alive = await run_into(found, Fuse(-1, False))
        await found.until("job", Phase.WAITING)
        await found.steps(5)
        assert len(dead.asked) + len(alive.asked) == 1
        told = [row.detail for row in await found.entries() if row.kind in (AuditKind.ILLEGAL, AuditKind.LEGAL_AGAIN)]
        assert told == [(("course", "end"), ("state", "runs"))], "once an attempt, whoever ends it"
        assert found.bench.fleet.refused_latches == 0
        assert len(found.bench.seen_copies) == 1
    finally:
        await close_all()


async def test_an_unanswered_end_is_not_asked_for_twice(tmp_path: Path) -> None:
    found = await lawful(tmp_path, permitted(Running.STOP_NOW))
    try:
        found.bench.fleet.submit(reader("job"))
        await found.until("job", Phase.PLACED)
        found.bench.fleet.lose_next_reply()
        found.rule(forbidden(Running.STOP_NOW))
        hub = await run_into(found, Fuse(-1, False))
        await found.until("job", Phase.WAITING)
        found.rule(permitted(Running.STOP_NOW))
        await found.until("job", Phase.PLACED)
        await found.steps(10)
        assert found.bench.phase("job") is Phase.PLACED
        assert len(hub.asked) == 0, "the reply was lost, and nobody asked again"
    finally:
        await close_all()
