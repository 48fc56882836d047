"""Ten thousand waiting workloads and one capacity change: the real dispatch loop and store, on views in memory.

The hub and the workers are ports that show what they were given; a nomination changes the hub's view, as a watch would.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.decide_world import NAMES, QUEUES, arrivals, clusters, rules, shapes
from dispatcher.core.ids import ClusterName, QueueName, WorkloadUid
from dispatcher.core.ports import Nomination
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import (
    MULTIKUEUE_CONTROLLER,
    Check,
    HubQueue,
    HubView,
    LocalQueueView,
    MultiKueueClusterView,
    WorkerView,
)
from dispatcher.core.workload import CheckState, HubWorkload, Owner, OwnerMeta, Request
from dispatcher.loops.dispatch import LOOP, DispatchLoop
from dispatcher.loops.notify import LOOP as NOTICES
from dispatcher.loops.notify import NoticeLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker, calm_collector
from dispatcher.state import BlueprintStatus, FleetState
from dispatcher.store import open_store
from tests.core_builders import NOW

WAITING, KINDS, CHANGES = 10_000, 150, 5


@dataclass(frozen=True, slots=True)
class Replans:
    """CPU seconds of the event loop's thread: for each re-plan in all, and its longest time without a pause.

    `first` are of the first one, in which every view and every shape is new.
    """

    totals: tuple[float, ...]
    blocks: tuple[float, ...]
    walls: tuple[float, ...]
    first_total: float
    first_block: float
    idle_total: float
    """A cycle in which only the views have become younger."""
    one_less_total: float
    """A cycle after one that waits has gone: all others are asked whether they still do."""


@dataclass(slots=True)
class Standing:
    """A clock for dates that the bench moves on; for everything else time is real."""

    at: datetime = NOW

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_ahead_s(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(slots=True)
class Shown:
    """A worker's port."""

    name: ClusterName
    shows: WorkerView

    def view(self) -> WorkerView:
        return self.shows

    async def run(self, wake: Any) -> None:
        raise NotImplementedError

    async def stop(self, stop: Any) -> None:
        raise NotImplementedError


@dataclass(slots=True)
class ShownHub:
    """The hub's port."""

    shows: HubView
    nominations: list[Nomination] = field(default_factory=list)

    def view(self) -> HubView:
        return self.shows

    async def nominate(self, nomination: Nomination) -> str:
        self.nominations.append(nomination)
        return nomination.resource_version

    def show_nominations(self) -> None:
        """What a watch would bring a moment later. Without any, views keep their objects, as the real hub's do."""
        if not self.nominations:
            return
        workloads = dict(self.shows.workloads)
        for made in self.nominations:
            version = f"{made.resource_version}-n"
            workloads[made.uid] = replace(workloads[made.uid], nominated=made.clusters, resource_version=version)
        self.nominations.clear()
        self.shows = replace(self.shows, workloads=MappingProxyType(workloads))

    def show_one_less(self) -> None:
        """The last in line has been deleted."""
        workloads = dict(self.shows.workloads)
        workloads.popitem()
        self.shows = replace(self.shows, workloads=MappingProxyType(workloads))

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


