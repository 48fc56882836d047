"""Kueue Workloads and their owners, from JSON to the core's vocabulary. Pure, one object at a time.

A Workload that cannot be read in part is still a Workload: it comes back with `problem` set, so that it is held and
its owner told, rather than lost or misread. Kueue v1beta2 shapes as in kueue-contract sections 3, 4 and 10.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from connectors.kubernetes.fields import (
    ABSENT,
    Condition,
    Raw,
    child,
    children,
    conditions,
    instant,
    integer,
    own_keys,
    resources,
    shared,
    text,
    texts,
)
from connectors.kubernetes.pods import pod_requests
from dispatcher.core.idle import ENDED, ENDING, NOTICE
from dispatcher.core.ids import ClusterName, FlavorName, QueueName, WorkloadUid
from dispatcher.core.resources import QuantityError, Resources, is_gpu
from dispatcher.core.snapshot import WorkerCopy
from dispatcher.core.topology import Slice, TopologyWish
from dispatcher.core.workload import (
    CheckState,
    HubWorkload,
    Owner,
    OwnerMeta,
    PodSet,
    Requirement,
    Toleration,
)

ORIGIN_LABEL = "kueue.x-k8s.io/multikueue-origin"
SLICE_ANNOTATION = "kueue.x-k8s.io/workload-slice-replacement-for"
OWNER_GVK_ANNOTATION = "kueue.x-k8s.io/job-owner-gvk"
OWNER_NAME_ANNOTATION = "kueue.x-k8s.io/job-owner-name"
COMPONENT_ANNOTATION = "kueue.x-k8s.io/component-workload-index"
MULTI_WORKLOAD_KIND = "LeaderWorkerSet"
PREEMPTED = "Preempted"
"""The only owner kind of Kueue 0.17 to 0.19 that makes several Workloads which share one cluster."""

_TOPOLOGY_KEYS = (
    "required",
    "preferred",
    "unconstrained",
    "podSetSliceRequiredTopology",
    "podSetSliceSize",
    "podsetSliceRequiredTopologyConstraints",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOWHERE = Requirement("metadata.name", "In", ())
"""A term without expressions matches no node (core API); In without values says the same."""


def hub_workload(raw: Raw) -> HubWorkload:
    """A Workload of the hub. Never raises for a bad value: see `HubWorkload.problem`."""
    meta, spec, status = child(raw, "metadata"), child(raw, "spec"), child(raw, "status")
    annotations = child(meta, "annotations")
    problems: list[str] = []
    owners = tuple(children(meta, "ownerReferences"))
    known = conditions(raw)
    finished, admitted = known.get("Finished", ABSENT), known.get("Admitted", ABSENT)
    index, group = _component(raw, problems)
    if instant(meta.get("creationTimestamp")) is None:
        problems.append("metadata.creationTimestamp: not a time")
    return HubWorkload(
        uid=WorkloadUid(text(meta, "uid")),
        namespace=shared(meta, "namespace"),
        name=text(meta, "name"),
        resource_version=text(meta, "resourceVersion"),
        created_at=instant(meta.get("creationTimestamp")) or _EPOCH,
        local_queue=shared(spec, "queueName"),
        priority=integer(spec, "priority"),
        owner=_owner(raw, owners),
        owner_count=len(owners),
        cluster_queue=_admitted_queue(status),
        active=spec.get("active") is not False,
        deleting="deletionTimestamp" in meta,
        finished=finished.holds,
        finished_reason=sys.intern(finished.reason) if finished.holds else "",
        finished_at=finished.since,
        quota_reserved_at=known.get("QuotaReserved", ABSENT).since,
        admitted_at=admitted.since,
        left_at=admitted.changed_at if admitted.status == "False" else None,
        evicted_at=known.get("Evicted", ABSENT).since,
        preempted_by=_preempted_by(known),
        checks=tuple(_check(entry) for entry in children(status, "admissionChecks")),
        cluster_name=ClusterName(shared(status, "clusterName")) or None,
        nominated=tuple(ClusterName(name) for name in texts(status, "nominatedClusterNames")),
        pod_sets=_pod_sets(spec, problems),
        replaces_slice=text(annotations, SLICE_ANNOTATION) or None,
        component_index=index,
        group_key=group,
        template_keys=own_keys(*(child(p, "template", "metadata") for p in children(spec, "podSets"))),
        claims=_claims(spec, shared(meta, "namespace")),
        problem="; ".join(problems) or None,
        idle_notice=text(annotations, NOTICE),
        idle_ending=text(annotations, ENDING),
        idle_ended=text(annotations, ENDED),
    )


def _preempted_by(known: Mapping[str, Condition]) -> str:
    """Why it is preempted, as long as that is what it is evicted for."""
    evicted, preempted = known.get("Evicted", ABSENT), known.get("Preempted", ABSENT)
    return sys.intern(preempted.reason) if evicted.holds and evicted.reason == PREEMPTED and preempted.holds else ""


def _check(entry: Raw) -> CheckState:
    return CheckState(
        name=shared(entry, "name"),
        state=shared(entry, "state"),
        message=text(entry, "message"),
        changed_at=instant(entry.get("lastTransitionTime")),
    )


def _admitted_queue(status: Raw) -> QueueName | None:
    return QueueName(shared(child(status, "admission"), "clusterQueue")) or None


# --- owners ------------------------------------------------------------------------------------------------------


def _owner(raw: Raw, owners: tuple[Raw, ...]) -> Owner | None:
    """The job behind a Workload, found as MultiKueue finds it: by annotation, else the controller, else the first."""
    annotations = child(raw, "metadata", "annotations")
    gvk = _gvk(text(annotations, OWNER_GVK_ANNOTATION))
    name = text(annotations, OWNER_NAME_ANNOTATION)
    if gvk is not None and name:
        match = next((o for o in owners if (text(o, "apiVersion"), text(o, "kind")) == gvk), {})
        return Owner(sys.intern(gvk[0]), sys.intern(gvk[1]), name, text(match, "uid"))
    chosen = next((o for o in owners if o.get("controller") is True), owners[0] if owners else None)
    if chosen is None:
        return None
    return Owner(shared(chosen, "apiVersion"), shared(chosen, "kind"), text(chosen, "name"), text(chosen, "uid"))


def _gvk(value: str) -> tuple[str, str] | None:
    """("group/version", kind) of Kueue's written form "group/version, Kind=kind"."""
    api_version, separator, kind = value.partition(", Kind=")
    return (api_version, kind) if separator and kind else None


