"""What a queue has free on a worker, by quota and by nodes; free is the smaller of the two (FR-SCO-10).

For people (`entrepot clusters`, `entrepot why`). Decisions place whole gangs instead (`fit.py`), by the same views.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.ids import FlavorName, QueueName
from dispatcher.core.index import Room
from dispatcher.core.nodes import free_total, node_table
from dispatcher.core.nodeset import members
from dispatcher.core.quota import quota_tree
from dispatcher.core.snapshot import WorkerView


@dataclass(frozen=True, slots=True)
class Headroom:
    """One resource of one flavor as a queue sees it. Amounts in the resource's unit.

    `by_quota` includes what may be borrowed; `by_nodes` counts present nodes of the flavor once each; `reclaimable` is
    the part of `by_nodes` that yielding pods hold now (FR-SCO-06). `used_by_queues` and `used_by_pods` are two accounts
    of the same thing, and `mismatch` says that they disagree.
    """

    queue: QueueName
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

    @property
    def gap(self) -> bool:
        """Whether the two views leave another amount because their accounts disagree: one of them is wrong, and which
        one, a person must find out. A queue that may have less than the nodes have is no gap."""
        return self.mismatch and self.by_quota != self.by_nodes


def room_of(view: WorkerView) -> Room:
    """A worker as its queues and its pods say that it is now: nothing that is promised or not bound yet counts."""
    return Room(quota_tree(view), node_table(view.nodes))


def headroom(view: WorkerView, room: Room, queue: QueueName) -> tuple[Headroom, ...]:
    """Every (flavor, resource) that the queue has quota for, in name order. Unknown queues have none."""
    found = view.queues.get(queue)
    pairs = sorted({(quota.flavor, quota.resource) for quota in found.quotas}) if found is not None else []
    return tuple(_headroom(view, room, queue, flavor, resource) for flavor, resource in pairs)


def _headroom(view: WorkerView, room: Room, queue: QueueName, flavor: FlavorName, resource: str) -> Headroom:
    known = view.flavors.get(flavor)
    nodes = room.nodes.flavored(known.labels if known else ()) & room.nodes.present
    names = {room.nodes.frame.marks.names[at] for at in members(nodes)}
    of_flavor = [node for node in view.nodes if node.name in names]
    return Headroom(
        queue=queue,
        flavor=flavor,
        resource=resource,
        by_quota=max(0, room.quota.available(queue, (flavor, resource))),
        by_nodes=free_total(room.nodes, nodes, resource),
        reclaimable=sum(node.yielding.get(resource) for node in of_flavor),
        used_by_queues=sum(room.quota.used(name, (flavor, resource)) for name in sorted(view.queues)),
        used_by_pods=sum(node.requested.get(resource) - node.yielding.get(resource) for node in of_flavor),
    )
