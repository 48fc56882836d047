"""The embedded world behind the core's ports. The only asynchronous part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from connectors.embedded.faults import Feed, WriteFaults
from connectors.embedded.hub import Hub
from connectors.embedded.worker import Worker
from connectors.embedded.world import World
from connectors.kubernetes.amendment import amendment_call
from connectors.kubernetes.eviction import eviction_call
from connectors.kubernetes.nomination import nomination_call
from connectors.kubernetes.stopping import stop_call
from dispatcher.core.errors import Conflict, Fatal, Refused, Transient
from dispatcher.core.ids import ClusterName
from dispatcher.core.ports import Amendment, Clock, Eviction, Nomination, Notice, Stop, Wake
from dispatcher.core.snapshot import HubView, WorkerView
from dispatcher.core.writing import POLICY_FIX

SHORTEST_STEP_S = 0.02
LONGEST_STEP_S = 0.25
"""Bounds, in world time, of the steps in which a running port moves the world on: it must notice new events, and its
view must not look silent when nothing happens."""


class Driver:
    """Moves the world on with a clock. Several ports may do so: the world passes every instant once."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.world = world
        self.clock = clock

    def catch_up(self) -> None:
        """Let everything happen that is due by the clock."""
        self.world.advance(self.clock.now())

    async def run(self, revision: Callable[[], object], wake: Wake) -> None:
        """Keep the world moving until cancelled, and wake whenever `revision` has changed."""
        seen: object = None
        while True:
            self.catch_up()
            current = revision()
            if current != seen:
                seen = current
                wake()
            await self.clock.sleep(self._step_s(self.clock.now()))

    def _step_s(self, now: datetime) -> float:
        due = self.world.next_at()
        if due is None:
            return LONGEST_STEP_S
        return min(LONGEST_STEP_S, max(SHORTEST_STEP_S, (due - now).total_seconds()))


class EmbeddedHub:
    """HubPort on the embedded hub."""

    def __init__(self, hub: Hub, driver: Driver, feed: Feed[HubView]) -> None:
        self.faults = WriteFaults()
        self.feed = feed
        self.link_up = True
        self._hub = hub
        self._driver = driver
        self._unsynced = HubView(synced=False, observed_at=None)

    async def check_ready(self) -> None:
        """As HubPort. Fatal where the clearing policy is missing (kueue-contract section 3.3, rule 2)."""
        await asyncio.sleep(0)
        self._require_link()
        if not self._hub.clearing_policy:
            raise Fatal("the hub does not clear nominations of other field managers", fix=POLICY_FIX)

    async def run(self, wake: Wake) -> None:
        """As HubPort."""
        self.feed.started = True
        await self._driver.run(lambda: self.feed.token(), wake)

    def view(self) -> HubView:
        """As HubPort."""
        return self.feed.view(self._unsynced)

    async def nominate(self, nomination: Nomination) -> str:
        """As HubPort; what the real connector would not even send is Refused here by the same rule."""
        nomination_call(nomination)
        return await self._write(nomination)

    async def withdraw(self, nomination: Nomination) -> str:
        """As HubPort."""
        return await self._write(replace(nomination, clusters=()))

    async def evict(self, eviction: Eviction, now: datetime) -> str:
        """As HubPort; refused by the same rule as in real life."""
        eviction_call(eviction, now)
        await asyncio.sleep(0)
        self._driver.catch_up()
        self._require_link()
        self.faults.before()
        version = self._hub.evict(eviction)
        self.faults.after()
        return version

    async def amend(self, amendment: Amendment) -> str:
        """As HubPort; refused by the same rule as in real life."""
        amendment_call(amendment)
        await asyncio.sleep(0)
        self._driver.catch_up()
        self._require_link()
        self.faults.before()
        version = self._hub.amend(amendment)
        self.faults.after()
        return version

    async def _write(self, nomination: Nomination) -> str:
        await asyncio.sleep(0)
        self._driver.catch_up()
        self._require_link()
        self.faults.before()
        version = self._hub.nominate(nomination)
        self.faults.after()
        return version

    async def notify(self, notice: Notice) -> None:
        """As HubPort."""
        await asyncio.sleep(0)
        self._driver.catch_up()
        self._require_link()
        self._hub.notify(notice)

    def _require_link(self) -> None:
        if not self.link_up:
            raise Transient("the hub cannot be reached")


class EmbeddedWorker:
    """WorkerPort on one embedded worker."""

    def __init__(self, worker: Worker, driver: Driver, feed: Feed[WorkerView]) -> None:
        self.feed = feed
        self.may_stop = True
        """Whether this worker's administrator lets us stop copies."""
        self._worker = worker
        self._name = worker.name
        self._driver = driver
        self._unsynced = WorkerView(cluster=worker.name, synced=False, observed_at=None)

    @property
    def name(self) -> ClusterName:
        return self._name

    async def run(self, wake: Wake) -> None:
        """As WorkerPort."""
        self.feed.started = True
        await self._driver.run(lambda: self.feed.token(), wake)

    def view(self) -> WorkerView:
        """As WorkerPort."""
        return self.feed.view(self._unsynced)

    async def stop(self, stop: Stop) -> None:
        """As WorkerPort; refused by the same rule as in real life."""
        stop_call(stop)
        await asyncio.sleep(0)
        self._driver.catch_up()
        if not self._worker.link_up:
            raise Transient(f"{self._name} cannot be reached")
        if not self.may_stop:
            raise Refused(f"{self._name}: workloads may not be patched")
        copy = self._worker.copies.get((stop.namespace, stop.name))
        if copy is None or copy.uid != stop.uid:
            raise Conflict(f"{stop.namespace}/{stop.name} is gone")
        self._worker.kueue.deactivate(copy)