def _component(raw: Raw, problems: list[str]) -> tuple[int | None, str | None]:
    """Index and group of a Workload whose owner makes several (kueue-contract section 4, "LWS etc.")."""
    meta = child(raw, "metadata")
    annotations = child(meta, "annotations")
    gvk = _gvk(text(annotations, OWNER_GVK_ANNOTATION))
    if gvk is None or gvk[1] != MULTI_WORKLOAD_KIND:
        return None, None
    index = text(annotations, COMPONENT_ANNOTATION)
    if not (index.isascii() and index.isdigit()):
        problems.append(f"annotation {COMPONENT_ANNOTATION}: {index!r} is not a component's number")
        return None, None
    group = f"{text(meta, 'namespace')}/{gvk[1]}/{text(annotations, OWNER_NAME_ANNOTATION)}"
    return int(index), sys.intern(group)


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """A job object's metadata; `components` is how many Workloads it makes, for the kinds that make several."""

    meta: OwnerMeta
    components: int | None = None


def owner_record(raw: Raw, kind: str) -> OwnerRecord:
    """A job object (whole, or metadata only). `kind` is the watched kind: list items do not say theirs."""
    meta = child(raw, "metadata")
    components = integer(child(raw, "spec"), "replicas", 1) if kind == MULTI_WORKLOAD_KIND else None
    found = OwnerMeta(
        uid=text(meta, "uid"),
        kind=sys.intern(kind),
        namespace=shared(meta, "namespace"),
        name=text(meta, "name"),
        keys=own_keys(meta),
        controller_uid=next((text(o, "uid") for o in children(meta, "ownerReferences") if o.get("controller")), ""),
    )
    return OwnerRecord(found, components)


