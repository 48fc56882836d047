"""Kubernetes manifests read into what the embedded world needs: the very dicts that a real fleet is given.

They are decoded by the real connector's decoders, so that both fleets read an object the same way. Kueue objects are
v1beta2 (kueue-contract section 10). Kinds that the world has no use for (Secrets, RBAC ...) are taken and ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.kubernetes import decode_queues as decode
from connectors.kubernetes.decode_nodes import node as decode_node
from connectors.kubernetes.fields import child, children, shared, text
from dispatcher.core.errors import Refused
from dispatcher.core.ids import ClusterName, FlavorName, QueueName
from dispatcher.core.resources import QuantityError
from dispatcher.core.snapshot import (
    Check,
    ClusterQueueView,
    CohortView,
    FlavorView,
    LocalQueueView,
    MultiKueueClusterView,
    NodeView,
    Quota,
)
from dispatcher.core.topology import Topology

Manifest = Mapping[str, Any]
FlavorResource = tuple[FlavorName, str]
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
DEFAULT_CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "110"}


class ManifestError(Refused):
    """A manifest cannot be read, as an apiserver would answer 422; the message says which and where."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node to stand in a worker. `capacity` holds Kubernetes quantities; what it leaves out has the defaults of
    `DEFAULT_CAPACITY`, the same as on the local fleet."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest) -> NodeSpec:
        """A Node manifest as a NodeSpec."""
        meta, status = manifest["metadata"], manifest.get("status") or {}
        capacity = status.get("allocatable") or status.get("capacity") or {}
        return cls(
            name=str(meta["name"]),
            labels=meta.get("labels") or {},
            taints=(manifest.get("spec") or {}).get("taints") or (),
            capacity={key: str(value) for key, value in capacity.items()},
        )

    def view(self) -> NodeView:
        """The node as it stands when it has joined: ready, empty."""
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            **self.labels,
        }
        return decode_node(
            {
                "metadata": {"name": self.name, "labels": labels},
                "spec": {"taints": [dict(taint) for taint in self.taints]},
                "status": {
                    "allocatable": {**DEFAULT_CAPACITY, **self.capacity},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A ClusterQueue: the view's configured part, and what only Kueue itself looks at.

    `namespaces` is the namespaceSelector; None selects no namespace at all, as in Kueue.
    """

    view: ClusterQueueView
    quotas: Mapping[FlavorResource, Quota]
    strict: bool
    within_queue: str
    within_cohort: str
    checks: tuple[str, ...]
    namespaces: Mapping[str, Any] | None

    @property
    def name(self) -> QueueName:
        return self.view.name


class Inventory:
    """The objects of one cluster that somebody applied, decoded. What becomes of them lives elsewhere."""

    def __init__(self, objects: Iterable[Manifest]) -> None:
        self.namespaces: dict[str, Mapping[str, str]] = {"default": {"kubernetes.io/metadata.name": "default"}}
        self.flavors: dict[FlavorName, FlavorView] = {}
        self.topologies: dict[str, Topology] = {}
        self.cohorts: dict[str, CohortView] = {}
        self.queues: dict[QueueName, QueueSpec] = {}
        self.local_queues: dict[tuple[str, str], LocalQueueView] = {}
        self.priorities: dict[str, int] = {}
        self.checks: dict[str, Check] = {}
        self.configs: dict[str, tuple[ClusterName, ...]] = {}
        self.clusters: dict[ClusterName, MultiKueueClusterView] = {}
        for manifest in objects:
            self.apply(manifest)

    def apply(self, manifest: Manifest) -> None:
        """Create or replace one object. Raises ManifestError."""
        kind, metadata = str(manifest.get("kind")), child(manifest, "metadata")
        name = text(metadata, "name")
        try:
            match kind:
                case "Namespace":
                    self.namespaces[name] = {**child(metadata, "labels"), "kubernetes.io/metadata.name": name}
                case "ResourceFlavor":
                    self.flavors[FlavorName(name)] = decode.with_levels(decode.flavor(manifest), self.topologies)
                case "Topology":
                    self.topologies[name] = decode.topology(manifest)
                    self._lay_out()
                case "Cohort":
                    self.cohorts[name] = decode.cohort(manifest)
                case "ClusterQueue":
                    self.queues[QueueName(name)] = _queue(manifest)
                case "LocalQueue":
                    self.local_queues[text(metadata, "namespace"), name] = decode.local_queue(manifest)
                case "WorkloadPriorityClass":
                    self.priorities[name] = int(manifest["value"])
                case "AdmissionCheck":
                    self.checks[name] = decode.check(manifest)
                case "MultiKueueConfig":
                    self.configs[name] = decode.multikueue_config(manifest)
                case "MultiKueueCluster":
                    self.clusters[ClusterName(name)] = decode.multikueue_cluster(manifest)
        except (KeyError, TypeError, ValueError, QuantityError) as error:
            raise ManifestError(f"{kind} {name}: {error!r}") from error

    def remove(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete one object; a missing one is no error."""
        stores: dict[str, dict[Any, Any]] = {
            "Namespace": self.namespaces,
            "ResourceFlavor": self.flavors,
            "Topology": self.topologies,
            "Cohort": self.cohorts,
            "ClusterQueue": self.queues,
            "WorkloadPriorityClass": self.priorities,
            "AdmissionCheck": self.checks,
            "MultiKueueConfig": self.configs,
            "MultiKueueCluster": self.clusters,
        }
        if kind == "LocalQueue":
            self.local_queues.pop((namespace, name), None)
        elif kind in stores:
            stores[kind].pop(name, None)
            self._lay_out()

    def _lay_out(self) -> None:
        """Flavors have the levels of the topologies that are there now."""
        self.flavors = {name: decode.with_levels(flavor, self.topologies) for name, flavor in self.flavors.items()}


def _queue(manifest: Manifest) -> QueueSpec:
    spec, view = child(manifest, "spec"), decode.cluster_queue(manifest)
    preemption = child(spec, "preemption")
    checks = children(child(spec, "admissionChecksStrategy"), "admissionChecks")
    return QueueSpec(
        view=view,
        quotas={(quota.flavor, quota.resource): quota for quota in view.quotas},
        strict=text(spec, "queueingStrategy") == "StrictFIFO",
        within_queue=text(preemption, "withinClusterQueue") or "Never",
        within_cohort=text(preemption, "reclaimWithinCohort") or "Never",
        checks=tuple(sorted(shared(entry, "name") for entry in checks)),
        namespaces=spec.get("namespaceSelector"),
    )


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects these labels; None selects nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        key, operator, values = expression["key"], expression["operator"], expression.get("values") or ()
        holds = {
            "In": key in labels and labels[key] in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not holds.get(operator, False):
            return False
    return True
