"""Where the pods of a gang would lie on the nodes of a cluster: one by one, or together where they ask for that.

Pods that must lie together are placed as Kueue's topology-aware scheduling would find room for them: all of a pod set
in one domain of a level, so many at a time in one domain of another, a leader beside its workers (topology.py). What is
found to have room has it by Kueue's rule too. In which of several domains with room Kueue puts it nobody needs to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dispatcher.core.nodes import Demand, NodeFrame, NodeTable, Spaces, Vector, move
from dispatcher.core.nodeset import NO_NODES, Nodes, first, first_of
from dispatcher.core.resources import CPU, MEMORY, PODS, Resources


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
class Spot:
    """Nodes that were alike and take equally many pods of a group; `before` and `after` are their free amounts."""

    group: str
    nodes: Nodes
    pods: int
    before: Vector
    after: Vector


@dataclass(frozen=True, slots=True)
class Packing:
    """Where pods would lie, the free amounts after, and the groups that found no place."""

    placed: tuple[Spot, ...]
    free: Spaces
    failed: tuple[str, ...]


def pod_group(table: NodeTable, name: str, count: int, per_pod: Resources, demand: Demand) -> PodGroup:
    """A group with its needs as places in the table's vectors; one `pods` is always needed (FR-SCO-09)."""
    wanted = dict(per_pod.items)
    wanted[PODS] = max(1, wanted.get(PODS, 0))
    asked = sorted((resource, value) for resource, value in wanted.items() if value > 0)
    missing = next((resource for resource, _ in asked if resource not in table.frame.resources), None)
    need = None
    if missing is None:
        need = tuple((table.frame.resources.index(resource), value) for resource, value in asked)
    return PodGroup(name, count, need, demand, per_pod.gpus(), missing)


def pack(table: NodeTable, groups: Iterable[PodGroup], *, partial: bool = False) -> Packing:
    """Place all groups, those with the largest pods first; deterministic best fit.

    Exact for one group of equal pods; for several shapes first-fit-decreasing may miss a packing that exists, never
    claim one that does not. With `partial`, a group that does not fit as a whole places what it can (pods that a worker
    has already reserved quota for), otherwise it takes nothing.
    """
    free = dict(table.free)
    placed: list[Spot] = []
    failed: list[str] = []
    for unit in _units(sorted(groups, key=lambda g: (-g.gpus, _size(g), g.name))):
        spots, short = _laid(table.frame, free, unit)
        failed += short
        if short and not partial:
            continue
        if short and len(unit) > 1:
            spots = _apart(table.frame, free, unit)
        for spot in spots:
            move(free, spot.before, spot.after, spot.nodes)
        placed += spots
    return Packing(tuple(placed), free, tuple(failed))


def _units(groups: Sequence[PodGroup]) -> Iterator[tuple[PodGroup, ...]]:
    """What is placed in one go: a pod set, or two that must lie in the same domain, where the first of them stands."""
    done: set[str] = set()
    for group in groups:
        if group.name not in done:
            unit = beside(group, groups)
            done.update(each.name for each in unit)
            yield unit


def beside(group: PodGroup, groups: Sequence[PodGroup]) -> tuple[PodGroup, ...]:
    """The group, and the other one that must lie in the same domain. Kueue takes groups of two pod sets only."""
    name = group.demand.group
    if not name or group.demand.domain is None:
        return (group,)
    found = tuple([each for each in groups if each.demand.group == name])
    return found if len(found) == 2 else (group,)


def _laid(frame: NodeFrame, free: Spaces, unit: tuple[PodGroup, ...]) -> tuple[list[Spot], tuple[str, ...]]:
    """Where a unit goes, and who of it found no place for all its pods."""
    if len(unit) == 1:
        spots, left = _spots(frame, free, unit[0])
        return spots, (unit[0].name,) if left else ()
    leader, workers = leader_first(unit)
    spots = _pair(frame, free, leader, workers)
    return spots, () if spots else (workers.name, leader.name)


def _apart(frame: NodeFrame, free: Spaces, unit: tuple[PodGroup, ...]) -> list[Spot]:
    """Where each of a unit goes that found no place together, as far as it does."""
    then, spots = dict(free), list[Spot]()
    for group in unit:
        found, _ = _spots(frame, then, group)
        for spot in found:
            move(then, spot.before, spot.after, spot.nodes)
        spots += found
    return spots


