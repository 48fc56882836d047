"""kill -9 before and after every durable step: nothing is lost, nothing is done twice, the restart goes on alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.energy import EndedRun
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.ports import HubPort, Intent, IntentState, Nomination, Notice, Store, Wake
from dispatcher.core.replay import Inputs, Record
from dispatcher.core.snapshot import Hold, HubView
from tests.loops.bench import Bench, start
from tests.loops.jobs import B200, H100, gang

pytestmark = pytest.mark.slow

JOBS = ("train-a", "train-b", "train-c", "train-d")


class Killed(BaseException):
    """The process is gone. Not an Exception: nothing of ours may catch it."""


@dataclass(slots=True)
class Fuse:
    """Counts durable steps and burns at one of them, before or after it took effect."""

    at: int
    after: bool
    count: int = 0
    burnt: bool = False

    def before_step(self) -> None:
        if self.burnt:
            raise Killed
        if not self.after and self.count == self.at:
            self.burnt = True
            raise Killed

    def after_step(self) -> None:
        if self.after and self.count == self.at:
            self.burnt = True
            raise Killed
        self.count += 1


@dataclass(slots=True)
class FusedStore:
    """The real store; the process dies at the fuse's step."""

    store: Store
    fuse: Fuse

    async def commit(
        self, decision: Decision, hold: Hold | None, intent: Intent | None, seen: Inputs | None = None
    ) -> None:
        self.fuse.before_step()
        await self.store.commit(decision, hold, intent, seen)
        self.fuse.after_step()

    async def mark(self, decision: DecisionId, state: IntentState, now: datetime, term: int | None = None) -> None:
        self.fuse.before_step()
        await self.store.mark(decision, state, now, term)
        self.fuse.after_step()

    async def release(self, workload: WorkloadUid, now: datetime, term: int | None = None) -> None:
        self.fuse.before_step()
        await self.store.release(workload, now, term)
        self.fuse.after_step()

    async def holds(self) -> Sequence[Hold]:
        return await self.store.holds()

    async def intents(self, state: IntentState) -> Sequence[Intent]:
        return await self.store.intents(state)

    async def decision(self, decision: DecisionId) -> Decision | None:
        return await self.store.decision(decision)

    async def record(self, decision: DecisionId) -> Record | None:
        return await self.store.record(decision)

    async def decisions_of(self, workload_key: str, limit: int = 20) -> Sequence[Decision]:
        return await self.store.decisions_of(workload_key, limit)

    async def ended_runs(self, key: str, limit: int) -> Sequence[EndedRun]:
        return await self.store.ended_runs(key, limit)

    async def newest_of(self, workloads: Sequence[WorkloadUid]) -> Sequence[Decision]:
        return await self.store.newest_of(workloads)

    async def recent(
        self, limit: int = 50, cluster: ClusterName | None = None, outcome: Outcome | None = None
    ) -> Sequence[Decision]:
        return await self.store.recent(limit, cluster, outcome)

    async def states(self, wanted: Sequence[DecisionId]) -> Mapping[DecisionId, tuple[IntentState, datetime]]:
        return await self.store.states(wanted)

    async def close(self) -> None:
        await self.store.close()


@dataclass(slots=True)
class FusedHub:
    """The real port of the hub; the process dies at the fuse's step."""

    hub: HubPort
    fuse: Fuse
    written: list[str] = field(default_factory=list)

    async def check_ready(self) -> None:
        await self.hub.check_ready()

    async def run(self, wake: Wake) -> None:
        await self.hub.run(wake)

    def view(self) -> HubView:
        return self.hub.view()

    async def nominate(self, nomination: Nomination) -> str:
        self.fuse.before_step()
        version = await self.hub.nominate(nomination)
        self.written.append(nomination.uid)
        self.fuse.after_step()
        return version

    async def notify(self, notice: Notice) -> None:
        self.fuse.before_step()
        await self.hub.notify(notice)
        self.fuse.after_step()


async def submitted(path: Path) -> Bench:
    bench = await start(path)
    for name, product in zip(JOBS, (H100, B200, B200, H100), strict=True):
        bench.fleet.submit(gang(name, pods=2, product=product))
    bench.fleet.submit(gang("too-large", pods=16))
    return bench


async def run_into(bench: Bench, fuse: Fuse) -> bool:
    """Run with a fuse until every job is finished or the process is gone; returns whether it was."""
    bench.dispatch.store = FusedStore(bench.store, fuse)
    bench.state.hub = FusedHub(bench.fleet.hub, fuse)
    bench.notices.hub = bench.state.hub
    try:
        await bench.until(bench.finished(*JOBS))
    except BaseException as gone:
        if not killed(gone):
            raise
        return True
    return False


def killed(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(killed(inner) for inner in error.exceptions)
    return isinstance(error, Killed)


async def steps_of_a_whole_run(path: Path) -> int:
    bench = await submitted(path)
    fuse = Fuse(at=-1, after=False)
    assert not await run_into(bench, fuse)
    await bench.store.close()
    return fuse.count


async def test_a_whole_run_has_steps_to_die_at(tmp_path: Path) -> None:
    assert await steps_of_a_whole_run(tmp_path) >= 3 * len(JOBS)


@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after the step"])
async def test_a_kill_at_every_step_loses_and_doubles_nothing(tmp_path: Path, after: bool) -> None:
    (tmp_path / "whole").mkdir()
    for at in range(await steps_of_a_whole_run(tmp_path / "whole")):
        folder = tmp_path / f"{at}"
        folder.mkdir()
        bench = await submitted(folder)
        await run_into(bench, Fuse(at, after))
        await bench.restart()
        await bench.until(bench.finished(*JOBS))
        await bench.step()
        doubled = {key: where for key, where in bench.seen_copies.items() if len(where) != 1}
        assert not doubled, f"killed at step {at}"
        assert not await bench.store.intents(IntentState.PLANNED), f"killed at step {at}"
        assert bench.state.holds == {}, f"killed at step {at}"
        assert bench.fleet.refused_latches == 0
        newest = [(await bench.store.decisions_of(bench.workload(job).key, 1))[0] for job in JOBS]
        assert {decision.attempt for decision in newest} == {1}, f"killed at step {at}"
        await bench.store.close()


async def test_a_kill_at_every_step_of_the_recovery_too(tmp_path: Path) -> None:
    """Dies, restarts, dies again one step later: thirty times in a row."""
    bench = await submitted(tmp_path)
    kills = 0
    for at in range(30):
        if not await run_into(bench, Fuse(at % 4, after=at % 2 == 0)):
            break
        kills += 1
        await bench.restart()
    await bench.until(bench.finished(*JOBS))
    assert kills >= 5
    assert {len(where) for where in bench.seen_copies.values()} == {1}
    await bench.store.close()
