"""Cohort headroom as Kueue computes it (kueue-contract section 12), on integers.

A ClusterQueue or Cohort is a node of a tree. Per (flavor, resource):
- its *subtree quota* is its own nominal quota and, for a cohort, what its children lend it;
- a lending limit keeps the rest of its subtree quota *local*: never lent to the parent;
- usage fills the local part first; only what exceeds it counts at the parent;
- a borrowing limit caps how much beyond its lendable quota a node may take from its parent;
- available = free local quota + what the parent has available (after the borrowing limit).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dispatcher.core.ids import FlavorName, QueueName
from dispatcher.core.snapshot import Quota, WorkerView

FlavorResource = tuple[FlavorName, str]
Amounts = Mapping[FlavorResource, int]
NodeKey = tuple[str, str]
"""("queue" | "cohort", name): the two kinds have names of their own."""

_NO_AMOUNTS: Amounts = MappingProxyType({})
_NO_LIMITS: Mapping[FlavorResource, Quota] = MappingProxyType({})


def queue_key(name: QueueName) -> NodeKey:
    return ("queue", name)


def _cohort_key(name: str) -> NodeKey:
    return ("cohort", name)


@dataclass(frozen=True, slots=True)
class QuotaTree:
    """The quota trees of one worker with their usage. Immutable: `with_usage` returns another tree.

    `broken` are nodes whose cohorts form a cycle: Kueue admits nothing there, so nothing is available.
    """

    parents: Mapping[NodeKey, NodeKey]
    limits: Mapping[NodeKey, Mapping[FlavorResource, Quota]]
    subtree: Mapping[NodeKey, Amounts]
    usage: Mapping[NodeKey, Amounts]
    broken: frozenset[NodeKey]
    _free: dict[tuple[NodeKey, FlavorResource], int] = field(default_factory=dict, repr=False, compare=False)
    """What was found to be available; it saves time and changes no answer."""

    def covers(self, queue: QueueName, fr: FlavorResource) -> bool:
        """Whether the queue has quota (zero included) for this flavor and resource."""
        return fr in self.limits.get(queue_key(queue), {})

    def available(self, queue: QueueName, fr: FlavorResource) -> int:
        """What the queue may still reserve, borrowing included. Below zero where more is in use than there is."""
        return self._available(queue_key(queue), fr)

    def potential(self, queue: QueueName, fr: FlavorResource) -> int:
        """What the queue could reserve if nothing were in use anywhere: more than this never fits."""
        return self._potential(queue_key(queue), fr)

    def used(self, queue: QueueName, fr: FlavorResource) -> int:
        return self.usage.get(queue_key(queue), _NO_AMOUNTS).get(fr, 0)

    def nominal(self, queue: QueueName, fr: FlavorResource) -> int:
        quota = self.limits.get(queue_key(queue), {}).get(fr)
        return quota.nominal if quota else 0

    def has_cohorts_of(self, other: QuotaTree) -> bool:
        """Whether the same queues share the same cohorts."""
        return self is other or (
            self.parents == other.parents and self.limits.keys() == other.limits.keys() and self.broken == other.broken
        )

    def cohort_members(self, queue: QueueName) -> frozenset[QueueName]:
        """The queues that share the root cohort of this one, itself included."""
        root = self._root(queue_key(queue))
        return frozenset(QueueName(n) for kind, n in self.limits if kind == "queue" and self._root((kind, n)) == root)

    def ancestors(self, queue: QueueName) -> tuple[NodeKey, ...]:
        """The cohorts above a queue, nearest first."""
        found: list[NodeKey] = []
        key = self.parents.get(queue_key(queue))
        while key is not None:
            found.append(key)
            key = self.parents.get(key)
        return tuple(found)

    def children(self, key: NodeKey) -> tuple[NodeKey, ...]:
        """The cohorts and queues right below a cohort, by name."""
        return tuple(sorted(child for child, parent in self.parents.items() if parent == key))

    def beyond(self, key: NodeKey, fr: FlavorResource, more: int = 0) -> int:
        """By how much a queue or cohort uses more than its own, once it uses `more`; below zero: what is left of it."""
        own = self.subtree.get(key, _NO_AMOUNTS).get(fr, 0)
        return self.usage.get(key, _NO_AMOUNTS).get(fr, 0) + more - own

    def kept_free(self, key: NodeKey, fr: FlavorResource) -> int:
        """What is free of the part that a node never lends."""
        return max(0, self._local(key, fr) - self.usage.get(key, _NO_AMOUNTS).get(fr, 0))

    def with_usage(self, queue: QueueName, amounts: Amounts) -> QuotaTree:
        """The tree after the queue reserves `amounts` more (below zero: after it gives them back)."""
        usage = dict(self.usage)
        key: NodeKey | None = queue_key(queue)
        rest: Amounts = {fr: value for fr, value in sorted(amounts.items()) if value}
        while key is not None and rest:
            before = usage.get(key, _NO_AMOUNTS)
            after = dict(before)
            for fr, value in rest.items():
                after[fr] = after.get(fr, 0) + value
            usage[key] = after
            rest = {
                fr: change
                for fr in rest
                if (change := self._outgrown(key, fr, after) - self._outgrown(key, fr, before))
            }
            key = self.parents.get(key)
        return QuotaTree(self.parents, self.limits, self.subtree, usage, self.broken)

    def _outgrown(self, key: NodeKey, fr: FlavorResource, usage: Amounts) -> int:
        """The part of a node's usage that counts at its parent."""
        return max(0, usage.get(fr, 0) - self._local(key, fr))

    def _local(self, key: NodeKey, fr: FlavorResource) -> int:
        return _local_part(self.limits.get(key, {}).get(fr), self.subtree.get(key, _NO_AMOUNTS).get(fr, 0))

    def _available(self, key: NodeKey, fr: FlavorResource) -> int:
        found = self._free.get((key, fr))
        if found is None:
            found = self._free[key, fr] = self._left(key, fr)
        return found

    def _left(self, key: NodeKey, fr: FlavorResource) -> int:
        if key in self.broken:
            return 0
        total = self.subtree.get(key, _NO_AMOUNTS).get(fr, 0)
        used = self.usage.get(key, _NO_AMOUNTS).get(fr, 0)
        parent = self.parents.get(key)
        if parent is None:
            return total - used
        quota = self.limits.get(key, _NO_LIMITS).get(fr)
        local = _local_part(quota, total)
        from_parent = self._available(parent, fr)
        if quota is not None and quota.borrowing_limit is not None:
            lent, taken = total - local, max(0, used - local)
            from_parent = min(from_parent, lent - taken + quota.borrowing_limit)
        return max(0, local - used) + from_parent

    def _potential(self, key: NodeKey, fr: FlavorResource) -> int:
        if key in self.broken:
            return 0
        total = self.subtree.get(key, _NO_AMOUNTS).get(fr, 0)
        parent = self.parents.get(key)
        if parent is None:
            return total
        amount = self._local(key, fr) + self._potential(parent, fr)
        quota = self.limits.get(key, {}).get(fr)
        if quota is not None and quota.borrowing_limit is not None:
            amount = min(amount, total + quota.borrowing_limit)
        return amount

    def _root(self, key: NodeKey) -> NodeKey:
        if key in self.broken:
            return key
        while (parent := self.parents.get(key)) is not None:
            key = parent
        return key