# --- pod sets ----------------------------------------------------------------------------------------------------


def _pod_sets(spec: Raw, problems: list[str]) -> tuple[PodSet, ...]:
    return tuple(_pod_set(entry, problems) for entry in children(spec, "podSets"))


def _claims(spec: Raw, namespace: str) -> tuple[str, ...]:
    """Claims that pods mount by name. Claims that are made for each pod (ephemeral volumes) begin empty everywhere."""
    pods = [child(entry, "template", "spec") for entry in children(spec, "podSets")]
    named = {text(child(v, "persistentVolumeClaim"), "claimName") for pod in pods for v in children(pod, "volumes")}
    return tuple(sys.intern(f"{namespace}/{name}") for name in sorted(named - {""}))


def _pod_set(entry: Raw, problems: list[str]) -> PodSet:
    pod = child(entry, "template", "spec")
    name = shared(entry, "name") or "main"
    try:
        per_pod = pod_requests(pod)
    except QuantityError as error:
        problems.append(f"pod set {name}: {error}")
        per_pod = Resources()
    count = integer(entry, "count", -1)
    if count < 0:
        problems.append(f"pod set {name}: count {entry.get('count')!r} is not a number of pods")
    return PodSet(
        name=name,
        count=max(count, 0),
        per_pod=per_pod,
        selector=tuple(
            Requirement(sys.intern(key), "In", (sys.intern(str(value)),))
            for key, value in sorted(child(pod, "nodeSelector").items())
        ),
        terms=_terms(pod),
        tolerations=tuple(_toleration(t) for t in children(pod, "tolerations")),
        topology=_topology(entry, name, problems) if "topologyRequest" in entry else None,
    )


def _topology(entry: Raw, name: str, problems: list[str]) -> TopologyWish | None:
    """What asks for topology-aware scheduling, by Kueue's own test: labels that number pods alone do not."""
    asked = child(entry, "topologyRequest")
    if not any(key in asked for key in _TOPOLOGY_KEYS):
        return None
    return TopologyWish(
        required=shared(asked, "required") or None,
        preferred=shared(asked, "preferred") or None,
        slices=_slices(asked, name, problems),
        group=shared(asked, "podSetGroupName"),
    )


def _slices(asked: Raw, name: str, problems: list[str]) -> tuple[Slice, ...]:
    """One level of slices has fields of its own; several, a gate of Kueue, are a list from broad to narrow, which then
    counts alone. Kueue lays out no slice whose size it is not told."""
    several = [
        (shared(e, "topology"), integer(e, "size")) for e in children(asked, "podsetSliceRequiredTopologyConstraints")
    ]
    one = shared(asked, "podSetSliceRequiredTopology")
    found = several or ([(one, integer(asked, "podSetSliceSize"))] if one else [])
    if any(size < 1 for _, size in found):
        problems.append(f"pod set {name}: the size of a topology slice is not a number of pods")
        return ()
    return tuple(Slice(level, size) for level, size in found)


def _required(spec: Raw) -> tuple[tuple[str, str], ...]:
    levels = (
        (shared(entry, "name") or "main", shared(child(entry, "topologyRequest"), "required"))
        for entry in children(spec, "podSets")
    )
    return tuple((name, level) for name, level in levels if level)


