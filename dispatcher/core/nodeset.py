"""Sets of nodes as bits of one integer: the i-th node by name is bit i.

A cluster has a thousand nodes and few kinds of them. What is asked of a set (has it room, how many are they, which
comes first by name) is asked of all its nodes at once, so that no decision walks over equal nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dispatcher.core.selectors import is_lifecycle, requirement_holds, untolerated
from dispatcher.core.snapshot import NodeView, Taint
from dispatcher.core.workload import Requirement, Toleration

Nodes = int
NO_NODES: Nodes = 0


def members(nodes: Nodes) -> Iterator[int]:
    """The positions in a set, in name order."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


def first(nodes: Nodes) -> int:
    """The position of the first node by name; -1 for the empty set."""
    return (nodes & -nodes).bit_length() - 1


def first_of(nodes: Nodes, count: int) -> Nodes:
    """The first `count` nodes by name; all of them when there are no more."""
    if count >= nodes.bit_count():
        return nodes
    rest = nodes
    for _ in range(count):
        rest &= rest - 1
    return nodes ^ rest


@dataclass(frozen=True, slots=True)
class NodeMarks:
    """What nodes are known by: names in order, labels, lasting taints, and which of them are there now.

    `labels` has the nodes per key and value, `taints` per list of taints. `present`: ready, schedulable and not being
    deleted.
    """

    names: tuple[str, ...]
    labels: Mapping[str, Mapping[str, Nodes]]
    taints: tuple[tuple[tuple[Taint, ...], Nodes], ...]
    present: Nodes

    @property
    def everywhere(self) -> Nodes:
        return (1 << len(self.names)) - 1

    def carrying(self, labels: Sequence[tuple[str, str]]) -> Nodes:
        """Nodes that have all these labels."""
        found = self.everywhere
        for key, value in labels:
            found &= self.labels.get(key, {}).get(value, NO_NODES)
        return found

    def keyed(self, keys: Sequence[str]) -> Nodes:
        """Nodes that have all these labels, whatever their values."""
        found = self.everywhere
        for key in keys:
            with_key = NO_NODES
            for nodes in self.labels.get(key, {}).values():
                with_key |= nodes
            found &= with_key
        return found

    def split(self, keys: Sequence[str], among: Nodes) -> tuple[tuple[tuple[str, ...], Nodes], ...]:
        """These nodes by the values of the labels, in the order of the values; nodes that lack one are in no part.

        Node by node: a level of hosts has as many values as there are nodes, in as many parts as there are racks.
        """
        names: dict[int, tuple[str, ...]] = dict.fromkeys(members(among), ())
        for key in keys:
            valued = self.labels.get(key, {}).items()
            names = {at: (*names[at], value) for value, nodes in valued for at in members(nodes & among) if at in names}
        parts: dict[tuple[str, ...], Nodes] = {}
        for at, name in names.items():
            parts[name] = parts.get(name, NO_NODES) | 1 << at
        return tuple(sorted(parts.items()))

    def holding(self, requirement: Requirement) -> Nodes:
        """Nodes whose labels meet one selector expression, each distinct value asked once."""
        values = self.labels.get(requirement.key, {})
        found, with_key = NO_NODES, NO_NODES
        for value, nodes in values.items():
            with_key |= nodes
            if requirement_holds(requirement, {requirement.key: value}):
                found |= nodes
        if requirement_holds(requirement, {}):
            found |= self.everywhere & ~with_key
        return found

    def matching(self, selector: tuple[Requirement, ...], terms: tuple[tuple[Requirement, ...], ...]) -> Nodes:
        """Nodes that the scheduler lets such a pod on (`selectors.node_matches`, for all nodes at once)."""
        found = self.everywhere
        for requirement in selector:
            found &= self.holding(requirement)
        if not terms:
            return found
        either = NO_NODES
        for term in terms:
            each = found if term else NO_NODES
            for requirement in term:
                each &= self.holding(requirement)
            either |= each
        return either

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> Nodes:
        """Nodes without a taint that keeps such a pod off."""
        found = NO_NODES
        for taints, nodes in self.taints:
            if untolerated(tolerations, taints) is None:
                found |= nodes
        return found

    def taints_of(self, node: int) -> tuple[Taint, ...]:
        return next(taints for taints, nodes in self.taints if nodes >> node & 1)

    def values(self, key: str, among: Nodes) -> tuple[str, ...]:
        """The values that a label has on these nodes, sorted."""
        return tuple(sorted(value for value, nodes in self.labels.get(key, {}).items() if nodes & among))


def marks_of(ordered: Sequence[NodeView]) -> NodeMarks:
    """The marks of nodes that are in name order."""
    labels: dict[str, dict[str, Nodes]] = {}
    taints: dict[tuple[Taint, ...], Nodes] = {}
    present = NO_NODES
    for at, node in enumerate(ordered):
        bit = 1 << at
        for key, value in node.labels:
            values = labels.setdefault(key, {})
            values[value] = values.get(value, NO_NODES) | bit
        lasting = tuple(taint for taint in node.taints if not is_lifecycle(taint))
        taints[lasting] = taints.get(lasting, NO_NODES) | bit
        if _is_present(node):
            present |= bit
    return NodeMarks(tuple(node.name for node in ordered), labels, tuple(taints.items()), present)


def _is_present(node: NodeView) -> bool:
    away = any(is_lifecycle(taint) and taint.effect != "PreferNoSchedule" for taint in node.taints)
    return node.ready and node.schedulable and not node.deleting and not away


def same_marks(before: NodeView, after: NodeView) -> bool:
    """Whether two states of a node differ in nothing but amounts."""
    return (
        before.name == after.name
        and before.labels == after.labels
        and before.taints == after.taints
        and (before.ready, before.schedulable, before.deleting) == (after.ready, after.schedulable, after.deleting)
    )
