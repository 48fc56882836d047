"""kill -9 around the ends and withdrawals that faults of copies ask for: each happens once, nothing is left over."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from dispatcher.core.ports import Eviction, HubPort, Nomination
from dispatcher.core.waiting import Phase
from tests.loops.bench import Bench, start
from tests.loops.jobs import B200
from tests.loops.test_crash import Fuse, FusedHub, killed
from tests.loops.test_endings import answer_budget, approved, copies
from tests.loops.test_losses import MOVES, minutes, running, with_rule
from tests.loops.test_watch_copies import Watched, nominate_by_hand, watch

AROUND = pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write, before the answer"])


class EndingHub(FusedHub):
    """The real hub; it burns at an end or a withdrawal, and counts those that were made. Nominations always pass."""

    def __init__(self, hub: HubPort, fuse: Fuse) -> None:
        super().__init__(hub, fuse)
        self.made: list[str] = []

    async def nominate(self, nomination: Nomination) -> str:
        return await self.hub.nominate(nomination)

    async def notify(self, notice: object) -> None:
        await self.hub.notify(notice)  # type: ignore[arg-type]

    async def withdraw(self, nomination: Nomination) -> str:
        self.fuse.before_step()
        version = await self.hub.withdraw(nomination)
        self.made.append("withdrawn")
        self.fuse.after_step()
        return version

    async def evict(self, eviction: Eviction, now: datetime) -> str:
        self.fuse.before_step()
        version = await self.hub.evict(eviction, now)
        self.made.append("ended")
        self.fuse.after_step()
        return version


def fused(bench: Bench, fuse: Fuse) -> EndingHub:
    hub = EndingHub(bench.fleet.hub, fuse)
    bench.state.hub = hub
    return hub


async def dies(watched: Watched, step_s: float, within_s: float) -> None:
    """Steps until the process is gone."""
    for _ in range(round(within_s / step_s)):
        try:
            await watched.step(step_s)
        except BaseException as gone:
            if not killed(gone):
                raise
            return
    raise AssertionError("it never came to the write")


async def restarted(bench: Bench) -> tuple[Watched, EndingHub]:
    await bench.restart()
    return watch(bench), fused(bench, Fuse(-1, after=False))


@AROUND
async def test_an_approval_taken_back_ends_the_attempt_once(bench: Bench, after: bool) -> None:
    watched = watch(bench)
    await approved(watched, "train-a")
    await watched.until(lambda: bool(bench.workload("train-a").nominated), step_s=0.02)
    hub = fused(bench, Fuse(0, after))
    answer_budget(watched, "train-a", "Pending")
    await dies(watched, 0.02, 10)
    watched, again = await restarted(bench)
    await watched.until(lambda: not bench.workload("train-a").nominated)
    for _ in range(50):
        await watched.step()
    assert [*hub.made, *again.made] == ["ended"]
    assert copies(watched, "train-a") == []
    answer_budget(watched, "train-a", "Ready")
    await watched.until(bench.finished("train-a"))
    assert bench.fleet.refused_latches == 0


@AROUND
async def test_work_of_a_lost_cluster_is_moved_once(tmp_path: Path, after: bool) -> None:
    bench = await start(tmp_path, policy=with_rule(MOVES))
    watched = watch(bench)
    placed = await running(watched, ("train-a", B200))
    hub = fused(bench, Fuse(0, after))
    bench.fleet.silence(placed["train-a"])
    await dies(watched, 10.0, 20 * 60)
    watched, again = await restarted(bench)
    await minutes(watched, 40)
    assert [*hub.made, *again.made] == ["ended"]
    assert bench.workload("train-a").cluster_name != placed["train-a"]
    await bench.store.close()


@AROUND
async def test_a_nomination_to_a_cluster_that_is_gone_is_withdrawn_once(bench: Bench, after: bool) -> None:
    watched = watch(bench)
    for _ in range(8):
        await watched.step(10.0)
    await nominate_by_hand(watched, "train-a")
    hub = fused(bench, Fuse(0, after))
    await dies(watched, 0.2, 10)
    watched, again = await restarted(bench)
    await watched.until(lambda: bench.phase("train-a") is Phase.PLACED, 90)
    assert [*hub.made, *again.made] == ["withdrawn"]
    assert bench.workload("train-a").cluster_name != "cloud-z"
    assert bench.fleet.refused_latches == 0
