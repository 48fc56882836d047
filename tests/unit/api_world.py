"""A small fleet for tests of the API and the command line: ports that show what a test put there, and a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import uvicorn
from fastapi import FastAPI

from dispatcher.app.patience import PatientProtocol
from dispatcher.core.ids import ClusterName, FlavorName, ProductName, QueueName, RegionName, WorkloadUid
from dispatcher.core.policy import (
    ClassPolicy,
    ClusterPolicy,
    Credentials,
    FlavorPolicy,
    Limits,
    Policy,
    PriceBook,
    Purchase,
    QueuePolicy,
)
from dispatcher.core.ports import Nomination, Notice, Store, Wake
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import (
    MULTIKUEUE_CONTROLLER,
    Check,
    ClusterQueueView,
    HubQueue,
    HubView,
    MultiKueueClusterView,
    NodeView,
    Quota,
    WorkerCopy,
    WorkerView,
)
from dispatcher.core.workload import CheckState, HubWorkload, Owner, WorkloadClass
from dispatcher.runtime import LoopHealth
from dispatcher.state import BlueprintStatus, FleetState
from dispatcher.web.api import build_api
from dispatcher.web.vitals import HealthSource, LeaderFacts
from residency.facts import Place
from tests.unit.records import NOW

CLUSTERS = ("cloud-eu", "cloud-us", "onprem-1")


@dataclass
class TestClock:
    """Stands still until a test moves it."""

    __test__ = False
    at: datetime = NOW

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return self.at.timestamp()

    def wall_ahead_s(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class ShownHub:
    """A hub that shows a given view and takes no writes: the API makes none."""

    shown: HubView

    async def check_ready(self) -> None: ...

    async def run(self, wake: Wake) -> None: ...

    def view(self) -> HubView:
        return self.shown

    async def nominate(self, nomination: Nomination) -> str:
        raise AssertionError("the API must not write")

    async def notify(self, notice: Notice) -> None:
        raise AssertionError("the API must not write")


@dataclass
class ShownWorker:
    shown: WorkerView

    @property
    def name(self) -> ClusterName:
        return self.shown.cluster

    async def run(self, wake: Wake) -> None: ...

    def view(self) -> WorkerView:
        return self.shown


@dataclass
class Vitals:
    """The daemon's health as a test wants it."""

    beats: tuple[LoopHealth, ...] = (
        LoopHealth("dispatch", 0.2, 60.0, True),
        LoopHealth("hub", 9.0, float("inf"), True),
    )
    unready: tuple[str, ...] = ()
    facts: LeaderFacts | None = None

    def loops(self) -> tuple[LoopHealth, ...]:
        return self.beats

    def ready(self) -> tuple[bool, tuple[str, ...]]:
        return not self.unready, self.unready

    def leader(self) -> LeaderFacts | None:
        return self.facts

    def metrics_text(self) -> bytes:
        return b"# TYPE entrepot_holds gauge\nentrepot_holds 1.0\n"


