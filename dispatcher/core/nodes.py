"""Free capacity per node, and where the pods of a gang would lie: quota says what is allowed, nodes what is there.

A sum of free GPUs over nodes fits nothing by itself (FR-SCO-02): every pod is placed on one node. Amounts are vectors
over the resources that the cluster's nodes name, so that the hot loop works on plain tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dispatcher.core.ids import FlavorName
from dispatcher.core.resources import CPU, MEMORY, PODS, Resources, is_gpu
from dispatcher.core.selectors import is_lifecycle, node_matches, untolerated
from dispatcher.core.snapshot import NodeView, Taint
from dispatcher.core.workload import Requirement, Toleration

Vector = tuple[int, ...]

_NO_POD_LIMIT = 1 << 30
"""Free pods of a node that declares no pod capacity: more than any gang, never compared with another node's."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What pods ask of the nodes they may lie on: the flavors' labels, their own selectors, what they tolerate.

    `any_taint` and `absent` widen it to nodes that are tainted or away, to learn why a gang has no place.
    """

    flavor_labels: tuple[tuple[str, str], ...] = ()
    selector: tuple[Requirement, ...] = ()
    terms: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    any_taint: bool = False
    absent: bool = False


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The part of a node that packing does not change. `present`: ready, schedulable and not being deleted."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    present: bool


@dataclass(frozen=True, slots=True)
class NodeTable:
    """All nodes of a cluster in name order. `free` and `allocatable` have a vector per node, aligned with `resources`.

    Free amounts of absent nodes are kept (they come back), but such nodes are never eligible. `eligible` results are
    remembered per demand in `_cache`, which only saves time: it cannot change an answer.
    """

    resources: tuple[str, ...]
    nodes: tuple[NodeFacts, ...]
    allocatable: tuple[Vector, ...]
    free: tuple[Vector, ...]
    gpu_places: tuple[int, ...]
    _cache: dict[Demand, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)

    def eligible(self, demand: Demand) -> tuple[int, ...]:
        """Nodes that are present and that these pods may use, in name order."""
        found = self._cache.get(demand)
        if found is None:
            found = tuple(i for i in self.selected(demand) if _usable(self.nodes[i], demand))
            self._cache[demand] = found
        return found

    def selected(self, demand: Demand) -> tuple[int, ...]:
        """Nodes whose labels fit, present or not, tolerated or not."""
        return tuple(i for i, node in enumerate(self.nodes) if _labelled(node, demand))

    def flavored(self, labels: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
        """Nodes that carry a flavor's labels."""
        return self.selected(Demand(labels))

    def with_free(self, free: Sequence[Vector]) -> NodeTable:
        return replace(self, free=tuple(free))

    def place_of(self, resource: str) -> int | None:
        return self.resources.index(resource) if resource in self.resources else None

    def amount(self, vector: Vector, resource: str) -> int:
        place = self.place_of(resource)
        return 0 if place is None else vector[place]


def _labelled(node: NodeFacts, demand: Demand) -> bool:
    if any(node.labels.get(key) != value for key, value in demand.flavor_labels):
        return False
    return node_matches(demand.selector, demand.terms, node.labels)


def _usable(node: NodeFacts, demand: Demand) -> bool:
    if not node.present and not demand.absent:
        return False
    return demand.any_taint or untolerated(demand.tolerations, node.taints) is None


def node_table(nodes: Iterable[NodeView]) -> NodeTable:
    """Free = allocatable minus what bound, unfinished pods request, without those that yield to anyone (FR-SCO-06).

    Real placement is what counts here, whatever a recorded assignment says (FR-SCO-12).
    """
    ordered = sorted(nodes, key=lambda node: node.name)
    names = sorted({PODS, *(name for node in ordered for name, _ in node.allocatable)})
    resources = tuple(names)
    allocatable = tuple(_vector(node.allocatable, resources) for node in ordered)
    free = tuple(_free(node, total, resources) for node, total in zip(ordered, allocatable, strict=True))
    return NodeTable(
        resources=resources,
        nodes=tuple(_facts(node) for node in ordered),
        allocatable=allocatable,
        free=free,
        gpu_places=tuple(i for i, name in enumerate(resources) if is_gpu(name)),
    )


def _facts(node: NodeView) -> NodeFacts:
    away = any(is_lifecycle(taint) and taint.effect != "PreferNoSchedule" for taint in node.taints)
    present = node.ready and node.schedulable and not node.deleting
    lasting = tuple(taint for taint in node.taints if not is_lifecycle(taint))
    return NodeFacts(node.name, dict(node.labels), lasting, present and not away)


def _vector(amounts: Resources, resources: tuple[str, ...]) -> Vector:
    known = dict(amounts.items)
    known.setdefault(PODS, _NO_POD_LIMIT)
    return tuple(known.get(name, 0) for name in resources)


def _free(node: NodeView, total: Vector, resources: tuple[str, ...]) -> Vector:
    used, yielding = dict(node.requested.items), dict(node.yielding.items)
    pairs = zip(resources, total, strict=True)
    return tuple(have - used.get(name, 0) + yielding.get(name, 0) for name, have in pairs)


# --- placing pods ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodGroup:
    """`count` equal pods to place. `need` has (place in the vector, amount); None: a resource that no node has."""

    name: str
    count: int
    need: tuple[tuple[int, int], ...] | None
    demand: Demand
    gpus: int
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Packing:
    """Where pods would lie: (group, node index, pods) triples, the free vectors after, and the groups not placed."""

    placed: tuple[tuple[str, int, int], ...]
    free: tuple[Vector, ...]
    failed: tuple[str, ...]


