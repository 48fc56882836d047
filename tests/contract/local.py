"""The contract suite's harness on the local fleet: real clusters, the real connectors, real time."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from connectors.kubernetes import connect_hub, connect_worker
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import Credentials
from dispatcher.core.ports import HubPort, WorkerPort
from dispatcher.core.workload import HubWorkload
from dispatcher.core.writing import WriteMode
from dispatcher.runtime import SystemClock
from tests import builders as b
from tests.contract.harness import CLUSTERS, GPUS, QUEUE, Bed, T
from tests.fleet import FleetNode, LocalFleet, rbac
from tests.fleet.api import ApiRefusal, KubeApi, wait_for_condition

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
LOOK_S = 0.05
SYNC_S = 30.0
SILENCE_LIMIT_S = 6.0
RECOVERY_S = 180.0
"""Within this time a worker's controllers are back at work after their apiserver was killed and started again."""
APPLY_PATCH = "application/apply-patch+yaml"
_WRITE_MODES: dict[Path, WriteMode] = {}
MANAGER = "contract-suite"
URL = r"https://127\.0\.0\.1:\d+"
NOWHERE = "https://127.0.0.1:1"


_probes = itertools.count(1)


class LocalHarness:
    """FleetHarness on real processes. Calls to apiservers are made in threads, so the connectors run on."""

    def __init__(self, fleet: LocalFleet, bed: Bed) -> None:
        self.bed = bed
        self._fleet = fleet
        self._clock = SystemClock()
        self._down: set[ClusterName] = set()
        self._unplugged: set[ClusterName] = set()
        self.kubernetes = hub = connect_hub(fleet.daemon_kubeconfig_path, self._clock, silence_limit_s=SILENCE_LIMIT_S)
        self.hub: HubPort = hub
        self.workers: Mapping[ClusterName, WorkerPort] = {
            name: connect_worker(name, _credentials(name), hub, self._clock, silence_limit_s=SILENCE_LIMIT_S)
            for name in CLUSTERS
        }

    async def choose_write_mode(self) -> None:
        """Nominate as the daemon would on this hub; found out once a session, since the hub stays the same."""
        known = _WRITE_MODES.get(self._fleet.directory)
        if known is None:
            await self.hub.check_ready()
            _WRITE_MODES[self._fleet.directory] = self.kubernetes.write_mode
        else:
            self.kubernetes.write_mode = known

    # --- the bed ---

    async def make_bed(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name in CLUSTERS:
                group.create_task(asyncio.to_thread(self._make_worker, name))
        await asyncio.to_thread(self._on, None, lambda api: api.apply_all(self.bed.hub_objects()))
        check = next(item for item in self.bed.hub_objects() if item["kind"] == "AdmissionCheck")
        await asyncio.to_thread(self._on, None, lambda api: wait_for_condition(api, check, "Active", SYNC_S))

    def _make_worker(self, name: ClusterName) -> None:
        self._on(name, lambda api: api.apply_all(self.bed.worker_objects(name)))
        nodes = [FleetNode(node, labels, (), {b.GPU: str(GPUS)}) for node, labels in self.bed.nodes(name).items()]
        self._fleet.add_nodes(name, nodes)

    async def clear_bed(self) -> None:
        """Delete what a later test could trip over; namespaces and queues are left to the end of the fleet."""
        for name in sorted(self._down):
            await self.mend(name)
        for name in sorted(self._unplugged):
            await self.plug(name)
        await asyncio.to_thread(self._on, None, self._delete_work)
        async with asyncio.TaskGroup() as group:
            for name in CLUSTERS:
                group.create_task(asyncio.to_thread(self._clear_worker, name))

    def _clear_worker(self, name: ClusterName) -> None:
        self._on(name, self._delete_work)
        self._fleet.remove_nodes(name, list(self.bed.nodes(name)))

    def _delete_work(self, api: KubeApi) -> None:
        body = {"propagationPolicy": "Background"}
        for path in ("/apis/batch/v1", "/apis/jobset.x-k8s.io/v1alpha2", KUEUE):
            plural = {"/apis/batch/v1": "jobs", KUEUE: "workloads"}.get(path, "jobsets")
            if api.get(f"/api/v1/namespaces/{self.bed.name}") is not None:
                api.request("DELETE", f"{path}/namespaces/{self.bed.name}/{plural}", body)

    def _on(self, cluster: ClusterName | None, call: Callable[[KubeApi], Any]) -> Any:
        endpoint = self._fleet.hub if cluster is None else self._fleet.workers[cluster]
        with endpoint.api() as api:
            return call(api)

    # --- users and operators ---

    async def submit(self, manifest: b.Manifest, cluster: ClusterName | None = None) -> None:
        await self.apply(manifest, cluster)

    async def create_bare_workload(self, name: str) -> None:
        template = self.bed.template()
        pod_set = {"name": "main", "count": 1, "template": template}
        manifest = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name, "namespace": self.bed.name},
            "spec": {"queueName": QUEUE, "active": True, "podSets": [pod_set]},
        }
        await self.apply(manifest)

    async def delete_job(self, name: str) -> None:
        path = f"/apis/batch/v1/namespaces/{self.bed.name}/jobs/{name}"
        body = {"propagationPolicy": "Background"}
        await asyncio.to_thread(self._on, None, lambda api: api.request("DELETE", path, body))

    async def apply(self, manifest: b.Manifest, cluster: ClusterName | None = None) -> None:
        await asyncio.to_thread(self._on, cluster, lambda api: api.apply(manifest))

    async def serve_gate(self) -> None:
        condition = {"type": "Active", "status": "True", "reason": "Active", "message": "", **_since(self._clock.now())}
        path = f"{KUEUE}/admissionchecks/{self.bed.gate}/status"
        body = {"status": {"conditions": [condition]}}
        await asyncio.to_thread(self._on, None, lambda api: api.merge_patch(path, body))

    async def set_check(self, workload: HubWorkload, check: str, state: str) -> None:
        entry = {"name": check, "state": state, "message": "by the contract suite", **_since(self._clock.now())}
        path = f"{KUEUE}/namespaces/{workload.namespace}/workloads/{workload.name}"
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": workload.name, "namespace": workload.namespace},
            "status": {"admissionChecks": [entry]},
        }
        await asyncio.to_thread(
            self._on,
            None,
            lambda api: api.request("PATCH", f"{path}/status", body, APPLY_PATCH, fieldManager=MANAGER, force="true"),
        )

    async def cordon(self, cluster: ClusterName, node: str) -> None:
        await asyncio.to_thread(self._fleet.cordon, cluster, node)

    async def delete_copy(self, cluster: ClusterName, workload: HubWorkload, job: str) -> None:
        body = {"propagationPolicy": "Background"}
        for path in (
            f"/apis/batch/v1/namespaces/{workload.namespace}/jobs/{job}",
            f"{KUEUE}/namespaces/{workload.namespace}/workloads/{workload.name}",
        ):
            try:
                await asyncio.to_thread(self._on, cluster, lambda api, path=path: api.request("DELETE", path, body))
            except ApiRefusal as refusal:
                if refusal.status_code != 404:  # the copy may already have gone with its job
                    raise

    async def cut(self, cluster: ClusterName) -> None:
        self._down.add(cluster)
        await asyncio.to_thread(self._fleet.stop_worker, cluster)

    async def mend(self, cluster: ClusterName) -> None:
        """Also give MultiKueue a kubeconfig of new bytes: its back-off after a loss (5 s, doubled up to 320 s) starts
        anew with a changed configuration, and nobody should wait for it here. Returns when the worker's own
        controllers, which lost their apiserver too, do their work again."""
        self._down.discard(cluster)
        await asyncio.to_thread(self._fleet.start_worker, cluster)
        await asyncio.to_thread(self._probe, cluster)
        await asyncio.to_thread(self._on, None, lambda api: _rewrite_kubeconfig(api, cluster, lambda old: old))

    def _probe(self, cluster: ClusterName) -> None:
        """A small local job passes through Kueue, the job controller, the scheduler and KWOK."""
        manifest = self.bed.job(f"probe-{next(_probes)}", kind="small", duration="100ms")
        with self._fleet.workers[cluster].api() as api:
            api.apply(manifest)
            wait_for_condition(api, manifest, "Complete", RECOVERY_S)

    async def unplug(self, cluster: ClusterName) -> None:
        self._unplugged.add(cluster)
        await asyncio.to_thread(
            self._on, None, lambda api: _rewrite_kubeconfig(api, cluster, lambda old: re.sub(URL, NOWHERE, old))
        )

    async def plug(self, cluster: ClusterName) -> None:
        self._unplugged.discard(cluster)
        url = self._fleet.workers[cluster].server_url
        await asyncio.to_thread(
            self._on, None, lambda api: _rewrite_kubeconfig(api, cluster, lambda old: re.sub(URL, url, old))
        )

    async def events(self, workload: HubWorkload) -> list[tuple[str, str, str]]:
        path = f"/api/v1/namespaces/{workload.namespace}/events"
        found = await asyncio.to_thread(self._on, None, lambda api: api.request("GET", path))
        return [
            (item["type"], item["reason"], item["message"])
            for item in found["items"]
            if item["involvedObject"].get("uid") == workload.uid
        ]

    # --- time ---

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait_for(self, look: Callable[[], T | None], within_s: float, what: str) -> T:
        deadline = self._clock.monotonic_s() + within_s
        while (found := look()) is None:
            if self._clock.monotonic_s() > deadline:
                raise AssertionError(f"not within {within_s:g} s: {what}")
            await asyncio.sleep(LOOK_S)
        return found


