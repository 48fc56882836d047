"""Looks whether declared replicas are where they are said to be, a few at a time; only the leader, since each look is
billed. What it finds is for people, and for the blueprint's reload, which takes what is missing off the sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from dispatcher.core.policy import ObjectSource
from dispatcher.core.ports import Leadership, ObjectsPort
from dispatcher.core.replicas import KEEPS, Presence, Replica, Seen, declared
from dispatcher.logs import get_logger
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health
from dispatcher.state import FleetState

LOOP = "replicas"
TURN_S = 5.0
LOOKS_A_TURN = 5

OpenStore = Callable[[ObjectSource], ObjectsPort]


@dataclass(slots=True)
class ReplicaLoop:
    state: FleetState
    open_store: OpenStore | None
    metrics: Metrics
    health: Health
    leadership: Leadership
    _due_s: dict[Replica, float] = field(default_factory=dict)
    _stores: set[str] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            self.health.beat(LOOP)
            await self.turn()
            await self.state.clock.sleep(TURN_S)

    async def turn(self) -> None:
        """Look at the few that have waited longest for it."""
        wanted = declared(self.state.policy)
        self._forget(wanted)
        clock = self.state.clock
        if self.open_store is not None and wanted and self.leadership.may_write(clock.monotonic_s()):
            due = [each for each in wanted if self._due_s.get(each, 0.0) <= clock.monotonic_s()]
            for replica in sorted(due, key=lambda each: (self._due_s.get(each, 0.0), each))[:LOOKS_A_TURN]:
                self.health.beat(LOOP)
                await self._look(replica, self.open_store)
        self._count(wanted)

    async def _look(self, replica: Replica, open_store: OpenStore) -> None:
        name, store = replica
        source = self.state.policy.stores[store].objects
        if source is None:
            return
        seen = await open_store(source).look(str(name))
        self._due_s[replica] = self.state.clock.monotonic_s() + source.every_s
        before = self.state.replicas.get(replica)
        self.state.replicas[replica] = seen
        if before is not None and (before.presence, before.why) == (seen.presence, seen.why):
            return
        if seen.presence is Presence.CONFIRMED:
            get_logger().info("replica_confirmed", data_set=name, store=store, objects=seen.objects)
        elif seen.presence is Presence.MISSING:
            get_logger().error("replica_missing", data_set=name, store=store, why=seen.why)
        else:
            get_logger().warning("replica_unknown", data_set=name, store=store, why=seen.why)

    def _forget(self, wanted: tuple[Replica, ...]) -> None:
        for replica in self.state.replicas.keys() - set(wanted):
            del self.state.replicas[replica]
            self._due_s.pop(replica, None)

    def _count(self, wanted: tuple[Replica, ...]) -> None:
        unseen = Seen(Presence.UNKNOWN, self.state.clock.now())
        counts = Counter((str(r[1]), self.state.replicas.get(r, unseen).presence) for r in wanted)
        self._stores |= {store for store, _ in counts}
        for store in sorted(self._stores):
            for presence in Presence:
                self.metrics.replicas.labels(store, presence.value).set(counts[(store, presence)])


def missing(state: FleetState) -> tuple[Replica, ...]:
    """The replicas that are certainly not there, as far as that was seen lately."""
    found: list[Replica] = []
    now = state.clock.now()
    for replica, seen in sorted(state.replicas.items()):
        store = state.policy.stores.get(replica[1])
        source = store.objects if store is not None else None
        if seen.presence is not Presence.MISSING or source is None:
            continue
        if now - seen.at <= timedelta(seconds=KEEPS * source.every_s):
            found.append(replica)
    return tuple(found)
