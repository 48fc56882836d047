"""How one cluster of the fleet comes up, step by step; every cluster does so in a thread of its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from tests.fleet import controlplane, jobset, kueue, kwok, manifests
from tests.fleet.api import ApiRefusal, KubeApi, wait_for_condition
from tests.fleet.binaries import Binaries
from tests.fleet.certificates import Certificates
from tests.fleet.controlplane import ControlPlane
from tests.fleet.processes import SupervisorClient, wait_until

READY_TIMEOUT_SECONDS = 120.0  # generous: the machine may be busy with a test run
PORT_NAMES = ("apiserver", "kueue_webhook", "kueue_health", "jobset_webhook", "jobset_health", "kwok")


@dataclass(frozen=True, slots=True)
class Shared:
    """What all clusters of one fleet have in common."""

    supervisor: SupervisorClient
    binaries: Binaries
    certificates: Certificates
    etcd_port: int
    kueue_data: kueue.KueueData
    jobset_data: jobset.JobSetData
    frameworks: Sequence[str]


@dataclass(frozen=True, slots=True)
class ClusterStart:
    """One cluster on its way up. A worker has a scheduler and fake nodes; the hub has neither."""

    shared: Shared
    plane: ControlPlane
    ports: Mapping[str, int]
    worker_lost_timeout_seconds: int | None  # set on the hub only

    @property
    def is_hub(self) -> bool:
        """Whether this is the cluster where workloads are submitted."""
        return self.worker_lost_timeout_seconds is not None

    def api(self) -> KubeApi:
        """A client of this cluster."""
        return KubeApi(self.plane.server_url, self.plane.token, self.shared.certificates.ca_pem)

    def run(self) -> None:
        """From nothing to a cluster whose Kueue and JobSet answer."""
        self._write_files()
        self._start_apiserver()
        with self.api() as api:
            api.apply(manifests.namespace("kueue-system"))
            self._apply_definitions(api)
            self._start_controllers()
            self._wait_for_managers()
            self._apply_webhooks(api)

    def _write_files(self) -> None:
        plane, shared = self.plane, self.shared
        plane.folder.mkdir(parents=True, exist_ok=True)
        content = manifests.kubeconfig(plane.name, plane.server_url, plane.token, shared.certificates.ca_pem)
        _write_private(plane.kubeconfig_path, yaml.safe_dump(content, sort_keys=False))
        _write_private(plane.token_path, f'{plane.token},fleet-admin,fleet-admin,"system:masters"\n')
        plane.audit_policy_path.write_text(yaml.safe_dump(controlplane.AUDIT_POLICY, sort_keys=False))
        folder = shared.certificates.folder
        kueue_ports = kueue.KueuePorts(self.ports["kueue_webhook"], self.ports["kueue_health"])
        kueue.write_configuration(
            plane.folder / "kueue.yaml",
            kueue.configuration(folder, kueue_ports, shared.frameworks, self.worker_lost_timeout_seconds),
        )
        jobset_ports = jobset.JobSetPorts(self.ports["jobset_webhook"], self.ports["jobset_health"])
        jobset.write_configuration(plane.folder / "jobset.yaml", jobset.configuration(folder, jobset_ports))
        kwok.write_stages(plane.folder / "stages.yaml")

    def _start_apiserver(self) -> None:
        shared = self.shared
        spec = controlplane.apiserver(
            shared.binaries.paths["kube-apiserver"], self.plane, shared.certificates, shared.etcd_port
        )
        shared.supervisor.start(spec)
        with self.api() as api:
            self._wait(spec.name, api.is_ready)

    def _apply_definitions(self, api: KubeApi) -> None:
        """Kueue exits when a CRD is not served yet, so wait for every one to be established."""
        shared = self.shared
        definitions = [
            *shared.kueue_data.for_loopback(self.ports["kueue_webhook"], shared.certificates.ca_pem),
            *shared.jobset_data.definitions,
        ]
        for definition in definitions:
            api.apply(definition)
        for definition in definitions:
            wait_for_condition(api, definition, "Established", READY_TIMEOUT_SECONDS)

    def _start_controllers(self) -> None:
        supervisor, paths, plane = self.shared.supervisor, self.shared.binaries.paths, self.plane
        supervisor.start(jobset.process(paths["jobset"], plane, plane.folder / "jobset.yaml"))
        supervisor.start(kueue.process(paths["kueue"], plane, plane.folder / "kueue.yaml", self.shared.certificates))
        supervisor.start(controlplane.controller_manager(paths["kube-controller-manager"], plane))
        if not self.is_hub:
            supervisor.start(controlplane.scheduler(paths["kube-scheduler"], plane))
            stages_path = plane.folder / "stages.yaml"
            supervisor.start(kwok.process(paths["kwok"], plane, stages_path, self.ports["kwok"]))

    def _wait_for_managers(self) -> None:
        name = self.plane.name
        self._wait(f"{name}-jobset", lambda: answers(self.ports["jobset_health"], "readyz"))
        self._wait(f"{name}-kueue", lambda: answers(self.ports["kueue_health"], "readyz"))
        if not self.is_hub:
            self._wait(f"{name}-kwok", lambda: answers(self.ports["kwok"], "healthz"))

    def _apply_webhooks(self, api: KubeApi) -> None:
        shared, ca_pem = self.shared, self.shared.certificates.ca_pem
        api.apply_all(shared.jobset_data.webhooks_for_loopback(self.ports["jobset_webhook"], ca_pem))
        api.apply_all(shared.kueue_data.webhooks_for_loopback(self.ports["kueue_webhook"], ca_pem))
        if self.is_hub:
            api.apply_all(shared.kueue_data.admission_policy)

    def _wait(self, process_name: str, check: Callable[[], bool]) -> None:
        """Wait for a process to answer, and fail at once with its log if it ends instead."""

        def alive_and_ready() -> bool:
            self.shared.supervisor.require_running(process_name)
            return check()

        log_path = self.shared.supervisor.log_path(process_name)
        wait_until(alive_and_ready, READY_TIMEOUT_SECONDS, f"{process_name} (log: {log_path})", 0.2)


def apply_nodes(api: KubeApi, nodes: Sequence[manifests.FleetNode]) -> None:
    """Register fake nodes; one that exists gets the new capacity and taints."""
    for node in nodes:
        manifest = manifests.node_manifest(node)
        try:
            api.request("POST", "/api/v1/nodes", manifest)
        except ApiRefusal as refusal:
            if refusal.status_code != 409:
                raise
            path = f"/api/v1/nodes/{node.name}"
            api.merge_patch(path, {"metadata": manifest["metadata"], "spec": manifest["spec"]})
            api.merge_patch(f"{path}/status", {"status": manifest["status"]})


def new_token() -> str:
    """A bearer token for one start of one apiserver."""
    return secrets.token_urlsafe(32)


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def answers(port: int, path: str) -> bool:
    """Whether a health endpoint on loopback says that all is well."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/{path}", timeout=3.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
