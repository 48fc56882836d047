"""Quota of ClusterQueues and Cohorts as a tree: what is free for whom, with borrowing and lending limits.

The rules are Kueue's (kueue-contract section 12, "cohort borrowing"): a node keeps `nominal - lendingLimit` for itself
and stores the rest in its parent; whatever it uses beyond its own part is taken from there, up to its borrowing limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from connectors.embedded.manifests import FlavorResource, QueueSpec
from dispatcher.core.snapshot import CohortView, Quota


class QuotaNode:
    """A ClusterQueue or a Cohort in the tree. `subtree` is its own nominal quota and what its children lend."""

    def __init__(self, name: str, quotas: Mapping[FlavorResource, Quota]) -> None:
        self.name = name
        self.quotas = quotas
        self.parent: QuotaNode | None = None
        self.children: list[QuotaNode] = []
        self.subtree: dict[FlavorResource, int] = {}
        self.used: dict[FlavorResource, int] = {}

    def root(self) -> QuotaNode:
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def guaranteed(self, key: FlavorResource) -> int:
        """The part that is never lent: nobody but this node can use it."""
        quota = self.quotas.get(key)
        if quota is None or quota.lending_limit is None:
            return 0
        return max(0, self.subtree.get(key, 0) - quota.lending_limit)

    def available(self, key: FlavorResource) -> int:
        """What one more workload of this node could take now."""
        subtree, used = self.subtree.get(key, 0), self.used.get(key, 0)
        if self.parent is None:
            return subtree - used
        guaranteed = self.guaranteed(key)
        from_parent = self.parent.available(key)
        limit = self._borrowing_limit(key)
        if limit is not None:
            from_parent = min(from_parent, subtree - guaranteed - max(0, used - guaranteed) + limit)
        return max(0, guaranteed - used) + from_parent

    def most(self, key: FlavorResource) -> int:
        """What this node could take if nobody else used anything."""
        subtree = self.subtree.get(key, 0)
        if self.parent is None:
            return subtree
        most = self.guaranteed(key) + self.parent.most(key)
        limit = self._borrowing_limit(key)
        return most if limit is None else min(most, subtree + limit)

    def _borrowing_limit(self, key: FlavorResource) -> int | None:
        quota = self.quotas.get(key)
        return None if quota is None else quota.borrowing_limit

    def borrows_with(self, key: FlavorResource, extra: int) -> bool:
        """Whether using `extra` more goes beyond this node's own quota."""
        return self.parent is not None and self.used.get(key, 0) + extra > self.subtree.get(key, 0)

    def may_be_freed_for(self, key: FlavorResource, need: int) -> bool:
        """Whether anybody is preempted for so much: it is this node's own, or that of a cohort below the root."""
        quota = self.quotas.get(key)
        if quota is not None and need <= quota.nominal:
            return True
        rest, node = need - max(0, self.guaranteed(key) - self.used.get(key, 0)), self.parent
        while node is not None:
            if not node.used.get(key, 0) + rest > node.subtree.get(key, 0):
                return node.parent is not None
            rest -= max(0, node.guaranteed(key) - node.used.get(key, 0))
            node = node.parent
        return False

    def use(self, key: FlavorResource, value: int) -> None:
        used = self.used.get(key, 0)
        local = max(0, self.guaranteed(key) - used)
        self.used[key] = used + value
        if self.parent is not None and value > local:
            self.parent.use(key, value - local)

    def give_back(self, key: FlavorResource, value: int) -> None:
        used = self.used.get(key, 0)
        stored_in_parent = used - self.guaranteed(key)
        self.used[key] = used - value
        if self.parent is not None and stored_in_parent > 0:
            self.parent.give_back(key, min(value, stored_in_parent))


class QuotaTree:
    """All ClusterQueues and Cohorts of one cluster. A cohort that is only named exists, with no quota of its own."""

    def __init__(self, queues: Iterable[QueueSpec], cohorts: Iterable[CohortView]) -> None:
        self.queues: dict[str, QuotaNode] = {}
        self.cohorts: dict[str, QuotaNode] = {}
        declared = {cohort.name: cohort for cohort in cohorts}
        for queue in sorted(queues, key=lambda q: q.name):
            node = self.queues[queue.name] = QuotaNode(queue.name, queue.quotas)
            if queue.view.cohort is not None:
                _adopt(self._cohort(queue.view.cohort, declared), node)
        for name in sorted(declared):
            self._cohort(name, declared)
        for node in (*self.queues.values(), *self.cohorts.values()):
            if node.parent is None:
                _sum_up(node)

    def _cohort(self, name: str, declared: Mapping[str, CohortView]) -> QuotaNode:
        if name in self.cohorts:
            return self.cohorts[name]
        spec = declared.get(name) or CohortView(name)
        quotas = {(quota.flavor, quota.resource): quota for quota in spec.quotas}
        node = self.cohorts[name] = QuotaNode(name, quotas)
        if spec.parent is not None:
            parent = self._cohort(spec.parent, declared)
            if parent.root() is not node:  # a cycle of cohorts gives nobody anything more
                _adopt(parent, node)
        return node


def _adopt(parent: QuotaNode, child: QuotaNode) -> None:
    child.parent = parent
    parent.children.append(child)


def _sum_up(node: QuotaNode) -> None:
    """Fill `subtree` from the leaves up."""
    node.subtree = {key: quota.nominal for key, quota in node.quotas.items()}
    for child in node.children:
        _sum_up(child)
        for key, value in child.subtree.items():
            node.subtree[key] = node.subtree.get(key, 0) + value - child.guaranteed(key)
