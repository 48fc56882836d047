"""The world of a scenario: the fleet and rules of its blueprint, its catalog, and its jobs as users would apply them.

All contenders of a seed run on equal worlds. What the system is told of a job (its manifest) holds the estimate of its
owner; the truth stays with the pace of the world (`world_pace`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time
from functools import cached_property
from pathlib import Path
from typing import Any

from connectors.embedded import EmbeddedFleet, ManualClock, Settings
from connectors.embedded.fleet import Options
from dispatcher.config import load_blueprint
from dispatcher.config.blueprint import Blueprint
from dispatcher.config.render import render
from dispatcher.core.errors import Fatal
from dispatcher.core.ids import DataLabel, DataSetName
from dispatcher.core.policy import DataSet, Policy
from dispatcher.core.resources import WHOLE_GPU
from dispatcher.core.snapshot import digest_of
from dispatcher.sim.jobs import Scenario, SimDataSet, SimJob
from dispatcher.sim.scenarios import blueprint_folder

Manifest = dict[str, Any]
CPU_PER_GPU, MEMORY_GIB_PER_GPU = 4, 16
"""Less than any node has by GPU, so that GPUs alone decide what fits."""
FOR_EVER_DAYS = 100_000
"""A simulated month must not make a price list old: it is the list of the day on which the scenario starts."""
KEPT_S = 60
"""How long a finished job object stays on the hub: long enough to be seen."""
_QUEUE_LABEL, _PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
_OURS = "entrepot.dev/"


@dataclass(frozen=True)
class Setup:
    """What a scenario runs on, the same for every contender: rules and prices with the scenario's catalog, the fleet's
    plan, and the instant that is second 0."""

    scenario: Scenario
    blueprint: Blueprint
    policy: Policy
    start: datetime

    def fleet(self, clock: ManualClock) -> EmbeddedFleet:
        """A new fleet, empty. MultiKueue's calls take the time that stock Kueue's rate limit makes them take."""
        return EmbeddedFleet.of_plan(render(self.blueprint), clock, Options(multikueue=Settings()))

    def manifest(self, job: SimJob) -> Manifest:
        """The job as its owner would apply it: what it asks for, what it reads, and an estimate of its duration."""
        return _manifest(job, self)

    @cached_property
    def jobs(self) -> Mapping[tuple[str, str], SimJob]:
        """Jobs by (namespace, name)."""
        return {(self.namespace(job), job.name): job for job in self.scenario.jobs}

    def key(self, job: SimJob) -> str:
        """namespace/name of the job object."""
        return f"{self.namespace(job)}/{job.name}"

    def namespace(self, job: SimJob) -> str:
        return self.blueprint.queues.queues[job.queue].namespace


def set_up(scenario: Scenario, folder: Path | None = None) -> Setup:
    """Load the scenario's blueprint, or the one in `folder`, and put the scenario's data sets into its catalog.

    Raises:
        Fatal: the blueprint does not load, or it lacks a queue or a price that the scenario needs.
    """
    path = folder or blueprint_folder(scenario.blueprint)
    start = start_of(path)
    result = load_blueprint(path, start)
    if result.policy is None or result.blueprint is None:
        raise Fatal("\n".join(p.text() for p in result.errors), fix="correct the blueprint, or name another scenario")
    unknown = sorted({job.queue for job in scenario.jobs} - set(result.blueprint.queues.queues))
    if unknown:
        raise Fatal(f"{path}: no queue {', '.join(unknown)}", fix="add it to queues.yaml, or simulate other jobs")
    return Setup(scenario, result.blueprint, with_catalog(result.policy, scenario.data_sets), start)


def start_of(path: Path) -> datetime:
    """Midnight (UTC) of the newest price: from the files alone, so that the same files give the same bytes."""
    found = load_blueprint(path, datetime(2000, 1, 1, tzinfo=UTC)).policy
    if found is None:
        return datetime(2026, 1, 1, tzinfo=UTC)
    dated = [price.dated for price in found.prices.compute.values()]
    dated += [price.dated for price in found.prices.egress.values()]
    return datetime.combine(max(dated), time(), UTC) if dated else datetime(2026, 1, 1, tzinfo=UTC)


def with_catalog(policy: Policy, data_sets: tuple[SimDataSet, ...]) -> Policy:
    """The policy with these data sets beside its own, and prices that do not grow old."""
    added = {DataSetName(each.name): _catalogued(each, policy) for each in data_sets}
    catalog = dict(sorted({**policy.data_sets, **added}.items()))
    prices = replace(policy.prices, max_age_days=FOR_EVER_DAYS)
    digest = digest_of((policy.digest, tuple(added.items()), FOR_EVER_DAYS))
    return replace(policy, data_sets=catalog, prices=prices, digest=digest)


def _catalogued(each: SimDataSet, policy: Policy) -> DataSet:
    stores = tuple(name for name, store in sorted(policy.stores.items()) if store.region in each.regions)
    labels = tuple(DataLabel(label) for label in each.labels)
    return DataSet(DataSetName(each.name), labels, each.size_bytes, replica_clusters=(), replica_stores=stores)


def accepted_labels(job: SimJob, policy: Policy) -> tuple[str, tuple[str, ...]] | None:
    """The node label by which the job's products are chosen, and its values; None where it takes any."""
    if not job.products:
        return None
    values: dict[str, set[str]] = {}
    for cluster in policy.clusters.values():
        for flavor in cluster.flavors.values():
            if flavor.product in job.products:
                for key, value in flavor.labels:
                    values.setdefault(key, set()).add(value)
    if not values:
        return f"{_OURS}no-such-product", job.products
    key = max(values, key=lambda k: (len(values[k]), k))
    return key, tuple(sorted(values[key]))


