"""A real fleet on loopback: a hub and workers with etcd, apiservers, Kueue, JobSet and KWOK as plain processes."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

from tests.fleet import binaries, certificates, controlplane, jobset, kueue, manifests, rbac
from tests.fleet.api import ApiRefusal, KubeApi, wait_for_condition
from tests.fleet.bringup import PORT_NAMES, ClusterStart, Shared, answers, apply_nodes, new_token
from tests.fleet.controlplane import ControlPlane
from tests.fleet.manifests import FleetCluster, FleetNode
from tests.fleet.processes import (
    FleetError,
    SupervisorClient,
    end_recorded,
    free_ports,
    is_alive,
    read_json,
    wait_until,
    write_json,
)

HUB_NAME = "hub"
FLEET_FILE = "fleet.json"
STATE_VERSION = 1
CLUSTER_ACTIVE_TIMEOUT_SECONDS = 60.0
OWN_FOLDERS = ("etcd", "clusters", "certificates", "logs")
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach one cluster as its administrator."""

    name: str
    server_url: str
    token: str
    ca_pem: bytes
    kubeconfig_path: Path

    def api(self) -> KubeApi:
        """A small client; close it, or use it in a `with` block."""
        return KubeApi(self.server_url, self.token, self.ca_pem)


class LocalFleet:
    """A running fleet. It ends with the process that started it, unless it was started detached."""

    def __init__(
        self, directory: Path, supervisor: SupervisorClient, hub: Endpoint, workers: Mapping[str, Endpoint]
    ) -> None:
        self.directory = directory
        self.hub = hub
        self.workers = dict(workers)
        self._supervisor = supervisor

    @classmethod
    def start(
        cls,
        directory: Path,
        hub_objects: Sequence[Mapping[str, Any]],
        clusters: Sequence[FleetCluster],
        *,
        detached: bool = False,
        log: Log = lambda line: None,
        worker_lost_timeout_seconds: int = 30,
        frameworks: Sequence[str] = kueue.FRAMEWORKS,
    ) -> LocalFleet:
        """Start a hub and one worker for each of `clusters`, apply everything, wait until MultiKueue is connected.

        Raises FleetError, with the end of the log concerned, if a part does not come up; nothing is left running.
        """
        names = [cluster.name for cluster in clusters]
        if len(set(names)) != len(names) or HUB_NAME in names:
            raise FleetError(f"cluster names must differ from each other and from {HUB_NAME!r}: {names}")
        directory = directory.resolve()
        found = binaries.ensure(log)
        supervisor = SupervisorClient.launch(directory)
        try:
            starts = _prepare(directory, supervisor, found, names, worker_lost_timeout_seconds, frameworks)
            _bring_up(starts, hub_objects, clusters, log)
            endpoints = {name: _endpoint(start) for name, start in starts.items()}
            fleet = cls(directory, supervisor, endpoints.pop(HUB_NAME), endpoints)
            rbac.install(fleet.hub, fleet.workers, fleet.daemon_kubeconfig_path)
            _write_state(directory, starts)
            if detached:
                supervisor.detach()
        except BaseException:
            supervisor.shutdown(grace_seconds=0.5)
            raise
        return fleet

    @classmethod
    def attach(cls, directory: Path) -> LocalFleet:
        """The fleet that runs in `directory`, started by somebody else. Raises FleetError if there is none."""
        directory = directory.resolve()
        state = read_json(directory / FLEET_FILE)
        if state is None or not is_running(directory):
            raise FleetError(f"no fleet runs in {directory}: start one with `python -m tests.fleet up`")
        ca_pem = (directory / "certificates" / "ca.crt").read_bytes()
        endpoints = {
            name: Endpoint(name, entry["server_url"], entry["token"], ca_pem, Path(entry["kubeconfig"]))
            for name, entry in state["clusters"].items()
        }
        return cls(directory, SupervisorClient(directory), endpoints.pop(HUB_NAME), endpoints)

    @property
    def daemon_kubeconfig_path(self) -> Path:
        """The hub's kubeconfig for the daemon: its own ServiceAccount with deploy's RBAC, not the administrator."""
        return self.directory / "clusters" / HUB_NAME / "entrepot.kubeconfig"

    def audit_lines(self, name: str) -> list[str]:
        """What ServiceAccounts asked of a cluster's apiserver, one JSON object a line, oldest first. The apiserver sets
        a file that has grown large aside under a name with its time."""
        folder = self.directory / "clusters" / name
        files = [*sorted(folder.glob("audit-*.log")), folder / "audit.log"]
        return [line for path in files for line in path.read_text().splitlines()]

    def stop(self) -> None:
        """End every process of the fleet. Logs stay in its directory, data do not outlive the next start."""
        self._supervisor.shutdown()
        (self.directory / FLEET_FILE).unlink(missing_ok=True)

    def __enter__(self) -> LocalFleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop_worker(self, name: str, how: Literal["kill", "freeze"] = "kill") -> None:
        """Make a worker unreachable: connections are refused ("kill") or hang without an answer ("freeze")."""
        number = signal.SIGKILL if how == "kill" else signal.SIGSTOP
        self._supervisor.signal(self._apiserver_of(name), number)

    def start_worker(self, name: str, timeout_seconds: float = 60.0) -> None:
        """Make a stopped worker reachable again, and wait until its apiserver serves."""
        process = self._apiserver_of(name)
        if self._supervisor.processes()[process]["exit_code"] is None:
            self._supervisor.signal(process, signal.SIGCONT)
        else:
            self._supervisor.restart(process)
        with self.workers[name].api() as api:
            wait_until(api.is_ready, timeout_seconds, f"the apiserver of {name}")

    def restart_kueue(self, name: str, gates: Mapping[str, bool], timeout_seconds: float = 60.0) -> None:
        """Start the Kueue of the hub or of a worker anew, with these feature gates beside the fleet's own."""
        state = read_json(self.directory / FLEET_FILE) or {}
        health = state["clusters"][name]["ports"]["kueue_health"]
        process = f"{name}-kueue"
        kueue.with_gates(self.directory / "clusters" / name / "kueue.yaml", gates)
        self._supervisor.signal(process, signal.SIGKILL)
        self._supervisor.restart(process)
        wait_until(lambda: answers(health, "readyz"), timeout_seconds, f"{process} to be ready again")

    def restart_apiserver(self, name: str, timeout_seconds: float = 60.0) -> None:
        """Kill the apiserver of the hub or of a worker and start it again at once; returns when it serves."""
        process = f"{name}-apiserver"
        self._supervisor.signal(process, signal.SIGKILL)
        self._supervisor.restart(process)
        endpoint = self.hub if name == HUB_NAME else self.workers[name]
        with endpoint.api() as api:
            wait_until(api.is_ready, timeout_seconds, f"the apiserver of {name}")

    def end_process(self, process_name: str) -> None:
        """End one process of the fleet for good, such as "hub-kueue"."""
        self._supervisor.signal(process_name, signal.SIGKILL)

    @contextlib.contextmanager
    def frozen(self, process_name: str) -> Iterator[None]:
        """One process of the fleet, such as "worker-1-kueue", stands still meanwhile."""
        self._supervisor.signal(process_name, signal.SIGSTOP)
        try:
            yield
        finally:
            self._supervisor.signal(process_name, signal.SIGCONT)

    def _apiserver_of(self, worker: str) -> str:
        if worker not in self.workers:
            raise FleetError(f"no worker {worker!r}, there are {sorted(self.workers)}")
        return f"{worker}-apiserver"

    def add_nodes(self, cluster: str, nodes: Sequence[FleetNode]) -> None:
        """Register fake nodes with a worker, or change the capacity of some that it has."""
        with self.workers[cluster].api() as api:
            apply_nodes(api, nodes)

    def remove_nodes(self, cluster: str, node_names: Sequence[str]) -> None:
        """Take nodes away, as a cloud takes back a spot machine; their pods are deleted by the fleet."""
        with self.workers[cluster].api() as api:
            for name in node_names:
                api.request("DELETE", f"/api/v1/nodes/{name}")
                pods = api.request("GET", "/api/v1/pods", fieldSelector=f"spec.nodeName={name}")["items"]
                for pod in pods:
                    metadata = pod["metadata"]
                    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
                    try:
                        api.request("DELETE", path, {"gracePeriodSeconds": 0})
                    except ApiRefusal as refusal:
                        if refusal.status_code != HTTPStatus.NOT_FOUND:  # its Job went meanwhile, and took it along
                            raise

    def cordon(self, cluster: str, node_name: str, cordoned: bool = True) -> None:
        """Mark a node unschedulable, or schedulable again."""
        with self.workers[cluster].api() as api:
            api.merge_patch(f"/api/v1/nodes/{node_name}", {"spec": {"unschedulable": cordoned}})

    def log_path(self, process_name: str) -> Path:
        """The log of a process, such as "hub-kueue" or "worker-1-apiserver"."""
        return self._supervisor.log_path(process_name)

    def memory_bytes(self) -> dict[str, int]:
        """Memory of every running process by name, shared pages counted once in the sum."""
        return memory_bytes(self._supervisor.processes())


