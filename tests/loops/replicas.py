"""Two daemons on one embedded fleet and one store, with a clock that stands still: stepped side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from connectors.embedded.lease import EmbeddedLease, EmbeddedLeasePort
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.lease import LeaseRecord, LeaseTiming
from dispatcher.core.ports import Eviction, HubPort, Nomination, Notice, Wake
from dispatcher.core.snapshot import HubView
from dispatcher.leader import LOOP, Candidacy, Elector
from dispatcher.loops import dispatch, follow, notify
from dispatcher.loops.dispatch import DispatchLoop
from dispatcher.loops.follow import FollowLoop
from dispatcher.loops.notify import NoticeLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker
from dispatcher.state import BlueprintStatus, FleetState
from dispatcher.store import SqlStore
from tests.loops.bench import STEP_S, Bench, example

TIMING = LeaseTiming(15, 10.0, 2.0)


@dataclass(slots=True)
class Written:
    """A hub that remembers who wrote which nomination successfully."""

    hub: HubPort
    who: str
    log: list[tuple[str, WorkloadUid]]

    async def check_ready(self) -> None:
        await self.hub.check_ready()

    async def run(self, wake: Wake) -> None:
        await self.hub.run(wake)

    def view(self) -> HubView:
        return self.hub.view()

    async def nominate(self, nomination: Nomination) -> str:
        version = await self.hub.nominate(nomination)
        self.log.append((self.who, nomination.uid))
        return version

    async def withdraw(self, nomination: Nomination) -> str:
        return await self.hub.withdraw(nomination)

    async def evict(self, eviction: Eviction, now: datetime) -> str:
        return await self.hub.evict(eviction, now)

    async def notify(self, notice: Notice) -> None:
        await self.hub.notify(notice)


@dataclass(slots=True)
class Replica:
    """One daemon. `alive` False = its process is gone (kill -9): nothing of it moves, nothing is released."""

    name: str
    state: FleetState
    store: SqlStore
    dispatch: DispatchLoop
    notices: NoticeLoop
    follow: FollowLoop
    elector: Elector
    port: EmbeddedLeasePort
    alive: bool = True

    @property
    def leads(self) -> bool:
        return self.alive and self.elector.may_write(self.state.clock.monotonic_s())

    async def turn(self) -> None:
        await self.elector.turn()
        await self.follow.look()
        await self.dispatch.turn()
        await self.notices.drain()


@dataclass(slots=True)
class Pair:
    """The world (of a Bench, whose own daemon does nothing) and its replicas."""

    bench: Bench
    lease: EmbeddedLease = field(default_factory=lambda: EmbeddedLease(LeaseRecord("", 1, 0, "0")))
    replicas: dict[str, Replica] = field(default_factory=dict)
    log: list[tuple[str, WorkloadUid]] = field(default_factory=list)
    leaders_seen: list[str] = field(default_factory=list)

    def join(self, name: str, store: SqlStore, hub: HubPort | None = None) -> Replica:
        policy, _ = example()
        clock, fleet = self.bench.clock, self.bench.fleet
        metrics, health = Metrics(), Health(clock)
        for loop in (dispatch.LOOP, notify.LOOP, follow.LOOP, LOOP):
            health.register(loop, 1e9)
        port = EmbeddedLeasePort(self.lease)
        seen = Written(hub or fleet.hub, name, self.log)
        state = FleetState(clock, policy, BlueprintStatus(policy.digest, clock.now()), seen, dict(fleet.workers))
        notices = NoticeLoop(seen, clock, metrics, health, Waker(clock))
        elector = Elector(
            Candidacy(port, name, TIMING), store, clock, metrics, health, lambda: not health.sick(), lambda: None
        )
        loop = DispatchLoop(state, store, notices, metrics, health, Waker(clock), leadership=elector)
        following = FollowLoop(state, store, elector, health)
        made = Replica(name, state, store, loop, notices, following, elector, port)
        self.replicas[name] = made
        return made

    async def step(self, seconds: float = STEP_S) -> None:
        """Time passes, the world moves, every living daemon has one turn; there is never more than one leader."""
        self.bench.clock.advance(seconds)
        self.bench.fleet.advance()
        self.bench._watch_copies()
        for replica in self.replicas.values():
            if replica.alive:
                await replica.turn()
            leading = [r.name for r in self.replicas.values() if r.leads]
            assert len(leading) <= 1
            if leading and self.leaders_seen[-1:] != leading:
                self.leaders_seen += leading

    async def until(self, done: Callable[[], bool], within_s: float = 150.0) -> float:
        passed = 0.0
        while not done():
            assert passed < within_s, f"did not happen within {within_s} s: {self.bench.phases()}"
            await self.step()
            passed += STEP_S
        return passed

    def leader(self) -> Replica | None:
        return next((r for r in self.replicas.values() if r.leads), None)

    def doubled(self) -> dict[str, Any]:
        """What must be empty: jobs with copies on two clusters, workloads nominated twice."""
        copies = {key: sorted(where) for key, where in self.bench.seen_copies.items() if len(where) != 1}
        uids = [uid for _, uid in self.log]
        return {**copies, **{uid: uids.count(uid) for uid in uids if uids.count(uid) > 1}}
