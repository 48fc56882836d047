"""Builders that tests share: Kubernetes manifests as users, operators and `render` write them, and small fleets.

Every builder returns plain data with names that a test chooses; defaults are the smallest thing that is valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from connectors.embedded import EmbeddedFleet, ManualClock, NodeSpec, Options, WorkerSpec

Manifest = dict[str, Any]
KUEUE = "kueue.x-k8s.io/v1beta2"
START = datetime(2026, 8, 1, 8, 0, tzinfo=UTC)
NAMESPACE = "team-a"
LOCAL_QUEUE = "training"
CLUSTER_QUEUE = "training"
GPU = "nvidia.com/gpu"
GPU_LABEL = "nvidia.com/gpu.product"
DURATION_ANNOTATION = "entrepot.dev/simulated-duration"
OUTCOME_ANNOTATION = "entrepot.dev/simulated-outcome"


# --- Kueue objects -----------------------------------------------------------------------------------------------


def namespace(name: str = NAMESPACE) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def flavor(
    name: str,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    tolerations: Sequence[Mapping[str, str]] = (),
) -> Manifest:
    spec: Manifest = {"nodeLabels": dict(labels or {})}
    if taints:
        spec["nodeTaints"] = [dict(taint) for taint in taints]
    if tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in tolerations]
    return {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def topology(name: str, *levels: str) -> Manifest:
    """A Topology, its levels from broad to narrow."""
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    return {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": name}, "spec": spec}


def laid_out(flavor: Manifest, by: str) -> Manifest:
    """A flavor whose pods Kueue lays out by a topology."""
    return {**flavor, "spec": {**flavor["spec"], "topologyName": by}}


def quota(resource: str, nominal: object, borrow: object = None, lend: object = None) -> Manifest:
    """One line of a flavor's quota; None leaves a limit out."""
    limits = {"borrowingLimit": borrow, "lendingLimit": lend}
    return {
        "name": resource,
        "nominalQuota": str(nominal),
        **{key: str(value) for key, value in limits.items() if value is not None},
    }


def resource_group(flavors: Mapping[str, Sequence[Manifest]]) -> Manifest:
    """Flavors in order, each with its quota lines; the covered resources are those of the first flavor."""
    first = next(iter(flavors.values()))
    return {
        "coveredResources": [line["name"] for line in first],
        "flavors": [{"name": name, "resources": list(lines)} for name, lines in flavors.items()],
    }


def cluster_queue(name: str = CLUSTER_QUEUE, *groups: Manifest, **spec: Any) -> Manifest:
    """A ClusterQueue for every namespace; `spec` adds fields such as cohortName, preemption, stopPolicy."""
    return {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": list(groups), **spec},
    }


def checks(*names: str) -> Manifest:
    """The field of a ClusterQueue that names its admission checks."""
    return {"admissionChecksStrategy": {"admissionChecks": [{"name": name} for name in names]}}


def local_queue(name: str = LOCAL_QUEUE, queue: str = CLUSTER_QUEUE, in_namespace: str = NAMESPACE) -> Manifest:
    return {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": in_namespace},
        "spec": {"clusterQueue": queue},
    }


