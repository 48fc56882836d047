"""A daemon that reaches hub and workers through proxies only, with short limits: what the tests of faults run on."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.builders import Manifest
from tests.fleet import LocalFleet, manifests, rbac
from tests.fleet.fleet import Endpoint
from tests.local.daemon import KUEUE, Hub, Running, condition, launch, wait_for
from tests.local.fleet_objects import CONFIG
from tests.local.proxy import Proxies, proxies

NAMESPACE = "autonomy"
SILENCE_S = 8
"""`limits.silence_limit` of these daemons."""
GRACE_S = 4.0
"""What a busy machine may take on top of a limit."""
LOOK_S = 0.03
CONNECTED = "connected"


@dataclass(slots=True)
class Bed:
    """One daemon behind proxies, and the questions that tests of faults ask."""

    fleet: LocalFleet
    proxies: Proxies
    hub: Hub
    running: Running
    folder: Path

    def cluster(self, name: str) -> dict[str, Any]:
        """A cluster as the daemon shows it: `entrepot clusters`."""
        items = self.running.get("/v1/clusters")["items"]
        found: dict[str, Any] = next(item for item in items if item["name"] == name)
        return found

    def link(self, name: str) -> str:
        return str(self.cluster(name)["link"])

    def lost(self, name: str) -> bool:
        return self.link(name) != CONNECTED

    def wait_connected(self, *names: str, within_s: float = 30.0) -> float:
        return wait_for(lambda: not any(map(self.lost, names)), within_s, self.tell)

    def wait_lost(self, name: str) -> float:
        """Until the cluster is no longer taken as connected; must be within the silence limit."""
        return wait_for(lambda: self.lost(name), SILENCE_S + GRACE_S, self.tell)

    def tell(self) -> str:
        """What a failed wait shows."""
        states = [(c["name"], c["link"], c["text"]) for c in self.running.get("/v1/clusters")["items"]]
        return f"{states}\n{self.running.log()[-3000:]}"

    def placed(self, job: str) -> list[str]:
        """Clusters that a job is nominated to, or runs on."""
        status = self.hub.workloads(NAMESPACE).get(job, {}).get("status", {})
        return [status["clusterName"]] if status.get("clusterName") else list(status.get("nominatedClusterNames", []))

    def latencies(self, jobs: Sequence[Manifest], within_s: float = 30.0) -> list[float]:
        """Submit one by one; seconds from each submission until the hub shows a cluster for it."""
        found = []
        for manifest in jobs:
            name = manifest["metadata"]["name"]
            started = time.monotonic()
            self.hub.create(manifest)
            while not self.placed(name):
                assert time.monotonic() - started < within_s, f"{name} got no cluster: {self.tell()}"
                time.sleep(LOOK_S)
            found.append(time.monotonic() - started)
        return found

    def why(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.running.get(f"/v1/why/{NAMESPACE}/{job}")
        return found

    def runs_on(self, job: str, cluster: str) -> dict[str, Any] | None:
        """The copy of a job on a worker, once it is admitted there; asked of the worker itself."""
        workload = self.hub.workloads(NAMESPACE).get(job)
        if workload is None:
            return None
        with self.fleet.workers[cluster].api() as api:
            copy = api.get(f"{KUEUE}/namespaces/{NAMESPACE}/workloads/{workload['metadata']['name']}")
        return copy if copy is not None and condition(copy, "Admitted") else None

    def settle(self, jobs: Sequence[Manifest], within_s: float = 60.0) -> None:
        """Wait until these have finished on the hub."""
        names = [m["metadata"]["name"] for m in jobs]
        wait_for(lambda: self.hub.finished(NAMESPACE, names), within_s, self.tell)

    def remove(self, *jobs: Manifest) -> None:
        for manifest in jobs:
            self.hub.delete(manifest)
        names = [m["metadata"]["name"] for m in jobs]
        wait_for(lambda: not set(names) & set(self.hub.workloads(NAMESPACE)), 60, self.tell)

    def credentials(self, cluster: str) -> Path:
        """The kubeconfig file by which the daemon reaches a worker."""
        return self.folder / f"{cluster}.kubeconfig"

    def give_access(self, cluster: str, token: str) -> None:
        """Write a worker's kubeconfig: the proxy's address, this token. Replaced in one step, as a rotation does."""
        endpoint, proxy = self.fleet.workers[cluster], self.proxies[cluster]
        write_access(self.credentials(cluster), endpoint, proxy.server_url, token)


def write_access(path: Path, endpoint: Endpoint, server_url: str, token: str) -> None:
    content = manifests.kubeconfig(endpoint.name, server_url, token, endpoint.ca_pem, rbac.READER)
    part = path.with_suffix(".part")
    rbac.write_kubeconfig(part, content)
    part.replace(path)


@contextlib.contextmanager
def behind_proxies(fleet: LocalFleet, folder: Path) -> Iterator[tuple[Proxies, Path, Path]]:
    """Proxies before hub and workers; the blueprint and the hub's kubeconfig that lead through them."""
    targets = {end.name: urlsplit(end.server_url).port or 0 for end in (fleet.hub, *fleet.workers.values())}
    with proxies(targets) as found:
        for name, endpoint in fleet.workers.items():
            with endpoint.api() as api:
                token = rbac.mint(api, rbac.READER)
            write_access(folder / f"{name}.kubeconfig", endpoint, found[name].server_url, token)
        hub_config = yaml.safe_load(fleet.daemon_kubeconfig_path.read_text())
        hub_config["clusters"][0]["cluster"]["server"] = found["hub"].server_url
        kubeconfig = rbac.write_kubeconfig(folder / "hub.kubeconfig", hub_config)
        yield found, kubeconfig, blueprint(folder, sorted(fleet.workers))


