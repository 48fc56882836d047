"""Manifests that a fleet needs besides the blueprint's: pure functions from data to data.

Upstream manifests expect their controllers inside the cluster, behind Services. Here the controllers are processes on
loopback, so every webhook is pointed to a URL and given the fleet's CA.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SERVED_WEBHOOK_GROUPS = frozenset({"batch", "kueue.x-k8s.io", "jobset.x-k8s.io"})
CONVERTED_PLURALS = frozenset({"localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters"})
SYSTEM_NAMESPACES = ("kube-system", "kueue-system")
FAKE_NODE_ANNOTATION = "kwok.x-k8s.io/node"


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A fake node. `capacity` holds Kubernetes quantities, such as {"cpu": "64", "nvidia.com/gpu": "8"}."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetCluster:
    """A worker cluster to start: what to apply to it (namespaces, queues, flavors) and its fake nodes."""

    name: str
    objects: Sequence[Mapping[str, Any]] = ()
    nodes: Sequence[FleetNode] = ()


def load_all(path: Path) -> list[dict[str, Any]]:
    """Every document of a YAML file."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the Kueue CRDs are 2 MB: the C parser saves seconds
    with open(path, "rb") as stream:
        return [document for document in yaml.load_all(stream, Loader=loader) if document]


def load_folder(folder: Path) -> list[dict[str, Any]]:
    """Every document of every YAML file in a folder, in order of file names."""
    return [document for path in sorted(folder.glob("*.yaml")) for document in load_all(path)]


def local_client_config(path: str, port: int, ca_pem: bytes) -> dict[str, str]:
    """How an apiserver reaches a webhook that is a process on loopback."""
    return {
        "url": f"https://127.0.0.1:{port}{path}",
        "caBundle": base64.b64encode(ca_pem).decode(),
    }


def localize_webhooks(
    configurations: Iterable[Mapping[str, Any]], prefix: str, port: int, ca_pem: bytes
) -> list[dict[str, Any]]:
    """Point webhook configurations to loopback, and keep only webhooks for kinds that the fleet serves.

    A webhook for Pods, Deployments or StatefulSets would put every pod of the fleet through Kueue; upstream keeps
    them off by integration, here they are dropped. `prefix` keeps the names of Kueue's and JobSet's apart.
    """
    result: list[dict[str, Any]] = []
    for original in configurations:
        configuration = copy.deepcopy(dict(original))
        configuration["metadata"] = {"name": f"{prefix}-{original['metadata']['name']}"}
        configuration["webhooks"] = [
            _localize_webhook(webhook, port, ca_pem)
            for webhook in configuration["webhooks"]
            if _groups_of(webhook) <= SERVED_WEBHOOK_GROUPS
        ]
        if configuration["webhooks"]:
            result.append(configuration)
    return result


def _groups_of(webhook: Mapping[str, Any]) -> set[str]:
    return {group for rule in webhook["rules"] for group in rule["apiGroups"]}


def _localize_webhook(webhook: dict[str, Any], port: int, ca_pem: bytes) -> dict[str, Any]:
    service = webhook["clientConfig"]["service"]
    webhook["clientConfig"] = local_client_config(service["path"], port, ca_pem)
    if "kueue.x-k8s.io" not in _groups_of(webhook):
        webhook["namespaceSelector"] = {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(SYSTEM_NAMESPACES)}
            ]
        }
    return webhook


def with_conversion(definition: Mapping[str, Any], port: int, ca_pem: bytes) -> dict[str, Any]:
    """Give a Kueue CRD its conversion webhook, if it is one of the kinds that have one."""
    result = copy.deepcopy(dict(definition))
    if result["spec"]["names"]["plural"] in CONVERTED_PLURALS:
        result["spec"]["conversion"] = {
            "strategy": "Webhook",
            "webhook": {
                "clientConfig": local_client_config("/convert", port, ca_pem),
                "conversionReviewVersions": ["v1"],
            },
        }
    return result


def namespace(name: str) -> dict[str, Any]:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def kubeconfig(name: str, server_url: str, token: str, ca_pem: bytes, user_name: str = "fleet-admin") -> dict[str, Any]:
    """A kubeconfig of one cluster with the CA inline, as Kueue demands of the ones in its Secrets."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": server_url,
                    "certificate-authority-data": base64.b64encode(ca_pem).decode(),
                },
            }
        ],
        "users": [{"name": user_name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user_name}}],
        "current-context": name,
    }


def kubeconfig_secret(cluster: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """The hub's Secret from which MultiKueue takes a worker's kubeconfig."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{cluster}-kubeconfig", "namespace": "kueue-system"},
        "type": "Opaque",
        "data": {"kubeconfig": base64.b64encode(yaml.safe_dump(content).encode()).decode()},
    }


def node_manifest(node: FleetNode) -> dict[str, Any]:
    """The Node object as a kubelet would register it: capacity is part of the first write."""
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", **node.capacity}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "annotations": {FAKE_NODE_ANNOTATION: "fake"},
            "labels": {
                "kubernetes.io/hostname": node.name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **node.labels,
            },
        },
        "spec": {"taints": [dict(taint) for taint in node.taints]},
        "status": {"capacity": capacity, "allocatable": dict(capacity)},
    }


def split_nodes(objects: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[FleetNode]]:
    """Part a cluster's manifests into those to apply and the Node objects, which become fake nodes."""
    rest = [item for item in objects if item["kind"] != "Node"]
    nodes = [
        FleetNode(
            name=item["metadata"]["name"],
            labels=item["metadata"].get("labels", {}),
            taints=item.get("spec", {}).get("taints", ()),
            capacity={key: str(value) for key, value in item.get("status", {}).get("capacity", {}).items()},
        )
        for item in objects
        if item["kind"] == "Node"
    ]
    return rest, nodes
