"""The kind fleet as data: every file and every command line, made by pure functions.

The differences to the processes on loopback are few. Controllers are the upstream releases inside the clusters, with
their own certificates; the hub reaches a worker by the name of its container; real nodes stand beside the fake ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.fleet import kueue, kwok, manifests, rbac
from tests.fleet.api import KIND_ORDER
from tests.fleet.manifests import FleetCluster

HUB_NAME = "hub"
CLUSTER_PREFIX = "entrepot-"
RELEASES = "https://github.com/kubernetes-sigs"
KUEUE_RELEASE = f"{RELEASES}/kueue/releases/download/v0.19.2"
JOBSET_RELEASE = f"{RELEASES}/jobset/releases/download/v0.12.0"
KWOK_RELEASE = f"{RELEASES}/kwok/releases/download/v0.8.0"
ROLLOUT_TIMEOUT = "--timeout=300s"


@dataclass(frozen=True, slots=True)
class Step:
    """One command. Its input is `stdin`, or, for the hub's Secrets of a worker, made from that worker's kubeconfig:
    MultiKueue's with the address that the hub's container sees, the daemon's with the one that this machine sees."""

    title: str
    argv: Sequence[str]
    stdin: str = ""
    secret_for_worker: str = ""
    access_for_worker: str = ""


def kind_name(cluster: str) -> str:
    """The name of a cluster in kind; the prefix keeps `down` away from other people's clusters."""
    return CLUSTER_PREFIX + cluster


def kubeconfig_path(directory: Path, cluster: str) -> Path:
    """Where kind writes the kubeconfig for use from outside the containers."""
    return directory / f"{cluster}.kubeconfig"


def daemon_kubeconfig_path(directory: Path) -> Path:
    """The hub's kubeconfig for the daemon: its own ServiceAccount with deploy's RBAC."""
    return directory / "entrepot.kubeconfig"


def cluster_config(cluster: str) -> dict[str, Any]:
    """A kind cluster of one node: the fake nodes come later."""
    return {
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "kind": "Cluster",
        "name": kind_name(cluster),
        "nodes": [{"role": "control-plane"}],
    }


def kueue_configuration(worker_lost_timeout_seconds: int | None) -> dict[str, Any]:
    """Kueue's settings inside a cluster: its own certificates, otherwise those of the loopback fleet."""
    content: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True},
        "clientConnection": {"qps": kueue.QUERIES_PER_SECOND, "burst": kueue.QUERY_BURST},
        "integrations": {"frameworks": list(kueue.FRAMEWORKS)},
    }
    if worker_lost_timeout_seconds is not None:
        content["multiKueue"] = kueue.multikueue_configuration(worker_lost_timeout_seconds)
    return content


def kueue_config_map(worker_lost_timeout_seconds: int | None) -> dict[str, Any]:
    """The ConfigMap from which the released Kueue reads its settings."""
    text = yaml.safe_dump(kueue_configuration(worker_lost_timeout_seconds), sort_keys=False)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
        "data": {"controller_manager_config.yaml": text},
    }


def to_yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    """Documents in an order in which references resolve."""
    ranked = sorted(
        documents, key=lambda item: KIND_ORDER.index(item["kind"]) if item["kind"] in KIND_ORDER else len(KIND_ORDER)
    )
    return yaml.safe_dump_all([dict(document) for document in ranked], sort_keys=False)


def up_steps(
    directory: Path,
    hub_objects: Sequence[Mapping[str, Any]],
    clusters: Sequence[FleetCluster],
    worker_lost_timeout_seconds: int = 30,
    node_image: str = "",
) -> list[Step]:
    """All commands of a start, in order: clusters, controllers, workers' objects and nodes, the hub last."""
    steps: list[Step] = []
    for name in (HUB_NAME, *(cluster.name for cluster in clusters)):
        timeout_seconds = worker_lost_timeout_seconds if name == HUB_NAME else None
        steps += [_create(directory, name, node_image), *_controllers(directory, name, timeout_seconds)]
    for cluster in clusters:
        kubectl = _kubectl(directory, cluster.name)
        steps.append(_apply(directory, cluster.name, "its rendered objects", cluster.objects))
        steps.append(_apply(directory, cluster.name, "the daemon's read-only account", rbac.worker_manifests()))
        nodes = to_yaml([manifests.node_manifest(node) for node in cluster.nodes])
        # create, not apply: only the first write of a Node may carry its capacity
        steps.append(Step(f"{cluster.name}: {len(cluster.nodes)} fake nodes", [*kubectl, "create", "-f", "-"], nodes))
    names = [cluster.name for cluster in clusters]
    steps.append(_apply(directory, HUB_NAME, "the daemon's account", rbac.hub_manifests(names)))
    for name in names:
        argv = [*_kubectl(directory, HUB_NAME), "apply", "--server-side", "-f", "-"]
        steps.append(Step(f"hub: kubeconfig of {name}", argv, secret_for_worker=name))
        steps.append(Step(f"hub: the daemon's kubeconfig of {name}", argv, access_for_worker=name))
    steps.append(_apply(directory, HUB_NAME, "its rendered objects", hub_objects))
    wait = ["wait", "--for=condition=Active", "multikueueclusters", "--all", ROLLOUT_TIMEOUT]
    steps.append(Step("hub: wait for the workers", [*_kubectl(directory, HUB_NAME), *wait]))
    return steps


