"""Per-cluster numbers worked out from a view: quota tree, free amounts, foreign work. Passed in, never global.

What is worked out depends on the view's content alone, not on its age, and each part on some fields of it: a view that
shares fields or single objects with the one before takes over what was worked out for them. That only saves time: the
same view gives the same answers with a known index, another one or none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, TypeVar

from dispatcher.core.ids import ClusterName, FlavorName, QueueName
from dispatcher.core.nodes import Demand, NodeTable, TableSource, Vector, table_source, toleration_of
from dispatcher.core.nodeset import NO_NODES, Nodes, members
from dispatcher.core.packing import PodGroup, Spot, pack, pod_group
from dispatcher.core.preemption import Holders, holders_of
from dispatcher.core.quota import QuotaTree, quota_tree
from dispatcher.core.resources import PODS, Resources
from dispatcher.core.snapshot import (
    ClusterQueueView,
    ClusterSnapshot,
    Hold,
    Lying,
    WorkerCopy,
    WorkerView,
    digest_of,
    digest_of_all,
)
from dispatcher.core.topology import Domain, Topology
from dispatcher.core.workload import PodSet

K = TypeVar("K")
V = TypeVar("V")

Labels = tuple[tuple[str, str], ...]
Reservations = Mapping[tuple[QueueName, FlavorName, str], tuple[tuple[int, int], ...]]
"""By queue, flavor and resource."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a cluster can still take: quota and nodes, after everything that is reserved, bound or promised."""

    quota: QuotaTree
    nodes: NodeTable


@dataclass(frozen=True, slots=True)
class ForeignWork:
    """What lies on a worker and is not ours: workloads by (namespace, name), jobs by (namespace, kind, name)."""

    workloads: frozenset[tuple[str, str]]
    jobs: frozenset[tuple[str, str, str]]


@dataclass(slots=True)
class ClusterIndex:
    """A view's derived numbers. `base` has reservations and pods, not holds; `room` deducts holds as well.

    `digest` is of the view's content. Everything but `view` is the same for every view of the same content.
    """

    view: WorkerView
    digest: str
    base: Room
    foreign: ForeignWork
    parts: _Parts
    coming: tuple[Spot, ...] = ()
    """Where the pods were laid that are reserved for and on no node yet; the group of a spot begins with
    namespace/name/."""
    _holds: list[Hold] = field(default_factory=list)
    _rooms: list[Room] = field(default_factory=list)
    fits: dict[Hashable, object] = field(default_factory=dict)
    """What was found to fit here (`fit.fit_of`)."""
    _holders: Holders | None = None
    _reservations: Reservations | None = None

    def holders(self) -> Holders:
        """Everything that has quota here, as Kueue would stop it; worked out when somebody asks."""
        if self._holders is None:
            self._holders = holders_of(self.view, self.base.quota)
        return self._holders

    def reservations(self) -> Reservations:
        """(priority, amount) of everything that has quota here, lowest priority first; worked out as `holders` is."""
        if self._reservations is None:
            self._reservations = _reservations(self.view)
        return self._reservations

    def room(self, holds: tuple[Hold, ...]) -> Room:
        """The room left when these holds, oldest first, have taken theirs; remembered as far as two lists agree."""
        shared = 0
        for known, hold in zip(self._holds, holds, strict=False):
            if known is not hold and known != hold:
                break
            shared += 1
        del self._holds[shared:], self._rooms[shared:]
        for hold in holds[shared:]:
            before = self._rooms[-1] if self._rooms else self.base
            self._holds.append(hold)
            self._rooms.append(deduct(before, hold, self.view))
        return self._rooms[-1] if self._rooms else self.base

    @property
    def on_nodes(self) -> NodeTable:
        """What the pods leave free that are on nodes, whatever has quota or is promised."""
        return self.parts.source.table

    def laid(self, holds: tuple[Hold, ...]) -> tuple[Lying, ...]:
        """Where the room after these holds has the pods of each."""
        self.room(holds)
        rooms = (self.base, *self._rooms)
        return tuple(_moved(before.nodes, after.nodes) for before, after in pairwise(rooms))

    def laid_as_coming(self) -> Mapping[tuple[str, str], Lying]:
        """Where the pods were laid that are on no node yet, by their copy."""
        found: dict[tuple[str, str], Lying] = {}
        for spot in self.coming:
            namespace, name, _ = spot.group.split("/", 2)
            there = _lying(self.base.nodes, spot.nodes, spot.before, spot.after)
            found[namespace, name] = (*found.get((namespace, name), ()), *there)
        return found

    def weighs_like(self, other: ClusterIndex) -> bool:
        """Whether nothing that a candidate is judged and priced by differs, whatever else the views show: a queue's
        length, a copy without quota, pods that now lie where room was kept for them. Fast where one was made with the
        other known, as then they share what is equal."""
        one, two = self.view, other.view
        return self is other or (
            self.base is other.base
            and self.foreign is other.foreign
            and _same(one.namespaces, two.namespaces)
            and _same(one.local_queues, two.local_queues)
            and _same(one.flavors, two.flavors)
            and _same(one.cohorts, two.cohorts)
            and _same_but(one.queues, two.queues, _but_length)
            and _same_but(one.copies, two.copies, _stake_of)
        )

    def take_over(self, known: ClusterIndex) -> None:
        """The rooms after the same promises, where they are taken from the same room."""
        if self.base is known.base and self.view.flavors is known.view.flavors:
            self._holds, self._rooms = list(known._holds), list(known._rooms)