def _credentials(name: ClusterName) -> Credentials:
    return Credentials(secret_namespace=rbac.NAMESPACE, secret_name=rbac.secret_name(name))


def _rewrite_kubeconfig(api: KubeApi, cluster: ClusterName, change: Callable[[str], str]) -> None:
    """Change MultiKueue's kubeconfig of a worker; its bytes are new in any case."""
    path = f"/api/v1/namespaces/kueue-system/secrets/{cluster}-kubeconfig"
    content = base64.b64decode(api.request("GET", path)["data"]["kubeconfig"]).decode()
    changed = change(content) + "# rewritten\n"
    api.merge_patch(path, {"data": {"kubeconfig": base64.b64encode(changed.encode()).decode()}})


def _since(now: datetime) -> dict[str, str]:
    return {"lastTransitionTime": now.replace(microsecond=0, tzinfo=None).isoformat() + "Z"}


@asynccontextmanager
async def local_fleet_with(fleet: LocalFleet, bed: Bed) -> AsyncIterator[LocalHarness]:
    """A bed on the session's fleet, seen by connectors of its own; cleared when the test is over."""
    harness = LocalHarness(fleet, bed)
    try:
        await harness.choose_write_mode()
        await harness.make_bed()
        async with asyncio.TaskGroup() as group:
            ports = [harness.hub, *harness.workers.values()]
            tasks = [group.create_task(port.run(lambda: None)) for port in ports]
            await harness.wait_for(lambda: all(p.view().synced for p in ports) or None, SYNC_S, "everything is listed")
            yield harness
            for task in tasks:
                task.cancel()
    finally:
        await harness.clear_bed()
