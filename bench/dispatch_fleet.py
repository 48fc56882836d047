"""The fleet of the dispatch bench: a hub whose dispatcher is changed between turns, and workers that are all alike.

Every worker could take the whole backlog, and so could the hub's quota, so that dispatch alone is the limit
(kueue-contract section 1). The same blueprint is rendered for the fleet and read by Entrepot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from demo.fleets import fleet_objects
from dispatcher.config import load_blueprint
from dispatcher.core.workload import WorkloadClass
from dispatcher.runtime import SystemClock
from tests.fleet import LocalFleet, kueue
from tests.fleet.api import KubeApi, condition_is
from tests.fleet.processes import wait_until

WORKERS = tuple(f"worker-{number}" for number in range(1, 5))
NAMESPACE = "bench"
LOCAL_QUEUE = "main"
PRODUCT = "NVIDIA-H100-80GB-HBM3"
NODES, GPUS_PER_NODE = 24, 8
WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
CLUSTERS = "/apis/kueue.x-k8s.io/v1beta2/multikueueclusters"
SIMULATED_S = 1
"""How long a pod runs: as good as nothing, so that what is measured is everything around it."""
READY_S = 60.0
CLEAR_S = 240.0

STOCK_CONCURRENCY = {"Job.batch": 5, "Pod": 5, "Workload.kueue.x-k8s.io": 10, "LocalQueue.kueue.x-k8s.io": 5}
"""Controllers' concurrency as Kueue's release manifests set it (config/components/manager, v0.19.2)."""


def write_blueprint(folder: Path, outstanding: int | None) -> Path:
    """A blueprint of alike clusters with a bound on outstanding nominations (None = no bound)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "residency").mkdir(exist_ok=True)
    for name, content in _files(outstanding).items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder


def _files(outstanding: int | None) -> Mapping[str, Mapping[str, Any]]:
    bound = {} if outstanding is None else {"outstanding_nominations": outstanding}
    price = {"provider": "metal", "region": "de-stuttgart", "product": "h100-80gb", "purchase": "internal"}
    return {
        "fleet": {
            "limits": {"hold_ttl": "PT30M", **bound},
            "hub": {"waiting_factor": 4},
            "providers": {"metal": {}},
            "regions": {"de-stuttgart": {"country": "DE"}},
            "clusters": {name: _cluster(name) for name in WORKERS},
        },
        "queues": _queues(),
        "data": {
            "labels": {"public": {}, "unlabelled": {}},
            "stores": {},
            "data_sets": {},
        },
        "prices": {
            "max_age_days": 36500,
            "compute": [{**price, "usd_per_hour": 2, "source": "the bench", "dated": "2026-11-01"}],
            "egress": [],
        },
        "residency/open": {
            "rules": {
                "anywhere": {
                    "labels": ["public", "unlabelled"],
                    "flows": ["process", "cache", "checkpoint", "output", "logs", "remote_access"],
                    "effect": "permit",
                    "law": "Nothing here is anybody's data.",
                }
            }
        },
    }


def _cluster(name: str) -> Mapping[str, Any]:
    flavor = {
        "product": "h100-80gb",
        "labels": {"nvidia.com/gpu.product": PRODUCT},
        "purchase": "internal",
        "nodes": {"count": NODES, "capacity": {"cpu": 192, "memory": "2Ti", "nvidia.com/gpu": GPUS_PER_NODE}},
    }
    return {
        "provider": "metal",
        "region": "de-stuttgart",
        "site": {"country": "DE", "parent_country": "DE", "attested": {"by": "the bench", "until": "2099-12-31"}},
        "credentials": {"secret": f"entrepot-system/{name}-entrepot"},
        "flavors": {"h100": flavor},
    }


def _queues() -> Mapping[str, Any]:
    usual = {"delay_price": 12, "patience": "PT30M", "default_duration": "PT1H"}
    may = {"preemptible": True, "checkpoint_required": False, "may_burst": False}
    return {
        "priorities": {
            "urgent": {"value": 10000, "description": "Passes the backlog."},
            "normal": {"value": 1000, "description": "The backlog."},
        },
        "classes": {name.value: {**usual, **may} for name in WorkloadClass},
        "queues": {
            "bench": {
                "namespace": NAMESPACE,
                "local_queue": LOCAL_QUEUE,
                "description": "The backlog of the bench.",
                "default_class": "training",
                "priority": "normal",
                "default_labels": ["public"],
                "shares": {name: {"h100": {"gpus": NODES * GPUS_PER_NODE}} for name in WORKERS},
            }
        },
    }


def start(folder: Path, blueprint: Path, log: Any) -> LocalFleet:
    """The hub and the workers, as real processes."""
    loaded = load_blueprint(blueprint, SystemClock().now())
    hub_objects, clusters = fleet_objects(loaded, WORKERS)
    return LocalFleet.start(folder, hub_objects, clusters, log=log)


def job(name: str, priority: str | None = None) -> dict[str, Any]:
    """One pod with one GPU."""
    labels = {"kueue.x-k8s.io/queue-name": LOCAL_QUEUE}
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    container = {"name": "train", "image": "training", "resources": {"requests": requests, "limits": requests}}
    template = {
        "metadata": {"annotations": {"entrepot.dev/simulated-duration": f"{SIMULATED_S}s"}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"nvidia.com/gpu.product": PRODUCT},
            "containers": [container],
        },
    }
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def submit(api: KubeApi, names: Sequence[str], priority: str | None = None) -> None:
    for name in names:
        api.request("POST", JOBS, job(name, priority))


def use_dispatcher(fleet: LocalFleet, dispatcher: str) -> None:
    """Restart the hub's Kueue with another dispatcher and the release's concurrency; wait for its workers.

    Every contender begins so, whether its dispatcher is built in or not: with a fresh Kueue whose clients are rested.
    """
    path = fleet.directory / "clusters" / "hub" / "kueue.yaml"
    content = yaml.safe_load(path.read_text())
    content["multiKueue"]["dispatcherName"] = dispatcher
    content["controller"] = {"groupKindConcurrency": dict(STOCK_CONCURRENCY)}
    kueue.write_configuration(path, content)
    fleet.restart_kueue("hub", {})
    with fleet.hub.api() as api:
        wait_until(lambda: _all_active(api), READY_S, "every MultiKueueCluster to be Active")


def _is_empty(api: KubeApi) -> bool:
    """Whatever is left is asked to go again: a copy may have been made after the jobs were deleted."""
    api.request("DELETE", WORKLOADS, {"propagationPolicy": "Background"})
    return not api.request("GET", WORKLOADS)["items"]


def _all_active(api: KubeApi) -> bool:
    return all(condition_is(item, "Active") for item in api.request("GET", CLUSTERS)["items"])


def clear(fleet: LocalFleet) -> None:
    """Delete all jobs of the bench and wait until no Workload is left, on the hub and on the workers.

    On the workers too, for MultiKueue would take its time: it asks five times a second.
    """
    clusters = {"hub": fleet.hub, **dict(sorted(fleet.workers.items()))}
    for endpoint in clusters.values():
        with endpoint.api() as api:
            api.request("DELETE", JOBS, {"propagationPolicy": "Background"})
    for name, endpoint in clusters.items():
        with endpoint.api() as api:
            wait_until(partial(_is_empty, api), CLEAR_S, f"{name} to be empty", 0.5)
