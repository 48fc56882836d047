"""What a queue has free on a worker, by quota and by nodes; free is the smaller of the two (FR-SCO-10).

For people (`entrepot clusters`) and tests; decisions place whole gangs instead (`fit.py`), with the same two views.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.ids import FlavorName, QueueName
from dispatcher.core.index import ClusterIndex, Room
from dispatcher.core.nodes import free_total
from dispatcher.core.nodeset import members
from dispatcher.core.resources import MIG_PREFIX, WHOLE_GPU, Resources

_COMPUTE_SLICES = 7
"""Compute slices that a GPU can be cut into; "2g" takes two of them."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """One resource of one flavor as a queue sees it. Amounts in the resource's unit.

    `by_quota` includes what may be borrowed; `by_nodes` counts present nodes of the flavor once each; `reclaimable` is
    the part of `by_nodes` that yielding pods hold now (FR-SCO-06). `used_by_queues` and `used_by_pods` are two accounts
    of the same thing, and `mismatch` says that they disagree.
    """

    flavor: FlavorName
    resource: str
    by_quota: int
    by_nodes: int
    reclaimable: int
    used_by_queues: int
    used_by_pods: int

    @property
    def free(self) -> int:
        return min(self.by_quota, self.by_nodes)

    @property
    def mismatch(self) -> bool:
        return self.used_by_queues != self.used_by_pods


def headroom(index: ClusterIndex, room: Room, queue: QueueName) -> tuple[Headroom, ...]:
    """Every (flavor, resource) that the queue has quota for, in name order. Unknown queues have none."""
    view = index.view.queues.get(queue)
    if view is None:
        return ()
    pairs = sorted({(quota.flavor, quota.resource) for quota in view.quotas})
    return tuple(_headroom(index, room, queue, flavor, resource) for flavor, resource in pairs)


def _headroom(index: ClusterIndex, room: Room, queue: QueueName, flavor: FlavorName, resource: str) -> Headroom:
    known = index.view.flavors.get(flavor)
    labels = known.labels if known else ()
    nodes = room.nodes.flavored(labels) & room.nodes.present
    names = {room.nodes.frame.marks.names[at] for at in members(nodes)}
    of_flavor = [node for node in index.view.nodes if node.name in names]
    queues = sorted(index.view.queues)
    return Headroom(
        flavor=flavor,
        resource=resource,
        by_quota=max(0, room.quota.available(queue, (flavor, resource))),
        by_nodes=free_total(room.nodes, nodes, resource),
        reclaimable=sum(node.yielding.get(resource) for node in of_flavor),
        used_by_queues=sum(room.quota.used(name, (flavor, resource)) for name in queues),
        used_by_pods=sum(node.requested.get(resource) - node.yielding.get(resource) for node in of_flavor),
    )


def slices_per_gpu(profile: str, memory_gib: int) -> int:
    """How many MIG slices of a profile ("1g.10gb") one GPU of this memory gives at most.

    Raises:
        ValueError: the profile is not of the form "Ng.Mgb".
    """
    compute, _, memory = profile.partition("g.")
    each = int(memory.removesuffix("gb"))
    return max(1, min(_COMPUTE_SLICES // int(compute), memory_gib // each))


def physical_gpus(amounts: Resources, memory_gib: int) -> int:
    """Cards behind a node's accelerators: whole ones and those that are cut into slices, each once (FR-SCO-07)."""
    cards = amounts.get(WHOLE_GPU)
    for name, count in amounts:
        if name.startswith(MIG_PREFIX) and count > 0:
            cards += -(-count // slices_per_gpu(name.removeprefix(MIG_PREFIX), memory_gib))
    return cards
