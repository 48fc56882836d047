"""A daemon's dispatch on the embedded fleet with a clock that stands still and the real store: one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from connectors.embedded import EmbeddedFleet, ManualClock
from dispatcher.config import LoadResult, load_blueprint
from dispatcher.config.render import Rendered, render
from dispatcher.core.decision import Decision
from dispatcher.core.policy import Policy
from dispatcher.core.ports import Store
from dispatcher.core.waiting import Phase, standing
from dispatcher.core.workload import HubWorkload
from dispatcher.loops import dispatch, notify
from dispatcher.loops.dispatch import DispatchLoop
from dispatcher.loops.notify import NoticeLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker
from dispatcher.state import BlueprintStatus, FleetState
from dispatcher.store import SqlStore, open_store
from tests.builders import START
from tests.stores import new_store

CONFIG = Path(__file__).resolve().parents[2] / "config"
STEP_S = 1.0


@cache
def example() -> tuple[Policy, LoadResult]:
    """The example blueprint, compiled once for all tests."""
    loaded = load_blueprint(CONFIG, START)
    assert loaded.policy is not None, [p.text() for p in loaded.errors]
    return loaded.policy, loaded


@cache
def example_plan() -> Rendered:
    """The objects of the example's fleet: whoever is made of them decodes them, and changes none."""
    blueprint = example()[1].blueprint
    assert blueprint is not None
    return render(blueprint)


@dataclass(slots=True, repr=False)  # asyncio puts what a fixture returns into a text, and this is a world
class Bench:
    clock: ManualClock
    fleet: EmbeddedFleet
    path: Path
    store: SqlStore
    state: FleetState
    dispatch: DispatchLoop
    notices: NoticeLoop
    metrics: Metrics
    seen_copies: dict[str, set[str]] = field(default_factory=dict)

    async def step(self, seconds: float = STEP_S) -> None:
        """Time passes, the world moves, the daemon has one cycle."""
        self.clock.advance(seconds)
        self.fleet.advance()
        self._watch_copies()
        await self.dispatch.cycle()
        await self.notices.drain()

    async def until(self, done: Callable[[], bool], within_s: float = 120.0) -> float:
        """Step until `done`; returns the seconds that passed. Fails when it does not come."""
        passed = 0.0
        while not done():
            assert passed < within_s, f"did not happen within {within_s} s: {self.phases()}"
            await self.step()
            passed += STEP_S
        return passed

    def _watch_copies(self) -> None:
        """Which clusters have ever held a copy of a job: there must be one each."""
        for name, view in self.state.worker_views().items():
            for (namespace, workload), copy in view.copies.items():
                if copy.ours:
                    self.seen_copies.setdefault(f"{namespace}/{workload}", set()).add(name)

    def find(self, job: str) -> HubWorkload | None:
        """The Workload of a job; None while Kueue has not made one."""
        found = [w for w in self.state.hub_view().workloads.values() if w.owner is not None and w.owner.name == job]
        assert len(found) <= 1, f"{job}: {len(found)} workloads"
        return found[0] if found else None

    def workload(self, job: str) -> HubWorkload:
        found = self.find(job)
        assert found is not None, f"{job} has no workload yet"
        return found

    def phase(self, job: str) -> Phase | None:
        found = self.find(job)
        return standing(found, self.state.hub_view()).phase if found is not None else None

    def phases(self) -> Mapping[str, str]:
        hub = self.state.hub_view()
        return {w.name: f"{standing(w, hub).phase} {w.nominated} {w.cluster_name}" for w in hub.workloads.values()}

    def finished(self, *jobs: str) -> Callable[[], bool]:
        return lambda: all(self.phase(job) is Phase.FINISHED for job in jobs)

    def decision(self, job: str) -> Decision:
        return self.state.latest[self.workload(job).uid]

    def events(self, job: str) -> list[tuple[str, str]]:
        found = self.find(job)
        uid = found.uid if found is not None else ""
        return [(e.notice.reason, e.notice.message) for e in self.fleet.events if e.notice.uid == uid]

    async def restart(self, store: Store | None = None) -> None:
        """A new daemon on the same store and hub; the old one is gone without a word."""
        if store is None:
            await self.store.close()
            self.store = await open_store(self.path)
        _wire(self, self.state.policy, store or self.store)
        await self.dispatch.recover()


def _wire(bench: Bench, policy: Policy, store: Store) -> None:
    clock, fleet = bench.clock, bench.fleet
    metrics, health = Metrics(), Health(clock)
    health.register(dispatch.LOOP, 60.0)
    health.register(notify.LOOP, 60.0)
    status = BlueprintStatus(policy.digest, clock.now())
    bench.state = FleetState(clock, policy, status, fleet.hub, dict(fleet.workers))
    bench.notices = NoticeLoop(fleet.hub, clock, metrics, health, Waker(clock))
    uses = store.use_log if isinstance(store, SqlStore) else None
    lessons = store.lesson_log if isinstance(store, SqlStore) else None
    waker = Waker(clock)
    bench.dispatch = DispatchLoop(bench.state, store, bench.notices, metrics, health, waker, uses=uses, lessons=lessons)
    bench.metrics = metrics


async def start(path: Path, **replacing: Any) -> Bench:
    """A bench on the example blueprint; `policy` or `fleet` may be given instead."""
    policy, _ = example()
    clock = ManualClock(START)
    fleet = replacing.get("fleet") or EmbeddedFleet.of_plan(example_plan(), clock)
    clock = fleet.clock
    fleet.connect()
    store = await new_store(path / "entrepot.sqlite")
    bench = Bench.__new__(Bench)
    bench.clock, bench.fleet, bench.path, bench.store = clock, fleet, path / "entrepot.sqlite", store
    bench.seen_copies = {}
    _wire(bench, replacing.get("policy") or policy, store)
    await bench.dispatch.recover()
    return bench