def _size(group: PodGroup) -> tuple[int, ...]:
    return tuple(-amount for _, amount in group.need or ())


@dataclass(frozen=True, slots=True)
class _Room:
    """Nodes with the same free amounts: in which order they are taken, the pods that each fits, and its free GPUs."""

    order: tuple[int, ...]
    nodes: Nodes
    vector: Vector
    pods: int
    gpus: int

    def spot(self, group: PodGroup, nodes: Nodes, pods: int) -> Spot:
        amounts = list(self.vector)
        for place, amount in group.need or ():
            amounts[place] -= amount * pods
        return Spot(group.name, nodes, pods, self.vector, tuple(amounts))


def _spots(frame: NodeFrame, free: Spaces, group: PodGroup) -> tuple[list[Spot], int]:
    """Where a group of equal pods goes, and how many found no place.

    Nodes that end up with the fewest unused GPUs are taken first, the fuller ones before the empty ones, and nodes
    without GPUs first for pods that want none: whole nodes stay whole for whole-node gangs. The last pods go where they
    leave the least.
    """
    if group.need is None:
        return [], group.count
    within = frame.eligible(group.demand)
    if group.demand.domain is not None:
        within = _one_domain(frame, free, group).nodes
    if group.demand.slices:
        return _in_slices(frame, free, group, within)
    return _fill(frame, free, group, within, group.count)


