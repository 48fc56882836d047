"""A running Entrepot on given ports: every loop in one TaskGroup, started together and taken down together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from dispatcher.app.server import ApiServer
from dispatcher.core.errors import EntrepotError, Transient
from dispatcher.core.ids import ClusterName
from dispatcher.core.lease import Always
from dispatcher.core.policy import ClusterPolicy, Policy
from dispatcher.core.ports import Clock, HubPort, Leadership, WorkerPort
from dispatcher.core.snapshot import Link
from dispatcher.leader import LOOP as LEADER_LOOP
from dispatcher.leader import Candidacy, Elector
from dispatcher.logs import count_problems, get_logger
from dispatcher.loops import (
    catalog,
    dispatch,
    follow,
    gauges,
    idle,
    legality,
    notify,
    reload,
    replicas,
    shadow,
    watch_copies,
)
from dispatcher.loops.catalog import CatalogDesk, CatalogLoop
from dispatcher.loops.dispatch import DispatchLoop
from dispatcher.loops.follow import FollowLoop
from dispatcher.loops.gauges import GaugeLoop
from dispatcher.loops.idle import IdleLoop
from dispatcher.loops.legality import LegalityLoop
from dispatcher.loops.notify import NoticeLoop
from dispatcher.loops.reload import PolicySource, ReloadLoop
from dispatcher.loops.replicas import OpenStore, ReplicaLoop
from dispatcher.loops.shadow import ShadowLoop
from dispatcher.loops.watch_copies import CopiesLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, LoopHealth, Supervisor, Waker, calm_collector, happens
from dispatcher.state import BlueprintStatus, BundleEvent, FleetState
from dispatcher.store import SqlStore
from dispatcher.web.late import App, LateApi
from dispatcher.web.vitals import LeaderFacts

FOREVER = float("inf")
MEASURE_EVERY_S = 60.0
PRUNE_EVERY_S = 6 * 3600.0
KEEP = timedelta(days=30)
"""How long decisions of workloads that are gone stay in the store."""
KEEP_AUDIT = timedelta(days=400)
"""How long rows of the audit log stay, unless there are too many: a year, and time to look at it."""
HEAD_START_S = 20.0
"""So long dispatch is let through first at a start: a hub or a store that is away keeps nobody else."""
STORE_PATIENCE_S = 30.0
"""A leader that cannot reach the store for this long lets another try."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a daemon runs on: a hub, a way to reach a worker, a clock, and where policies come from.

    With `candidacy` it is one of several replicas, of which one leads; without, it runs alone in `alone`'s term.
    """

    hub: HubPort
    connect: Callable[[ClusterPolicy], WorkerPort]
    clock: Clock
    source: PolicySource
    candidacy: Candidacy | None = None
    alone: Always = field(default_factory=Always)
    metrics: Metrics = field(default_factory=Metrics)
    shadow: PolicySource | None = None
    """Where a candidate comes from that is evaluated beside the policy, and never rules."""
    catalog: CatalogDesk | None = None
    """Where data sets come from beside the blueprint's own."""
    open_store: OpenStore | None = None
    """How stores are looked into for replicas."""
    files_of: Callable[[str], bytes | None] = lambda tree: None
    """The files of the policy in force, for the store to keep."""


@dataclass(slots=True)
class WorkerSet:
    """The connected workers: follows the blueprint, one supervised task each, so that one cannot stall another."""

    supervisor: Supervisor
    connect: Callable[[ClusterPolicy], WorkerPort]
    wake: Callable[[], None]
    ports: dict[ClusterName, WorkerPort] = field(default_factory=dict)
    _known: dict[ClusterName, ClusterPolicy] = field(default_factory=dict)
    _tasks: dict[ClusterName, asyncio.Task[None]] = field(default_factory=dict)
    _group: asyncio.TaskGroup | None = None

    def apply(self, policy: Policy) -> None:
        """Connect what is new, reconnect what changed its credentials, drop what is gone."""
        for name in sorted(self.ports):
            cluster = policy.clusters.get(name)
            if cluster is None or cluster.credentials != self._known[name].credentials:
                self._drop(name)
        for name, cluster in sorted(policy.clusters.items()):
            self._known[name] = cluster
            if name not in self.ports:
                self.ports[name] = self.connect(cluster)
                if self._group is not None:
                    self._start(name, self._group)

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        for name in sorted(self.ports):
            self._start(name, group)

    def _start(self, name: ClusterName, group: asyncio.TaskGroup) -> None:
        port = self.ports[name]
        watch = self.supervisor.supervise(f"worker:{name}", lambda: port.run(self.wake), limit_s=FOREVER)
        self._tasks[name] = group.create_task(watch, name=f"worker:{name}")

    def _drop(self, name: ClusterName) -> None:
        del self.ports[name], self._known[name]
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
        self.supervisor.health.forget(f"worker:{name}")