def cohort(name: str, parent: str | None = None, *groups: Manifest) -> Manifest:
    spec: Manifest = {"parentName": parent} if parent else {}
    if groups:
        spec["resourceGroups"] = list(groups)
    return {"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def priority_class(name: str, value: int) -> Manifest:
    return {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


def admission_check(name: str, controller: str, config: str | None = None, active: bool = False) -> Manifest:
    """An AdmissionCheck; with `config` it is MultiKueue's, with `active` its controller has said that it serves it."""
    spec: Manifest = {"controllerName": controller}
    if config is not None:
        spec["parameters"] = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": config}
    manifest: Manifest = {"apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": name}, "spec": spec}
    if active:
        manifest["status"] = {"conditions": [{"type": "Active", "status": "True", "reason": "Active"}]}
    return manifest


def multikueue(*clusters: str, check: str = "fleet") -> list[Manifest]:
    """The hub's objects that make `clusters` its workers: one MultiKueueCluster each, a config and a check."""
    members: list[Manifest] = [
        {
            "apiVersion": KUEUE,
            "kind": "MultiKueueCluster",
            "metadata": {"name": name},
            "spec": {"clusterSource": {"kubeConfig": {"location": f"{name}-kubeconfig", "locationType": "Secret"}}},
        }
        for name in clusters
    ]
    config = {
        "apiVersion": KUEUE,
        "kind": "MultiKueueConfig",
        "metadata": {"name": check},
        "spec": {"clusters": list(clusters)},
    }
    return [*members, config, admission_check(check, "kueue.x-k8s.io/multikueue", check)]


# --- user jobs ---------------------------------------------------------------------------------------------------


def pod_template(
    requests: Mapping[str, object],
    duration: str | None = None,
    fails: bool = False,
    **spec: Any,
) -> Manifest:
    """A pod template with one container; `spec` adds pod fields such as nodeSelector, affinity, tolerations."""
    annotations = {DURATION_ANNOTATION: duration} if duration else {}
    if fails:
        annotations[OUTCOME_ANNOTATION] = "failed"
    amounts = {name: str(value) for name, value in requests.items()}
    limits = {name: value for name, value in amounts.items() if "/" in name}
    container = {"name": "main", "image": "registry.invalid/job", "resources": {"requests": amounts, "limits": limits}}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def job(
    name: str,
    requests: Mapping[str, object] | None = None,
    pods: int = 1,
    queue: str = LOCAL_QUEUE,
    in_namespace: str = NAMESPACE,
    priority: str | None = None,
    template: Manifest | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """A batch Job of `pods` equal pods (one GPU each by default); `template` replaces the pod template."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _job_metadata(name, in_namespace, queue, priority, labels, annotations),
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": template or pod_template(requests or {GPU: 1}),
            **spec,
        },
    }


def job_set(
    name: str,
    parts: Mapping[str, tuple[int, int, Manifest]],
    queue: str = LOCAL_QUEUE,
    in_namespace: str = NAMESPACE,
    priority: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """A JobSet; `parts` maps the name of a replicated job to (replicas, pods of each, pod template)."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _job_metadata(name, in_namespace, queue, priority, labels, annotations),
        "spec": {
            "suspend": True,
            "replicatedJobs": [
                {
                    "name": part,
                    "replicas": replicas,
                    "template": {"spec": {"parallelism": pods, "completions": pods, "template": template}},
                }
                for part, (replicas, pods, template) in parts.items()
            ],
        },
    }


def _job_metadata(
    name: str,
    in_namespace: str,
    queue: str,
    priority: str | None,
    labels: Mapping[str, str] | None,
    annotations: Mapping[str, str] | None,
) -> Manifest:
    known = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    if priority is not None:
        known["kueue.x-k8s.io/priority-class"] = priority
    return {
        "name": name,
        "namespace": in_namespace,
        "labels": {**known, **(labels or {})},
        "annotations": dict(annotations or {}),
    }


# --- fleets ------------------------------------------------------------------------------------------------------


def gpu_nodes(
    count: int, gpus: int = 8, product: str = "h100", prefix: str = "node", taints: Sequence[Mapping[str, str]] = ()
) -> list[NodeSpec]:
    """`count` equal nodes with GPUs of one product."""
    return [
        NodeSpec(f"{prefix}-{index}", {GPU_LABEL: product}, taints, {GPU: str(gpus), "cpu": "128"})
        for index in range(count)
    ]


def gpu_queue(name: str = CLUSTER_QUEUE, product: str = "h100", gpus: object = 8, **spec: Any) -> Manifest:
    """A ClusterQueue with GPUs (and ample CPU and memory) in one flavor named like the product."""
    lines = [quota(GPU, gpus), quota("cpu", 1000), quota("memory", "10Ti")]
    return cluster_queue(name, resource_group({product: lines}), **spec)


def worker_objects(product: str = "h100", gpus: object = 8, **spec: Any) -> list[Manifest]:
    """What a small worker needs: namespace, flavor, ClusterQueue, LocalQueue, three priority classes."""
    return [
        namespace(),
        flavor(product, {GPU_LABEL: product}),
        gpu_queue(product=product, gpus=gpus, **spec),
        local_queue(),
        *priority_classes(),
    ]


def priority_classes() -> list[Manifest]:
    return [priority_class("low", 10), priority_class("normal", 100), priority_class("high", 1000)]


def hub_objects(
    *clusters: str, gpus: object = 1000, extra_checks: Sequence[Manifest] = (), **spec: Any
) -> list[Manifest]:
    """What a small hub needs: the workers' names, a queue with the MultiKueue check and ample quota."""
    names = ["fleet", *(check["metadata"]["name"] for check in extra_checks)]
    lines = [quota(GPU, gpus), quota("cpu", 100_000), quota("memory", "1Pi")]
    return [
        namespace(),
        flavor("any"),
        *multikueue(*clusters),
        *extra_checks,
        cluster_queue(CLUSTER_QUEUE, resource_group({"any": lines}), **{**checks(*names), **spec}),
        local_queue(),
        *priority_classes(),
    ]


def worker(product: str = "h100", nodes: int = 1, gpus: int = 8, **spec: Any) -> WorkerSpec:
    """A worker whose quota is what its nodes hold."""
    return WorkerSpec(worker_objects(product, nodes * gpus, **spec), gpu_nodes(nodes, gpus, product))


def fleet(
    workers: Mapping[str, WorkerSpec] | None = None,
    hub: Sequence[Manifest] | None = None,
    clock: ManualClock | None = None,
    options: Options | None = None,
) -> EmbeddedFleet:
    """A connected embedded fleet on a clock that stands still: by default two workers of one node with eight H100s."""
    members = workers if workers is not None else {"alpha": worker(), "beta": worker()}
    made = EmbeddedFleet(
        hub if hub is not None else hub_objects(*members), members, clock or ManualClock(START), options
    )
    made.connect()
    return made
