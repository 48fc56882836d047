"""kill -9 around every durable step of freeing an idle slice: it is freed once, after its whole notice, on record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.core.idle import Stage
from dispatcher.core.ports import Amendment, Eviction, HubPort
from dispatcher.core.waiting import Phase
from tests.loops.beside import FusedRows
from tests.loops.jobs import notebook
from tests.loops.notebooks import NOTICE_S, TIMEOUT_S, IdleBench, close_all, notebooks
from tests.loops.test_crash import Fuse, FusedHub, killed

STEPS = ("the row of the notice", "the notice", "the row of the end", "its mark", "the eviction", "setting it inactive")
TAKEN_BACK = ("the row of the notice", "the notice", "the row of its taking back", "its taking back")


@pytest_asyncio.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    await close_all()


class AmendedHub(FusedHub):
    """The real hub, on which every write on a Workload is counted."""

    def __init__(self, hub: HubPort, fuse: Fuse) -> None:
        super().__init__(hub, fuse)
        self.ends: list[Eviction] = []

    async def amend(self, amendment: Amendment) -> str:
        self.fuse.before_step()
        version = await self.hub.amend(amendment)
        self.fuse.after_step()
        return version

    async def evict(self, eviction: Eviction, now: datetime) -> str:
        self.fuse.before_step()
        version = await self.hub.evict(eviction, now)
        self.ends.append(eviction)
        self.fuse.after_step()
        return version


async def look(found: IdleBench) -> None:
    """Somebody looks and sees it unused; the loop has one cycle; a second passes."""
    found.watched("nb")
    await found.loop.cycle()
    await found.bench.notices.drain()
    found.bench.clock.advance(1)
    found.bench.fleet.advance()


async def life(found: IdleBench, fuse: Fuse, used: bool) -> int:
    """An idle notebook's life until it is over or the process is gone; `used` within its notice. Returns the ends."""
    hub = AmendedHub(found.bench.fleet.hub, fuse)
    found.loop.audit = FusedRows(found.bench.store.audit_log, fuse)
    found.bench.state.hub = hub
    try:
        for _ in range(4):
            await look(found)
        if used:
            found.watched("nb", used_s=0)
        else:
            found.bench.clock.advance(NOTICE_S)
        for _ in range(8):
            await look(found)
    except BaseException as gone:
        if not killed(gone):
            raise
    return len(hub.ends)


async def idle_notebook(path: Path) -> IdleBench:
    found = await notebooks(path)
    found.bench.fleet.submit(notebook("nb"))
    await found.until("nb", Phase.PLACED)
    await found.steps(2)
    found.watched("nb", used_s=0)
    await found.step(TIMEOUT_S)
    return found


@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after the step"])
@pytest.mark.parametrize("at", range(len(STEPS)), ids=STEPS)
async def test_a_kill_at_every_step_frees_it_once_and_leaves_a_whole_log(tmp_path: Path, at: int, after: bool) -> None:
    found = await idle_notebook(tmp_path)
    ends = await life(found, Fuse(at, after), used=False)
    await found.bench.restart()
    found.wire()
    ends += await life(found, Fuse(-1, False), used=False)
    await found.until("nb", Phase.INACTIVE)
    await found.steps(5)
    assert ends == 1
    assert await found.log() == ["notice", "end"]
    assert found.stage("nb") is Stage.ENDED
    assert found.told("nb") == ["IdleNotice", "FreedAsIdle"]
    assert found.bench.fleet.worker_view("onprem-eu").copies == {}


@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after the step"])
@pytest.mark.parametrize("at", range(len(TAKEN_BACK)), ids=TAKEN_BACK)
async def test_a_kill_at_every_step_ends_nothing_that_was_used_in_time(tmp_path: Path, at: int, after: bool) -> None:
    found = await idle_notebook(tmp_path)
    ends = await life(found, Fuse(at, after), used=True)
    if at < 2:
        found.watched("nb", used_s=0)
    await found.bench.restart()
    found.wire()
    for _ in range(5):
        found.watched("nb")
        await found.step()
    assert (ends, found.bench.phase("nb"), found.stage("nb")) == (0, Phase.PLACED, Stage.USED)
    assert found.bench.workload("nb").idle_notice == ""
    assert await found.log() in (["notice", "cancel"], ["notice"], [])
