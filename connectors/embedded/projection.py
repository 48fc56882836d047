"""The world as views: the same dataclasses, with the same meaning, as the real connector makes from JSON.

Only what was touched since the last view is projected anew; a view is a new mapping of mostly old values.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import is_
from types import MappingProxyType

from connectors.embedded.hub import Hub
from connectors.embedded.kueue import Kueue
from connectors.embedded.manifests import selects
from connectors.embedded.multikueue import MultiKueue
from connectors.embedded.objects import Workload
from connectors.embedded.worker import Worker
from dispatcher.core.idle import ENDED, ENDING, NOTICE
from dispatcher.core.ids import ClusterName, FlavorName, QueueName, WorkloadUid
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import (
    Check,
    ClusterQueueView,
    CohortView,
    FlavorView,
    HubQueue,
    HubView,
    LocalQueueView,
    Lying,
    MultiKueueClusterView,
    NodeView,
    WorkerCopy,
    WorkerView,
)
from dispatcher.core.workload import HubWorkload, OwnerMeta, PodSet


@dataclass(frozen=True, slots=True)
class _Configured:
    """The parts of a hub's view that only operators change: made anew when they do, and the same objects until then."""

    checks: Mapping[str, Check] = field(default_factory=dict)
    configs: Mapping[str, tuple[ClusterName, ...]] = field(default_factory=dict)
    clusters: Mapping[ClusterName, MultiKueueClusterView] = field(default_factory=dict)
    queues: Mapping[QueueName, HubQueue] = field(default_factory=dict)
    local_queues: Mapping[tuple[str, str], LocalQueueView] = field(default_factory=dict)


class HubProjection:
    """Makes HubViews; `revision` grows with everything that a view would show."""

    def __init__(self, hub: Hub, multikueue: MultiKueue) -> None:
        self._hub = hub
        self._multikueue = multikueue
        self._workloads: dict[WorkloadUid, HubWorkload] = {}
        self._shown: Mapping[WorkloadUid, HubWorkload] = MappingProxyType({})
        """The workloads as they were when one of them was touched last: the same object until the next is."""
        self._owners: Mapping[str, OwnerMeta] = MappingProxyType({})
        self._owners_at = -1
        self._configured = _Configured()
        self._configured_at = -1

    def revision(self) -> int:
        return self._hub.revision + self._hub.kueue.revision

    def view(self, observed_at: datetime) -> HubView:
        self._refresh()
        configured = self._configured
        return HubView(
            synced=True,
            observed_at=observed_at,
            workloads=self._shown,
            owners=self._owners,
            checks=configured.checks,
            configs=configured.configs,
            clusters=configured.clusters,
            queues=configured.queues,
            local_queues=configured.local_queues,
        )

    def _configure(self) -> _Configured:
        hub, inventory = self._hub, self._hub.inventory
        return _Configured(
            checks={n: replace(c, active=hub.check_active(n)) for n, c in sorted(inventory.checks.items())},
            configs=dict(sorted(inventory.configs.items())),
            clusters={n: self._multikueue.cluster_view(c) for n, c in sorted(inventory.clusters.items())},
            queues={
                name: HubQueue(name, hub.kueue.queue_active(name), queue.spec.view.stop_policy, queue.spec.checks)
                for name, queue in hub.kueue.queues.items()
            },
            local_queues=_local_queues(hub.kueue),
        )

    def _refresh(self) -> None:
        """Uids ascend, so a new Workload belongs at the end and the mapping stays sorted."""
        hub = self._hub
        touched, hub.touched = sorted(hub.touched), {}
        for uid in touched:
            workload = hub.workloads.get(uid)
            if workload is None:
                self._workloads.pop(uid, None)
            else:
                self._workloads[uid] = hub_workload(workload)
        if touched:
            self._shown = MappingProxyType(self._workloads.copy())
        if self._configured_at != hub.kueue.settings:
            self._configured, self._configured_at = self._configure(), hub.kueue.settings
        if self._owners_at != hub.jobs_revision:
            self._owners_at = hub.jobs_revision
            self._owners = MappingProxyType({job.uid: job.owner for job in hub.jobs.values()})


