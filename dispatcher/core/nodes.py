"""Free capacity per node: quota says what is allowed, nodes what is there.

A sum of free GPUs over nodes fits nothing by itself (FR-SCO-02): every pod is placed on one node (packing.py). Amounts
are vectors over the resources that the cluster's nodes name. Nodes with the same free vector are one set
(`nodeset.py`): placing a gang costs by distinct vectors, of which a cluster has tens, and never by nodes, of which it
has a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dispatcher.core.nodeset import NO_NODES, NodeMarks, Nodes, marks_of, members, same_marks
from dispatcher.core.resources import PODS, Resources, is_gpu
from dispatcher.core.snapshot import NodeView
from dispatcher.core.topology import Domain, Sliced
from dispatcher.core.workload import Requirement, Toleration

Vector = tuple[int, ...]
Spaces = Mapping[Vector, Nodes]
"""Which nodes have which amounts: disjoint sets that together are all nodes."""

_NO_POD_LIMIT = 1 << 30
"""Free pods of a node that declares no pod capacity: more than any gang, never compared with another node's."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What pods ask of the nodes they may lie on: the flavors' labels, their own selectors, what they tolerate.

    `any_taint` and `absent` widen it to nodes that are tainted or away, to learn why a gang has no place. All pods of a
    group lie in one part of its `domain`, where it has one, and so many of them at a time in one of its `slices`, which
    go from broad to narrow.
    """

    flavor_labels: tuple[tuple[str, str], ...] = ()
    selector: tuple[Requirement, ...] = ()
    terms: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    any_taint: bool = False
    absent: bool = False
    domain: Domain | None = None
    slices: tuple[Sliced, ...] = ()
    group: str = ""
    """Two groups of this name lie in one part of their domain together; "" = it lies where it will."""

    @property
    def is_divided(self) -> bool:
        """Whether room in sum is not enough, since pods must lie together."""
        return self.domain is not None or bool(self.slices)


@dataclass(frozen=True, slots=True)
class Domains:
    """Where pods that must lie together may lie: the values of the labels of each domain with its nodes, in the order
    of the values, and in which of them each node is."""

    parts: tuple[tuple[tuple[str, ...], Nodes], ...]
    home: Mapping[int, int]

    def sums(self, amounts: Iterable[tuple[Nodes, int]]) -> list[int]:
        """The sum of each domain, of amounts that each node of a set has. It costs by domains or by nodes, whichever
        are fewer: a rack is many nodes, and where hosts are the level every node is a domain."""
        sets = [(nodes, amount) for nodes, amount in amounts if nodes and amount > 0]
        if len(self.parts) * len(sets) <= len(self.home):
            return [sum([(part & nodes).bit_count() * amount for nodes, amount in sets]) for _, part in self.parts]
        found = [0] * len(self.parts)
        for nodes, amount in sets:
            for at in members(nodes):
                found[self.home[at]] += amount
        return found


@dataclass(frozen=True, slots=True)
class NodeFrame:
    """The part of a cluster's nodes that placing pods does not change; `sizes` are the allocatable amounts.

    What is worked out per demand is remembered, which only saves time: it cannot change an answer.
    """

    resources: tuple[str, ...]
    marks: NodeMarks
    sizes: Spaces
    gpu_places: tuple[int, ...]
    _cache: dict[Demand, Nodes] = field(default_factory=dict, repr=False, compare=False)
    _domains: dict[Demand, Domains] = field(default_factory=dict, repr=False, compare=False)

    def eligible(self, demand: Demand) -> Nodes:
        """Nodes that are present and that these pods may use."""
        found = self._cache.get(demand)
        if found is None:
            found = self.selected(demand)
            if not demand.absent:
                found &= self.marks.present
            if not demand.any_taint:
                found &= self.marks.tolerated(demand.tolerations)
            self._cache[demand] = found
        return found

    def selected(self, demand: Demand) -> Nodes:
        """Nodes whose labels fit, present or not, tolerated or not."""
        found = self.marks.carrying(demand.flavor_labels) & self.marks.matching(demand.selector, demand.terms)
        for domain in (demand.domain, *(sliced.domain for sliced in demand.slices)):
            if domain is not None:
                found &= self.marks.keyed((*domain.keys, *domain.beside))
        return found

    def domains(self, demand: Demand) -> Domains:
        """The eligible nodes, domain by domain."""
        found = self._domains.get(demand)
        if found is None:
            keys = demand.domain.keys if demand.domain is not None else ()
            parts = self.marks.split(keys, self.eligible(demand))
            home = {at: place for place, (_, nodes) in enumerate(parts) for at in members(nodes)}
            found = self._domains[demand] = Domains(parts, home)
        return found

    def place_of(self, resource: str) -> int | None:
        return self.resources.index(resource) if resource in self.resources else None


@dataclass(frozen=True, slots=True)
class NodeTable:
    """All nodes of a cluster with what is free on them. Free amounts of absent nodes are kept (they come back)."""

    frame: NodeFrame
    free: Spaces

    def with_free(self, free: Spaces) -> NodeTable:
        return NodeTable(self.frame, free)

    def same_as(self, other: NodeTable) -> bool:
        """Whether the nodes are the same, and as much is free on each."""
        return self is other or (self.frame is other.frame and self.free == other.free)

    def emptied(self) -> NodeTable:
        """The same nodes as if no pod were on them."""
        return NodeTable(self.frame, self.frame.sizes)

    def eligible(self, demand: Demand) -> Nodes:
        return self.frame.eligible(demand)

    def selected(self, demand: Demand) -> Nodes:
        return self.frame.selected(demand)

    def flavored(self, labels: tuple[tuple[str, str], ...]) -> Nodes:
        """Nodes that carry a flavor's labels."""
        return self.frame.marks.carrying(labels)

    @property
    def present(self) -> Nodes:
        return self.frame.marks.present

    def amounts(self, nodes: Nodes, resource: str) -> list[tuple[int, int]]:
        """(free amount, number of nodes) of a resource over a set; over-used nodes have an amount below zero."""
        place = self.frame.place_of(resource)
        parts = ((vector, (at & nodes).bit_count()) for vector, at in self.free.items() if at & nodes)
        return [(0 if place is None else vector[place], count) for vector, count in parts]


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table and the nodes that it was made of, so that the next one need not start from nothing."""

    nodes: tuple[NodeView, ...]
    table: NodeTable


def node_table(nodes: Iterable[NodeView]) -> NodeTable:
    """Free = allocatable minus what bound, unfinished pods request, without those that yield to anyone (FR-SCO-06).

    Real placement is what counts here, whatever a recorded assignment says (FR-SCO-12).
    """
    return table_source(tuple(nodes)).table


def table_source(nodes: tuple[NodeView, ...], known: TableSource | None = None) -> TableSource:
    """The table of these nodes; `known` saves work where only amounts have changed, and changes no answer."""
    if known is not None and nodes is known.nodes:
        return known
    ordered = tuple(sorted(nodes, key=lambda node: node.name))
    moved = _moved(ordered, known) if known is not None else None
    table = _fresh(ordered) if moved is None or known is None else known.table.with_free(moved)
    return TableSource(nodes if nodes == ordered else ordered, table)


def _moved(ordered: tuple[NodeView, ...], known: TableSource) -> Spaces | None:
    """The known free amounts after what changed on single nodes; None when more than amounts changed."""
    if len(ordered) != len(known.nodes):
        return None
    changed = [
        at for at, (old, new) in enumerate(zip(known.nodes, ordered, strict=True)) if old is not new and old != new
    ]
    resources, free = known.table.frame.resources, dict(known.table.free)
    for at in changed:
        old, new = known.nodes[at], ordered[at]
        if old.allocatable != new.allocatable or not same_marks(old, new):
            return None
        before, after = (_free(node, _vector(node.allocatable, resources), resources) for node in (old, new))
        if before != after:
            move(free, before, after, 1 << at)
    return free


def _fresh(ordered: tuple[NodeView, ...]) -> NodeTable:
    resources = tuple(sorted({PODS, *(name for node in ordered for name, _ in node.allocatable)}))
    sizes: dict[Vector, Nodes] = {}
    free: dict[Vector, Nodes] = {}
    for at, node in enumerate(ordered):
        total = _vector(node.allocatable, resources)
        left = _free(node, total, resources)
        sizes[total] = sizes.get(total, NO_NODES) | 1 << at
        free[left] = free.get(left, NO_NODES) | 1 << at
    gpu_places = tuple(at for at, name in enumerate(resources) if is_gpu(name))
    return NodeTable(NodeFrame(resources, marks_of(ordered), sizes, gpu_places), free)


def _vector(amounts: Resources, resources: tuple[str, ...]) -> Vector:
    known = dict(amounts.items)
    known.setdefault(PODS, _NO_POD_LIMIT)
    return tuple(known.get(name, 0) for name in resources)


def _free(node: NodeView, total: Vector, resources: tuple[str, ...]) -> Vector:
    used, yielding = dict(node.requested.items), dict(node.yielding.items)
    pairs = zip(resources, total, strict=True)
    return tuple(have - used.get(name, 0) + yielding.get(name, 0) for name, have in pairs)


def move(free: dict[Vector, Nodes], before: Vector, after: Vector, nodes: Nodes) -> None:
    """These nodes have other free amounts now. A vector that no node has any longer is not kept."""
    left = free[before] & ~nodes
    if left:
        free[before] = left
    else:
        del free[before]
    free[after] = free.get(after, NO_NODES) | nodes


# --- reading a table ---------------------------------------------------------------------------------------------


def free_total(table: NodeTable, nodes: Nodes, resource: str) -> int:
    """Free amount of a resource over distinct nodes; over-used nodes count as nothing, not as a debt (FR-SCO-11)."""
    return sum(max(0, amount) * count for amount, count in table.amounts(nodes, resource))


def largest_free(table: NodeTable, nodes: Nodes, resource: str) -> int | None:
    """The most that any one of the nodes has free; None for no nodes, which is not zero (FR-SCO-08)."""
    return max((max(0, amount) for amount, _ in table.amounts(nodes, resource)), default=None)


def toleration_of(entry: tuple[str, str, str, str]) -> Toleration:
    """A flavor's toleration as stored (key, operator, value, effect)."""
    key, operator, value, effect = entry
    return Toleration(key, operator or "Equal", value, effect)
