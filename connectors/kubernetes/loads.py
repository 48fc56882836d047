"""What the pods of a cluster take, as sums that each change of a pod adjusts: of each node, and of each job.

A fleet has some ten pods to a node, and they come and go all the time. Adding them all up again for every look would
be most of what the daemon does; so a change costs what changed, and nodes that did not change stay the same objects.
A change is only noted, and worked in by the next look: a list brings thousands at once, and the pods of one job on one
node are one value, which is then added once with its count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from connectors.kubernetes.cache import Cache
from connectors.kubernetes.decode import CopyRecord
from connectors.kubernetes.decode_nodes import JobKey, PodUse, bound_pods, job_key, shared_sum
from dispatcher.core.resources import PODS, Resources
from dispatcher.core.snapshot import Lying, NodeView, WorkerCopy

_Sums = dict[str, dict[str, int]]


class Loads:
    """Listens to the caches of nodes and pods; `nodes` and `copies` are what a view shows of them."""

    def __init__(self, nodes: Cache[NodeView], pods: Cache[PodUse]) -> None:
        self._nodes = nodes
        self._asked: _Sums = {}
        self._yielding: _Sums = {}
        self._bound: Counter[JobKey] = Counter()
        self._pods = pods
        self._lying: dict[JobKey, Counter[tuple[str, Resources]]] | None = None
        """By job: how many pods are on which node, and what each asks for. None: nobody has asked, as on a cluster
        without topologies, and then it costs nothing."""
        self._noted: dict[int, tuple[PodUse, int]] = {}
        """By identity, which is cheap to look up, how often each value has come (or gone, below zero) since a look."""
        self._stale: set[str] = set()
        """Nodes whose object or load has changed since they were built."""
        self._built: dict[str, NodeView] = {}
        self._astray: set[str] = set()
        """Nodes that have pods and are not there."""
        nodes.listen(self._node_changed)
        pods.listen(self._pod_changed)

    def nodes(self) -> tuple[NodeView, ...]:
        """Nodes by name, each with what its pods ask of it; every pod takes one of the node's `pods` as well."""
        self._work_in()
        for name in self._stale:
            node = self._nodes.get(("", name))
            (self._astray.add if node is None and name in self._asked else self._astray.discard)(name)
            if node is None:
                self._built.pop(name, None)
            elif name in self._asked:
                yielding = shared_sum(self._yielding.get(name, {}))
                self._built[name] = replace(node, requested=shared_sum(self._asked[name]), yielding=yielding)
            else:
                self._built[name] = node
        self._stale.clear()
        return tuple(self._built[name] for name in sorted(self._built))

    def astray(self) -> tuple[tuple[str, int], ...]:
        """Nodes that are not there and have pods all the same, by name, with their number. As of the last `nodes`."""
        return tuple((name, self._asked[name][PODS]) for name in sorted(self._astray))

    def copies(self, records: Cache[CopyRecord]) -> Mapping[tuple[str, str], WorkerCopy]:
        """Copies by (namespace, name) in that order, each with the number of its job's pods that are on nodes."""
        self._work_in()
        return bound_pods(records.values(), self._bound)

    def lying(self, records: Iterable[CopyRecord]) -> dict[tuple[str, str], Lying]:
        """Where the pods of these copies are, by (namespace, name); of those that have pods on nodes."""
        self._work_in()
        if self._lying is None:
            self._lying = {}
            for pod in self._pods.values():
                _lay(self._lying, pod, 1)
        found: dict[tuple[str, str], Lying] = {}
        for record in records:
            there = self._lying.get(job_key(record, self._bound))
            if there:
                pods = sorted(there.items(), key=lambda each: (each[0][0], each[0][1].items))
                key = (record.copy.namespace, record.copy.name)
                found[key] = tuple([(node, asked, count) for (node, asked), count in pods])
        return found

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        self._stale.update(node.name for node in (old, new) if node is not None)

    def _pod_changed(self, old: PodUse | None, new: PodUse | None) -> None:
        for pod, sign in ((old, -1), (new, 1)):
            if pod is None:
                continue
            _, count = self._noted.pop(id(pod), (pod, 0))
            if count + sign:
                self._noted[id(pod)] = (pod, count + sign)

    def _work_in(self) -> None:
        noted, self._noted = self._noted, {}
        for pod, count in noted.values():
            self._stale.add(pod.node)
            for sums in (self._asked, self._yielding) if pod.yields else (self._asked,):
                _add(sums, pod, count)
            for key in dict.fromkeys(pod.jobs):
                self._bound[key] += count
                if not self._bound[key]:
                    del self._bound[key]
            if self._lying is not None:
                _lay(self._lying, pod, count)


def _lay(lying: dict[JobKey, Counter[tuple[str, Resources]]], pod: PodUse, count: int) -> None:
    """Of a job without pods nothing is kept."""
    place = (pod.node, pod.requests)
    for key in dict.fromkeys(pod.jobs):
        there = lying.setdefault(key, Counter())
        there[place] += count
        if not there[place]:
            del there[place]
        if not there:
            del lying[key]


def _add(sums: _Sums, pod: PodUse, count: int) -> None:
    """Of a node without pods nothing is kept."""
    taken = sums.setdefault(pod.node, {PODS: 0})
    taken[PODS] += count
    for name, value in pod.requests:
        taken[name] = taken.get(name, 0) + count * value
    if not taken[PODS]:
        del sums[pod.node]
