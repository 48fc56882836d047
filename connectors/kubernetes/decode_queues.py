"""Kueue's queues, flavors, checks and MultiKueue objects, from v1beta2 JSON to the core's views. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from connectors.kubernetes.fields import (
    Raw,
    child,
    children,
    condition,
    integer,
    pairs,
    shared,
    text,
    texts,
)
from dispatcher.core.ids import ClusterName, FlavorName, QueueName
from dispatcher.core.resources import QuantityError, amount
from dispatcher.core.selectors import Labels, requirement_holds
from dispatcher.core.snapshot import (
    MULTIKUEUE_CONTROLLER,
    Check,
    ClusterQueueView,
    CohortView,
    FlavorView,
    HubQueue,
    LocalQueueView,
    MultiKueueClusterView,
    Quota,
    ResourceGroup,
    StopPolicy,
    Taint,
)
from dispatcher.core.topology import Topology
from dispatcher.core.workload import Requirement

_PREEMPTS = ("LowerPriority", "LowerOrNewerEqualPriority")
_RECLAIMS = ("LowerPriority", "Any")


def check(raw: Raw) -> Check:
    """An AdmissionCheck; one that is being deleted is not active."""
    spec = child(raw, "spec")
    controller = shared(spec, "controllerName")
    config = shared(child(spec, "parameters"), "name") if controller == MULTIKUEUE_CONTROLLER else ""
    return Check(
        name=shared(child(raw, "metadata"), "name"),
        controller=controller,
        active=_active(raw),
        config=config or None,
    )


def multikueue_config(raw: Raw) -> tuple[ClusterName, ...]:
    """The clusters of a MultiKueueConfig in the order written: preferred ones come first (0.19)."""
    return tuple(ClusterName(name) for name in texts(child(raw, "spec"), "clusters"))


def multikueue_cluster(raw: Raw) -> MultiKueueClusterView:
    meta = child(raw, "metadata")
    source = child(raw, "spec", "clusterSource", "kubeConfig")
    in_secret = text(source, "locationType") in ("", "Secret")
    active = condition(raw, "Active")
    return MultiKueueClusterView(
        name=ClusterName(shared(meta, "name")),
        active=active.holds,
        reason=active.reason,
        message=active.message,
        deleting="deletionTimestamp" in meta,
        secret=(text(source, "location") or None) if in_secret else None,
    )


def hub_queue(raw: Raw) -> HubQueue:
    spec = child(raw, "spec")
    return HubQueue(
        name=QueueName(shared(child(raw, "metadata"), "name")),
        active=_active(raw),
        stop_policy=stop_policy(spec),
        checks=tuple(
            shared(entry, "name") for entry in children(child(spec, "admissionChecksStrategy"), "admissionChecks")
        ),
    )


def local_queue(raw: Raw) -> LocalQueueView:
    meta, spec = child(raw, "metadata"), child(raw, "spec")
    return LocalQueueView(
        namespace=shared(meta, "namespace"),
        name=shared(meta, "name"),
        cluster_queue=QueueName(shared(spec, "clusterQueue")),
        active=_active(raw),
        stop_policy=stop_policy(spec),
    )


NamespaceSelector = tuple[Requirement, ...] | None
"""Which namespaces a ClusterQueue takes work of: those that meet all of it. None: of none at all, which is what a
queue says that names no selector (`{}` takes all)."""


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A ClusterQueue with what its LocalQueues are judged by."""

    view: ClusterQueueView
    selector: NamespaceSelector


def queue_record(raw: Raw) -> QueueRecord:
    """Raises QuantityError as `cluster_queue`."""
    return QueueRecord(cluster_queue(raw), namespace_selector(raw))


def namespace_selector(raw: Raw) -> NamespaceSelector:
    """Of a ClusterQueue."""
    found = child(raw, "spec").get("namespaceSelector")
    if not isinstance(found, dict):
        return None
    labels = tuple(Requirement(key, "In", (value,)) for key, value in pairs(child(found, "matchLabels")))
    rest = children(found, "matchExpressions")
    return labels + tuple(Requirement(shared(e, "key"), shared(e, "operator"), texts(e, "values")) for e in rest)


def takes(selector: NamespaceSelector, labels: Labels) -> bool:
    """Whether work of a namespace with these labels is taken."""
    return selector is not None and all(requirement_holds(each, labels) for each in selector)


def taking(
    local: LocalQueueView, queues: Mapping[QueueName, QueueRecord], namespaces: Mapping[str, Labels]
) -> LocalQueueView:
    """A LocalQueue as the work of its namespace finds it. Kueue calls one active whose ClusterQueue selects other
    namespaces, and never admits what comes by it: for whoever would send work there it is not."""
    queue, labels = queues.get(local.cluster_queue), namespaces.get(local.namespace)
    if queue is None or labels is None or takes(queue.selector, labels):
        return local
    return replace(local, active=False)