def workload(
    key: str = "team-a/job-train-1f3a", job: str | None = "train", kind: str = "Job", **changes: object
) -> HubWorkload:
    """A Workload that waits for a nomination since 12 minutes; `changes` make it something else."""
    namespace, _, name = key.partition("/")
    made = HubWorkload(
        uid=WorkloadUid(f"uid-{key}"),
        namespace=namespace,
        name=name,
        resource_version="41",
        created_at=NOW - timedelta(minutes=15),
        local_queue="training",
        owner=Owner("batch/v1", kind, job, f"owner-{namespace}-{kind}-{job}") if job is not None else None,
        owner_count=1 if job is not None else 0,
        cluster_queue=QueueName("training"),
        quota_reserved_at=NOW - timedelta(minutes=12),
        checks=(CheckState("multikueue", "Pending"),),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def admitted_on(cluster: str, **changes: object) -> HubWorkload:
    """A Workload that the hub believes to run on `cluster`."""
    return workload(
        cluster_name=ClusterName(cluster),
        admitted_at=NOW - timedelta(minutes=11),
        checks=(CheckState("multikueue", "Ready"),),
        **changes,
    )


def copy_of(original: HubWorkload, **changes: object) -> WorkerCopy:
    made = WorkerCopy(
        uid=f"copy-{original.uid}",
        namespace=original.namespace,
        name=original.name,
        ours=True,
        quota_reserved_at=NOW - timedelta(minutes=11),
        admitted_at=NOW - timedelta(minutes=11),
        bound_pods=1,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def worker(name: str, *copies: WorkerCopy, seen_s: float | None = 3, **changes: object) -> WorkerView:
    """A worker with two nodes of eight GPUs, one of them taken; `seen_s` None = never seen."""
    gpus = Resources.of({"cpu": 64_000, "nvidia.com/gpu": 8})
    nodes = tuple(NodeView(f"{name}-{n}", (), gpus, gpus if n == 0 else Resources(), ready=True) for n in range(2))
    queue = ClusterQueueView(
        QueueName("training"), True, quotas=(Quota(FlavorName("h100"), "nvidia.com/gpu", 16, reserved=8),), pending=1
    )
    made = WorkerView(
        cluster=ClusterName(name),
        synced=seen_s is not None,
        observed_at=None if seen_s is None else NOW - timedelta(seconds=seen_s),
        queues={queue.name: queue} if seen_s is not None else {},
        nodes=nodes if seen_s is not None else (),
        copies={(copy.namespace, copy.name): copy for copy in copies},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def hub(*workloads: HubWorkload) -> HubView:
    return HubView(
        synced=True,
        observed_at=NOW - timedelta(seconds=1),
        workloads={w.uid: w for w in workloads},
        checks={"multikueue": Check("multikueue", MULTIKUEUE_CONTROLLER, True, "fleet")},
        configs={"fleet": tuple(ClusterName(name) for name in CLUSTERS)},
        clusters={ClusterName(name): MultiKueueClusterView(ClusterName(name), True) for name in CLUSTERS},
        queues={QueueName("training"): HubQueue(QueueName("training"), True, checks=("multikueue",))},
    )


def policy() -> Policy:
    flavor = FlavorPolicy(FlavorName("h100"), (), ProductName("h100-80gb"), Purchase.ON_DEMAND, 1000)
    regions = {"cloud-eu": ("eu-1", "DE"), "cloud-us": ("us-1", "US"), "onprem-1": ("home", "DE")}
    return Policy(
        digest="cccccccccccccccc",
        products={},
        clusters={
            ClusterName(name): ClusterPolicy(
                ClusterName(name),
                "provider",
                RegionName(region),
                Place(name, country=country),
                {flavor.name: flavor},
                Credentials(),
            )
            for name, (region, country) in regions.items()
        },
        classes={WorkloadClass.TRAINING: ClassPolicy(WorkloadClass.TRAINING, 1, 600, 3600, True, True, True)},
        queues={QueueName("training"): QueuePolicy(QueueName("training"), WorkloadClass.TRAINING)},
        data_sets={},
        stores={},
        labels={},
        prices=PriceBook(30, {}, {}),
        limits=Limits(),
        loaded_from="config",
    )


@dataclass
class World:
    """What the API sees. Tests change the parts, the state reads them anew at every request."""

    clock: TestClock = field(default_factory=TestClock)
    hub: ShownHub = field(default_factory=lambda: ShownHub(hub()))
    workers: dict[ClusterName, ShownWorker] = field(
        default_factory=lambda: {ClusterName(name): ShownWorker(worker(name)) for name in CLUSTERS}
    )
    vitals: Vitals = field(default_factory=Vitals)
    state: FleetState = field(init=False)

    def __post_init__(self) -> None:
        status = BlueprintStatus("cccccccccccccccc", NOW - timedelta(hours=1))
        self.state = FleetState(self.clock, policy(), status, self.hub, self.workers)

    def show(self, *workloads: HubWorkload) -> None:
        self.hub.shown = hub(*workloads)

    def show_worker(self, view: WorkerView) -> None:
        self.workers[view.cluster] = ShownWorker(view)


class Behind:
    """Whatever is put behind it: what is asked of this is asked of that."""

    def __init__(self) -> None:
        self.there: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.there, name)


@cache
def _shared() -> tuple[FastAPI, Behind, Behind, Behind]:
    state, store, health = Behind(), Behind(), Behind()
    return build_api(state, store, health), state, store, health  # type: ignore[arg-type]


def api_of(state: FleetState, store: Store, health: HealthSource) -> FastAPI:
    """The API on these. Its routes are made once for all tests, since making them is most of what a test would take:
    whoever had it before has it no more."""
    app, *behind = _shared()
    for each, there in zip(behind, (state, store, health), strict=True):
        each.there = there
    return app


@contextmanager
def served(app: Any, http: type[asyncio.Protocol] = PatientProtocol) -> Iterator[str]:
    """The app behind a real HTTP server on a free loopback port; gives its URL."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, http=http, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    listening.listen()  # whoever asks before the server's thread has come so far waits in line
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
