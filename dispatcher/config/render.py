"""The Kueue objects that a blueprint stands for, for the hub and for every worker. Pure: data in, data out.

On the workers, each queue is a ClusterQueue with its shares as nominal quota, all in one cohort, so that they borrow.
The hub is a waiting room: its one flavor has no node labels, because Kueue matches pod selectors only against label
keys of its own flavors, so it takes any selector; and its quota is a multiple of the fleet, because a workload must
hold hub quota to be dispatched at all, and one that waits must not keep others from being looked at (FR-NOM-10).
Shapes and limits: kueue-contract.md sections 2 and 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from dispatcher.config.blueprint import Blueprint, gpu_resource, share_of, unit_of
from dispatcher.config.fleet_file import POD_LIMIT, Cluster, Flavor, TaintOf
from dispatcher.config.queues_file import PriorityClass, Queue, Reclaim, Share, WhileBorrowing, WithinQueue
from dispatcher.core.ids import ClusterName
from dispatcher.core.resources import CPU, MEMORY, PODS, Resources
from dispatcher.core.snapshot import MULTIKUEUE_CONTROLLER

Manifest = dict[str, Any]
API = "kueue.x-k8s.io/v1beta2"
HUB_FLAVOR = "fleet"
MANAGED_BY = {"app.kubernetes.io/managed-by": "entrepot"}
_MIB = 2**20

_WITHIN = {
    WithinQueue.NEVER: "Never",
    WithinQueue.LOWER_PRIORITY: "LowerPriority",
    WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY: "LowerOrNewerEqualPriority",
}
_RECLAIM = {Reclaim.NEVER: "Never", Reclaim.LOWER_PRIORITY: "LowerPriority", Reclaim.ANY: "Any"}
_BORROWING = {WhileBorrowing.NEVER: "Never", WhileBorrowing.LOWER_PRIORITY: "LowerPriority"}


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as declared, for fleets of fake nodes. `capacity` holds Kubernetes quantities, `taints` core/v1 taints."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    capacity: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rendered:
    """Objects in an order in which they can be applied. Kubeconfig Secrets are not among them: they hold secrets."""

    hub: tuple[Manifest, ...]
    workers: Mapping[ClusterName, tuple[Manifest, ...]]
    nodes: Mapping[ClusterName, tuple[NodeSpec, ...]]


def render(blueprint: Blueprint, *, only: Sequence[ClusterName] | None = None) -> Rendered:
    """Render for all clusters, in the order of fleet.yaml, or for some of them (a smaller fleet to try things on).

    Raises:
        ValueError: `only` names a cluster that the blueprint does not have, or none at all.
    """
    unknown = sorted(set(only or ()) - set(blueprint.fleet.clusters))
    if unknown or (only is not None and not only):
        raise ValueError(f"not clusters of the blueprint: {', '.join(unknown)}" if unknown else "no cluster is named")
    chosen = {
        ClusterName(name): cluster for name, cluster in blueprint.fleet.clusters.items() if only is None or name in only
    }
    return Rendered(
        hub=tuple(_hub(blueprint, chosen)),
        workers={name: tuple(_worker(blueprint, name, cluster)) for name, cluster in chosen.items()},
        nodes={name: _nodes(name, cluster) for name, cluster in chosen.items()},
    )


def secret_name(cluster: ClusterName) -> str:
    """The Secret in Kueue's namespace whose key `kubeconfig` lets the hub's Kueue into a worker."""
    return f"{cluster}-kubeconfig"


def to_yaml(objects: Sequence[Manifest]) -> str:
    """Several documents of one file; the same objects give the same bytes."""
    return yaml.safe_dump_all(objects, sort_keys=False, default_flow_style=False, width=120, explicit_start=True)


# --- hub ---------------------------------------------------------------------------------------------------------


def _hub(blueprint: Blueprint, clusters: Mapping[ClusterName, Cluster]) -> list[Manifest]:
    hub, plan = blueprint.fleet.hub, blueprint.queues
    quota = _waiting_room(blueprint, clusters)
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": hub.admission_check}
    return [
        *_namespaces(plan.queues),
        *_priorities(plan.priorities),
        _object("ResourceFlavor", HUB_FLAVOR, {}),
        *(_multikueue_cluster(name) for name in clusters),
        _object("MultiKueueConfig", hub.admission_check, {"clusters": list(clusters)}),
        _object(
            "AdmissionCheck", hub.admission_check, {"controllerName": MULTIKUEUE_CONTROLLER, "parameters": parameters}
        ),
        *(_hub_queue(name, queue, quota, hub.admission_check) for name, queue in plan.queues.items()),
        *_local_queues(plan.queues),
    ]


def _multikueue_cluster(name: ClusterName) -> Manifest:
    source = {"kubeConfig": {"location": secret_name(name), "locationType": "Secret"}}
    return _object("MultiKueueCluster", name, {"clusterSource": source})


def _waiting_room(blueprint: Blueprint, clusters: Mapping[ClusterName, Cluster]) -> Resources:
    """What one hub queue may hold: the fleet with all its node pools bought, or what the plan promises if more, times
    the waiting factor. Every queue covers every resource: a workload that fits nowhere is to be told so, not parked."""
    have = Resources.total(
        flavor.nodes.resources().times(flavor.nodes.count + _may_buy(cluster, name))
        for cluster in clusters.values()
        for name, flavor in cluster.flavors.items()
    )
    promised = Resources.total(
        share_of(clusters[ClusterName(cluster)].flavors[flavor], share.nominal, unit_of(share))
        for queue in blueprint.queues.queues.values()
        for cluster, shares in queue.shares.items()
        if cluster in clusters
        for flavor, share in shares.items()
    )
    factor = blueprint.fleet.hub.waiting_factor
    return Resources.of({name: max(amount, promised.get(name)) * factor for name, amount in have if name != PODS})


def _may_buy(cluster: Cluster, flavor: str) -> int:
    return sum(pool.max_nodes for pool in cluster.node_pools.values() if pool.flavor == flavor)


def _hub_queue(name: str, queue: Queue, quota: Resources, check: str) -> Manifest:
    resources = [{"name": key, "nominalQuota": _quantity(key, quota.get(key))} for key in _in_order(quota.names())]
    return _object(
        "ClusterQueue",
        name,
        {
            "namespaceSelector": _selector(queue),
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [
                {
                    "coveredResources": [resource["name"] for resource in resources],
                    "flavors": [{"name": HUB_FLAVOR, "resources": resources}],
                }
            ],
            # The dispatcher orders what waits, and workers preempt by the plan; the hub must not evict what runs.
            "preemption": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"},
            "admissionChecksStrategy": {"admissionChecks": [{"name": check}]},
        },
    )


# --- workers -----------------------------------------------------------------------------------------------------


def _worker(blueprint: Blueprint, name: ClusterName, cluster: Cluster) -> list[Manifest]:
    plan = blueprint.queues
    return [
        *_namespaces(plan.queues),
        *_priorities(plan.priorities),
        *(_flavor(key, flavor) for key, flavor in cluster.flavors.items()),
        _object("Cohort", name, {}),
        *(_worker_queue(key, queue, name, cluster) for key, queue in plan.queues.items()),
        *_local_queues(plan.queues),
    ]


def _flavor(name: str, flavor: Flavor) -> Manifest:
    spec: Manifest = {"nodeLabels": dict(sorted(flavor.labels.items()))}
    if flavor.taints:
        spec["nodeTaints"] = [_taint(taint) for taint in flavor.taints]
    return _object("ResourceFlavor", name, spec)


def _taint(taint: TaintOf) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": str(taint.effect)}


def _worker_queue(name: str, queue: Queue, cluster_name: ClusterName, cluster: Cluster) -> Manifest:
    """The queue on one worker. Without a share there it has no resources, and admits nothing."""
    spec: Manifest = {
        "cohortName": cluster_name,
        "namespaceSelector": _selector(queue),
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {
            "withinClusterQueue": _WITHIN[queue.preemption.within_queue],
            "reclaimWithinCohort": _RECLAIM[queue.preemption.reclaim],
            "borrowWithinCohort": {"policy": _BORROWING[queue.preemption.while_borrowing]},
        },
        # A queue first looks for a flavor where it needs neither to borrow nor to stop anybody.
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"},
    }
    groups = _groups(queue.shares.get(cluster_name, {}), cluster)
    if groups:
        spec["resourceGroups"] = groups
    return _object("ClusterQueue", name, spec)


def _groups(shares: Mapping[str, Share], cluster: Cluster) -> list[Manifest]:
    """One resource group: a pod's CPU and memory come from the flavor of its GPUs. Flavors keep fleet.yaml's order,
    those without GPUs first, so that work that asks for none does not lie on GPU nodes."""
    flavors = [(name, flavor) for name, flavor in cluster.flavors.items() if name in shares]
    flavors.sort(key=lambda item: gpu_resource(item[1]) is not None)
    covered = _in_order({key for _, flavor in flavors for key, _ in flavor.nodes.resources() if key != PODS})
    if not covered:
        return []
    entries = [
        {"name": name, "resources": [_quota(key, shares[name], flavor) for key in covered]} for name, flavor in flavors
    ]
    return [{"coveredResources": list(covered), "flavors": entries}]


def _quota(resource: str, share: Share, flavor: Flavor) -> Manifest:
    """The quota of one resource; a resource that the flavor's nodes do not have is covered with zero."""
    unit = unit_of(share)
    if resource not in flavor.nodes.resources().names():
        return {"name": resource, "nominalQuota": "0"}
    quota = {"name": resource, "nominalQuota": _part(resource, share.nominal, unit, flavor)}
    if share.borrow is not None:
        quota["borrowingLimit"] = _part(resource, share.borrow, unit, flavor)
    if share.lend is not None:
        quota["lendingLimit"] = _part(resource, share.lend, unit, flavor)
    return quota