def _local_part(quota: Quota | None, subtree: int) -> int:
    if quota is None or quota.lending_limit is None:
        return 0
    return max(0, subtree - quota.lending_limit)


def quota_tree(view: WorkerView) -> QuotaTree:
    """The trees of a worker's queues and cohorts; a cohort that is only named by queues exists without own quota."""
    parents: dict[NodeKey, NodeKey] = {}
    limits: dict[NodeKey, Mapping[FlavorResource, Quota]] = {}
    for name, queue in sorted(view.queues.items()):
        limits[queue_key(name)] = _by_flavor_resource(queue.quotas)
        if queue.cohort:
            parents[queue_key(name)] = _cohort_key(queue.cohort)
            limits.setdefault(_cohort_key(queue.cohort), {})
    for cohort_name, cohort in sorted(view.cohorts.items()):
        limits[_cohort_key(cohort_name)] = _by_flavor_resource(cohort.quotas)
        if cohort.parent:
            parents[_cohort_key(cohort_name)] = _cohort_key(cohort.parent)
            limits.setdefault(_cohort_key(cohort.parent), {})
    broken = frozenset(key for key in limits if _in_cycle(key, parents))
    sound = {child: parent for child, parent in parents.items() if child not in broken}
    subtree, usage = _accumulate(limits, sound)
    return QuotaTree(sound, limits, subtree, usage, broken)


def _by_flavor_resource(quotas: Iterable[Quota]) -> Mapping[FlavorResource, Quota]:
    return {(quota.flavor, quota.resource): quota for quota in quotas}


def _in_cycle(key: NodeKey, parents: Mapping[NodeKey, NodeKey]) -> bool:
    """Whether a node lies on, or hangs from, a ring of cohorts."""
    seen = {key}
    while (parent := parents.get(key)) is not None:
        if parent in seen:
            return True
        seen.add(parent)
        key = parent
    return False


def _accumulate(
    limits: Mapping[NodeKey, Mapping[FlavorResource, Quota]], parents: Mapping[NodeKey, NodeKey]
) -> tuple[dict[NodeKey, dict[FlavorResource, int]], dict[NodeKey, dict[FlavorResource, int]]]:
    """Subtree quota and usage of every node, children before parents."""
    subtree = {key: {fr: quota.nominal for fr, quota in quotas.items()} for key, quotas in limits.items()}
    usage = {
        key: {fr: quota.reserved for fr, quota in quotas.items()} if key[0] == "queue" else {}
        for key, quotas in limits.items()
    }
    for key in sorted(limits, key=lambda k: (-_depth(k, parents), k)):
        parent = parents.get(key)
        if parent is None:
            continue
        for fr, total in subtree[key].items():
            local = _local_part(limits[key].get(fr), total)
            subtree[parent][fr] = subtree[parent].get(fr, 0) + total - local
        for fr, used in usage[key].items():
            local = _local_part(limits[key].get(fr), subtree[key].get(fr, 0))
            usage[parent][fr] = usage[parent].get(fr, 0) + max(0, used - local)
    return subtree, usage


def _depth(key: NodeKey, parents: Mapping[NodeKey, NodeKey]) -> int:
    depth = 0
    while (parent := parents.get(key)) is not None:
        depth += 1
        key = parent
    return depth