def pod_group(table: NodeTable, name: str, count: int, per_pod: Resources, demand: Demand) -> PodGroup:
    """A group with its needs as places in the table's vectors; one `pods` is always needed (FR-SCO-09)."""
    wanted = dict(per_pod.items)
    wanted[PODS] = max(1, wanted.get(PODS, 0))
    missing = next((r for r, value in sorted(wanted.items()) if value > 0 and table.place_of(r) is None), None)
    need = None
    if missing is None:
        need = tuple((table.resources.index(r), value) for r, value in sorted(wanted.items()) if value > 0)
    return PodGroup(name, count, need, demand, per_pod.gpus(), missing)


def pack(table: NodeTable, groups: Iterable[PodGroup], *, partial: bool = False) -> Packing:
    """Place all groups, those with the largest pods first; deterministic best fit.

    Exact for one group of equal pods; for several shapes first-fit-decreasing may miss a packing that exists, never
    claim one that does not. With `partial`, a group that does not fit as a whole places what it can (pods that a worker
    has already reserved quota for), otherwise it takes nothing.
    """
    free = list(table.free)
    placed: list[tuple[str, int, int]] = []
    failed: list[str] = []
    for group in sorted(groups, key=lambda g: (-g.gpus, _size(g), g.name)):
        spots, left = _spots(table, free, group)
        if left and not partial:
            failed.append(group.name)
            continue
        if left:
            failed.append(group.name)
        for node, pods in spots:
            free[node] = _less(free[node], group.need or (), pods)
            placed.append((group.name, node, pods))
    return Packing(tuple(placed), tuple(free), tuple(failed))


def _size(group: PodGroup) -> tuple[int, ...]:
    return tuple(-amount for _, amount in group.need or ())


def _less(vector: Vector, need: tuple[tuple[int, int], ...], pods: int) -> Vector:
    amounts = list(vector)
    for place, amount in need:
        amounts[place] -= amount * pods
    return tuple(amounts)


@dataclass(frozen=True, slots=True)
class _Room:
    """Nodes with the same free amounts: in which order they are taken, the pods that each fits, and its free GPUs."""

    order: tuple[int, ...]
    nodes: tuple[int, ...]
    pods: int
    gpus: int


def _spots(table: NodeTable, free: Sequence[Vector], group: PodGroup) -> tuple[list[tuple[int, int]], int]:
    """(node, pods) for a group of equal pods, and how many found no place.

    Nodes that end up with the fewest unused GPUs are taken first, the fuller ones before the empty ones, and nodes
    without GPUs first for pods that want none: whole nodes stay whole for whole-node gangs. The last pods go where they
    leave the least.
    """
    if group.need is None:
        return [], group.count
    rooms = _rooms(table, free, group)
    spots: list[tuple[int, int]] = []
    left = group.count
    for at, room in enumerate(rooms):
        whole = min(len(room.nodes), left // room.pods)
        spots += [(node, room.pods) for node in room.nodes[:whole]]
        left -= whole * room.pods
        if left and whole < len(room.nodes):
            spots.append((_tightest(rooms[at:], room, whole, left), left))
            return spots, 0
        if not left:
            return spots, 0
    return spots, left


def _tightest(rooms: Sequence[_Room], first: _Room, taken: int, pods: int) -> int:
    """The node that the last pods leave the least of; `taken` nodes of the first room are used up."""
    best = min((room for room in rooms if room.pods >= pods), key=lambda room: (room.gpus, room.order))
    return best.nodes[taken] if best is first else best.nodes[0]


def _rooms(table: NodeTable, free: Sequence[Vector], group: PodGroup) -> list[_Room]:
    """Every eligible node with room, gathered by equal free amounts (most nodes of a pool are), in the order of use."""
    alike: dict[Vector, list[int]] = {}
    for node in table.eligible(group.demand):
        alike.setdefault(free[node], []).append(node)
    need = group.need or ()
    cpu, memory = table.place_of(CPU), table.place_of(MEMORY)
    rooms: list[_Room] = []
    for vector, nodes in alike.items():
        pods = min(vector[place] // amount for place, amount in need)
        if pods <= 0:
            continue
        gpus = _gpus(table, vector)
        leftover = gpus - pods * group.gpus if group.gpus else gpus
        cores, bytes_free = (vector[at] if at is not None else 0 for at in (cpu, memory))
        rooms.append(_Room((leftover, gpus, cores, bytes_free, nodes[0]), tuple(nodes), pods, gpus))
    return sorted(rooms, key=lambda room: room.order)


def _gpus(table: NodeTable, vector: Vector) -> int:
    return sum(vector[place] for place in table.gpu_places)


# --- reading a table ---------------------------------------------------------------------------------------------


def free_total(table: NodeTable, nodes: Iterable[int], resource: str) -> int:
    """Free amount of a resource over distinct nodes; over-used nodes count as nothing, not as a debt (FR-SCO-11)."""
    return sum(max(0, table.amount(table.free[i], resource)) for i in sorted(set(nodes)))


def largest_free(table: NodeTable, nodes: Iterable[int], resource: str) -> int | None:
    """The most that any one of the nodes has free; None for no nodes, which is not zero (FR-SCO-08)."""
    amounts = [max(0, table.amount(table.free[i], resource)) for i in nodes]
    return max(amounts) if amounts else None


def combined_free(table: NodeTable, flavors: Mapping[FlavorName, tuple[tuple[str, str], ...]], resource: str) -> int:
    """What several flavors have free together: each node once, however many flavors select it (FR-SCO-11)."""
    distinct = {i for labels in flavors.values() for i in table.flavored(labels) if table.nodes[i].present}
    return free_total(table, distinct, resource)


def toleration_of(entry: tuple[str, str, str, str]) -> Toleration:
    """A flavor's toleration as stored (key, operator, value, effect)."""
    key, operator, value, effect = entry
    return Toleration(key, operator or "Equal", value, effect)