def cluster_queue(raw: Raw) -> ClusterQueueView:
    """A worker's ClusterQueue with its quotas.

    Raises:
        QuantityError: a quota cannot be read; the queue is then absent, which excludes it, rather than misread.
    """
    spec, status = child(raw, "spec"), child(raw, "status")
    preemption = child(spec, "preemption")
    borrowing = child(preemption, "borrowWithinCohort")
    threshold = borrowing.get("maxPriorityThreshold")
    return ClusterQueueView(
        name=QueueName(shared(child(raw, "metadata"), "name")),
        active=_active(raw),
        stop_policy=stop_policy(spec),
        cohort=shared(spec, "cohortName") or None,
        groups=_groups(spec),
        quotas=_quotas(spec, _reserved(status)),
        preempts_lower_priority=text(preemption, "withinClusterQueue") in _PREEMPTS,
        reclaims_within_cohort=text(preemption, "reclaimWithinCohort") in _RECLAIMS,
        pending=integer(status, "pendingWorkloads"),
        reclaims_any=text(preemption, "reclaimWithinCohort") == "Any",
        preempts_while_borrowing=text(borrowing, "policy") == "LowerPriority",
        borrowing_threshold=threshold if isinstance(threshold, int) else None,
    )


def cohort(raw: Raw) -> CohortView:
    """A Cohort object. Raises QuantityError as `cluster_queue`."""
    spec = child(raw, "spec")
    return CohortView(
        name=shared(child(raw, "metadata"), "name"),
        parent=shared(spec, "parentName") or None,
        quotas=_quotas(spec, {}),
    )


def flavor(raw: Raw) -> FlavorView:
    spec = child(raw, "spec")
    return FlavorView(
        name=FlavorName(shared(child(raw, "metadata"), "name")),
        labels=pairs(child(spec, "nodeLabels")),
        taints=tuple(taint(entry) for entry in children(spec, "nodeTaints")),
        tolerations=tuple(
            (shared(t, "key"), shared(t, "operator") or "Equal", shared(t, "value"), shared(t, "effect"))
            for t in children(spec, "tolerations")
        ),
        topology=Topology(shared(spec, "topologyName")) if text(spec, "topologyName") else None,
    )


def topology(raw: Raw) -> Topology:
    """A Topology of Kueue."""
    levels = tuple(shared(level, "nodeLabel") for level in children(child(raw, "spec"), "levels"))
    return Topology(shared(child(raw, "metadata"), "name"), levels)


def with_levels(flavor: FlavorView, topologies: Mapping[str, Topology]) -> FlavorView:
    """A flavor with the levels of the topology that it names, where that can be read."""
    named = flavor.topology
    return flavor if named is None else replace(flavor, topology=topologies.get(named.name, Topology(named.name)))


def taint(raw: Raw) -> Taint:
    return Taint(shared(raw, "key"), shared(raw, "value"), shared(raw, "effect"))


def stop_policy(spec: Raw) -> StopPolicy:
    """A policy that a newer API invented is read as Hold: it exists to keep work out."""
    value = text(spec, "stopPolicy")
    if value in ("", StopPolicy.NONE):
        return StopPolicy.NONE
    return StopPolicy.HOLD_AND_DRAIN if value == StopPolicy.HOLD_AND_DRAIN else StopPolicy.HOLD


def _active(raw: Raw) -> bool:
    """Active=True and not on its way out (FR-NOM-04: from the instant of the deletion mark)."""
    return condition(raw, "Active").holds and "deletionTimestamp" not in child(raw, "metadata")


def _groups(spec: Raw) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            resources=texts(group, "coveredResources"),
            flavors=tuple(FlavorName(shared(entry, "name")) for entry in children(group, "flavors")),
        )
        for group in children(spec, "resourceGroups")
    )


def _quotas(spec: Raw, reserved: dict[tuple[str, str], int]) -> tuple[Quota, ...]:
    return tuple(
        Quota(
            flavor=FlavorName(shared(entry, "name")),
            resource=shared(line, "name"),
            nominal=amount(text(line, "name"), str(line.get("nominalQuota", "0"))),
            borrowing_limit=_limit(line, "borrowingLimit"),
            lending_limit=_limit(line, "lendingLimit"),
            reserved=reserved.get((text(entry, "name"), text(line, "name")), 0),
        )
        for group in children(spec, "resourceGroups")
        for entry in children(group, "flavors")
        for line in children(entry, "resources")
    )


def _limit(line: Raw, key: str) -> int | None:
    value = line.get(key)
    return None if value is None else amount(text(line, "name"), str(value))


def _reserved(status: Raw) -> dict[tuple[str, str], int]:
    """status.flavorsReservation: reserved, incl. what is not yet Admitted (kueue-contract section 12, best basis)."""
    found: dict[tuple[str, str], int] = {}
    for entry in children(status, "flavorsReservation"):
        for line in children(entry, "resources"):
            name = text(line, "name")
            try:
                found[(text(entry, "name"), name)] = amount(name, str(line.get("total", "0")))
            except QuantityError as error:
                raise QuantityError(f"status.flavorsReservation of {text(entry, 'name')}: {error}") from None
    return found
