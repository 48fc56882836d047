"""The daemon's own accounts on a fleet: deploy's RBAC on hub and workers, tokens for its ServiceAccounts, kubeconfigs.

Every fleet gets them at its start, so that no test and no demo runs the daemon as cluster administrator. The manifests
are those of `deploy/`, unchanged but for the names of the workers' Secrets, which are those of the fleet at hand.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.fleet import manifests
from tests.fleet.api import KubeApi

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
HUB_FILES = ("hub/namespace.yaml", "hub/rbac.yaml", "hub/worker-access.yaml", "any-hub/rbac.yaml")
"""With the component that lets the daemon find out how Kueue writes: some fleets run without the clearing policy."""
WORKER_FILES = ("worker/rbac.yaml",)
NAMESPACE = "entrepot-system"
DAEMON = "entrepot"
"""ServiceAccount of the daemon on the hub."""
READER = "entrepot-reader"
"""ServiceAccount of the daemon on a worker."""
WORKER_ACCESS = "entrepot-worker-access"
"""The Role that names the Secrets with the workers' kubeconfigs."""
TOKEN_SECONDS = 7 * 24 * 3600  # a fleet of `make fleet-up` lives until it is taken down

Manifest = dict[str, Any]


class Reachable(Protocol):
    """A cluster as its administrator sees it."""

    @property
    def name(self) -> str: ...
    @property
    def server_url(self) -> str: ...
    @property
    def ca_pem(self) -> bytes: ...
    def api(self) -> KubeApi: ...


def hub_manifests(clusters: Sequence[str]) -> list[Manifest]:
    """deploy's RBAC of the hub, for these workers."""
    found = _load(HUB_FILES)
    role = next(m for m in found if m["kind"] == "Role" and m["metadata"]["name"] == WORKER_ACCESS)
    role["rules"][0]["resourceNames"] = [secret_name(cluster) for cluster in clusters]
    return found


def worker_manifests() -> list[Manifest]:
    """deploy's RBAC of a worker."""
    return _load(WORKER_FILES)


def stopper_manifests() -> list[Manifest]:
    """deploy's RBAC for workers that let the daemon stop surplus copies; no fleet has it of its own."""
    return _load(("worker-stop/rbac.yaml",))


def secret_name(cluster: str) -> str:
    """The Secret of the hub with the daemon's own kubeconfig of a worker."""
    return f"{cluster}-entrepot"


def user_name(account: str) -> str:
    """The name under which an apiserver knows a ServiceAccount of ours."""
    return f"system:serviceaccount:{NAMESPACE}:{account}"


def install(hub: Reachable, workers: Mapping[str, Reachable], kubeconfig_path: Path) -> None:
    """Apply deploy's RBAC everywhere, give the hub the daemon's Secrets, write the daemon's kubeconfig of the hub."""
    with hub.api() as hub_api:
        hub_api.apply_all(hub_manifests(sorted(workers)))
        for name, worker in workers.items():
            with worker.api() as worker_api:
                worker_api.apply_all(worker_manifests())
                token = mint(worker_api, READER)
            content = manifests.kubeconfig(name, worker.server_url, token, worker.ca_pem, READER)
            hub_api.apply(access_secret(name, content))
        token = mint(hub_api, DAEMON)
    write_kubeconfig(kubeconfig_path, manifests.kubeconfig(hub.name, hub.server_url, token, hub.ca_pem, DAEMON))


def mint(api: KubeApi, account: str, seconds: int = TOKEN_SECONDS) -> str:
    """A token for a ServiceAccount of ours, by the TokenRequest API. At least ten minutes, says the API."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds},
    }
    token: str = api.request("POST", path, body)["status"]["token"]
    return token


def access_secret(cluster: str, kubeconfig: Mapping[str, Any]) -> Manifest:
    """The hub's Secret with which the daemon reads a worker."""
    content = yaml.safe_dump(dict(kubeconfig))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(cluster), "namespace": NAMESPACE},
        "type": "Opaque",
        "data": {"kubeconfig": base64.b64encode(content.encode()).decode()},
    }


def write_kubeconfig(path: Path, content: Mapping[str, Any]) -> Path:
    """A kubeconfig that only its owner may read."""
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False))
    return path


def _load(names: Sequence[str]) -> list[Manifest]:
    return [copy.deepcopy(document) for name in names for document in manifests.load_all(DEPLOY / name)]
