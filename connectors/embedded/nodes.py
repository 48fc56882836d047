"""Nodes of one worker, its scheduler and its kubelets: pods are bound one by one to nodes where they fit.

A scheduler without gangs, as the stock one: a Workload that Kueue admitted may have some pods on nodes and some that
wait. Nothing is ever bound beyond a node's allocatable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from connectors.embedded.manifests import NodeSpec
from connectors.embedded.matching import node_matches, tolerates
from connectors.embedded.world import Pulse, World
from dispatcher.core.resources import CPU, MEMORY, PODS, Resources
from dispatcher.core.snapshot import NodeView
from dispatcher.core.workload import Requirement, Toleration

BIND_S = 0.02
"""From a pod's creation, or from a change of the nodes, to the scheduler's answer."""
TERMINATION_S = 0.1
"""How long a deleted pod still holds its node."""
NOT_READY_TOLERATION_S = 300.0
"""How long pods stay on a node that is not ready: the default toleration of every pod."""
_SPREAD_BY = (CPU, MEMORY)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a pod asks of a node; pods of equal needs are the same to the scheduler. Hashed once for all of them."""

    requests: tuple[tuple[str, int], ...]
    selector: tuple[Requirement, ...]
    terms: tuple[tuple[Requirement, ...], ...]
    tolerations: tuple[Toleration, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.requests, self.selector, self.terms, self.tolerations)))

    def __hash__(self) -> int:
        return self._hash


class PodOwner(Protocol):
    """Who made a pod and hears of it."""

    def pod_bound(self, pod: Pod) -> None:
        """It is on a node and runs."""

    def pod_ended(self, pod: Pod, ran: bool) -> None:
        """Called once: with True when it has run its time, False when it was lost or deleted."""


class Pod:
    """One pod. It ends by itself after `runs_s` on its node; None: when its owner says so. `placed`: it has been on a
    node."""

    __slots__ = ("needs", "node", "over", "owner", "placed", "runs_s", "seq")

    def __init__(self, needs: Needs, runs_s: float | None, owner: PodOwner) -> None:
        self.needs = needs
        self.runs_s = runs_s
        self.owner = owner
        self.node: Node | None = None
        self.placed = False
        self.over = False
        self.seq = 0


