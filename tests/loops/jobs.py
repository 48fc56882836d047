"""Jobs for the queues of the example blueprint."""

from __future__ import annotations

from typing import Any

from tests.builders import GPU, GPU_LABEL, Manifest, job, job_set, pod_template

H100 = "NVIDIA-H100-80GB-HBM3"
H200 = "NVIDIA-H200"
B200 = "NVIDIA-B200"
L40S = "NVIDIA-L40S"
RTX = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"
QUEUES = {"autonomy": "training", "simulation": "rollouts", "flywheel": "curation", "release": "gates"}


def template(gpus: int, product: str, duration: str = "3s", cpus: int = 8) -> Manifest:
    requests = {GPU: gpus, "cpu": cpus, "memory": "16Gi"}
    return pod_template(requests, duration, nodeSelector={GPU_LABEL: product})


def gang(name: str, pods: int = 1, gpus: int = 8, product: str = H100, **more: Any) -> Manifest:
    """A training gang in the queue of `namespace` (default autonomy)."""
    namespace = more.pop("namespace", "autonomy")
    keys = {f"entrepot.dev/{key}": value for key, value in more.pop("says", {}).items()}
    return job(
        name,
        pods=pods,
        queue=QUEUES[namespace],
        in_namespace=namespace,
        template=template(gpus, product, more.pop("duration", "3s")),
        annotations=keys,
        **more,
    )


SLICE = "nvidia.com/mig-1g.10gb"


def notebook(name: str, duration: str = "1000h", slices: int = 1, **says: str) -> Manifest:
    """A notebook on a MIG slice."""
    return job(
        name,
        queue="interactive",
        in_namespace="notebooks",
        template=pod_template({SLICE: slices, "cpu": 1, "memory": "4Gi"}, duration),
        annotations={f"entrepot.dev/{key.replace('_', '-')}": value for key, value in says.items()},
    )


def rollouts_and_learner(name: str) -> Manifest:
    """Two pod sets on different flavors of one cluster."""
    return job_set(
        name,
        {"learner": (1, 1, template(2, H100)), "rollout": (1, 4, template(1, RTX))},
        queue="rollouts",
        in_namespace="simulation",
        labels={"entrepot.dev/workload-class": "reinforcement-learning"},
    )
