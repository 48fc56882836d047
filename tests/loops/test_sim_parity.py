"""The simulator decides what the daemon decides: the same scenario, the same decision log, byte for byte.

The daemon's side runs its loops as tasks, as `Daemon.run` does: each waits for its waker and rests as long as it always
does, on the SQL store, looks at every change, and weighs everything anew that has changed. The simulator's side leaves
out what cannot matter and keeps its store in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from connectors.embedded import ManualClock
from connectors.embedded.clock import settle
from dispatcher.core.decision import Decision, TermKind
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.ports import Intent, IntentState
from dispatcher.core.replay import Inputs
from dispatcher.core.snapshot import Hold
from dispatcher.loops import dispatch, notify, watch_copies
from dispatcher.loops.dispatch import DispatchLoop
from dispatcher.loops.notify import NoticeLoop
from dispatcher.loops.watch_copies import CopiesLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker
from dispatcher.sim.contenders_entrepot import Entrepot
from dispatcher.sim.engine import run
from dispatcher.sim.jobs import Reading, Scenario, SimDataSet
from dispatcher.sim.world import Setup, set_up
from dispatcher.sim.world_ledger import Ledger
from dispatcher.state import BlueprintStatus, FleetState
from dispatcher.store import SqlStore, open_store
from dispatcher.store.codec import encode_decision
from tests.loops.sim_jobs import crowd, scenario, sim_job

T = TypeVar("T")


class Recording:
    """The SQL store, which thins repeated waits, with everything written down that is committed to it, in order.

    `busy`: calls that its thread has not answered. Until then the clock must stand still.
    """

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.log: list[Decision] = []
        self.busy = 0
        self._answer = asyncio.Event()

    async def _answered(self, call: Awaitable[T]) -> T:
        self.busy += 1
        try:
            return await call
        finally:
            self.busy -= 1
            self._answer.set()

    async def answer(self) -> None:
        """Wait until the next call is answered."""
        self._answer.clear()
        await self._answer.wait()

    async def commit(
        self, decision: Decision, hold: Hold | None, intent: Intent | None, seen: Inputs | None = None
    ) -> None:
        await self._answered(self.store.commit(decision, hold, intent, seen))
        self.log.append(decision)

    async def mark(self, decision: DecisionId, state: IntentState, now: datetime, term: int | None = None) -> None:
        await self._answered(self.store.mark(decision, state, now, term))

    async def release(self, workload: WorkloadUid, now: datetime, term: int | None = None) -> None:
        await self._answered(self.store.release(workload, now, term))

    async def holds(self) -> Sequence[Hold]:
        return await self._answered(self.store.holds())

    async def intents(self, state: IntentState) -> Sequence[Intent]:
        return await self._answered(self.store.intents(state))

    async def decision(self, decision: DecisionId) -> Decision | None:
        return await self._answered(self.store.decision(decision))

    async def newest_of(self, workloads: Sequence[WorkloadUid]) -> Sequence[Decision]:
        return await self._answered(self.store.newest_of(workloads))

    async def recent(self, limit: int = 50, cluster: ClusterName | None = None) -> Sequence[Decision]:
        return await self._answered(self.store.recent(limit, cluster))

    async def states(self, wanted: Sequence[DecisionId]) -> Mapping[DecisionId, tuple[IntentState, datetime]]:
        return await self._answered(self.store.states(wanted))


class DaemonLoops:
    """The daemon's loops as running tasks on the embedded fleet, with a clock that is moved from instant to instant."""

    def __init__(self, setup: Setup, store: Recording) -> None:
        self.setup, self.store = setup, store
        self.clock = ManualClock(setup.start)
        self.fleet = setup.fleet(self.clock)
        self.fleet.connect()
        self.ledger = Ledger(setup, self.fleet.world)
        self.fleet.measure(self.ledger.told, self.ledger)
        self._wakers: tuple[Waker, ...] = ()
        self._seen = self.fleet.revision()

    async def run(self, until_s: int) -> None:
        """As `Daemon.run`: the ports wake the loops, the loops look when they have rested."""
        policy, clock = self.setup.policy, self.clock
        metrics, health = Metrics(), Health(clock)
        for name in (dispatch.LOOP, notify.LOOP, watch_copies.LOOP):
            health.register(name, 60.0)
        status = BlueprintStatus(policy.digest, clock.now())
        state = FleetState(clock, policy, status, self.fleet.hub, dict(self.fleet.workers))
        notices = NoticeLoop(self.fleet.hub, clock, metrics, health, Waker(clock))
        waker, copies_waker = Waker(clock), Waker(clock)
        self._wakers = (waker, copies_waker)
        loop = DispatchLoop(state, self.store, notices, metrics, health, waker)  # type: ignore[arg-type]
        copies = CopiesLoop(state, notices, metrics, health, copies_waker, waker.wake)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in (loop.run(), copies.run(), notices.run())]
            await self._let_time_pass(self.setup.start + timedelta(seconds=until_s))
            for task in tasks:
                task.cancel()

    async def _let_time_pass(self, until: datetime) -> None:
        """From one instant at which anything is due to the next: of the world, of a submission, of a loop."""
        jobs = list(self.setup.scenario.jobs)
        await self._settled()
        while True:
            arrival = self.setup.start + timedelta(seconds=jobs[0].submit_s) if jobs else None
            times = (arrival, self.fleet.world.next_at(), self.clock.next_deadline())
            at = min(each for each in times if each is not None)
            if at > until:
                return
            self.clock.move_to(at)
            self.fleet.advance(at)
            while jobs and self.setup.start + timedelta(seconds=jobs[0].submit_s) <= at:
                self.ledger.submitted(jobs[0])
                self.fleet.submit(self.setup.manifest(jobs.pop(0)))
            self._wake()
            await self._settled()
            self._wake()
            await self._settled()

    def _wake(self) -> None:
        """What a port does when its view has changed."""
        before, self._seen = self._seen, self.fleet.revision()
        if before != self._seen:
            for waker in self._wakers:
                waker.wake()

    async def _settled(self) -> None:
        """Everybody has done what they could, the store's thread as well."""
        await settle()
        while self.store.busy:
            await self.store.answer()
            if not self.store.busy:
                await settle()


