"""The contract suite's harness on the embedded fleet: a clock that moves only while a test waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from connectors.embedded import EmbeddedFleet, ManualClock, NodeSpec, Options, Settings, WorkerSpec
from connectors.kubernetes.decode import hub_workload
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.ports import HubPort, WorkerPort
from dispatcher.core.workload import HubWorkload, PodSet
from tests import builders as b
from tests.contract.harness import CLUSTERS, GPUS, LOST_S, QUEUE, Bed, T

STEP_S = 0.05


class EmbeddedHarness:
    """FleetHarness in memory."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.clock = ManualClock(b.START)
        self.fleet = EmbeddedFleet(
            [*[m for m in b.multikueue(*CLUSTERS) if m["kind"] == "MultiKueueCluster"], *bed.hub_objects()],
            {name: WorkerSpec(bed.worker_objects(name), self._nodes(name)) for name in CLUSTERS},
            self.clock,
            Options(multikueue=Settings(worker_lost_timeout_s=LOST_S)),
        )
        self.hub: HubPort = self.fleet.hub
        self.workers: Mapping[ClusterName, WorkerPort] = self.fleet.workers

    def _nodes(self, cluster: ClusterName) -> list[NodeSpec]:
        return [NodeSpec(name, labels, (), {b.GPU: str(GPUS)}) for name, labels in self.bed.nodes(cluster).items()]

    async def submit(self, manifest: b.Manifest, cluster: ClusterName | None = None) -> None:
        self.fleet.submit(manifest, cluster)

    async def create_bare_workload(self, name: str) -> None:
        workload = HubWorkload(
            WorkloadUid(""), self.bed.name, name, "", b.START, QUEUE, pod_sets=pod_sets(self.bed.template())
        )
        self.fleet.create_workload(workload)

    async def delete_job(self, name: str) -> None:
        self.fleet.delete("Job", self.bed.name, name)

    async def apply(self, manifest: b.Manifest, cluster: ClusterName | None = None) -> None:
        self.fleet.apply(manifest, cluster)

    async def serve_gate(self) -> None:
        self.fleet.set_check_active(self.bed.gate, True)

    async def set_check(self, workload: HubWorkload, check: str, state: str) -> None:
        self.fleet.set_check(workload.uid, check, state, "by the contract suite")

    async def cordon(self, cluster: ClusterName, node: str) -> None:
        self.fleet.cordon(cluster, node)

    async def delete_copy(self, cluster: ClusterName, workload: HubWorkload, job: str) -> None:
        self.fleet.delete_copy(cluster, workload.namespace, workload.name)

    async def cut(self, cluster: ClusterName) -> None:
        self.fleet.break_link(cluster)

    async def mend(self, cluster: ClusterName) -> None:
        self.fleet.mend_link(cluster)

    async def unplug(self, cluster: ClusterName) -> None:
        self.fleet.switch_off(cluster)

    async def plug(self, cluster: ClusterName) -> None:
        self.fleet.switch_on(cluster)

    async def events(self, workload: HubWorkload) -> list[tuple[str, str, str]]:
        notices = [event.notice for event in self.fleet.events if event.notice.uid == workload.uid]
        return [(notice.type.value, notice.reason, notice.message) for notice in notices]

    async def pass_time(self, seconds: float) -> None:
        await self.clock.run_for(seconds)

    async def wait_for(self, look: Callable[[], T | None], within_s: float, what: str) -> T:
        deadline = self.clock.monotonic_s() + within_s
        while (found := look()) is None:
            if self.clock.monotonic_s() > deadline:
                raise AssertionError(f"not within {within_s:g} s: {what}")
            await self.clock.run_for(STEP_S)
        return found


def pod_sets(template: b.Manifest) -> tuple[PodSet, ...]:
    """One pod of a template, as the connector decodes it."""
    return hub_workload({"spec": {"podSets": [{"name": "main", "count": 1, "template": template}]}}).pod_sets


@asynccontextmanager
async def embedded_fleet(bed: Bed) -> AsyncIterator[EmbeddedHarness]:
    """A fleet of its own for a test, with its ports running."""
    harness = EmbeddedHarness(bed)
    async with asyncio.TaskGroup() as group:
        ports = [harness.hub, *harness.workers.values()]
        tasks = [group.create_task(port.run(lambda: None)) for port in ports]
        await harness.wait_for(lambda: harness.hub.view().synced or None, 5, "the hub is listed")
        yield harness
        for task in tasks:
            task.cancel()
