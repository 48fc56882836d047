"""What the contract suite asks of a fleet, embedded or real, and the bed that each test gets on it.

A bed is a namespace, a hub queue and a queue on every worker, with nodes of its own, so that tests share one fleet
and do not see each other. Every worker of a bed has one node of eight "big" GPUs and one of eight "small" ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from dispatcher.core.errors import Conflict
from dispatcher.core.ids import ClusterName
from dispatcher.core.ports import HubPort, Nomination, WorkerPort
from dispatcher.core.snapshot import HubView, WorkerCopy, WorkerView
from dispatcher.core.workload import HubWorkload
from tests import builders as b

T = TypeVar("T")
CLUSTERS = (ClusterName("cloud-a-fi"), ClusterName("cloud-c-us"), ClusterName("onprem-eu"))
BED_LABEL = "contract.example/bed"
KIND_LABEL = "contract.example/kind"
RACK_LABEL = "contract.example/rack"
HOST_LABEL = "kubernetes.io/hostname"
GATE_CONTROLLER = "contract.example/gate"
QUEUE = "main"
GPUS = 8
SOON_S = 30.0
"""Within this time everything happens that has to happen; a slow machine runs a hub and three workers."""
GONE_S = 90.0
"""Until deleted things are gone: a worker's garbage collector learns of Kueue's kinds only a while after its start."""
LOST_S = 30
"""Both fleets' workerLostTimeout: how long MultiKueue waits for a worker that it cannot reach."""


@dataclass(frozen=True, slots=True)
class Bed:
    """Names and shape of one test's corner of a fleet. `quota` is GPUs of each kind on a worker.

    `gated` adds a second admission check to the hub queue. `without` leaves objects out on a worker: (cluster, kind).
    `racks` are the racks of the "big" nodes of some workers, a letter a node: their flavor, and the hub's, has a
    topology of racks and hosts.
    """

    name: str
    quota: int = GPUS
    gated: bool = False
    without: tuple[tuple[ClusterName, str], ...] = ()
    racks: tuple[tuple[ClusterName, str], ...] = ()

    @property
    def check(self) -> str:
        return f"{self.name}-fleet"

    @property
    def gate(self) -> str:
        return f"{self.name}-gate"

    def flavor(self, kind: str) -> str:
        return f"{self.name}-{kind}"

    def node(self, kind: str) -> str:
        return f"{self.name}-{kind}"

    def hub_objects(self) -> list[b.Manifest]:
        """All but the MultiKueueClusters, which belong to the fleet."""
        checks = [self.check, *([self.gate] if self.gated else [])]
        lines = [b.quota(b.GPU, 1000), b.quota("cpu", 1000)]
        objects = [
            b.namespace(self.name),
            *self._laid_out(b.flavor(self.name, {BED_LABEL: self.name} if self.racks else None), bool(self.racks)),
            *[item for item in b.multikueue(*CLUSTERS, check=self.check) if item["kind"] != "MultiKueueCluster"],
            b.cluster_queue(self.name, b.resource_group({self.name: lines}), **b.checks(*checks)),
            b.local_queue(QUEUE, self.name, self.name),
            *self.priorities(),
        ]
        return objects + ([b.admission_check(self.gate, GATE_CONTROLLER)] if self.gated else [])

    def worker_objects(self, cluster: ClusterName) -> list[b.Manifest]:
        lines = [b.quota(b.GPU, self.quota), b.quota("cpu", 100)]
        group = b.resource_group({self.flavor("big"): lines, self.flavor("small"): lines})
        objects = [
            b.namespace(self.name),
            *self._laid_out(self._flavor("big"), cluster in dict(self.racks)),
            self._flavor("small"),
            b.cluster_queue(self.name, group, preemption={"withinClusterQueue": "LowerPriority"}),
            b.local_queue(QUEUE, self.name, self.name),
            *self.priorities(),
        ]
        left_out = {kind for name, kind in self.without if name == cluster}
        if "Namespace" in left_out:
            left_out.add("LocalQueue")
        return [item for item in objects if item["kind"] not in left_out]

    def _flavor(self, kind: str) -> b.Manifest:
        return b.flavor(self.flavor(kind), {BED_LABEL: self.name, KIND_LABEL: kind})

    def _laid_out(self, flavor: b.Manifest, by_racks: bool) -> list[b.Manifest]:
        if not by_racks:
            return [flavor]
        return [b.topology(self.name, RACK_LABEL, HOST_LABEL), b.laid_out(flavor, self.name)]

    def nodes(self, cluster: ClusterName) -> dict[str, dict[str, str]]:
        """Node name to labels."""
        found = {self.node(kind): {BED_LABEL: self.name, KIND_LABEL: kind} for kind in ("big", "small")}
        racks = dict(self.racks).get(cluster, "")
        for at, rack in enumerate(racks):
            name = f"{self.node('big')}-{at}"
            found[name] = {BED_LABEL: self.name, KIND_LABEL: "big", RACK_LABEL: rack, HOST_LABEL: name}
        if racks:
            del found[self.node("big")]
        return found

    def priorities(self) -> list[b.Manifest]:
        return [b.priority_class("contract-low", 10), b.priority_class("contract-high", 1000)]

    def template(self, kind: str = "big", gpus: int = 1, duration: str = "2s", fails: bool = False) -> b.Manifest:
        return b.pod_template({b.GPU: gpus, "cpu": 1}, duration, fails, nodeSelector={KIND_LABEL: kind})

    def job(
        self, name: str, gpus: int = 1, pods: int = 1, duration: str = "2s", kind: str = "big", **more: Any
    ) -> b.Manifest:
        template = self.template(kind, gpus, duration, bool(more.pop("fails", False)))
        return b.job(name, pods=pods, queue=QUEUE, in_namespace=self.name, template=template, **more)


