"""Shares outlast the daemon: a restart, and a kill at any step of keeping them, is nobody's turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pytest

from dispatcher.core.energy import Drawn
from dispatcher.core.errors import Transient
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.order import OrderRules, Turn
from dispatcher.core.ports import UseLog
from dispatcher.core.shares import Run
from dispatcher.loops import dispatch
from dispatcher.loops.dispatch import DispatchLoop
from dispatcher.loops.line import WaitingLine
from dispatcher.loops.turns import ShareBook
from tests.loops.bench import Bench, start
from tests.loops.test_order import PLACED, by, small

RULES = OrderRules(ageing_s=0, share_half_life_s=600, share_weight_s=3600, reservations=0)
WRITES = 3
"""So many times something is to be kept in what follows."""
GONE = tuple(f"gone-{at}" for at in range(3))


class Killed(BaseException):
    """The process is gone. Not an Exception: nothing of ours may catch it."""


@dataclass(slots=True)
class FusedUses:
    """The real log; the process dies at one of the writes, before it took effect or after."""

    log: UseLog
    at: int
    after: bool
    count: int = 0

    async def keep(
        self, runs: Sequence[Run], drawn: Mapping[tuple[WorkloadUid, datetime], Drawn | None], term: int | None = None
    ) -> None:
        if self.count == self.at and not self.after:
            raise Killed
        await self.log.keep(runs, drawn, term)
        if self.count == self.at:
            raise Killed
        self.count += 1

    async def recall(self, since: datetime, most: int) -> Sequence[Run]:
        return await self.log.recall(since, most)


async def busy(bench: Bench) -> None:
    """One team has had most of a cluster; some of its jobs are gone from the hub, one still runs, one is to wait."""
    for name in GONE:
        bench.fleet.submit(small(name, gpus=8, seconds=100, team="simulation"))
    await bench.until(lambda: all(bench.phase(name) in PLACED for name in GONE))
    await bench.step(60)
    for name in GONE:
        bench.fleet.delete("Job", "simulation", name)
    for at in range(5):
        bench.fleet.submit(small(f"runs-{at}", gpus=8, seconds=1000, team="simulation"))
    for seconds in (30, 1, 1, 1, 1):
        await bench.step(seconds)


async def asked(bench: Bench) -> Turn:
    """The turn of one that comes when shares are worked out anew."""
    await bench.step(61)
    bench.fleet.submit(small("late", gpus=8, seconds=1000, team="simulation"))
    await bench.step()
    return bench.state.turns[bench.workload("late").uid]


@pytest.fixture
async def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Turn:
    bench = await start(tmp_path_factory.mktemp("undisturbed"))
    by(bench, RULES)
    await busy(bench)
    turn = await asked(bench)
    await bench.store.close()
    return turn


def same(turn: Turn, other: Turn) -> bool:
    """But for the uid, which is the run's."""
    return replace(turn, bid=other.bid) == other


async def test_a_share_is_the_same_before_and_after_a_restart(tmp_path: Path, undisturbed: Turn) -> None:
    bench = await start(tmp_path)
    by(bench, RULES)
    await busy(bench)
    rules = bench.state.policy
    await bench.restart()
    bench.state.policy = rules
    turn = await asked(bench)
    assert turn.share_ppm == undisturbed.share_ppm > 0
    assert same(turn, undisturbed)
    await bench.store.close()


async def test_without_what_is_kept_the_share_would_be_smaller(tmp_path: Path, undisturbed: Turn) -> None:
    """So the test above shows something."""
    bench = await start(tmp_path)
    by(bench, RULES)
    await busy(bench)
    await bench.restart()
    bench.dispatch.uses = None
    bench.dispatch.planner.line = WaitingLine(book=ShareBook())
    assert (await asked(bench)).share_ppm < undisturbed.share_ppm
    await bench.store.close()


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after it"])
@pytest.mark.parametrize("at", range(WRITES))
async def test_a_kill_at_any_write_changes_no_share(
    tmp_path: Path, undisturbed: Turn, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    bench = await start(tmp_path)
    by(bench, RULES)
    bench.dispatch.uses = FusedUses(bench.store.use_log, at, after)
    bench.dispatch.planner.line = WaitingLine(book=ShareBook(is_kept=True))
    rules, whole, kills = bench.state.policy, DispatchLoop.cycle, []

    async def cycle(loop: DispatchLoop) -> None:
        """One that is killed is made again by the next daemon, at the same instant."""
        try:
            await whole(loop)
        except Killed:
            kills.append(at)
            await bench.restart()
            bench.state.policy = rules
            await whole(bench.dispatch)

    monkeypatch.setattr(DispatchLoop, "cycle", cycle)
    await busy(bench)
    turn = await asked(bench)
    assert kills == [at], "or this shows nothing"
    assert same(turn, undisturbed)
    await bench.store.close()


async def test_a_run_that_went_while_nobody_looked_counts_until_somebody_looks(tmp_path: Path) -> None:
    bench = await start(tmp_path)
    by(bench, RULES)
    await busy(bench)
    rules = bench.state.policy
    bench.fleet.delete("Job", "simulation", "runs-0")
    for _ in range(20):
        bench.clock.advance(5)
        bench.fleet.advance()
    await bench.restart()
    bench.state.policy = rules
    await bench.step()
    looked_at = bench.clock.now()
    kept = await bench.store.use_log.recall(bench.clock.now().replace(year=2000), 100)
    assert sorted(run.usage.ended_at for run in kept if run.usage.ended_at is not None)[-1] == looked_at
    assert len([run for run in kept if run.usage.ended_at is None]) == 3
    await bench.store.close()


async def test_a_store_that_is_away_keeps_nobody_from_being_told_of_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be kept is kept when it is back, in as many cycles as it takes."""

    class Away:
        async def keep(self, runs: Sequence[Run], drawn: object, term: int | None = None) -> None:
            raise Transient("store: gone")

    monkeypatch.setattr(dispatch, "USES_A_CYCLE", 2)
    bench = await start(tmp_path)
    by(bench, RULES)
    bench.dispatch.planner.line = WaitingLine(book=ShareBook(is_kept=True))
    log, bench.dispatch.uses = bench.dispatch.uses, Away()  # type: ignore[assignment]
    with pytest.raises(Transient):
        await busy(bench)
    bench.dispatch.uses = log
    for _ in range(6):
        await bench.step()
    assert bench.dispatch.planner.line.book.unkept(10) == ()
    assert log is not None
    assert len(await log.recall(bench.clock.now().replace(year=2000), 100)) == len(GONE)
    await bench.store.close()