def is_running(directory: Path) -> bool:
    """Whether a supervisor runs a fleet in this directory."""
    state = read_json(directory / "supervisor.json")
    return state is not None and is_alive(state["supervisor"])


def end(directory: Path) -> list[str]:
    """End the fleet of a directory, whoever started it; the names of the processes that ran."""
    ended = end_recorded(directory.resolve())
    (directory / FLEET_FILE).unlink(missing_ok=True)
    return ended


def memory_bytes(processes: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Memory by process name; pages that several share, such as a program's text, are counted once in the sum."""
    result: dict[str, int] = {}
    for name, process in processes.items():
        try:
            rollup = Path(f"/proc/{process['pid']}/smaps_rollup").read_text()
        except OSError:
            continue
        kilobytes = [line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")]
        if kilobytes and is_alive(process):
            result[name] = int(kilobytes[0]) * 1024
    return result


def _prepare(
    directory: Path,
    supervisor: SupervisorClient,
    found: binaries.Binaries,
    worker_names: Sequence[str],
    worker_lost_timeout_seconds: int,
    frameworks: Sequence[str],
) -> dict[str, ClusterStart]:
    """Clean the directory, issue certificates, choose ports, start etcd; then each cluster can come up."""
    (directory / FLEET_FILE).unlink(missing_ok=True)
    for folder in OWN_FOLDERS:
        if folder != "logs":
            shutil.rmtree(directory / folder, ignore_errors=True)
    for old_log in (directory / "logs").glob("*.log"):
        if old_log.name != "supervisor.log":
            old_log.unlink()
    names = [HUB_NAME, *worker_names]
    ports = iter(free_ports(2 + len(PORT_NAMES) * len(names)))
    etcd_port, etcd_peer_port = next(ports), next(ports)
    supervisor.start(controlplane.etcd(found.paths["etcd"], directory / "etcd", etcd_port, etcd_peer_port))
    shared = Shared(
        supervisor,
        found,
        certificates.issue(directory / "certificates"),
        etcd_port,
        kueue.KueueData.load(found.data_folders["kueue"]),
        jobset.JobSetData.load(found.data_folders["jobset"]),
        frameworks,
    )
    starts: dict[str, ClusterStart] = {}
    for name in names:
        own_ports = {port_name: next(ports) for port_name in PORT_NAMES}
        plane = ControlPlane(name, directory / "clusters" / name, own_ports["apiserver"], new_token())
        timeout_seconds = worker_lost_timeout_seconds if name == HUB_NAME else None
        starts[name] = ClusterStart(shared, plane, own_ports, timeout_seconds)
    return starts


def _bring_up(
    starts: Mapping[str, ClusterStart],
    hub_objects: Sequence[Mapping[str, Any]],
    clusters: Sequence[FleetCluster],
    log: Log,
) -> None:
    """Clusters come up side by side; the first failure ends the others by way of the supervisor."""
    started = time.monotonic()
    by_name = {cluster.name: cluster for cluster in clusters}

    def one(name: str) -> None:
        start = starts[name]
        start.run()
        if name in by_name:
            with start.api() as api:
                api.apply_all(by_name[name].objects)
                apply_nodes(api, by_name[name].nodes)
        log(f"{name}: ready ({time.monotonic() - started:.0f} s)")

    log(f"starting {len(starts)} clusters: {', '.join(starts)}")
    with ThreadPoolExecutor(max_workers=len(starts)) as pool:
        futures: list[Future[None]] = [pool.submit(one, name) for name in starts]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            starts[HUB_NAME].shared.supervisor.shutdown(grace_seconds=0.5)
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    _connect(starts, hub_objects)
    log(f"fleet: ready ({time.monotonic() - started:.0f} s)")


def _connect(starts: Mapping[str, ClusterStart], hub_objects: Sequence[Mapping[str, Any]]) -> None:
    """Give the hub the workers' kubeconfigs, then the rendered objects, and wait for the connections."""
    hub = starts[HUB_NAME]
    with hub.api() as api:
        for name, start in starts.items():
            if name != HUB_NAME:
                plane = start.plane
                content = manifests.kubeconfig(name, plane.server_url, plane.token, hub.shared.certificates.ca_pem)
                api.apply(manifests.kubeconfig_secret(name, content))
        api.apply_all(hub_objects)
        for manifest in hub_objects:
            if manifest["kind"] == "MultiKueueCluster":
                wait_for_condition(api, manifest, "Active", CLUSTER_ACTIVE_TIMEOUT_SECONDS)
    for name, process in hub.shared.supervisor.processes().items():
        if process["exit_code"] is not None:
            hub.shared.supervisor.require_running(name)


def _endpoint(start: ClusterStart) -> Endpoint:
    plane = start.plane
    return Endpoint(plane.name, plane.server_url, plane.token, start.shared.certificates.ca_pem, plane.kubeconfig_path)


def _write_state(directory: Path, starts: Mapping[str, ClusterStart]) -> None:
    """What `attach`, `status` and `kubeconfig` read."""
    hub = starts[HUB_NAME]
    content = {
        "version": STATE_VERSION,
        "etcd_port": hub.shared.etcd_port,
        "clusters": {
            name: {
                "server_url": start.plane.server_url,
                "token": start.plane.token,
                "kubeconfig": str(start.plane.kubeconfig_path),
                "ports": dict(start.ports),
            }
            for name, start in starts.items()
        },
    }
    write_json(directory / FLEET_FILE, content)