class FleetHarness(Protocol):
    """A running fleet with connected ports, and the hands of users and operators on it."""

    bed: Bed
    hub: HubPort
    workers: Mapping[ClusterName, WorkerPort]

    async def submit(self, manifest: b.Manifest, cluster: ClusterName | None = None) -> None:
        """Create a job on the hub, or local work on a worker."""

    async def create_bare_workload(self, name: str) -> None:
        """Create a Workload of one pod on the hub that no job owns."""

    async def delete_job(self, name: str) -> None: ...

    async def apply(self, manifest: b.Manifest, cluster: ClusterName | None = None) -> None: ...

    async def serve_gate(self) -> None:
        """Play the controller of the bed's gate: its AdmissionCheck becomes Active."""

    async def set_check(self, workload: HubWorkload, check: str, state: str) -> None:
        """Write one entry of the Workload's admission checks, as a check's controller does."""

    async def cordon(self, cluster: ClusterName, node: str) -> None: ...

    async def delete_copy(self, cluster: ClusterName, workload: HubWorkload, job: str) -> None:
        """Somebody deletes a Job of ours and its Workload on the worker."""

    async def cut(self, cluster: ClusterName) -> None:
        """Make a worker unreachable for us and for MultiKueue."""

    async def mend(self, cluster: ClusterName) -> None: ...

    async def unplug(self, cluster: ClusterName) -> None:
        """Take a worker from MultiKueue alone: its kubeconfig leads nowhere. The worker is well, and we see it."""

    async def plug(self, cluster: ClusterName) -> None: ...

    async def events(self, workload: HubWorkload) -> list[tuple[str, str, str]]:
        """(type, reason, message) of the Events on a hub Workload."""

    async def pass_time(self, seconds: float) -> None:
        """Let fleet time pass."""

    async def wait_for(self, look: Callable[[], T | None], within_s: float, what: str) -> T:
        """Look again and again until there is an answer; AssertionError naming `what` when there is none in time."""


Opener = Callable[..., AbstractAsyncContextManager[FleetHarness]]
"""`open_fleet(quota=.., gated=.., without=..)` gives a harness with a bed like that."""


