"""Kubernetes objects of full size, as apiservers send them: templates once, then bytes with the names filled in.

Sizes follow what large fleets show: environment, volumes, conditions, images and managedFields are all there. What
repeats in a real cluster repeats here, and what differs from object to object (names, uids, versions) differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

Raw = dict[str, Any]

POD_OF_A_NODE = 8
PODS_OF_A_JOB = 64
SLOT = re.compile(r"@(\w+)@")
AT = "2026-11-29T10:00:00Z"


class Template:
    """JSON with slots: `@name@` is filled from the fields of one object."""

    def __init__(self, raw: Raw) -> None:
        self._parts = SLOT.split(json.dumps(raw, separators=(",", ":")))

    def fill(self, fields: Raw) -> bytes:
        parts = self._parts
        return "".join(str(fields[p]) if i % 2 else p for i, p in enumerate(parts)).encode()


def condition(kind: str, status: str = "True") -> Raw:
    return {
        "type": kind,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": AT,
        "observedGeneration": 1,
        "reason": f"{kind}Reached",
        "message": f"what the controller of {kind} has to say about it, in a sentence of usual length",
    }


def managed_fields(*managers: str) -> list[Raw]:
    """What `kubectl get -o json --show-managed-fields` shows: often a third of an object."""
    names = ("image", "name", "env", "resources", "volumeMounts", "terminationMessagePath", "command", "ports")
    fields: Raw = {f"f:{name}": {".": {}, "f:lastTransitionTime": {}, "f:message": {}} for name in names}
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": AT,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {".": {}}}, "f:spec": fields, "f:status": fields},
        }
        for manager in managers
    ]


def meta(*managers: str, **more: Any) -> Raw:
    return {
        "name": "@name@",
        "uid": "@uid@",
        "resourceVersion": "@version@",
        "creationTimestamp": AT,
        "managedFields": managed_fields(*managers),
        **more,
    }


def owner(kind: str, name: str, uid: str) -> list[Raw]:
    return [{"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": uid, "controller": True}]


def pod_spec(gpus: int = 1) -> Raw:
    amounts = {"cpu": "12", "memory": "96Gi", "nvidia.com/gpu": str(gpus), "ephemeral-storage": "50Gi"}
    environment = [{"name": f"SETTING_{n:02d}", "value": f"value-of-setting-{n:02d}"} for n in range(24)]
    refs = [{"name": n, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": p}}} for n, p in _FROM_FIELDS]
    mounts = [{"name": f"volume-{n}", "mountPath": f"/mnt/volume-{n}", "readOnly": n > 1} for n in range(5)]
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 120,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "trainer",
        "schedulerName": "default-scheduler",
        "priority": 1000,
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
        ],
        "volumes": [{"name": f"volume-{n}", "persistentVolumeClaim": {"claimName": f"data-{n}"}} for n in range(5)],
        "containers": [
            {
                "name": "train",
                "image": "registry.invalid/team/trainer:2026.11",
                "command": ["python", "-m", "trainer", "--config", "/etc/trainer/config.yaml", "--resume", "auto"],
                "env": environment + refs,
                "resources": {"requests": amounts, "limits": amounts},
                "volumeMounts": mounts,
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
    }


_FROM_FIELDS = (("POD_NAME", "metadata.name"), ("NODE_NAME", "spec.nodeName"), ("POD_IP", "status.podIP"))


def pod() -> Raw:
    labels = {
        "batch.kubernetes.io/controller-uid": "@job_uid@",
        "batch.kubernetes.io/job-name": "@job@",
        "job-name": "@job@",
        "kueue.x-k8s.io/podset": "main",
        "kueue.x-k8s.io/queue-name": "main",
        "entrepot.dev/team": "perception",
        "app.kubernetes.io/name": "trainer",
    }
    annotations = {"kueue.x-k8s.io/workload": "job-@job@", "cni.projectcalico.org/podIP": "@ip@/32"}
    started = {"running": {"startedAt": AT}}
    status = {
        "phase": "Running",
        "conditions": [condition(k) for k in ("PodReadyToStartContainers", "Initialized", "Ready", "PodScheduled")],
        "hostIP": "10.1.2.3",
        "podIP": "@ip@",
        "podIPs": [{"ip": "@ip@"}],
        "startTime": AT,
        "qosClass": "Burstable",
        "containerStatuses": [{"name": "train", "state": started, "ready": True, "containerID": "containerd://@uid@"}],
    }
    owners = owner("Job", "@job@", "@job_uid@")
    more = {"namespace": "team", "labels": labels, "annotations": annotations, "ownerReferences": owners}
    return {
        "metadata": meta("kube-controller-manager", "kube-scheduler", "kubelet", generateName="@job@-", **more),
        "spec": {**pod_spec(), "nodeName": "@node@"},
        "status": status,
    }


def node() -> Raw:
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{n:02d}": "true" for n in range(40)}
    labels |= {
        "kubernetes.io/hostname": "@name@",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": "8",
        "topology.kubernetes.io/zone": "zone-a",
        "topology.kubernetes.io/rack": "rack-@rack@",
    }
    amounts = {"cpu": "191", "memory": "2113929216Ki", "nvidia.com/gpu": "8", "pods": "110", "ephemeral-storage": "7Ti"}
    images = [{"names": [f"registry.invalid/image-{n}@sha256:{n:064d}"], "sizeBytes": 10**9 + n} for n in range(50)]
    pressures = [condition(k, "False") for k in ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")]
    annotations = {f"node.alpha.kubernetes.io/fact-{n}": f"value-{n}" for n in range(12)}
    return {
        "metadata": meta("kubelet", "kube-controller-manager", "nfd-master", labels=labels, annotations=annotations),
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": "cloud://@uid@"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [*pressures, condition("Ready")],
            "addresses": [{"type": "InternalIP", "address": "@ip@"}, {"type": "Hostname", "address": "@name@"}],
            "images": images,
        },
    }


def workload(*, waits: bool) -> Raw:
    """A hub's Workload that waits for a cluster, or a worker's that runs on `PODS_OF_A_JOB` GPUs."""
    count, gpus = (2, 8) if waits else (PODS_OF_A_JOB, 1)
    used = {"cpu": str(12 * count), "memory": f"{96 * count}Gi", "nvidia.com/gpu": str(gpus * count)}
    assigned = {"name": "main", "count": count, "flavors": dict.fromkeys(used, "h100"), "resourceUsage": used}
    check = {"name": "fleet", "state": "Pending", "message": "", "lastTransitionTime": AT}
    admitted = [] if waits else [condition("Admitted"), condition("PodsReady")]
    managers = ("kueue-admission", "kueue-admission", "kueue")
    return {
        "metadata": meta(
            *managers,
            namespace="team",
            labels={"kueue.x-k8s.io/job-uid": "@job_uid@", "entrepot.dev/team": "perception"},
            finalizers=["kueue.x-k8s.io/resource-in-use"],
            ownerReferences=owner("Job", "@job@", "@job_uid@"),
        ),
        "spec": {
            "active": True,
            "queueName": "main",
            "priority": 1000,
            "podSets": [{"name": "main", "count": count, "template": {"metadata": {}, "spec": pod_spec(gpus)}}],
        },
        "status": {
            "admission": {"clusterQueue": "training", "podSetAssignments": [assigned]},
            "admissionChecks": [check] if waits else [],
            "conditions": [condition("QuotaReserved"), *admitted],
        },
    }


def job() -> Raw:
    """Metadata only, as PartialObjectMetadata brings it."""
    labels = {"kueue.x-k8s.io/queue-name": "main", "entrepot.dev/team": "perception", "app": "trainer"}
    annotations = {"entrepot.dev/expected-duration": "PT6H", "batch.kubernetes.io/job-tracking": ""}
    managers = ("kubectl", "kueue", "kube-controller-manager")
    return {"metadata": meta(*managers, namespace="team", labels=labels, annotations=annotations)}


# --- numbered fields ---------------------------------------------------------------------------------------------

Fields = Callable[[int], Raw]


def _common(kind: str, cluster: str, number: int) -> Raw:
    return {
        "uid": f"{kind}-{cluster}-4f2a-9c1d-{number:012d}",
        "version": 1_000_000 + number,
        "ip": f"10.{number // 65536}.{number // 256 % 256}.{number % 256}",
    }


def pod_fields(cluster: str) -> Fields:
    def fields(number: int) -> Raw:
        job_number = number // PODS_OF_A_JOB
        return {
            **_common("pod", cluster, number),
            "name": f"train-{job_number:05d}-{number % PODS_OF_A_JOB:02d}-x{number % 7919:04d}",
            "node": f"{cluster}-gpu-node-{number // POD_OF_A_NODE:05d}",
            "job": f"train-{job_number:05d}",
            "job_uid": f"job-{cluster}-{job_number:08d}",
        }

    return fields


def node_fields(cluster: str) -> Fields:
    return lambda n: {**_common("node", cluster, n), "name": f"{cluster}-gpu-node-{n:05d}", "rack": n // 32}


def workload_fields(cluster: str) -> Fields:
    def fields(number: int) -> Raw:
        job = f"train-{number:05d}"
        return {
            **_common("workload", cluster, number),
            "name": f"job-{job}",
            "job": job,
            "job_uid": f"job-{cluster}-{number:08d}",
        }

    return fields


def job_fields(cluster: str) -> Fields:
    def fields(number: int) -> Raw:
        own = {"name": f"train-{number:05d}", "uid": f"job-{cluster}-{number:08d}"}
        return {**_common("job", cluster, number), **own}

    return fields