class WorkerProjection:
    """Makes WorkerViews of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._keys: list[tuple[str, str]] = []
        self._copies: dict[tuple[str, str], WorkerCopy] = {}
        self._nodes: dict[str, NodeView] = {}
        self._nodes_shown: tuple[NodeView, ...] = ()
        self._queues: dict[QueueName, ClusterQueueView] = {}
        self._queues_at = -1
        self._namespaces: tuple[str, ...] = ()
        self._local_queues: dict[tuple[str, str], LocalQueueView] = {}
        self._cohorts: dict[str, CohortView] = {}
        self._flavors: dict[FlavorName, FlavorView] = {}
        self._settings_at = -1
        self._lies: dict[tuple[str, str], Lying] = {}

    def revision(self) -> int:
        """Grows with everything that a view would show."""
        worker = self._worker
        return worker.revision + worker.kueue.revision + worker.pool.revision

    def view(self, observed_at: datetime, generation: int) -> WorkerView:
        self._refresh()
        # Plain dicts, as the real connector makes them: a view is digested by its repr, and must come back from a
        # record with the same one.
        return WorkerView(
            cluster=self._worker.name,
            synced=True,
            observed_at=observed_at,
            generation=generation,
            namespaces=self._namespaces,
            local_queues=self._local_queues,
            queues=self._queues,
            cohorts=self._cohorts,
            flavors=self._flavors,
            nodes=self._nodes_shown,
            copies={key: self._copies[key] for key in self._keys},
            lies=self._lies,
        )

    def _configure(self) -> None:
        """What only operators change is the same object until they do."""
        inventory = self._worker.inventory
        self._namespaces = tuple(sorted(inventory.namespaces))
        self._local_queues = _taking(self._worker.kueue)
        self._queues = {}
        self._cohorts = dict(sorted(inventory.cohorts.items()))
        self._flavors = dict(sorted(inventory.flavors.items()))

    def _refresh(self) -> None:
        worker, pool = self._worker, self._worker.pool
        touched, worker.touched = worker.touched, {}
        for key in touched:
            workload = worker.copies.get(key)
            if workload is None:
                if self._copies.pop(key, None) is not None:
                    self._keys.remove(key)
                continue
            if key not in self._copies:
                insort(self._keys, key)
            self._copies[key] = worker_copy(workload, worker.bound_pods(workload))
        if pool.touched:
            moved, pool.touched = pool.touched, {}
            current = {name: node.current() for name, node in pool.nodes.items() if name in moved}
            self._nodes = {name: current.get(name) or self._nodes[name] for name in pool.nodes}
            self._nodes_shown = tuple(self._nodes.values())
        elif len(self._nodes) != len(pool.nodes):
            self._nodes = {name: self._nodes[name] for name in pool.nodes}
            self._nodes_shown = tuple(self._nodes.values())
        configured = self._settings_at != worker.kueue.settings
        if configured:
            self._settings_at = worker.kueue.settings
            self._configure()
        if any(flavor.topology is not None for flavor in self._flavors.values()) and (touched or configured):
            self._lay(self._keys if configured else touched)
        if self._queues_at != worker.kueue.revision:
            self._queues_at = worker.kueue.revision
            self._queues = _queues(worker.kueue, self._queues)

    def _lay(self, touched: Collection[tuple[str, str]]) -> None:
        """Where the pods of these are, as far as their flavors have a topology."""
        laid_out = {name for name, flavor in self._flavors.items() if flavor.topology is not None}
        lies = {key: there for key, there in self._lies.items() if key in self._copies and key not in touched}
        for key in touched:
            copy = self._copies.get(key)
            if copy is not None and any(flavor in laid_out for _, _, _, flavor in copy.pod_sets):
                there = self._worker.lying(self._worker.copies[key])
                lies |= {key: there} if there else {}
        self._lies = lies if lies != self._lies else self._lies


def hub_workload(workload: Workload) -> HubWorkload:
    """A hub Workload as the real connector decodes it."""
    return replace(
        workload.base,
        resource_version=str(workload.resource_version),
        priority=workload.priority,
        cluster_queue=workload.cluster_queue,
        active=workload.active,
        deleting=workload.deleting,
        finished=workload.finished,
        finished_reason=workload.finished_reason,
        finished_at=workload.finished_at,
        quota_reserved_at=workload.quota_reserved_at,
        admitted_at=workload.admitted_at,
        left_at=workload.left_at,
        evicted_at=workload.evicted_at,
        preempted_by=workload.preempted_by,
        idle_notice=workload.annotations.get(NOTICE, ""),
        idle_ending=workload.annotations.get(ENDING, ""),
        idle_ended=workload.annotations.get(ENDED, ""),
        checks=tuple(workload.checks[name] for name in sorted(workload.checks)),
        cluster_name=workload.cluster_name,
        nominated=workload.nominated,
    )


def worker_copy(workload: Workload, bound_pods: int) -> WorkerCopy:
    """A worker's Workload as the real connector decodes it. Who owns a copy of ours matters to nobody."""
    local = workload.job if workload.hub_uid is None else None
    return WorkerCopy(
        uid=workload.uid,
        namespace=workload.namespace,
        name=workload.name,
        ours=workload.hub_uid is not None,
        local_queue=workload.local_queue,
        cluster_queue=workload.cluster_queue,
        priority=workload.priority,
        quota_reserved_at=workload.quota_reserved_at,
        quota_message=workload.quota_message,
        admitted_at=workload.admitted_at,
        evicted_at=workload.evicted_at,
        evicted_reason=workload.evicted_reason,
        finished=workload.finished,
        finished_reason=workload.finished_reason,
        active=workload.active,
        checks=tuple(workload.checks[name] for name in sorted(workload.checks)),
        pod_sets=_assigned(workload),
        bound_pods=bound_pods,
        job_kind=local.kind if local is not None else "",
        job_name=local.name if local is not None else "",
        preempted_by=workload.preempted_by,
        required=tuple(
            (pod_set.name, pod_set.topology.required)
            for pod_set in workload.pod_sets
            if pod_set.topology is not None and pod_set.topology.required is not None
        ),
    )