@dataclass(slots=True)
class Scene:
    """The questions that tests ask of a harness, in their words."""

    fleet: FleetHarness
    seen: dict[str, HubWorkload] = field(default_factory=dict)

    def hub(self) -> HubView:
        return self.fleet.hub.view()

    def worker(self, cluster: ClusterName) -> WorkerView:
        return self.fleet.workers[cluster].view()

    def find(self, job: str) -> HubWorkload | None:
        """The hub Workload of a job of this bed."""
        for workload in self.hub().workloads.values():
            if workload.namespace == self.fleet.bed.name and (
                workload.name == job or (workload.owner is not None and workload.owner.name == job)
            ):
                return workload
        return None

    def workload(self, job: str) -> HubWorkload:
        found = self.find(job)
        assert found is not None, f"no Workload of {job}"
        return found

    def copy(self, job: str, cluster: ClusterName) -> WorkerCopy | None:
        workload = self.find(job)
        return self.worker(cluster).copies.get((workload.namespace, workload.name)) if workload is not None else None

    def copies(self, job: str) -> dict[ClusterName, WorkerCopy]:
        found = {cluster: self.copy(job, cluster) for cluster in CLUSTERS}
        return {cluster: copy for cluster, copy in found.items() if copy is not None}

    def check(self, job: str) -> str:
        """State of the MultiKueue check."""
        states = {check.name: check.state for check in self.workload(job).checks}
        return states.get(self.fleet.bed.check, "")

    async def until(
        self, job: str, holds: Callable[[HubWorkload], bool], what: str, within_s: float = SOON_S
    ) -> HubWorkload:
        """Wait for something to be so of a job's Workload."""

        def look() -> HubWorkload | None:
            found = self.find(job)
            return found if found is not None and holds(found) else None

        try:
            return await self.fleet.wait_for(look, within_s, f"{job}: {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\nit is {self.find(job)}\nits copies are {self.copies(job)}") from None

    async def until_copy(
        self, job: str, cluster: ClusterName, holds: Callable[[WorkerCopy], bool], what: str
    ) -> WorkerCopy:
        """Wait for something to be so of a job's copy on a worker."""

        def look() -> WorkerCopy | None:
            found = self.copy(job, cluster)
            return found if found is not None and holds(found) else None

        return await self.fleet.wait_for(look, SOON_S, f"{job} on {cluster}: {what}")

    async def until_true(self, holds: Callable[[], bool], what: str) -> None:
        await self.fleet.wait_for(lambda: True if holds() else None, GONE_S, what)

    async def waiting(self, job: str, within_s: float = SOON_S) -> HubWorkload:
        """Wait until a job waits for a nomination: quota reserved, MultiKueue's check Pending, no cluster."""
        return await self.until(
            job,
            lambda w: (
                w.quota_reserved_at is not None
                and w.evicted_at is None
                and w.cluster_name is None
                and not w.nominated
                and self.check(job) == "Pending"
            ),
            "waits for a nomination",
            within_s,
        )

    async def submitted(self, manifest: b.Manifest) -> HubWorkload:
        """Submit a job and wait until it waits."""
        await self.fleet.submit(manifest)
        return await self.waiting(manifest["metadata"]["name"])

    async def nominate(self, job: str, *clusters: ClusterName) -> str:
        """Nominate from the newest view, again if somebody else wrote in between. Returns the version that it made."""
        for _ in range(20):
            try:
                return await self.fleet.hub.nominate(nomination(self.workload(job), *clusters))
            except Conflict:
                await self.fleet.pass_time(0.2)
        raise AssertionError(f"{job} could not be nominated")

    async def latched(self, job: str, cluster: ClusterName) -> HubWorkload:
        return await self.until(job, lambda w: w.cluster_name == cluster, f"latches {cluster}")

    async def finished(self, job: str) -> HubWorkload:
        return await self.until(job, lambda w: w.finished, "finishes")


def nomination(workload: HubWorkload, *clusters: ClusterName, version: str | None = None) -> Nomination:
    return Nomination(
        workload.uid, workload.namespace, workload.name, version or workload.resource_version, tuple(clusters)
    )
