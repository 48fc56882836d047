"""The world as views: the same dataclasses, with the same meaning, as the real connector makes from JSON.

Only what was touched since the last view is projected anew; a view is a new mapping of mostly old values.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType

from connectors.embedded.hub import Hub
from connectors.embedded.kueue import Kueue
from connectors.embedded.multikueue import MultiKueue
from connectors.embedded.objects import Workload
from connectors.embedded.worker import Worker
from dispatcher.core.ids import FlavorName, QueueName, WorkloadUid
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import (
    ClusterQueueView,
    HubQueue,
    HubView,
    LocalQueueView,
    NodeView,
    WorkerCopy,
    WorkerView,
)
from dispatcher.core.workload import HubWorkload, OwnerMeta, PodSet


class HubProjection:
    """Makes HubViews; `revision` grows with everything that a view would show."""

    def __init__(self, hub: Hub, multikueue: MultiKueue) -> None:
        self._hub = hub
        self._multikueue = multikueue
        self._workloads: dict[WorkloadUid, HubWorkload] = {}
        self._owners: dict[str, OwnerMeta] = {}
        self._owners_at = -1

    def revision(self) -> tuple[int, int]:
        return self._hub.revision, self._hub.kueue.revision

    def view(self, observed_at: datetime) -> HubView:
        hub, inventory = self._hub, self._hub.inventory
        self._refresh()
        return HubView(
            synced=True,
            observed_at=observed_at,
            workloads=MappingProxyType(self._workloads.copy()),
            owners=MappingProxyType(self._owners),
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
        if self._owners_at != hub.jobs_revision:
            self._owners_at = hub.jobs_revision
            self._owners = {job.uid: job.owner for job in hub.jobs.values()}


class WorkerProjection:
    """Makes WorkerViews of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._keys: list[tuple[str, str]] = []
        self._copies: dict[tuple[str, str], WorkerCopy] = {}
        self._nodes: dict[str, NodeView] = {}
        self._queues: dict[QueueName, ClusterQueueView] = {}
        self._local_queues: dict[tuple[str, str], LocalQueueView] = {}
        self._queues_at = -1

    def revision(self) -> tuple[int, int, int]:
        return self._worker.revision, self._worker.kueue.revision, self._worker.pool.revision

    def view(self, observed_at: datetime, generation: int) -> WorkerView:
        worker, inventory = self._worker, self._worker.inventory
        self._refresh()
        return WorkerView(
            cluster=worker.name,
            synced=True,
            observed_at=observed_at,
            generation=generation,
            namespaces=tuple(sorted(inventory.namespaces)),
            # Plain dicts, as the real connector makes them: a view is digested by its repr, and must come back from
            # a record with the same one.
            local_queues=self._local_queues,
            queues=self._queues,
            cohorts=dict(sorted(inventory.cohorts.items())),
            flavors=dict(sorted(inventory.flavors.items())),
            nodes=tuple(self._nodes.values()),
            copies={key: self._copies[key] for key in self._keys},
        )

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
        elif len(self._nodes) != len(pool.nodes):
            self._nodes = {name: self._nodes[name] for name in pool.nodes}
        if self._queues_at != worker.kueue.revision:
            self._queues_at = worker.kueue.revision
            self._queues = _queues(worker.kueue)
            self._local_queues = _local_queues(worker.kueue)


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
        evicted_at=workload.evicted_at,
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


def _queues(kueue: Kueue) -> dict[QueueName, ClusterQueueView]:
    return {
        name: replace(
            queue.spec.view,
            active=kueue.queue_active(name),
            pending=queue.pending.count,
            quotas=tuple(
                replace(quota, reserved=queue.node.used.get((quota.flavor, quota.resource), 0))
                for quota in queue.spec.view.quotas
            ),
        )
        for name, queue in kueue.queues.items()
    }


def _local_queues(kueue: Kueue) -> dict[tuple[str, str], LocalQueueView]:
    return {
        key: replace(view, active=kueue.local_queue_active(*key))
        for key, view in sorted(kueue.inventory.local_queues.items())
    }