def _manifest(job: SimJob, setup: Setup) -> Manifest:
    queue = setup.blueprint.queues.queues[job.queue]
    asked = {"cpu": CPU_PER_GPU * job.gpus_per_pod, "memory": f"{MEMORY_GIB_PER_GPU * job.gpus_per_pod}Gi"}
    pod: Manifest = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "resources": {"requests": {**asked, WHOLE_GPU: job.gpus_per_pod}}}],
    }
    accepted = accepted_labels(job, setup.policy)
    if accepted is not None:
        expression = {"key": accepted[0], "operator": "In", "values": list(accepted[1])}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    labels = {
        _QUEUE_LABEL: queue.local_queue,
        _PRIORITY_LABEL: job.priority or queue.priority,
        f"{_OURS}team": job.team,
        f"{_OURS}workload-class": job.workload_class.value,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job.name,
            "namespace": queue.namespace,
            "labels": labels,
            "annotations": _annotations(job),
        },
        "spec": {
            "parallelism": job.pods,
            "completions": job.pods,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"spec": pod},
        },
    }


def _annotations(job: SimJob) -> Mapping[str, str]:
    said = {f"{_OURS}expected-duration": f"PT{job.estimate_s}S"}
    if job.data:
        read = [r.data_set if r.epochs == 1 else f"{r.data_set}:{r.epochs}" for r in job.data]
        said[f"{_OURS}datasets"] = ",".join(read)
    if job.checkpoint is not None:
        said[f"{_OURS}checkpoint-interval"] = f"PT{job.checkpoint.interval_s}S"
    return said


def gpus_by_cluster(setup: Setup) -> dict[str, int]:
    """Whole GPUs of each cluster, in order of name. MIG slices are no GPUs that a simulated job could take."""
    found: dict[str, int] = {}
    for name, cluster in sorted(setup.policy.clusters.items()):
        nodes = [flavor.nodes for flavor in cluster.flavors.values() if flavor.nodes is not None]
        found[name] = sum(shape.count * shape.allocatable.get(WHOLE_GPU) for shape in nodes)
    return found