async def daemon_log(setup: Setup, path: Path, until_s: int) -> list[Decision]:
    store = await open_store(path / "daemon.sqlite")
    try:
        loops = DaemonLoops(setup, Recording(store))
        await loops.run(until_s)
        return loops.store.log
    finally:
        await store.close()


def simulated_log(setup: Setup) -> tuple[list[Decision], int]:
    """The log, and the second at which the last thing happened."""
    found = run(setup, Entrepot)
    assert isinstance(found.contender, Entrepot)
    return found.contender.store.log, found.end_s


def told(log: Sequence[Decision]) -> list[str]:
    """Readable lines, so that a difference shows where it begins."""
    return [f"{d.decided_at.isoformat()} {d.job_name} {d.outcome} {d.chosen} attempt {d.attempt}" for d in log]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(scenario(sim_job("alone")), id="one job on an empty fleet"),
        pytest.param(crowd(5), id="a few jobs that all fit"),
        pytest.param(crowd(60), id="a crowd of which some wait for others to end", marks=pytest.mark.slow),
        pytest.param(crowd(60, urgent=True), id="a crowd in which some stop others", marks=pytest.mark.slow),
    ],
)
def test_the_simulator_logs_what_the_daemon_logs_byte_for_byte(made: Scenario, tmp_path: Path) -> None:
    simulated, end_s = simulated_log(set_up(made))
    daemon = asyncio.run(daemon_log(set_up(made), tmp_path, end_s))

    assert told(simulated) == told(daemon)
    assert b"".join(map(encode_decision, simulated)) == b"".join(map(encode_decision, daemon))


def with_caches(made: Scenario, room: int) -> Setup:
    """The same on clusters with a data cache of so many bytes."""
    setup = set_up(made)
    sites = {name: replace(site, cache_bytes=room) for name, site in setup.policy.clusters.items()}
    return replace(setup, policy=replace(setup.policy, clusters=sites, digest=f"{setup.policy.digest}/{room}"))


def test_both_see_the_same_in_data_caches(tmp_path: Path) -> None:
    """Data on its way, data that is there, and data whose bringer ends too early or was stopped."""
    sets = (
        SimDataSet("radar", 2 * 10**11, ("internal",), ("fr-paris",)),
        SimDataSet("lidar", 10**11, ("internal",), ("us-ohio",)),
    )
    jobs = [
        sim_job(f"job-{n}", 10 + 31 * n, 40 + 190 * (n % 4), 2, data=(Reading("radar" if n % 3 else "lidar", 2),))
        for n in range(12)
    ]
    setup = with_caches(scenario(*jobs, data=sets), 25 * 10**10)
    simulated, end_s = simulated_log(setup)
    daemon = asyncio.run(daemon_log(with_caches(scenario(*jobs, data=sets), 25 * 10**10), tmp_path, end_s))

    assert told(simulated) == told(daemon)
    assert b"".join(map(encode_decision, simulated)) == b"".join(map(encode_decision, daemon))
    terms = [term for d in simulated for c in d.candidates for term in c.terms if term.kind is TermKind.DATA_IN]
    lines = [line.what for term in terms for line in term.bill]
    for state in ("in the cache since", "on its way for"):
        assert any(state in line for line in lines), f"nothing is {state}"
