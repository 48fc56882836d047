"""Kubernetes objects as apiservers send them, with the fields that only cost memory (managedFields) left in."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]
T0, T1, T2 = "2026-08-01T10:00:00Z", "2026-08-01T10:00:05Z", "2026-08-01T10:01:00Z"


def condition(kind: str, status: str = "True", at: str = T1, reason: str = "R", message: str = "m") -> Raw:
    return {"type": kind, "status": status, "lastTransitionTime": at, "reason": reason, "message": message}


def managed_fields(entries: int = 4) -> list[Raw]:
    fields = {f"f:field-{n}": {".": {}, "f:lastTransitionTime": {}, "f:message": {}, "f:reason": {}} for n in range(12)}
    return [
        {
            "manager": f"manager-{n}",
            "operation": "Apply",
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": dict(fields)},
            "subresource": "status",
        }
        for n in range(entries)
    ]


def pod_template(requests: Raw | None = None, metadata: Raw | None = None, **spec: Any) -> Raw:
    return {
        "metadata": metadata or {},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "containers": [
                {
                    "name": "train",
                    "image": "registry.example/train:1",
                    "command": ["python", "-m", "train"],
                    "env": [{"name": f"VARIABLE_{n}", "value": "some value"} for n in range(12)],
                    "resources": {"requests": requests or {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            **spec,
        },
    }


def pod_set(name: str = "main", count: int = 1, **template: Any) -> Raw:
    return {"name": name, "count": count, "template": pod_template(**template)}


def workload(name: str = "job-train-1a2b3", *, spec: Raw | None = None, status: Raw | None = None, **meta: Any) -> Raw:
    """A hub Workload of Job train that has quota and waits for a cluster."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-{name}",
            "resourceVersion": "812",
            "generation": 1,
            "creationTimestamp": T0,
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "labels": {"kueue.x-k8s.io/job-uid": "uid-train"},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "train",
                    "uid": "uid-train",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": managed_fields(),
            **meta,
        },
        "spec": {"active": True, "queueName": "main", "priority": 100, "podSets": [pod_set()], **(spec or {})},
        "status": {
            "admission": {
                "clusterQueue": "training",
                "podSetAssignments": [
                    {
                        "name": "main",
                        "count": 1,
                        "flavors": {"cpu": "any", "memory": "any", "nvidia.com/gpu": "any"},
                        "resourceUsage": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"},
                    }
                ],
            },
            "admissionChecks": [
                {"name": "fleet", "state": "Pending", "message": "", "lastTransitionTime": T1, "podSetUpdates": []}
            ],
            "conditions": [condition("QuotaReserved")],
            **(status or {}),
        },
    }


def without(raw: Raw, *path: str) -> Raw:
    """The object less one field."""
    head, *rest = path
    if not rest:
        return {key: value for key, value in raw.items() if key != head}
    return {**raw, head: without(raw[head], *rest)}


def cluster_queue(name: str = "training", **spec: Any) -> Raw:
    return {
        "metadata": {"name": name},
        "spec": {
            "cohortName": "fleet",
            "stopPolicy": "None",
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "nvidia.com/gpu"],
                    "flavors": [
                        {
                            "name": "h100",
                            "resources": [
                                {"name": "cpu", "nominalQuota": "500m"},
                                {
                                    "name": "nvidia.com/gpu",
                                    "nominalQuota": "16",
                                    "borrowingLimit": "8",
                                    "lendingLimit": "0",
                                },
                            ],
                        }
                    ],
                }
            ],
            **spec,
        },
        "status": {
            "conditions": [condition("Active")],
            "pendingWorkloads": 3,
            "flavorsReservation": [
                {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "9", "borrowed": "1"}]}
            ],
        },
    }


def node(name: str, gpus: str = "8", **changes: Any) -> Raw:
    return {
        "metadata": {
            "name": name,
            "labels": {"gpu": "h100", "kubernetes.io/hostname": name},
            **changes.pop("meta", {}),
        },
        "spec": changes.pop("spec", {}),
        "status": {
            "allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": gpus, "pods": "110"},
            "conditions": changes.pop("conditions", [condition("Ready")]),
        },
    }


def pod(name: str, on: str | None, gpus: str = "1", *, phase: str = "Running", **changes: Any) -> Raw:
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": changes.pop("labels", {}),
            **changes.pop("meta", {}),
        },
        "spec": {
            **({"nodeName": on} if on else {}),
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": gpus}}}],
            **changes,
        },
        "status": {"phase": phase},
    }
