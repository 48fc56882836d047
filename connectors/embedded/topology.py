"""Kueue's topology-aware scheduling on a worker, as far as it decides who is admitted: levels, slices, groups.

A simple form of it (Kueue v0.19): the domain with least room of those with enough, and pods that have quota in a domain
and no node yet count there. On which of the nodes of that domain pods and slices come, and where those go that only
prefer a level, is left to the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from connectors.embedded.nodes import Needs, Node
from dispatcher.core.resources import PODS
from dispatcher.core.snapshot import FlavorView
from dispatcher.core.topology import Topology, TopologyWish
from dispatcher.core.workload import PodSet, Requirement

Promised = tuple[Needs, int]
"""Pods of a kind that are to come to nodes which these needs select."""
_Free = tuple[Node, dict[str, int]]


def units(pod_sets: Sequence[PodSet]) -> Iterator[tuple[PodSet, ...]]:
    """The pod sets one by one, those of one topology group together."""
    seen: set[str] = set()
    for pod_set in pod_sets:
        group = _group(pod_set)
        if group not in seen or not group:
            seen.add(group)
            yield tuple(each for each in pod_sets if _group(each) == group) if group else (pod_set,)


def _group(pod_set: PodSet) -> str:
    return pod_set.topology.group if pod_set.topology is not None else ""


def holds_together(wish: TopologyWish) -> bool:
    """Whether room in sum is not enough for it."""
    return wish.required is not None or bool(wish.slices)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a unit goes: what its pods select nodes by, or None where there is no room; `most` is how many of its pods
    the domain with most room takes."""

    selector: tuple[Requirement, ...] | None
    most: int


def lay_out(
    nodes: Iterable[Node],
    topology: Topology,
    wish: TopologyWish,
    pods: Sequence[Promised],
    promised: Sequence[Promised],
) -> Layout:
    """The domain in which all pods of a unit have room, beside those that were promised a place before.

    `pods` are of one pod set, or of two that must lie together. Without a required level all nodes are one domain.
    """
    if not topology.suits(wish):
        return Layout(None, 0)
    keys = topology.domain(wish.required).keys if wish.required is not None else ()
    there: dict[tuple[str, ...], list[_Free]] = {}
    for node, have in _left(nodes, promised):
        if all(level in node.labels for level in topology.levels):
            there.setdefault(tuple(node.labels[key] for key in keys), []).append((node, have))
    rooms = {name: _room(part, topology, wish, pods) for name, part in sorted(there.items())}
    size = wish.slices[0].size if wish.slices else 1
    needed = sum(count for _, count in pods) // size * size
    enough = [name for name, room in rooms.items() if room >= needed]
    if not enough:
        return Layout(None, max(rooms.values(), default=0))
    chosen = min(enough, key=lambda name: (rooms[name], name))
    selector = tuple(Requirement(key, "In", (value,)) for key, value in zip(keys, chosen, strict=True))
    return Layout(selector, rooms[chosen])


def _left(nodes: Iterable[Node], promised: Sequence[Promised]) -> list[_Free]:
    """What nodes have free once those before have come."""
    free = [(node, dict(node.free)) for node in nodes]
    for needs, count in promised:
        left = count
        for node, have in free:
            taken = min(left, _most(have, needs)) if left and node.accepts(needs) else 0
            _take(have, needs, taken)
            left -= taken
    return free


def _room(part: Sequence[_Free], topology: Topology, wish: TopologyWish, pods: Sequence[Promised]) -> int:
    """How many pods of a unit the nodes of one domain take."""
    if len(pods) == 1:
        return _in_slices(part, topology, wish, pods[0][0])
    (leader, _), (workers, many) = sorted(pods, key=lambda each: each[1])
    best = 0
    for node, have in part:
        if node.accepts(leader) and _most(have, leader):
            beside = dict(have)
            _take(beside, leader, 1)
            others = [(other, beside if other is node else left) for other, left in part]
            best = max(best, 1 + min(many, sum(_fits(workers, *each) for each in others)))
    return best


def _in_slices(part: Sequence[_Free], topology: Topology, wish: TopologyWish, needs: Needs) -> int:
    """From the narrowest slices to the broadest, what is no whole one is left out."""
    rooms: list[tuple[Node, int]] = [(node, _fits(needs, node, have)) for node, have in part]
    for each in reversed(wish.slices):
        keys = topology.domain(each.level).keys
        sums: dict[tuple[str, ...], tuple[Node, int]] = {}
        for node, room in rooms:
            name = tuple(node.labels[key] for key in keys)
            sums[name] = (node, sums.get(name, (node, 0))[1] + room)
        rooms = [(node, room // each.size * each.size) for node, room in sums.values()]
    return sum(room for _, room in rooms)


def _fits(needs: Needs, node: Node, have: Mapping[str, int]) -> int:
    return _most(have, needs) if node.accepts(needs) else 0


def _take(have: dict[str, int], needs: Needs, pods: int) -> None:
    for name, value in needs.requests:
        have[name] = have.get(name, 0) - value * pods


def _most(have: Mapping[str, int], needs: Needs) -> int:
    return max(0, min(have.get(name, 0) // value for name, value in needs.requests if value))


def not_laid_out(pod_set: PodSet, topology: Topology, most: int) -> str:
    """Kueue's words."""
    slices = pod_set.topology.slices if pod_set.topology is not None else ()
    size, what = (slices[0].size, "slice") if slices and slices[0].size > 1 else (1, "pod")
    fits = f"allows to fit only {most // size} out of" if most >= size else "doesn't allow to fit any of"
    return (
        f'couldn\'t assign flavors to pod set {pod_set.name}: topology "{topology.name}" {fits} '
        f"{pod_set.count // size} {what}(s)"
    )


def flavor_refuses(flavor: FlavorView, pod_set: PodSet, wanted: Set[str], only_topologies: bool) -> str:
    """Why Kueue gives a pod set no such flavor, or nothing. `only_topologies`: all flavors of the queue have one."""
    if pod_set.topology is None:
        refused = flavor.topology is not None and not only_topologies
        return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling' if refused else ""
    if flavor.topology is None:
        return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling' if wanted - {PODS} else ""
    missing = any(level not in flavor.topology.levels for level in pod_set.topology.levels)
    return f'Flavor "{flavor.name}" does not contain the requested level' if missing else ""