def _fill(frame: NodeFrame, free: Spaces, group: PodGroup, within: Nodes, count: int) -> tuple[list[Spot], int]:
    """Where so many pods of a group go among these nodes, and how many found no place."""
    rooms = _rooms(frame, free, group, within)
    spots: list[Spot] = []
    left = count
    for at, room in enumerate(rooms):
        whole = min(room.nodes.bit_count(), left // room.pods)
        taken = first_of(room.nodes, whole)
        if taken:
            spots.append(room.spot(group, taken, room.pods))
        left -= whole * room.pods
        if left and taken != room.nodes:
            spots.append(_tightest(rooms[at:], taken, left, group))
            return spots, 0
        if not left:
            return spots, 0
    return spots, left


def _tightest(rooms: Sequence[_Room], taken: Nodes, pods: int, group: PodGroup) -> Spot:
    """Where the last pods leave the least; the nodes `taken` of the first room are used up."""
    best = min((room for room in rooms if room.pods >= pods), key=lambda room: (room.gpus, room.order))
    open_to = best.nodes & ~taken if best is rooms[0] else best.nodes
    return best.spot(group, first_of(open_to, 1), pods)


def _rooms(frame: NodeFrame, free: Spaces, group: PodGroup, within: Nodes) -> list[_Room]:
    """Nodes among these with room, gathered by equal free amounts, in the order of use."""
    need = group.need or ()
    cpu, memory = frame.place_of(CPU), frame.place_of(MEMORY)
    rooms: list[_Room] = []
    for vector, nodes in free.items():
        open_to = nodes & within
        if not open_to:
            continue
        pods = min([vector[place] // amount for place, amount in need])
        if pods <= 0:
            continue
        gpus = sum([vector[place] for place in frame.gpu_places])
        leftover = gpus - pods * group.gpus if group.gpus else gpus
        cores, bytes_free = (vector[at] if at is not None else 0 for at in (cpu, memory))
        rooms.append(_Room((leftover, gpus, cores, bytes_free, first(open_to)), open_to, vector, pods, gpus))
    return sorted(rooms, key=lambda room: room.order)


# --- pods that must lie together ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DomainRoom:
    """A domain of the level that a group requires, by the values of its labels, and how many of its pods fit there."""

    name: tuple[str, ...]
    nodes: Nodes
    pods: int


def _one_domain(frame: NodeFrame, free: Spaces, group: PodGroup) -> DomainRoom:
    """The domain in which the group goes: the one with least room of those with enough, so that large ones stay whole;
    where none has enough, the one with most. The first by name of several. No domain at all is one without room."""
    pods, needed = _domain_pods(frame, free, group), _in_whole_slices(group)
    enough = min([room for room in pods if room >= needed], default=None)
    return _first_with(frame, group, pods, enough) or DomainRoom((), NO_NODES, 0)


def largest_domain(table: NodeTable, unit: tuple[PodGroup, ...]) -> DomainRoom | None:
    """The domain with room for most pods of a unit; None where there is no domain. Of pods that may lie in several
    domains in slices, all of these together, without a name."""
    if len(unit) == 2:
        return _largest_for_two(table.frame, table.free, *leader_first(unit))
    (group,) = unit
    if group.demand.domain is None:
        layers = _layers(table.frame, table.free, group)
        return DomainRoom((), table.eligible(group.demand), sum(layers[0].rooms) if layers else 0)
    return _first_with(table.frame, group, _domain_pods(table.frame, table.free, group), None)


def _first_with(frame: NodeFrame, group: PodGroup, pods: Sequence[int], wanted: int | None) -> DomainRoom | None:
    """The first domain by name with room for just as many pods; None: for most."""
    if not pods:
        return None
    room = max(pods) if wanted is None else wanted
    name, nodes = frame.domains(group.demand).parts[pods.index(room)]
    return DomainRoom(name, nodes, room)


def _domain_pods(frame: NodeFrame, free: Spaces, group: PodGroup) -> list[int]:
    """How many pods of the group each domain takes, in the order of the domains; of slices only whole ones."""
    if group.need is None:
        return []
    domains = frame.domains(group.demand)
    if not group.demand.slices:
        return domains.sums(_pods_by_nodes(frame, free, group))
    rooms = [0] * len(domains.parts)
    for nodes, room in _layers(frame, free, group)[0].parts():
        rooms[domains.home[first(nodes)]] += room
    return rooms


def _pods_by_nodes(frame: NodeFrame, free: Spaces, group: PodGroup) -> Iterator[tuple[Nodes, int]]:
    eligible, need = frame.eligible(group.demand), group.need or ()
    return ((nodes & eligible, min([vector[at] // amount for at, amount in need])) for vector, nodes in free.items())


def undivided(group: PodGroup) -> PodGroup:
    """The same pods, as if they might lie in several domains."""
    if not group.demand.is_divided:
        return group
    return replace(group, demand=replace(group.demand, domain=None, slices=(), group=""))


# --- in slices ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layer:
    """The domains of a level that pods of a group come to in multiples of `size`: the nodes of each that they may lie
    on, and for how many of them in whole slices it has room."""

    size: int
    nodes: tuple[Nodes, ...]
    rooms: tuple[int, ...]

    def parts(self) -> Iterator[tuple[Nodes, int]]:
        """Those with room."""
        return ((nodes, room) for nodes, room in zip(self.nodes, self.rooms, strict=True) if room)


def _layers(frame: NodeFrame, free: Spaces, group: PodGroup) -> tuple[_Layer, ...]:
    """The slices of a group, from broad to narrow: a broad one is made of narrow ones that are whole."""
    if group.need is None:
        return ()
    eligible, found = frame.eligible(group.demand), list[_Layer]()
    for sliced in reversed(group.demand.slices):
        domains = frame.domains(replace(group.demand, domain=sliced.domain, slices=()))
        if found:
            rooms = [0] * len(domains.parts)
            for nodes, room in found[-1].parts():
                rooms[domains.home[first(nodes)]] += room
        else:
            rooms = domains.sums(_pods_by_nodes(frame, free, group))
        whole = tuple([room // sliced.size * sliced.size for room in rooms])
        found.append(_Layer(sliced.size, tuple([nodes & eligible for _, nodes in domains.parts]), whole))
    return tuple(reversed(found))


def _in_whole_slices(group: PodGroup) -> int:
    """Of how many pods the domain is asked: Kueue rounds down to whole slices."""
    size = group.demand.slices[0].size if group.demand.slices else 1
    return group.count // size * size


def _in_slices(frame: NodeFrame, free: Spaces, group: PodGroup, within: Nodes) -> tuple[list[Spot], int]:
    """Where the slices of a group go among these nodes, then what makes no whole slice, and how many found no place."""
    whole, then, spots = _in_whole_slices(group), dict(free), list[Spot]()
    left = group.count
    for nodes, pods in _shares(_layers(frame, free, group), within, whole):
        found, short = _fill(frame, free, group, nodes, pods)
        left -= pods - short
        spots += found
    for spot in spots:
        move(then, spot.before, spot.after, spot.nodes)
    if left and left == group.count - whole:
        found, left = _fill(frame, then, group, within, left)
        spots += found
    return spots, left


def _shares(layers: Sequence[_Layer], within: Nodes, count: int) -> Iterator[tuple[Nodes, int]]:
    """Which nodes take how many of the pods, in whole slices: the domains with most room first, so that they are few,
    and the last where it leaves the least."""
    if not layers:
        yield within, count
        return
    rooms = [(room, at) for at, room in enumerate(layers[0].rooms) if room and layers[0].nodes[at] & within]
    rooms.sort(key=lambda each: (-each[0], each[1]))
    left = count
    for place, (room, at) in enumerate(rooms):
        if left <= 0:
            return
        if room >= left:
            _, at = min(each for each in rooms[place:] if each[0] >= left)
        yield from _shares(layers[1:], layers[0].nodes[at], min(room, left))
        left -= room


# --- a leader beside its workers ---------------------------------------------------------------------------------


def leader_first(unit: tuple[PodGroup, ...]) -> tuple[PodGroup, PodGroup]:
    """The two of a unit; the one with fewer pods leads (Kueue demands that it has one)."""
    one, two = unit
    return (one, two) if one.count < two.count else (two, one)


def _pair(frame: NodeFrame, free: Spaces, leader: PodGroup, workers: PodGroup) -> list[Spot]:
    """Where both go in one domain, the one with least room of those with enough; nothing where there is none."""
    parts, theirs = frame.domains(workers.demand).parts, dict(frame.domains(leader.demand).parts)
    rooms = sorted((room, at) for at, room in enumerate(_domain_pods(frame, free, workers)) if room >= workers.count)
    for _, at in rooms:
        name, nodes = parts[at]
        head, spots, left = _both(frame, free, leader, workers, (theirs.get(name, NO_NODES), nodes))
        if head and not left:
            return [*head, *spots]
    return []


def _both(
    frame: NodeFrame, free: Spaces, leader: PodGroup, workers: PodGroup, within: tuple[Nodes, Nodes]
) -> tuple[list[Spot], list[Spot], int]:
    """Where the leader goes among its nodes of a domain, nothing where it has no place; then the workers among theirs,
    and how many of them found no place."""
    head, left = _seat(frame, free, leader, workers, within[0])
    if left:
        return [], [], workers.count
    then = dict(free)
    for spot in head:
        move(then, spot.before, spot.after, spot.nodes)
    spots, left = _fill(frame, then, workers, within[1], workers.count)
    return head, spots, left


def _seat(frame: NodeFrame, free: Spaces, leader: PodGroup, workers: PodGroup, within: Nodes) -> tuple[list[Spot], int]:
    """Where the leader goes so that the workers lose least room by it, and how many of its pods found no place."""
    if leader.count != 1 or leader.need is None:
        return _fill(frame, free, leader, within, leader.count) if leader.need is not None else ([], leader.count)
    theirs, best = frame.eligible(workers.demand), list[tuple[int, tuple[int, ...], Spot]]()
    for room in _rooms(frame, free, leader, within):
        for nodes, shared in ((room.nodes & ~theirs, False), (room.nodes & theirs, True)):
            if nodes:
                spot = room.spot(leader, first_of(nodes, 1), 1)
                loss = _pods_in(workers, spot.before) - _pods_in(workers, spot.after) if shared else 0
                best.append((loss, room.order, spot))
    return ([min(best, key=lambda each: each[:2])[2]], 0) if best else ([], 1)


def _pods_in(group: PodGroup, vector: Vector) -> int:
    return max(0, min([vector[at] // amount for at, amount in group.need or ()], default=0))


def _largest_for_two(frame: NodeFrame, free: Spaces, leader: PodGroup, workers: PodGroup) -> DomainRoom | None:
    """The domain that takes most of both; the leader is one of them, and where it has no place nobody has."""
    parts, theirs = frame.domains(workers.demand).parts, dict(frame.domains(leader.demand).parts)
    best: DomainRoom | None = None
    rooms = sorted((-room, at) for at, room in enumerate(_domain_pods(frame, free, workers)))
    for room, at in rooms:
        if best is not None and min(-room, workers.count) + leader.count <= best.pods:
            break
        name, nodes = parts[at]
        head, _, left = _both(frame, free, leader, workers, (theirs.get(name, NO_NODES), nodes))
        found = DomainRoom(name, nodes, leader.count + workers.count - left if head else 0)
        best = found if best is None or found.pods > best.pods else best
    return best