def _assigned(workload: Workload) -> tuple[tuple[str, int, Resources, FlavorName | None], ...]:
    flavors = workload.assignment.flavors if workload.assignment is not None else ((),) * len(workload.pod_sets)
    return tuple(
        (pod_set.name, pod_set.count, pod_set.per_pod, _main_flavor(pod_set, dict(chosen)))
        for pod_set, chosen in zip(workload.pod_sets, flavors, strict=True)
    )


def _main_flavor(pod_set: PodSet, chosen: dict[str, FlavorName]) -> FlavorName | None:
    """One flavor a pod set: that of its accelerator, else of its first resource."""
    accelerator = pod_set.per_pod.gpu_resource()
    if accelerator is not None and accelerator in chosen:
        return chosen[accelerator]
    return next((chosen[name] for name in sorted(chosen)), None)


def _queues(kueue: Kueue, known: Mapping[QueueName, ClusterQueueView]) -> dict[QueueName, ClusterQueueView]:
    """All queues as they are now. `known` are those of the same settings: what is as it was is the same object."""
    found: dict[QueueName, ClusterQueueView] = {}
    for name, queue in kueue.queues.items():
        spec, used, old = queue.spec.view, queue.node.used, known.get(name)
        quotas = tuple(
            [
                shown
                if shown.reserved == (reserved := used.get((shown.flavor, shown.resource), 0))
                else replace(shown, reserved=reserved)
                for shown in (old or spec).quotas
            ]
        )
        active, pending = kueue.queue_active(name), queue.pending.count
        same = old is not None and (old.active, old.pending) == (active, pending) and all(map(is_, old.quotas, quotas))
        found[name] = old if old is not None and same else replace(spec, active=active, pending=pending, quotas=quotas)
    return found


def _local_queues(kueue: Kueue) -> dict[tuple[str, str], LocalQueueView]:
    return {
        key: replace(view, active=kueue.local_queue_active(*key))
        for key, view in sorted(kueue.inventory.local_queues.items())
    }


def _taking(kueue: Kueue) -> dict[tuple[str, str], LocalQueueView]:
    """A worker's, as the work of their namespaces finds them: see `taking` of the real connector."""
    found = _local_queues(kueue)
    for key, view in found.items():
        queue, labels = kueue.queues.get(view.cluster_queue), kueue.inventory.namespaces.get(view.namespace)
        if queue is not None and labels is not None and not selects(queue.spec.namespaces, labels):
            found[key] = replace(view, active=False)
    return found
