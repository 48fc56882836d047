"""Kueue's topology-aware scheduling on a worker, as far as a required level goes: one domain for all pods of a set.

A simple form of it (Kueue v0.19): the domain with least room of those with enough, and pods that have quota in a domain
and no node yet count there. Preferred levels, slices and groups of pod sets are left to the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from connectors.embedded.nodes import Needs, Node
from dispatcher.core.resources import PODS
from dispatcher.core.snapshot import FlavorView
from dispatcher.core.topology import Topology
from dispatcher.core.workload import PodSet, Requirement

Promised = tuple[Needs, int]
"""Pods of a kind that are to come to nodes which these needs select."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a pod set goes: what its pods select nodes by, or None where no domain has room; `most` is how many pods
    the domain with most room takes."""

    selector: tuple[Requirement, ...] | None
    most: int


def lay_out(
    nodes: Iterable[Node], topology: Topology, level: str, pods: Promised, promised: Sequence[Promised]
) -> Layout:
    """The domain of a level in which all pods have room, beside those that were promised a place before."""
    needs, count = pods
    domain = topology.domain(level)
    there: dict[tuple[str, ...], list[Node]] = {}
    for node in nodes:
        if node.accepts(needs) and all(key in node.labels for key in (*domain.keys, *domain.beside)):
            there.setdefault(tuple(node.labels[key] for key in domain.keys), []).append(node)
    rooms = {name: _room(members, needs, promised) for name, members in sorted(there.items())}
    enough = [name for name, room in rooms.items() if room >= count]
    if not enough:
        return Layout(None, max(rooms.values(), default=0))
    chosen = min(enough, key=lambda name: (rooms[name], name))
    selector = tuple(Requirement(key, "In", (value,)) for key, value in zip(domain.keys, chosen, strict=True))
    return Layout(selector, rooms[chosen])


def _room(nodes: Sequence[Node], needs: Needs, promised: Sequence[Promised]) -> int:
    """How many pods the nodes take once those before them have come."""
    free = [(node, dict(node.free)) for node in nodes]
    for others, count in promised:
        left = count
        for node, have in free:
            taken = min(left, _most(have, others)) if left and node.accepts(others) else 0
            for name, value in others.requests:
                have[name] = have.get(name, 0) - value * taken
            left -= taken
    return sum(_most(have, needs) for _, have in free)


def _most(have: Mapping[str, int], needs: Needs) -> int:
    return max(0, min(have.get(name, 0) // value for name, value in needs.requests if value))


def not_laid_out(pod_set: PodSet, topology: Topology, most: int) -> str:
    """Kueue's words."""
    fits = f"allows to fit only {most} out of" if most else "doesn't allow to fit any of"
    return (
        f'couldn\'t assign flavors to pod set {pod_set.name}: topology "{topology.name}" {fits} {pod_set.count} pod(s)'
    )


def flavor_refuses(flavor: FlavorView, pod_set: PodSet, wanted: Mapping[str, int], only_topologies: bool) -> str:
    """Why Kueue gives a pod set no such flavor, or nothing. `only_topologies`: all flavors of the queue have one."""
    if pod_set.topology is None:
        refused = flavor.topology is not None and not only_topologies
        return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling' if refused else ""
    if flavor.topology is None:
        asks = wanted.keys() - {PODS}
        return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling' if asks else ""
    level = pod_set.topology.required
    missing = level is not None and level not in flavor.topology.levels
    return f'Flavor "{flavor.name}" does not contain the requested level' if missing else ""
