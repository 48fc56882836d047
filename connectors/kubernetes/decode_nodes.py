"""Nodes, pods and namespaces of a worker, from JSON to what a fit needs. Pure."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from connectors.kubernetes.decode import CopyRecord
from connectors.kubernetes.decode_queues import taint
from connectors.kubernetes.fields import (
    SHARED,
    Raw,
    child,
    children,
    condition,
    integer,
    pairs,
    readable_resources,
    shared,
    text,
)
from connectors.kubernetes.pods import pod_requests
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import NodeView, WorkerCopy

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
JOBSET_NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
PODSET_LABEL = "kueue.x-k8s.io/podset"
WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
ENDED_PHASES = ("Succeeded", "Failed")

SHARED_BY_A_JOB = 256
"""Its pods come one after another in a list, and at about the same time in a watch: fewer jobs are remembered."""

JobKey = tuple[str, str, str]
"""(kind, namespace, name) of a job, ("uid", "", uid) of an owner, or ("Workload", namespace, name)."""


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """A namespace that can take work, with what queues select it by."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


def namespace(raw: Raw) -> NamespaceRecord | None:
    """None for one that is being deleted: it refuses new objects."""
    meta = child(raw, "metadata")
    return None if "deletionTimestamp" in meta else NamespaceRecord(shared(meta, "name"), pairs(child(meta, "labels")))


def node(raw: Raw) -> NodeView:
    """A node without its pods; an allocatable entry that cannot be read is not there to give."""
    meta, spec = child(raw, "metadata"), child(raw, "spec")
    return NodeView(
        name=shared(meta, "name"),
        labels=pairs(child(meta, "labels")),
        allocatable=readable_resources(child(raw, "status", "allocatable")),
        taints=tuple(taint(entry) for entry in children(spec, "taints")),
        ready=condition(raw, "Ready").holds,
        schedulable=spec.get("unschedulable") is not True,
        deleting="deletionTimestamp" in meta,
    )


@dataclass(frozen=True, slots=True)
class PodUse:
    """A pod that sits on a node and has not ended: what it takes, and the jobs it may belong to."""

    node: str
    requests: Resources
    jobs: tuple[JobKey, ...]
    yields: bool = False


def pod_use(raw: Raw) -> PodUse | None:
    """None for a pod that takes nothing from any node: not bound yet, or ended.

    Raises:
        QuantityError: a request cannot be read.
    """
    spec = child(raw, "spec")
    on_node = shared(spec, "nodeName")
    if not on_node or text(child(raw, "status"), "phase") in ENDED_PHASES:
        return None
    meta = child(raw, "metadata")
    return _use(on_node, pod_requests(spec), _jobs(meta), _yields(spec, meta))


@lru_cache(maxsize=SHARED_BY_A_JOB)
def _use(node: str, requests: Resources, jobs: tuple[JobKey, ...], yields: bool) -> PodUse:
    """The pods of one job on one node are one value: a node of eight GPUs often has eight such."""
    return PodUse(node, requests, jobs, yields)


def _yields(spec: Raw, meta: Raw) -> bool:
    """Burn-in and idle tests run below the default priority 0, so the scheduler removes them for any ordinary pod
    (FR-SCO-06). Kueue's own pods are not among them: what they lose is priced as a preemption."""
    return integer(spec, "priority") < 0 and PODSET_LABEL not in child(meta, "labels")


def _jobs(meta: Raw) -> tuple[JobKey, ...]:
    labels, annotations = child(meta, "labels"), child(meta, "annotations")
    owners = tuple(text(o, "uid") for o in children(meta, "ownerReferences"))
    job, job_set = text(labels, JOB_NAME_LABEL), text(labels, JOBSET_NAME_LABEL)
    return _job_keys(shared(meta, "namespace"), job_set, job, text(annotations, WORKLOAD_ANNOTATION), owners)


@lru_cache(maxsize=SHARED_BY_A_JOB)
def _job_keys(where: str, job_set: str, job: str, workload: str, owners: tuple[str, ...]) -> tuple[JobKey, ...]:
    named = (("JobSet", job_set), ("Job", job), ("Workload", workload))
    keys = tuple((kind, where, sys.intern(name)) for kind, name in named if name)
    return (*keys, *(("uid", "", sys.intern(uid)) for uid in owners))


def shared_sum(amounts: Mapping[str, int]) -> Resources:
    """Amounts that are not zero: what is asked for and what was asked for once must not differ."""
    return _shared_sum(tuple(sorted(item for item in amounts.items() if item[1])))


@lru_cache(maxsize=SHARED)
def _shared_sum(items: tuple[tuple[str, int], ...]) -> Resources:
    """Equal loads are one object: most nodes of a busy fleet are full in the same way."""
    return Resources(items)


def bound_pods(records: Iterable[CopyRecord], bound: Counter[JobKey]) -> dict[tuple[str, str], WorkerCopy]:
    """Copies by (namespace, name) in that order, each with the number of its job's pods that are on nodes."""
    found = {}
    for record in sorted(records, key=lambda r: (r.copy.namespace, r.copy.name)):
        count = bound[job_key(record, bound)]
        found[(record.copy.namespace, record.copy.name)] = (
            replace(record.copy, bound_pods=count) if count else record.copy
        )
    return found


def job_key(record: CopyRecord, bound: Counter[JobKey]) -> JobKey:
    """Pods name their job in several ways; the ways overlap, so the one that finds most is the count."""
    copy = record.copy
    ways: list[JobKey] = [("Workload", copy.namespace, copy.name)]
    if record.owner_uid:
        ways += [(copy.job_kind, copy.namespace, copy.job_name), ("uid", "", record.owner_uid)]
    return max(ways, key=lambda way: bound[way])