class Node:
    """A node and the pods on it."""

    def __init__(self, view: NodeView) -> None:
        self.view = view
        self.labels = dict(view.labels)
        self.free = dict(view.allocatable.items)
        self.pods: dict[int, Pod] = {}
        self._scored = [(name, have) for name, have in view.allocatable if name in _SPREAD_BY and have > 0]
        self._emptiness: int | None = None

    def has_room(self, needs: Needs) -> bool:
        free = self.free
        for name, value in needs.requests:  # noqa: SIM110 (asked of every node for every pod)
            if free.get(name, 0) < value:
                return False
        return True

    def accepts(self, needs: Needs) -> bool:
        """Everything but room: state, taints, labels."""
        view = self.view
        return (
            view.ready
            and view.schedulable
            and not view.deleting
            and tolerates(needs.tolerations, view.taints)
            and node_matches(self.labels, needs.selector, needs.terms)
        )

    def emptiness(self) -> int:
        """The stock scheduler's least-allocated score, in permille of CPU and memory."""
        if self._emptiness is None:
            self._emptiness = sum(self.free[name] * 1000 // have for name, have in self._scored)
        return self._emptiness

    def current(self) -> NodeView:
        """The node as the worker's view shows it, with what its pods ask of it."""
        if not self.pods:
            return self.view
        allocatable = dict(self.view.allocatable.items)
        used = {name: allocatable[name] - left for name, left in self.free.items() if allocatable[name] != left}
        return replace(self.view, requested=Resources.of({PODS: 0, **used}))

    def take(self, pod: Pod) -> None:
        for name, value in pod.needs.requests:
            if value:
                self.free[name] -= value
        self.pods[pod.seq] = pod
        pod.node, pod.placed, self._emptiness = self, True, None

    def leave(self, pod: Pod) -> None:
        for name, value in pod.needs.requests:
            if value:
                self.free[name] += value
        del self.pods[pod.seq]
        pod.node, self._emptiness = None, None


class NodePool:
    """All nodes of a worker, and the pods that wait for one. `touched` names the nodes whose view is out of date."""

    def __init__(self, world: World) -> None:
        self.nodes: dict[str, Node] = {}
        self.revision = 0
        self.touched: dict[str, None] = {}
        self._world = world
        self._waiting: dict[Needs, deque[Pod]] = {}
        self._turned_away: set[Needs] = set()
        self._acceptable: dict[Needs, list[Node]] = {}
        self._created = 0
        self._schedule = Pulse(world, self._run)
        self.changed: Callable[[], None] = lambda: None
        """Called when nodes come, go or change in more than their pods."""

    # --- nodes ---------------------------------------------------------------------------------------------------

    def add(self, spec: NodeSpec) -> None:
        """A node joins, ready; one of that name that is already there stays as it is."""
        if spec.name not in self.nodes:
            self.nodes[spec.name] = Node(spec.view())
            self.nodes = dict(sorted(self.nodes.items()))
            self._nodes_changed()

    def remove(self, name: str) -> None:
        """A node is gone with everything on it."""
        node = self.nodes.pop(name, None)
        if node is not None:
            self._lose_pods(node)
            self._nodes_changed()

    def cordon(self, name: str, cordoned: bool = True) -> None:
        node = self.nodes[name]
        node.view = replace(node.view, schedulable=not cordoned)
        self._nodes_changed()

    def set_ready(self, name: str, ready: bool) -> None:
        """A node that is not ready takes no pods, and loses those it has when they tolerate it no longer."""
        node = self.nodes[name]
        node.view = replace(node.view, ready=ready)
        self._nodes_changed()
        if not ready:
            self._world.after(NOT_READY_TOLERATION_S, lambda: None if node.view.ready else self._lose_pods(node))

    def _nodes_changed(self) -> None:
        self._acceptable.clear()
        self.touched.update(dict.fromkeys(self.nodes))
        self._room_made()
        self.changed()

    def _lose_pods(self, node: Node) -> None:
        for pod in list(node.pods.values()):
            self._end(pod, ran=False)

    # --- pods ----------------------------------------------------------------------------------------------------

    def create(self, pod: Pod) -> None:
        """A pod waits for a node."""
        self._created += 1
        pod.seq = self._created
        self._waiting.setdefault(pod.needs, deque()).append(pod)
        if pod.needs not in self._turned_away:
            self._schedule.within(BIND_S)

    def delete(self, pod: Pod) -> None:
        """A pod is told to go; one on a node holds it until it has terminated."""
        if pod.over:
            return
        if pod.node is None:
            self._end(pod, ran=False)
        else:
            self._world.after(TERMINATION_S, lambda: self._end(pod, ran=False))

    def finish(self, pod: Pod) -> None:
        """A pod on a node has run its time."""
        self._end(pod, ran=True)

    def _end(self, pod: Pod, ran: bool) -> None:
        if pod.over:
            return
        pod.over = True
        if pod.node is not None:
            self.touched[pod.node.view.name] = None
            pod.node.leave(pod)
            self._room_made()
        pod.owner.pod_ended(pod, ran)

    def _room_made(self) -> None:
        self.revision += 1
        self._turned_away.clear()
        if self._waiting:
            self._schedule.within(BIND_S)

    # --- the scheduler -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Oldest pod first; pods of needs that found no node wait until something changes."""
        while True:
            head: Pod | None = None
            for needs in list(self._waiting):
                queue = self._waiting[needs]
                while queue and queue[0].over:
                    queue.popleft()
                if not queue:
                    del self._waiting[needs]
                    self._turned_away.discard(needs)
                elif needs not in self._turned_away and (head is None or queue[0].seq < head.seq):
                    head = queue[0]
            if head is None:
                return
            self._place(head.needs)

    def _place(self, needs: Needs) -> None:
        """Bind as many waiting pods of one kind as there is room for."""
        queue = self._waiting[needs]
        node = self._choose(needs)
        if node is None:
            self._turned_away.add(needs)
            return
        pod = queue.popleft()
        node.take(pod)
        self.touched[node.view.name] = None
        self.revision += 1
        pod.owner.pod_bound(pod)
        if pod.runs_s is not None:
            self._world.after(pod.runs_s, lambda: self._end(pod, ran=True))

    def _choose(self, needs: Needs) -> Node | None:
        """The emptiest node with room, by name where several are equally empty."""
        nodes = self._acceptable.get(needs)
        if nodes is None:
            nodes = self._acceptable[needs] = [node for node in self.nodes.values() if node.accepts(needs)]
        best, score = None, -1
        for node in nodes:
            if node.has_room(needs):
                emptiness = node.emptiness()
                if emptiness > score:
                    best, score = node, emptiness
        return best