def _moved(before: NodeTable, after: NodeTable) -> Lying:
    """What was taken of each node from one state of a table to the next."""
    found: list[tuple[str, Resources, int]] = []
    for had, nodes in before.free.items():
        left = nodes & ~after.free.get(had, NO_NODES)
        for has, those in after.free.items() if left else ():
            found += _lying(before, left & those, had, has)
    return tuple(sorted(found, key=lambda each: each[0]))


def _lying(table: NodeTable, nodes: Nodes, before: Vector, after: Vector) -> Lying:
    amounts = zip(table.frame.resources, before, after, strict=True)
    taken = Resources.of({name: had - has for name, had, has in amounts if had > has})
    return tuple((table.frame.marks.names[at], taken, 1) for at in members(nodes))


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the next index of the same cluster may take over: the nodes' table, and digests by object."""

    source: TableSource
    digests: Mapping[str, Mapping[Hashable, tuple[object, str]]]


_STEP = 128
"""Objects that are digested in one step."""
_CONTENT = ("synced", "namespaces", "local_queues", "queues", "cohorts", "flavors", "nodes", "copies")
"""The fields of a view that its index depends on: all but its age, its counter and its last error."""


_content_of = attrgetter(*_CONTENT)


def same_content(one: WorkerView, other: WorkerView) -> bool:
    """Whether two views of a worker differ in their age only. Fast where they share their fields, as views do."""
    return bool(_content_of(one) == _content_of(other))  # what is the same object is not compared


def _same(one: object, other: object) -> bool:
    return one is other or one == other


def _same_but(one: Mapping[K, V], other: Mapping[K, V], told: Callable[[V], object]) -> bool:
    """Whether two mappings tell the same, entry by entry; what tells nothing may as well be missing."""
    if one is other:
        return True
    for key, value in one.items():
        there = other.get(key)
        if there is not value and told(value) != (told(there) if there is not None else None):
            return False
    return all(told(value) is None for key, value in other.items() if key not in one)


def _but_length(queue: ClusterQueueView) -> object:
    """A queue without what nobody decides by: how many wait in it."""
    return replace(queue, pending=0)


def _stake_of(copy: WorkerCopy) -> object:
    """All that one who may be stopped, or whose end is waited for, is known by; None: it holds nothing."""
    if copy.cluster_queue is None or not holds_quota(copy):
        return None
    held = (copy.cluster_queue, copy.pod_sets, copy.quota_reserved_at, copy.admitted_at, copy.evicted_at)
    return (*held, copy.uid, copy.ours, copy.priority)


def index_view(view: WorkerView, known: ClusterIndex | None = None) -> ClusterIndex:
    """Work out a view: its quota trees, and its nodes with pods that are reserved for but not yet bound packed in.

    `known` is an earlier index of the same cluster; what has not changed since is taken over from it.
    """
    work = index_steps(view, known)
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: ClusterIndex = done.value
            return found


def index_steps(view: WorkerView, known: ClusterIndex | None = None) -> Generator[None, None, ClusterIndex]:
    """`index_view` in steps of some milliseconds each, for a caller that has others to let through."""
    old = known.view if known is not None else None
    source = table_source(view.nodes, known.parts.source if known is not None else None)
    yield
    same_quota = old is not None and _same_but(old.queues, view.queues, _limits_of) and _same(old.cohorts, view.cohorts)
    same_copies = old is not None and _same(old.copies, view.copies)
    table = source.table
    unbound = [group for _, copy in sorted(view.copies.items()) for group in _unbound(table, copy, view)]
    coming: tuple[Spot, ...] = ()
    if unbound:
        packing = pack(table, unbound, partial=True)
        table, coming = table.with_free(packing.free), packing.placed
    yield
    digests: dict[str, Mapping[Hashable, tuple[object, str]]] = {}
    for name in _CONTENT:
        digests[name] = yield from _digests(view, name, known)
    base = Room(known.base.quota if known is not None and same_quota else quota_tree(view), table)
    foreign = known.foreign if known is not None and same_copies else _foreign(view)
    if known is not None:  # what is equal is the same object, by which it is known again
        base = known.base if same_quota and table.same_as(known.base.nodes) else base
        foreign = known.foreign if foreign == known.foreign else foreign
    found = ClusterIndex(
        view=view,
        digest=digest_of_all(digest for part in digests.values() for _, digest in part.values()),
        base=base,
        foreign=foreign,
        parts=_Parts(source, digests),
        coming=coming,
    )
    if known is not None:
        found.take_over(known)
    return found