class Daemon:
    """A running Entrepot on given surroundings. `run` ends by cancellation or with Fatal."""

    def __init__(self, around: Surroundings, policy: Policy, store: SqlStore, listen: str | None) -> None:
        clock = around.clock
        self.around = around
        self.store = store
        self.metrics = around.metrics
        self.health = Health(clock)
        self.supervisor = Supervisor(clock, self.health, self.metrics)
        self.waker = Waker(clock)
        self.copies_waker = Waker(clock)
        self.law_waker = Waker(clock)
        self.idle_waker = Waker(clock)
        self.workers = WorkerSet(self.supervisor, around.connect, self._views_changed)
        self.workers.apply(policy)
        status = BlueprintStatus(policy.digest, clock.now())
        self.state = FleetState(clock, policy, status, around.hub, self.workers.ports)
        self.state.bundle_events.append(BundleEvent(clock.now(), policy))
        self.notices = NoticeLoop(around.hub, clock, self.metrics, self.health, Waker(clock))
        self.elector = self._elector(around.candidacy) if around.candidacy is not None else None
        self.leadership: Leadership = self.elector or around.alone
        self.metrics.leading.set(0 if self.elector is not None else 1)
        count_problems(lambda kind: self.metrics.problems.labels(kind).inc())
        self.copies = CopiesLoop(
            self.state,
            self.notices,
            self.metrics,
            self.health,
            self.copies_waker,
            self.waker.wake,
            leadership=self.leadership,
            lessons=store.lesson_log,
        )
        self.legality = LegalityLoop(
            self.state,
            store.audit_log,
            self.notices,
            self.metrics,
            self.health,
            self.law_waker,
            self.waker.wake,
            leadership=self.leadership,
            files_of=around.files_of,
        )
        self.idle = IdleLoop(
            self.state, store.audit_log, self.notices, self.metrics, self.health, self.idle_waker, self.leadership
        )
        self.dispatch = DispatchLoop(
            self.state,
            store,
            self.notices,
            self.metrics,
            self.health,
            self.waker,
            leadership=self.leadership,
            rules_on_record=self.legality.record_bundles,
            uses=store.use_log,
            lessons=store.lesson_log,
        )
        late = LateApi(self.state, self, self._whole_api)
        self.server = ApiServer(late, listen, self.dispatch.settled.wait) if listen is not None else None

    def _whole_api(self) -> App:
        from dispatcher.web.api import build_api

        return build_api(self.state, self.store, self)

    def _elector(self, candidacy: Candidacy) -> Elector:
        return Elector(
            candidacy, self.store, self.around.clock, self.metrics, self.health, self._working, self.waker.wake
        )

    def _working(self) -> bool:
        """Whether leading would be of use: the loops that act live, and the store has answered of late."""
        dead = {loop.name for loop in self.health.sick()} & {dispatch.LOOP, notify.LOOP}
        away_s = self.dispatch.store_away_since_s
        return not dead and (away_s is None or self.around.clock.monotonic_s() - away_s < STORE_PATIENCE_S)

    async def run(self) -> None:
        """Start everything in one TaskGroup; returns never, unless the process is to end."""
        calm_collector()
        reloads = ReloadLoop(
            self.state, self.around.source, self.around.clock, self.metrics, self.health, self._policy_changed
        )
        gauge_loop = GaugeLoop(self.state, self.metrics, self.health)
        supervise = self.supervisor.supervise
        async with asyncio.TaskGroup() as group:
            hub_watch = supervise("hub", lambda: self.around.hub.run(self._views_changed), limit_s=FOREVER)
            group.create_task(hub_watch, name="hub")
            self.workers.start(group)
            self._start_loops(group, {notify.LOOP: self.notices.run, reload.LOOP: reloads.run})
            self._start_loops(group, {dispatch.LOOP: self.dispatch.run, gauges.LOOP: gauge_loop.run})
            behind = {watch_copies.LOOP: self.copies.run, legality.LOOP: self.legality.run, idle.LOOP: self.idle.run}
            self._start_loops(group, {name: partial(self._behind_dispatch, run) for name, run in behind.items()})
            reading = CatalogLoop(self.state, self.around.catalog, self.metrics, self.health)
            watched = supervise(catalog.LOOP, reading.run, limit_s=catalog.LIMIT_S)
            group.create_task(watched, name=catalog.LOOP)
            looking = ReplicaLoop(self.state, self.around.open_store, self.metrics, self.health, self.leadership)
            self._start_loops(group, {replicas.LOOP: looking.run})
            beside = ShadowLoop(self.state, self.around.shadow, self.metrics, self.health)
            group.create_task(supervise(shadow.LOOP, beside.run, limit_s=FOREVER), name=shadow.LOOP)
            if self.elector is not None:
                following = FollowLoop(self.state, self.store, self.leadership, self.health)
                self._start_loops(group, {LEADER_LOOP: self.elector.run, follow.LOOP: following.run})
            group.create_task(supervise("retention", self._retain, limit_s=FOREVER), name="retention")
            if self.server is not None:
                group.create_task(supervise("http", self.server.run, limit_s=FOREVER), name="http")

    def _start_loops(self, group: asyncio.TaskGroup, loops: dict[str, Callable[[], Awaitable[None]]]) -> None:
        for name, loop in loops.items():
            group.create_task(self.supervisor.supervise(name, loop), name=name)

    async def _behind_dispatch(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Run what looks through everything that is on the hub, once dispatch has been through it: the same event loop
        does both, and a job that waited for our start waits for a cluster, not for what runs to be judged again."""
        await happens(self.dispatch.settled, self.around.clock, HEAD_START_S)
        await loop()

    def _views_changed(self) -> None:
        self.waker.wake()
        self.copies_waker.wake()
        self.law_waker.wake()
        self.idle_waker.wake()

    def _policy_changed(self, policy: Policy) -> None:
        self.workers.apply(policy)
        self.waker.wake()
        self.law_waker.wake()
        self.idle_waker.wake()

    async def _retain(self) -> None:
        """Say every minute how much is kept; every few hours forget what is old, where we lead."""
        clock = self.around.clock
        due_s = clock.monotonic_s() + PRUNE_EVERY_S
        while True:
            self.health.beat("retention")
            await self._measure()
            await clock.sleep(MEASURE_EVERY_S)
            if clock.monotonic_s() >= due_s:
                due_s = clock.monotonic_s() + PRUNE_EVERY_S
                await self._prune()

    async def _measure(self) -> None:
        try:
            size, oldest = await self.store.input_log.kept()
        except EntrepotError:
            return  # dispatch says so when the store is away
        age = self.around.clock.now() - oldest if oldest is not None else timedelta()
        self.metrics.replay_bytes.set(size)
        self.metrics.replay_bytes_limit.set(self.store.input_log.limits.max_bytes)
        self.metrics.replay_oldest.set(age.total_seconds())

    async def _prune(self) -> None:
        if not self.leadership.may_write(self.around.clock.monotonic_s()):
            return
        if self.state.hub_link(self.around.clock.now()) is not Link.CONNECTED:
            return  # what lives is not known: nothing of it may be taken for gone
        try:
            kept = tuple(self.state.hub_view().workloads)
            now = self.around.clock.now()
            forgotten = await self.store.prune(now - KEEP, kept)
            await self.store.audit_log.trim(now - KEEP_AUDIT, now)
            pages = await self.store.compact()
        except Transient as error:
            get_logger().warning("store_not_pruned", error=str(error))
            return
        get_logger().info("store_pruned", decisions=forgotten, pages_returned=pages)

    # --- HealthSource of the API ---------------------------------------------------------------------------------

    def loops(self) -> tuple[LoopHealth, ...]:
        return tuple(self.health.loops())

    def ready(self) -> tuple[bool, tuple[str, ...]]:
        """Ready = the hub is fully seen and not silent. A worker that is away makes a candidate less, not a daemon."""
        view, now = self.state.hub_view(), self.around.clock.now()
        link = self.state.hub_link(now)
        if link is Link.BLIND or view.observed_at is None:
            return False, (f"the hub has not been read completely yet{': ' + view.error if view.error else ''}",)
        if link is Link.STALE:
            age_s, limit_s = (now - view.observed_at).total_seconds(), self.state.policy.limits.silence_limit_s
            return False, (f"the hub has been silent for {age_s:.0f} s (limit {limit_s} s)",)
        return True, ()

    def leader(self) -> LeaderFacts | None:
        """Who leads among the replicas; None for a daemon that runs alone."""
        if self.elector is None:
            return None
        leading = self.leadership.may_write(self.around.clock.monotonic_s())
        tenure = self.elector.tenure
        return LeaderFacts(leading, tenure.me, tenure.holder, tenure.role.value, self.elector.term)

    def metrics_text(self) -> bytes:
        return self.metrics.text()