class Beat:
    """The longest time that the event loop's thread computed between two of its turns, in CPU seconds."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            self.longest = max(self.longest, now - before)
            before = now

    def take(self) -> float:
        found, self.longest = self.longest, 0.0
        return found


def measure(say: Callable[[str], None], waiting: int = WAITING) -> Replans:
    calm_collector()  # as in the daemon
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(say, Path(folder), waiting))


async def _measure(say: Callable[[str], None], folder: Path, waiting: int) -> Replans:
    dice = random.Random(11)
    views = {c.name: _full(c.worker) for c in clusters(dice) if c.worker is not None}
    hub = ShownHub(_hub(arrivals(dice, shapes(dice, KINDS), waiting)))
    workers = {name: Shown(name, view) for name, view in views.items()}
    clock = Standing()
    loop = await _loop(folder, hub, workers, clock)
    beat = Beat()
    async with asyncio.TaskGroup() as group:
        beating = group.create_task(beat.run())
        first_total, first_block, wall_s = await _turn(loop, hub, beat, clock)
        say(f"{waiting} waiting, first turn {first_total:.1f} s CPU, {wall_s:.1f} s, block {first_block * 1000:.0f} ms")
        await _calm(loop, hub, beat, clock)
        say(f"{sum(bool(w.nominated) for w in hub.shows.workloads.values())} nominated, the others told to wait")
        _age(workers, clock)
        idle_total, _, _ = await _turn(loop, hub, beat, clock)
        say(f"a turn with views that are only younger {idle_total * 1000:.0f} ms")
        hub.show_one_less()
        one_less_total, _, _ = await _turn(loop, hub, beat, clock)
        say(f"a turn after one has gone {one_less_total * 1000:.0f} ms")
        found = []
        for _ in range(CHANGES):
            _age(workers, clock)
            worker = workers[ClusterName(dice.choice(NAMES))]
            worker.shows = _freed(worker.shows)
            found.append(await _turn(loop, hub, beat, clock))
            total, block, wall_s = found[-1]
            made, left = len(loop.rounds.open), len(loop.planner.waits)
            say(
                f"re-plan {total:.2f} s CPU, {wall_s:.2f} s, block {block * 1000:.0f} ms; {made} made, {left} to record"
            )
        beating.cancel()
    await loop.store.close()
    totals, blocks, walls = zip(*found, strict=True)
    return Replans(totals, blocks, walls, first_total, first_block, idle_total, one_less_total)


async def _calm(loop: DispatchLoop, hub: ShownHub, beat: Beat, clock: Standing) -> None:
    """Until nothing is left to do. That the first waits are stored one by one is not waited for: it takes minutes."""
    while True:
        kept = len(loop.planner.waits)
        loop.planner.waits.clear()
        await _turn(loop, hub, beat, clock)
        if not kept and not loop.rounds.open:
            return


async def _turn(loop: DispatchLoop, hub: ShownHub, beat: Beat, clock: Standing) -> tuple[float, float, float]:
    """One cycle: CPU seconds of this thread, the longest block among them, and seconds by the wall."""
    await asyncio.sleep(0.005)
    beat.take()
    cpu_s, wall_s = time.thread_time(), time.monotonic()
    await loop.turn()
    cpu_s, wall_s = time.thread_time() - cpu_s, time.monotonic() - wall_s
    await asyncio.sleep(0.005)
    block = beat.take()
    hub.show_nominations()
    clock.at += timedelta(seconds=1)
    return cpu_s, block, wall_s


def _age(workers: dict[ClusterName, Shown], clock: Standing) -> None:
    """All watches have been heard of again."""
    for worker in workers.values():
        worker.shows = replace(worker.shows, observed_at=clock.at)


async def _loop(folder: Path, hub: ShownHub, workers: dict[ClusterName, Shown], clock: Standing) -> DispatchLoop:
    policy, metrics, health = rules(), Metrics(), Health(clock)
    for name in (LOOP, NOTICES):
        health.register(name, 1e9)
    status = BlueprintStatus(policy.digest, clock.now())
    state = FleetState(clock, policy, status, hub, dict(workers))
    notices = NoticeLoop(hub, clock, metrics, health, Waker(clock))
    store = await open_store(folder / "entrepot.db")
    return DispatchLoop(state, store, notices, metrics, health, Waker(clock))


def _hub(asked: Sequence[Request]) -> HubView:
    found = [_workload(one) for one in asked]
    names = tuple(ClusterName(name) for name in NAMES)
    return HubView(
        synced=True,
        observed_at=NOW + timedelta(days=1),
        workloads=MappingProxyType({workload.uid: workload for workload in found}),
        owners={f"job-{one.uid}": _owner(one) for one in asked},
        checks={"fleet": Check("fleet", MULTIKUEUE_CONTROLLER, True, "fleet")},
        configs={"fleet": names},
        clusters={name: MultiKueueClusterView(name, active=True) for name in names},
        queues={QueueName(q): HubQueue(QueueName(q), True, checks=("fleet",)) for q in QUEUES},
        local_queues={("team", q): LocalQueueView("team", q, QueueName(q)) for q in QUEUES},
    )


def _workload(one: Request) -> HubWorkload:
    return HubWorkload(
        uid=WorkloadUid(one.uid),
        namespace=one.namespace,
        name=one.name,
        resource_version=one.resource_version,
        created_at=one.created_at,
        local_queue=one.local_queue,
        priority=one.priority,
        owner=Owner("batch/v1", "Job", one.job_name, f"job-{one.uid}"),
        owner_count=1,
        cluster_queue=one.hub_queue,
        quota_reserved_at=NOW,
        checks=(CheckState("fleet", "Pending"),),
        pod_sets=one.pod_sets,
    )


def _owner(one: Request) -> OwnerMeta:
    keys = {
        "entrepot.dev/workload-class": one.declared.workload_class or "",
        "entrepot.dev/expected-duration": f"PT{one.declared.expected_duration_s}S",
    }
    if one.declared.data:
        keys["entrepot.dev/datasets"] = ", ".join(use.data_set for use in one.declared.data)
    return OwnerMeta(f"job-{one.uid}", "Job", one.namespace, one.job_name, tuple(sorted(keys.items())))


def _full(view: WorkerView) -> WorkerView:
    """All quota of the worker is in use, and nobody may be preempted."""
    queues = {
        name: replace(
            queue,
            preempts_lower_priority=False,
            quotas=tuple(replace(quota, reserved=quota.nominal) for quota in queue.quotas),
        )
        for name, queue in view.queues.items()
    }
    return replace(view, queues=queues)


def _freed(view: WorkerView) -> WorkerView:
    """A job of eight H100 has ended on one node."""
    queues = dict(view.queues)
    training = queues[QueueName("training")]
    quotas = tuple(
        replace(q, reserved=max(0, q.reserved - 8 * (1 if q.resource == "nvidia.com/gpu" else 10_000)))
        if q.flavor == "h100" and q.resource in ("nvidia.com/gpu", "cpu")
        else replace(q, reserved=max(0, q.reserved - 2**40))
        if q.flavor == "h100" and q.resource == "memory"
        else q
        for q in training.quotas
    )
    queues[training.name] = replace(training, quotas=quotas)
    nodes = list(view.nodes)
    at = next(at for at, node in enumerate(nodes) if "-h100-" in node.name and node.requested.get("nvidia.com/gpu"))
    nodes[at] = replace(nodes[at], requested=Resources.of({"cpu": 8000, "pods": 8}))
    return replace(view, queues=queues, nodes=tuple(nodes), generation=view.generation + 1)