def blueprint(folder: Path, workers: Sequence[str]) -> Path:
    """The example blueprint with a short silence limit and the workers' kubeconfigs in files of `folder`."""
    made = folder / "blueprint"
    shutil.copytree(CONFIG, made)
    text = (made / "fleet.yaml").read_text()
    for name in workers:
        secret = f"{{secret: entrepot-system/{name}-entrepot}}"
        assert secret in text
        text = text.replace(secret, f"{{file: {folder / f'{name}.kubeconfig'}}}")
    assert "silence_limit: PT60S" in text
    (made / "fleet.yaml").write_text(text.replace("silence_limit: PT60S", f"silence_limit: PT{SILENCE_S}S"))
    return made


@contextlib.contextmanager
def bed(fleet: LocalFleet, folder: Path) -> Iterator[Bed]:
    """A daemon of its own behind proxies, with every worker connected."""
    folder.mkdir(parents=True, exist_ok=True)
    with behind_proxies(fleet, folder) as (found, kubeconfig, made):
        running = launch(fleet, folder / "daemon", made, kubeconfig)
        try:
            made_bed = Bed(fleet, found, Hub(fleet), running, folder)
            made_bed.wait_connected(*fleet.workers)
            yield made_bed
        finally:
            found.mend()
            running.stop()


def median_ratio(during: Sequence[float], before: Sequence[float]) -> float:
    return statistics.median(during) / statistics.median(before)


def no_slower(during: Sequence[float], before: Sequence[float]) -> bool:
    """Whether nominations elsewhere keep their pace beside a bad cluster, by medians. Two busy cores scatter by what is
    allowed here; a wait for the bad one would show as seconds."""
    return statistics.median(during) <= 2 * statistics.median(before) + 0.5


def revocable_token(endpoint: Endpoint, name: str) -> str:
    """A token that is void once the Secret `name` in entrepot-system is deleted: how a token is revoked."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": rbac.NAMESPACE}}
    with endpoint.api() as api:
        made = api.apply({**secret, "stringData": {"for": base64.b64encode(b"a test").decode()}})
        bound = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": made["metadata"]["uid"]}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600, "boundObjectRef": bound},
        }
        path = f"/api/v1/namespaces/{rbac.NAMESPACE}/serviceaccounts/{rbac.READER}/token"
        token: str = api.request("POST", path, body)["status"]["token"]
    return token


def revoke(endpoint: Endpoint, name: str) -> None:
    with endpoint.api() as api:
        api.request("DELETE", f"/api/v1/namespaces/{rbac.NAMESPACE}/secrets/{name}")


def tries(fleet: LocalFleet, workloads: Sequence[str]) -> dict[str, list[int]]:
    """What the hub answered to each attempt of the daemon to nominate, by Workload, in order: its audit log."""
    found: dict[str, list[int]] = {name: [] for name in workloads}
    for line in fleet.audit_lines("hub"):
        if '"subresource":"status"' not in line or '"verb":"patch"' not in line:
            continue
        entry = json.loads(line)
        name = entry["objectRef"].get("name", "")
        if name in found and entry["user"]["username"] == rbac.user_name(rbac.DAEMON):
            found[name].append(int(entry["responseStatus"]["code"]))
    return found


def made_twice(fleet: LocalFleet, workloads: Sequence[str]) -> dict[str, list[int]]:
    """The Workloads whose nomination was written more than once, with what the hub answered. After a kill of the
    apiserver no more can be asked: a write that it made just before stands in no audit log."""
    return {name: codes for name, codes in tries(fleet, workloads).items() if codes.count(200) > 1}


def made_once(fleet: LocalFleet, workloads: Sequence[str]) -> dict[str, list[int]]:
    """The Workloads whose nomination was not written exactly once, with what the hub answered."""
    return {name: codes for name, codes in tries(fleet, workloads).items() if codes.count(200) != 1}
