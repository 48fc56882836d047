"""Per-cluster numbers worked out once per view: quota tree, free vectors, foreign jobs. Passed in, never global.

A `ViewIndex` only saves time. The same views give the same answers with a new index, an old one or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dispatcher.core.ids import ClusterName, FlavorName, QueueName
from dispatcher.core.nodes import Demand, NodeTable, PodGroup, node_table, pack, pod_group, toleration_of
from dispatcher.core.quota import QuotaTree, quota_tree
from dispatcher.core.resources import PODS, Resources
from dispatcher.core.snapshot import Hold, WorkerCopy, WorkerView, digest_of
from dispatcher.core.workload import PodSet


@dataclass(frozen=True, slots=True)
class Room:
    """What a cluster can still take: quota and nodes, after everything that is reserved, bound or promised."""

    quota: QuotaTree
    nodes: NodeTable


@dataclass(slots=True)
class ClusterIndex:
    """One view's derived numbers. `base` has reservations and pods, not holds; `room` deducts holds as well."""

    view: WorkerView
    digest: str
    base: Room
    foreign_jobs: frozenset[tuple[str, str, str]]
    reservations: Mapping[tuple[QueueName, FlavorName, str], tuple[tuple[int, int], ...]]
    _holds: tuple[Hold, ...] = ()
    _room: Room | None = None

    def below(self, queue: QueueName, flavor: FlavorName, resource: str, priority: int) -> int:
        """How much workloads of lower priority have reserved in a queue: what a preemption there could free."""
        return sum(amount for p, amount in self.reservations.get((queue, flavor, resource), ()) if p < priority)

    def room(self, holds: tuple[Hold, ...]) -> Room:
        """The room left when these holds, oldest first, have taken theirs. A longer list continues a shorter one."""
        known = len(self._holds)
        if self._room is None or self._holds != holds[:known]:
            self._room, known = self.base, 0
        for hold in holds[known:]:
            self._room = deduct(self._room, hold, self.view)
        self._holds = holds
        return self._room


@dataclass(slots=True)
class ViewIndex:
    """The newest ClusterIndex per cluster; a view that is another object is indexed anew."""

    _clusters: dict[ClusterName, ClusterIndex] = field(default_factory=dict)

    def of(self, view: WorkerView) -> ClusterIndex:
        known = self._clusters.get(view.cluster)
        if known is None or known.view is not view:
            known = self._clusters[view.cluster] = index_view(view)
        return known


def index_view(view: WorkerView) -> ClusterIndex:
    """Work out a view: its quota trees, and its nodes with pods that are reserved for but not yet bound packed in."""
    table = node_table(view.nodes)
    unbound = [group for _, copy in sorted(view.copies.items()) for group in _unbound(table, copy, view)]
    if unbound:
        table = table.with_free(pack(table, unbound, partial=True).free)
    return ClusterIndex(
        view=view,
        digest=digest_of(view),
        base=Room(quota_tree(view), table),
        foreign_jobs=frozenset(
            (copy.namespace, copy.job_kind, copy.job_name)
            for copy in view.copies.values()
            if not copy.ours and copy.job_name
        ),
        reservations=_reservations(view),
    )


def _reservations(view: WorkerView) -> dict[tuple[QueueName, FlavorName, str], tuple[tuple[int, int], ...]]:
    """(priority, amount) of every reservation, per queue, flavor and resource, lowest priority first."""
    found: dict[tuple[QueueName, FlavorName, str], list[tuple[int, int]]] = {}
    for _, copy in sorted(view.copies.items()):
        if copy.cluster_queue is None or not holds_quota(copy):
            continue
        for _, count, per_pod, flavor in copy.pod_sets:
            for resource, amount in per_pod.items if flavor is not None else ():
                found.setdefault((copy.cluster_queue, flavor or FlavorName(""), resource), []).append(
                    (copy.priority, amount * count)
                )
    return {key: tuple(sorted(entries)) for key, entries in sorted(found.items())}


def holds_quota(copy: WorkerCopy) -> bool:
    """Whether a copy's reservation counts in its queue now."""
    return copy.quota_reserved_at is not None and not copy.finished


def _unbound(table: NodeTable, copy: WorkerCopy, view: WorkerView) -> list[PodGroup]:
    """The pods of a copy that has quota but whose pods are not on nodes yet.

    `bound_pods` counts per job, so the largest pods are taken as the missing ones: too little free is the safe side.
    """
    total = sum(count for _, count, _, _ in copy.pod_sets)
    left = total - copy.bound_pods if holds_quota(copy) else 0
    groups: list[PodGroup] = []
    for name, count, per_pod, flavor in sorted(copy.pod_sets, key=lambda p: (-p[2].gpus(), p[0])):
        take = min(left, count)
        if take <= 0:
            continue
        demand = Demand(_labels(view, flavor), any_taint=True)
        groups.append(pod_group(table, f"{copy.namespace}/{copy.name}/{name}", take, per_pod, demand))
        left -= take
    return groups


def _labels(view: WorkerView, flavor: FlavorName | None) -> tuple[tuple[str, str], ...]:
    known = view.flavors.get(flavor) if flavor is not None else None
    return known.labels if known else ()


def deduct(room: Room, hold: Hold, view: WorkerView) -> Room:
    """The room after a promise: its quota, and its pods laid on nodes as the decision laid them. Once each."""
    amounts: dict[tuple[FlavorName, str], int] = {}
    for _, count, per_pod, flavor in hold.usage:
        for resource, amount in (*per_pod.items, *(() if PODS in per_pod.names() else ((PODS, 1),))):
            fr = (flavor, resource)
            if room.quota.covers(hold.queue, fr):
                amounts[fr] = amounts.get(fr, 0) + amount * count
    groups = [
        pod_group(room.nodes, name, count, per_pod, demand_of(view, _pod_set(hold, name), flavors))
        for (name, count, per_pod), flavors in sorted(_by_pod_set(hold).items(), key=lambda entry: entry[0][0])
    ]
    free = pack(room.nodes, groups, partial=True).free
    return Room(room.quota.with_usage(hold.queue, amounts), room.nodes.with_free(free))


def _by_pod_set(hold: Hold) -> dict[tuple[str, int, Resources], tuple[FlavorName, ...]]:
    found: dict[tuple[str, int, Resources], tuple[FlavorName, ...]] = {}
    for name, count, per_pod, flavor in hold.usage:
        key = (name, count, per_pod)
        found[key] = (*found.get(key, ()), flavor)
    return found


def _pod_set(hold: Hold, name: str) -> PodSet | None:
    return next((pod_set for pod_set in hold.pod_sets if pod_set.name == name), None)


def demand_of(view: WorkerView, pod_set: PodSet | None, flavors: tuple[FlavorName, ...]) -> Demand:
    """What pods ask of nodes once Kueue has given them these flavors: it adds each flavor's labels and tolerations.

    Without a pod set only the flavor is known, and any of its nodes may be meant.
    """
    labels = tuple(sorted({label for flavor in flavors for label in _labels(view, flavor)}))
    if pod_set is None:
        return Demand(labels, any_taint=True)
    given = tuple(
        toleration_of(entry)
        for flavor in flavors
        if flavor in view.flavors
        for entry in view.flavors[flavor].tolerations
    )
    return Demand(labels, pod_set.selector, pod_set.terms, (*pod_set.tolerations, *given))