def _limits_of(queue: ClusterQueueView) -> object:
    return (queue.cohort, queue.quotas)


def _digests(
    view: WorkerView, name: str, known: ClusterIndex | None
) -> Generator[None, None, Mapping[Hashable, tuple[object, str]]]:
    """The digest of every object in a field of the view; an object that is the same as before keeps its digest."""
    before = known.parts.digests[name] if known is not None else {}
    if known is not None and getattr(known.view, name) is getattr(view, name):
        return before
    found: dict[Hashable, tuple[object, str]] = {}
    for at, (key, value) in enumerate(_objects(getattr(view, name))):
        if at % _STEP == 0:
            yield
        old = before.get(key)
        found[key] = old if old is not None and _same(old[0], value) else (value, digest_of((name, key, value)))
    return found


def _objects(field_: Any) -> Iterable[tuple[Hashable, object]]:
    """The objects of a field by a key of their own: of a mapping, by name, or by position where they have none."""
    if isinstance(field_, Mapping):
        return field_.items()
    entries = field_ if isinstance(field_, tuple) else (field_,)
    return ((getattr(entry, "name", at), entry) for at, entry in enumerate(entries))


def _foreign(view: WorkerView) -> ForeignWork:
    others = [copy for copy in view.copies.values() if not copy.ours]
    return ForeignWork(
        frozenset((copy.namespace, copy.name) for copy in others),
        frozenset((copy.namespace, copy.job_kind, copy.job_name) for copy in others if copy.job_name),
    )


@dataclass(slots=True)
class ViewIndex:
    """The newest ClusterIndex per cluster. Views of the same content have the same index."""

    _clusters: dict[ClusterName, ClusterIndex] = field(default_factory=dict)

    def of(self, cluster: ClusterSnapshot) -> ClusterIndex | None:
        """The numbers of a cluster as seen; None for a view that was never complete, which says nothing."""
        view, known = cluster.worker, self._clusters.get(cluster.name)
        if view is None or not view.synced:
            return None
        if known is not None and known.view is view:
            return known
        for _ in self.steps(cluster):
            pass
        return self._clusters[cluster.name]

    def steps(self, cluster: ClusterSnapshot) -> Iterator[None]:
        """The work of `of` in steps, after which it costs nothing."""
        view, known = cluster.worker, self._clusters.get(cluster.name)
        if view is None or not view.synced:
            return
        if known is None or (known.view is not view and not same_content(known.view, view)):
            self._clusters[cluster.name] = yield from index_steps(view, known)
        else:
            known.view = view  # the next to ask need not compare


def _reservations(view: WorkerView) -> Reservations:
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
    if left <= 0:
        return groups
    for name, count, per_pod, flavor in sorted(copy.pod_sets, key=lambda p: (-p[2].gpus(), p[0])):
        take = min(left, count)
        if take <= 0:
            continue
        level = next((level for pod_set, level in copy.required if pod_set == name), None)
        together = _domain(view, level, (flavor,)) if flavor is not None else None
        demand = Demand(_labels(view, flavor), any_taint=True, domain=together)
        groups.append(pod_group(table, f"{copy.namespace}/{copy.name}/{name}", take, per_pod, demand))
        left -= take
    return groups


def _labels(view: WorkerView, flavor: FlavorName | None) -> Labels:
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
    tolerations = (*pod_set.tolerations, *given)
    wish = pod_set.topology
    if wish is None:
        return Demand(labels, pod_set.selector, pod_set.terms, tolerations)
    return Demand(
        labels,
        pod_set.selector,
        pod_set.terms,
        tolerations,
        domain=_domain(view, wish.required, flavors),
        slices=_topology(view, flavors).sliced(wish),
        group=wish.group,
    )


def _domain(view: WorkerView, level: str | None, flavors: tuple[FlavorName, ...]) -> Domain | None:
    """In which domain pods must lie together that require a level and take these flavors."""
    return _topology(view, flavors).domain(level) if level is not None else None


def _topology(view: WorkerView, flavors: tuple[FlavorName, ...]) -> Topology:
    known = (view.flavors[flavor].topology for flavor in flavors if flavor in view.flavors)
    return next((found for found in known if found is not None), Topology(""))
