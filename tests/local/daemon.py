"""The daemon as a process of its own on the local fleet, and the few questions that tests ask of hub and workers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.builders import Manifest
from tests.fleet import LocalFleet
from tests.local.fleet_objects import CONFIG

ROOT = Path(__file__).resolve().parents[2]
GROUPS = {"Job": "apis/batch/v1", "JobSet": "apis/jobset.x-k8s.io/v1alpha2"}
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
LOOK_S = 0.25


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@dataclass(slots=True)
class Running:
    """A running daemon. `folder` holds its store and log, so that a second one can take over."""

    process: subprocess.Popen[bytes]
    server: str
    folder: Path

    def get(self, path: str) -> Any:
        answer = httpx.get(f"{self.server}{path}", timeout=10.0, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(timeout=10)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)

    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()


def launch(fleet: LocalFleet, folder: Path, blueprint: Path = CONFIG, kubeconfig: Path | None = None) -> Running:
    """Start `entrepot serve` on the fleet's hub and wait until it is ready."""
    running = spawn(fleet, folder, blueprint, kubeconfig)
    wait_for(lambda: is_ready(running), 60, lambda: running.log()[-3000:])
    return running


def spawn(
    fleet: LocalFleet, folder: Path, blueprint: Path = CONFIG, kubeconfig: Path | None = None, more: Sequence[str] = ()
) -> Running:
    """The same without waiting for anything, and with `more` options."""
    folder.mkdir(parents=True, exist_ok=True)
    listen = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "dispatcher.cli.main", "serve", "--blueprint", str(blueprint)]
    command += ["--store", str(folder / "entrepot.db"), "--listen", listen]
    command += ["--kubeconfig", str(kubeconfig or fleet.daemon_kubeconfig_path), *more]
    with (folder / "daemon.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=environment())
    return Running(process, f"http://{listen}", folder)


def environment() -> dict[str, str]:
    """That of the tests, with bytecode: an installed daemon has it, and compiling would be a third of each start."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


@contextlib.contextmanager
def daemon(fleet: LocalFleet, folder: Path, blueprint: Path = CONFIG) -> Iterator[Running]:
    running = launch(fleet, folder, blueprint)
    try:
        yield running
    finally:
        running.stop()


def is_ready(running: Running) -> bool:
    assert running.process.poll() is None, running.log()[-3000:]
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{running.server}/readyz", timeout=5.0, trust_env=False).status_code == 200
    return False


def wait_for(done: Callable[[], bool], within_s: float, tell: Callable[[], object] = lambda: "") -> float:
    """Poll until `done`; returns the seconds it took, fails with what `tell` says."""
    started = time.monotonic()
    while not done():
        passed = time.monotonic() - started
        assert passed < within_s, f"did not happen within {within_s} s: {tell()}"
        time.sleep(LOOK_S)
    return time.monotonic() - started


@dataclass(slots=True)
class Hub:
    """The hub (and its workers) through plain API calls, as `kubectl` would make them."""

    fleet: LocalFleet

    def create(self, manifest: Manifest) -> None:
        with self.fleet.hub.api() as api:
            api.request("POST", self._path(manifest), manifest)

    def delete(self, manifest: Manifest) -> None:
        with self.fleet.hub.api() as api:
            path = f"{self._path(manifest)}/{manifest['metadata']['name']}"
            api.request("DELETE", path, {"propagationPolicy": "Background"})

    def _path(self, manifest: Manifest) -> str:
        kind = manifest["kind"]
        return f"/{GROUPS[kind]}/namespaces/{manifest['metadata']['namespace']}/{kind.lower()}s"

    def workloads(self, namespace: str) -> dict[str, dict[str, Any]]:
        """Hub Workloads by the name of their job."""
        with self.fleet.hub.api() as api:
            items = api.request("GET", f"{KUEUE}/namespaces/{namespace}/workloads")["items"]
        owned = [
            (item["metadata"].get("ownerReferences") or [{"name": item["metadata"]["name"]}], item) for item in items
        ]
        return {owners[0]["name"]: item for owners, item in owned}

    def copies(self, namespace: str) -> dict[str, list[str]]:
        """Clusters that hold a copy, by Workload name."""
        found: dict[str, list[str]] = {}
        for name, endpoint in sorted(self.fleet.workers.items()):
            with endpoint.api() as api:
                for item in api.request("GET", f"{KUEUE}/namespaces/{namespace}/workloads")["items"]:
                    found.setdefault(item["metadata"]["name"], []).append(name)
        return found

    def events(self, workload: dict[str, Any]) -> list[dict[str, Any]]:
        """Entrepot's Events on a Workload; Kueue writes some of its own."""
        namespace, uid = workload["metadata"]["namespace"], workload["metadata"]["uid"]
        with self.fleet.hub.api() as api:
            items = api.request("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        ours = [item for item in items if item.get("source", {}).get("component") == "entrepot"]
        return [item for item in ours if item["involvedObject"].get("uid") == uid]

    def finished(self, namespace: str, names: list[str]) -> bool:
        found = self.workloads(namespace)
        return all(name in found and condition(found[name], "Finished") for name in names)


def condition(workload: dict[str, Any], kind: str) -> bool:
    conditions = workload.get("status", {}).get("conditions", [])
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def run(hub: Hub, running: Running, manifests: list[dict[str, Any]], within_s: float) -> dict[str, list[str]]:
    """Submit, wait for all to finish on the hub; returns where copies were ever seen, by Workload name."""
    for manifest in manifests:
        hub.create(manifest)
    wanted: dict[str, list[str]] = {}
    for manifest in manifests:
        wanted.setdefault(manifest["metadata"]["namespace"], []).append(manifest["metadata"]["name"])
    seen: dict[str, set[str]] = {}

    def done() -> bool:
        for namespace in wanted:
            for name, clusters in hub.copies(namespace).items():
                seen.setdefault(name, set()).update(clusters)
        return all(hub.finished(namespace, names) for namespace, names in wanted.items())

    wait_for(done, within_s, lambda: running.log()[-2000:])
    return {name: sorted(clusters) for name, clusters in seen.items()}


def audited(running: Running) -> list[dict[str, Any]]:
    """What its audit log holds, by the command of operators; it must verify."""
    command = [sys.executable, "-m", "dispatcher.cli.main", "policy", "audit", "--store"]
    store = str(running.folder / "entrepot.db")

    def ask(*more: str) -> str:
        return subprocess.run(
            [*command, store, *more],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment(),
            timeout=60,
        ).stdout

    assert ask("--verify").startswith("good: ")
    return [json.loads(line)["entry"] for line in ask().splitlines()]


def decided(running: Running, namespace: str, job: str) -> dict[str, Any]:
    found: dict[str, Any] = running.get(f"/v1/why/{namespace}/{job}")
    return found