def _part(resource: str, pieces: int, unit: str, flavor: Flavor) -> str:
    return _quantity(resource, share_of(flavor, pieces, unit).get(resource))


def _nodes(name: ClusterName, cluster: Cluster) -> tuple[NodeSpec, ...]:
    return tuple(
        NodeSpec(
            name=f"{name}-{key}-{index}",
            labels={
                **dict(sorted(flavor.labels.items())),
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": f"{name}-{key}-{index}",
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/region": cluster.region,
            },
            taints=tuple(_taint(taint) for taint in flavor.taints),
            capacity={PODS: POD_LIMIT, **flavor.nodes.capacity},
        )
        for key, flavor in cluster.flavors.items()
        for index in range(1, flavor.nodes.count + 1)
    )


# --- both --------------------------------------------------------------------------------------------------------


def _object(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": str(name), "labels": dict(MANAGED_BY)}, "spec": spec}


def _namespaces(queues: Mapping[str, Queue]) -> list[Manifest]:
    names = sorted({queue.namespace for queue in queues.values()})
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(MANAGED_BY)}}
        for name in names
    ]


def _priorities(priorities: Mapping[str, PriorityClass]) -> list[Manifest]:
    return [
        {
            "apiVersion": API,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": name, "labels": dict(MANAGED_BY)},
            "value": priority.value,
            "description": priority.description,
        }
        for name, priority in priorities.items()
    ]


def _local_queues(queues: Mapping[str, Queue]) -> list[Manifest]:
    return [
        {
            "apiVersion": API,
            "kind": "LocalQueue",
            "metadata": {"name": queue.local_queue, "namespace": queue.namespace, "labels": dict(MANAGED_BY)},
            "spec": {"clusterQueue": name},
        }
        for name, queue in queues.items()
    ]


def _selector(queue: Queue) -> Manifest:
    return {"matchLabels": {"kubernetes.io/metadata.name": queue.namespace}}


def _in_order(names: frozenset[str] | set[str]) -> tuple[str, ...]:
    """CPU, memory, then the rest by name: quotas must be listed in the order of the covered resources."""
    first = [name for name in (CPU, MEMORY) if name in names]
    return (*first, *sorted(names - {CPU, MEMORY}))


def _quantity(resource: str, amount: int) -> str:
    """An amount as Kubernetes writes it: whole cores or millicores, Mi where memory is whole MiB, else the number."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource == MEMORY and amount and amount % _MIB == 0:
        return f"{amount // _MIB}Mi"
    return str(amount)