def internal_kubeconfig_command(worker: str) -> list[str]:
    """Prints a kubeconfig whose address is the worker's container name, as the hub's container sees it."""
    return ["kind", "get", "kubeconfig", "--internal", "--name", kind_name(worker)]


def token_command(directory: Path, cluster: str, account: str) -> list[str]:
    """Prints a token of one of the daemon's ServiceAccounts."""
    options = ["--namespace", rbac.NAMESPACE, "--duration", f"{rbac.TOKEN_SECONDS}s"]
    return [*_kubectl(directory, cluster), "create", "token", account, *options]


def as_account(kubeconfig: Mapping[str, Any], account: str, token: str) -> dict[str, Any]:
    """The same cluster, reached as a ServiceAccount instead of its administrator."""
    name, cluster = "fleet", kubeconfig["clusters"][0]["cluster"]
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": account, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": account}}],
        "current-context": name,
    }


def down_command(existing: Sequence[str]) -> list[str] | None:
    """Deletes this fleet's clusters among those that exist."""
    own = [name for name in existing if name.startswith(CLUSTER_PREFIX)]
    return ["kind", "delete", "clusters", *own] if own else None


def _create(directory: Path, name: str, node_image: str) -> Step:
    argv = ["kind", "create", "cluster", "--config", "-", "--wait", "180s"]
    argv += ["--kubeconfig", str(kubeconfig_path(directory, name))]
    argv += ["--image", node_image] if node_image else []
    return Step(f"{name}: create the cluster", argv, yaml.safe_dump(cluster_config(name), sort_keys=False))


def _controllers(directory: Path, name: str, worker_lost_timeout_seconds: int | None) -> list[Step]:
    """JobSet before Kueue; all of them before the fake nodes, on which they would only seem to run."""
    kubectl = _kubectl(directory, name)
    apply = [*kubectl, "apply", "--server-side", "--force-conflicts", "-f"]
    steps = [
        Step(f"{name}: JobSet", [*apply, f"{JOBSET_RELEASE}/manifests.yaml"]),
        _rollout(kubectl, name, "jobset-system", "jobset-controller-manager"),
        Step(f"{name}: Kueue", [*apply, f"{KUEUE_RELEASE}/manifests.yaml"]),
        _apply(directory, name, "Kueue's configuration", [kueue_config_map(worker_lost_timeout_seconds)]),
        Step(
            f"{name}: restart Kueue with it",
            [*kubectl, "-n", "kueue-system", "rollout", "restart", "deployment/kueue-controller-manager"],
        ),
        _rollout(kubectl, name, "kueue-system", "kueue-controller-manager"),
    ]
    if worker_lost_timeout_seconds is not None:
        return [*steps, Step(f"{name}: admission policy", [*apply, f"{KUEUE_RELEASE}/workload-map.yaml"])]
    return [
        *steps,
        Step(f"{name}: KWOK", [*apply, f"{KWOK_RELEASE}/kwok.yaml"]),
        _rollout(kubectl, name, "kube-system", "kwok-controller"),
        _apply(directory, name, "KWOK's stages", kwok.stages()),
    ]


def _kubectl(directory: Path, name: str) -> list[str]:
    return ["kubectl", "--kubeconfig", str(kubeconfig_path(directory, name))]


def _apply(directory: Path, name: str, what: str, documents: Sequence[Mapping[str, Any]]) -> Step:
    argv = [*_kubectl(directory, name), "apply", "--server-side", "--force-conflicts", "-f", "-"]
    return Step(f"{name}: {what}", argv, to_yaml(documents))


def _rollout(kubectl: Sequence[str], name: str, in_namespace: str, deployment: str) -> Step:
    argv = [*kubectl, "-n", in_namespace, "rollout", "status", f"deployment/{deployment}", ROLLOUT_TIMEOUT]
    return Step(f"{name}: wait for {deployment}", argv)