def _terms(pod: Raw) -> tuple[tuple[Requirement, ...], ...]:
    required = child(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return tuple(_term(term) for term in children(required, "nodeSelectorTerms"))


def _term(term: Raw) -> tuple[Requirement, ...]:
    parts = [*children(term, "matchExpressions"), *children(term, "matchFields")]
    found = tuple(Requirement(shared(p, "key"), shared(p, "operator"), texts(p, "values")) for p in parts)
    return found or (_NOWHERE,)


def _toleration(raw: Raw) -> Toleration:
    return Toleration(
        key=shared(raw, "key"),
        operator=shared(raw, "operator") or "Equal",
        value=shared(raw, "value"),
        effect=shared(raw, "effect"),
    )


# --- copies on workers -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """A worker's Workload and the uid of its job there; empty before the job exists."""

    copy: WorkerCopy
    owner_uid: str


def worker_copy(raw: Raw) -> CopyRecord:
    """A Workload as a worker holds it: a copy of ours, or local work that uses the same queues."""
    meta, spec, status = child(raw, "metadata"), child(raw, "spec"), child(raw, "status")
    known = conditions(raw)
    quota, evicted, finished = (known.get(kind, ABSENT) for kind in ("QuotaReserved", "Evicted", "Finished"))
    owner = _owner(raw, tuple(children(meta, "ownerReferences")))
    copy = WorkerCopy(
        uid=text(meta, "uid"),
        namespace=shared(meta, "namespace"),
        name=text(meta, "name"),
        ours=ORIGIN_LABEL in child(meta, "labels"),
        local_queue=shared(spec, "queueName"),
        cluster_queue=_admitted_queue(status),
        priority=integer(spec, "priority"),
        quota_reserved_at=quota.since,
        quota_message=quota.message,
        admitted_at=known.get("Admitted", ABSENT).since,
        evicted_at=evicted.since,
        evicted_reason=sys.intern(evicted.reason) if evicted.holds else "",
        finished=finished.holds,
        finished_reason=sys.intern(finished.reason) if finished.holds else "",
        active=spec.get("active") is not False,
        checks=tuple(_check(entry) for entry in children(status, "admissionChecks")),
        pod_sets=_assigned(spec, status),
        required=_required(spec),
        job_kind=owner.kind if owner is not None else "",
        job_name=sys.intern(owner.name) if owner is not None else "",
        preempted_by=_preempted_by(known),
    )
    return CopyRecord(copy, owner.uid if owner is not None else "")


def _assigned(spec: Raw, status: Raw) -> tuple[tuple[str, int, Resources, FlavorName | None], ...]:
    """Pod sets with what one pod holds: as the worker's Kueue counted it once assigned, else as the template asks."""
    assignments = {text(a, "name") or "main": a for a in children(child(status, "admission"), "podSetAssignments")}
    found: list[tuple[str, int, Resources, FlavorName | None]] = []
    for entry in children(spec, "podSets"):
        pod_set = _pod_set(entry, [])
        assignment = assignments.get(pod_set.name)
        if assignment is None:
            found.append((pod_set.name, pod_set.count, pod_set.per_pod, None))
            continue
        count = integer(assignment, "count", pod_set.count)
        counted = _per_pod(assignment, count) or pod_set.per_pod
        found.append((pod_set.name, count, counted, _flavor(assignment, pod_set.per_pod)))
    return tuple(found)


def _per_pod(assignment: Raw, count: int) -> Resources | None:
    """`resourceUsage` is the sum over the pods; it shows the worker's transformations, which no API publishes."""
    try:
        total = resources(child(assignment, "resourceUsage"))
    except QuantityError:
        return None
    if count <= 0 or not total.items or any(value % count for _, value in total):
        return None
    return Resources(tuple((name, value // count) for name, value in total))


def _flavor(assignment: Raw, per_pod: Resources) -> FlavorName | None:
    """One flavor a pod set: that of its accelerator, else of its first resource (different groups may differ)."""
    flavors = child(assignment, "flavors")
    chosen = per_pod.gpu_resource() or next((name for name in sorted(flavors) if is_gpu(name)), None)
    name = text(flavors, chosen) if chosen else ""
    name = name or next((text(flavors, key) for key in sorted(flavors)), "")
    return FlavorName(sys.intern(name)) if name else None
