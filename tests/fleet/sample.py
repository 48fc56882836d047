"""A small set of objects for a fleet, written by hand: one flavor, one queue, one check, N alike workers.

`python -m tests.fleet up` uses it when no rendered objects are given; the fleet's own test does, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.fleet.manifests import FleetCluster, FleetNode, namespace

KUEUE_API = "kueue.x-k8s.io/v1beta2"
TEAM_NAMESPACE = "team-a"
QUEUE_NAME = "main"
CLUSTER_QUEUE_NAME = "shared"
FLAVOR_NAME = "gpu"
CHECK_NAME = "fleet"
GPUS_PER_NODE = 8
NODES_PER_WORKER = 2


def worker_names(count: int) -> list[str]:
    """The names of N workers."""
    return [f"worker-{index}" for index in range(1, count + 1)]


def hub_objects(workers: Sequence[str]) -> list[dict[str, Any]]:
    """The hub's queue, with the check that hands its workloads to the workers."""
    gpus = GPUS_PER_NODE * NODES_PER_WORKER * len(workers)
    return [
        *_queue(gpus, admission_check=CHECK_NAME),
        *(_multikueue_cluster(name) for name in workers),
        _kueue("MultiKueueConfig", CHECK_NAME, {"clusters": list(workers)}),
        _kueue(
            "AdmissionCheck",
            CHECK_NAME,
            {
                "controllerName": "kueue.x-k8s.io/multikueue",
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": CHECK_NAME},
            },
        ),
    ]


def clusters(workers: Sequence[str]) -> list[FleetCluster]:
    """The workers, each with two nodes of eight GPUs."""
    return [
        FleetCluster(
            name,
            _queue(GPUS_PER_NODE * NODES_PER_WORKER),
            [
                FleetNode(
                    f"{name}-gpu-{index}",
                    labels={"entrepot.dev/pool": FLAVOR_NAME},
                    capacity={"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": str(GPUS_PER_NODE)},
                )
                for index in range(1, NODES_PER_WORKER + 1)
            ],
        )
        for name in workers
    ]


def job(name: str, gpus: int = 1, duration: str = "1s") -> dict[str, Any]:
    """A Job for the queue, of one pod."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _queued(name),
        "spec": {"template": _pod_template(gpus, duration)},
    }


def jobset(name: str, gpus: int = 1, duration: str = "1s") -> dict[str, Any]:
    """A JobSet for the queue: a leader and two workers."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _queued(name),
        "spec": {
            "replicatedJobs": [
                {
                    "name": part,
                    "replicas": replicas,
                    "template": {"spec": {"template": _pod_template(gpus, duration)}},
                }
                for part, replicas in (("leader", 1), ("workers", 2))
            ]
        },
    }


def _queued(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": TEAM_NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": QUEUE_NAME}}


def _pod_template(gpus: int, duration: str) -> dict[str, Any]:
    resources = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    return {
        "metadata": {"annotations": {"entrepot.dev/simulated-duration": duration}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "train",
                    "image": "training",
                    "resources": {"requests": resources, "limits": {"nvidia.com/gpu": str(gpus)}},
                }
            ],
        },
    }


def _kueue(kind: str, name: str, spec: dict[str, Any], in_namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": in_namespace} if in_namespace else {})}
    return {"apiVersion": KUEUE_API, "kind": kind, "metadata": metadata, "spec": spec}


def _multikueue_cluster(name: str) -> dict[str, Any]:
    source = {"kubeConfig": {"location": f"{name}-kubeconfig", "locationType": "Secret"}}
    return _kueue("MultiKueueCluster", name, {"clusterSource": source})


def _queue(gpus: int, admission_check: str | None = None) -> list[dict[str, Any]]:
    """Namespace, flavor, ClusterQueue and LocalQueue; only the hub's ClusterQueue has the check."""
    quotas = {"cpu": "1000", "memory": "10Ti", "nvidia.com/gpu": str(gpus)}
    spec: dict[str, Any] = {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": list(quotas),
                "flavors": [
                    {
                        "name": FLAVOR_NAME,
                        "resources": [{"name": resource, "nominalQuota": quota} for resource, quota in quotas.items()],
                    }
                ],
            }
        ],
    }
    if admission_check:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": admission_check}]}
    return [
        namespace(TEAM_NAMESPACE),
        _kueue("ResourceFlavor", FLAVOR_NAME, {}),
        _kueue("ClusterQueue", CLUSTER_QUEUE_NAME, spec),
        _kueue("LocalQueue", QUEUE_NAME, {"clusterQueue": CLUSTER_QUEUE_NAME}, TEAM_NAMESPACE),
    ]
