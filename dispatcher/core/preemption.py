"""Whom the Kueue of a worker would stop so that a workload may start there: its classical preemption, as a function.

What Kueue does, read from its scheduler (v0.17.0 and v0.19.2, the same in both) and seen on real workers
(tests/local/test_preemption_for_real.py):

- It stops somebody only for what is the queue's own: a request within its nominal quota, or within that of a cohort
  below the root; for more only where the queue may borrow while it does so (`borrowWithinCohort`).
- In its own queue those of lower priority give way (`withinClusterQueue`). In other queues of the cohort those that
  have borrowed give back (`reclaimWithinCohort`: of lower priority, or any), until their queue is within its own.
- Whoever is leaving already goes first, then those who give back, then those of the queue itself; among them the
  lowest priority, then the newest reservation. Whoever need not go after all is put back, the last one first.

`LowerOrNewerEqualPriority` is read as lower priority: a copy is newer than all that runs on the worker. Fair sharing
between queues (a setting of Kueue that no API shows) chooses victims otherwise; then what is said here is an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dispatcher.core.ids import QueueName
from dispatcher.core.quota import Amounts, FlavorResource, NodeKey, QuotaTree, queue_key
from dispatcher.core.resources import PODS
from dispatcher.core.snapshot import ClusterQueueView, WorkerCopy, WorkerView

Short = frozenset[FlavorResource]
"""What there is not enough of: only who holds some of it can help."""


class Holder(NamedTuple):
    """A workload that has quota of a queue, and how much of what its queue counts."""

    copy: WorkerCopy
    queue: QueueName
    amounts: Amounts

    @property
    def leaving(self) -> bool:
        return self.copy.evicted_at is not None


Holders = Mapping[QueueName, tuple[Holder, ...]]
"""By queue, in the order in which Kueue stops them."""


def holders_of(view: WorkerView, tree: QuotaTree) -> Holders:
    """Everything that holds quota on a worker."""
    found: dict[QueueName, list[Holder]] = {}
    for _, copy in sorted(view.copies.items()):
        queue = copy.cluster_queue
        if queue is None or copy.quota_reserved_at is None or copy.finished:
            continue
        found.setdefault(queue, []).append(Holder(copy, queue, _amounts(copy, queue, tree)))
    return {queue: tuple(sorted(entries, key=_order)) for queue, entries in sorted(found.items())}


def _amounts(copy: WorkerCopy, queue: QueueName, tree: QuotaTree) -> Amounts:
    amounts: dict[FlavorResource, int] = {}
    for _, count, per_pod, flavor in copy.pod_sets:
        if flavor is None:
            continue
        for resource, amount in (*per_pod.items, *(() if PODS in per_pod.names() else ((PODS, 1),))):
            fr = (flavor, resource)
            if tree.covers(queue, fr):
                amounts[fr] = amounts.get(fr, 0) + amount * count
    return amounts


def _order(holder: Holder) -> tuple[bool, int, float, str]:
    reserved_at = holder.copy.quota_reserved_at
    since = reserved_at.timestamp() if reserved_at is not None else 0.0
    return (not holder.leaving, holder.copy.priority, -since, holder.copy.uid)


class Target(NamedTuple):
    """A workload that would be stopped. `reclaimed`: it gives back what its queue has borrowed; otherwise it gives way
    to a higher priority in its own queue."""

    holder: Holder
    reclaimed: bool


class _Candidate(NamedTuple):
    """One that might be stopped. `up_to` is the cohort that it shares with the one who wants to start; `lends_only`:
    it gives back only where that one would borrow nothing itself."""

    target: Target
    up_to: NodeKey | None
    lends_only: bool


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A workload of some priority in a queue of a worker, whose quota is in use as the tree says."""

    tree: QuotaTree
    queue: ClusterQueueView
    priority: int
    holders: Holders

    def may(self, fr: FlavorResource, needed: int) -> bool:
        """Whether Kueue would stop anybody at all for so much of it."""
        if needed <= self.tree.nominal(self.queue.name, fr) or self.queue.preempts_while_borrowing:
            return True
        rest = needed - self.tree.kept_free(queue_key(self.queue.name), fr)
        for cohort in self.tree.ancestors(self.queue.name):
            if self.tree.beyond(cohort, fr, rest) <= 0:
                return cohort in self.tree.parents
            rest -= self.tree.kept_free(cohort, fr)
        return False

    def targets(self, wanted: Amounts, short: Short) -> tuple[Target, ...] | None:
        """Who would be stopped so that `wanted` has quota; None where stopping all of them would not do.

        Those on their way out are no targets: what they still hold becomes free without anybody being stopped. Nor are
        those who go for somebody else: where more is promised than is free, a start that was decided before stops them.
        """
        found = self._targets(wanted, short)
        owed = {fr: 0 for fr in wanted if fr in short and self.tree.available(self.queue.name, fr) < 0}
        if not found or not owed:
            return found
        going = {target.holder.copy.uid for target in self._targets(owed, frozenset(owed)) or ()}
        return tuple(target for target in found if target.holder.copy.uid not in going)

    def _targets(self, wanted: Amounts, short: Short) -> tuple[Target, ...] | None:
        own = self._own(short)
        advantaged, others = self._in_the_cohort(wanted, short)
        candidates = [
            *(c for group in (advantaged, others, own) for c in group if c.target.holder.leaving),
            *(c for group in (advantaged, others, own) for c in group if not c.target.holder.leaving),
        ]
        for fr in short:
            most = sum(candidate.target.holder.amounts.get(fr, 0) for candidate in candidates)
            if wanted[fr] - self.tree.available(self.queue.name, fr) > most:
                return None
        for borrowing in self._attempts(bool(advantaged), bool(others), short):
            found = self._attempt(candidates, wanted, short, borrowing)
            if found is not None:
                return tuple(target for target in found if not target.holder.leaving)
        return None

    # --- who ---

    def _own(self, short: Short) -> list[_Candidate]:
        found: list[_Candidate] = []
        for holder in self.holders.get(self.queue.name, ()) if self.queue.preempts_lower_priority else ():
            if holder.copy.priority < self.priority:
                if not short.isdisjoint(holder.amounts):
                    found.append(_Candidate(Target(holder, reclaimed=False), None, lends_only=False))
            elif not holder.leaving:
                break  # they are in order of priority
        return found

    def _in_the_cohort(self, wanted: Amounts, short: Short) -> tuple[list[_Candidate], list[_Candidate]]:
        """Who has borrowed: those from whom the queue takes what is its own (or its cohort's) whatever else it uses,
        and all others."""
        advantaged: list[_Candidate] = []
        others: list[_Candidate] = []
        if not self.queue.reclaims_within_cohort:
            return advantaged, others
        key = queue_key(self.queue.name)
        within, rest = self._within(key, wanted)
        done: NodeKey | None = None
        for cohort in self.tree.ancestors(self.queue.name):
            there = advantaged if within else others
            for holder in self._borrowers(cohort, done, short):
                any_priority = self.queue.reclaims_any
                if (any_priority or holder.copy.priority < self.priority) and not short.isdisjoint(holder.amounts):
                    lends_only = not within and not self._while_borrowing(holder)
                    there.append(_Candidate(Target(holder, reclaimed=True), cohort, lends_only))
            fits, rest = self._within(cohort, rest)
            within, done = within or fits, cohort
        return sorted(advantaged, key=_candidate_order), sorted(others, key=_candidate_order)

    def _within(self, key: NodeKey, wanted: Amounts) -> tuple[bool, Amounts]:
        """Whether a node has all of it of its own, and what it would need from above."""
        fits = all(self.tree.beyond(key, fr, amount) <= 0 for fr, amount in wanted.items())
        return fits, {fr: max(0, amount - self.tree.kept_free(key, fr)) for fr, amount in wanted.items()}

    def _borrowers(self, cohort: NodeKey, done: NodeKey | None, short: Short) -> Iterator[Holder]:
        """Everybody in the queues below a cohort that use more than their own, but for a part that was looked at."""
        for child in self.tree.children(cohort):
            if child == done or child == queue_key(self.queue.name) or not self._borrows(self.tree, child, short):
                continue
            if child[0] == "queue":
                yield from self.holders.get(QueueName(child[1]), ())
            else:
                yield from self._borrowers(child, None, short)

    def _while_borrowing(self, holder: Holder) -> bool:
        """Whether it would be stopped even where the queue borrows itself."""
        threshold = self.queue.borrowing_threshold
        return (
            self.queue.preempts_while_borrowing
            and holder.copy.priority < self.priority
            and (threshold is None or holder.copy.priority <= threshold)
        )

    # --- how many ---

    def _attempts(self, advantaged: bool, others: bool, short: Short) -> tuple[bool, ...]:
        """With borrowing or without, in Kueue's order: without it more may be taken back, and nothing borrowed."""
        name = self.queue.name
        if not advantaged and not others:
            return (True,)
        if not self.queue.preempts_while_borrowing:
            if any(self.tree.used(name, fr) >= self.tree.nominal(name, fr) for fr in short):
                return (True,)
            if not advantaged:
                return (False, True)
        return (True, False)

    def _attempt(
        self, candidates: Iterable[_Candidate], wanted: Amounts, short: Short, borrowing: bool
    ) -> list[Target] | None:
        tree, stopped = self.tree, list[_Candidate]()
        for candidate in candidates:
            if not self._still(tree, candidate, short, borrowing):
                continue
            holder = candidate.target.holder
            tree = tree.with_usage(holder.queue, _given_back(holder, wanted))
            stopped.append(candidate)
            if self._fits(tree, wanted, borrowing):
                return self._spared(tree, stopped, wanted, borrowing)
        return None

    def _still(self, tree: QuotaTree, candidate: _Candidate, short: Short, borrowing: bool) -> bool:
        """Whether it may be stopped now that others have been: a queue is taken from only while it has borrowed."""
        if not candidate.target.reclaimed:
            return True
        if borrowing and candidate.lends_only:
            return False
        queue = candidate.target.holder.queue
        chain = (queue_key(queue), *tree.ancestors(queue))
        below = chain[: chain.index(candidate.up_to)] if candidate.up_to in chain else chain
        return all(self._borrows(tree, key, short) for key in below)

    def _spared(self, tree: QuotaTree, stopped: list[_Candidate], wanted: Amounts, borrowing: bool) -> list[Target]:
        """Those of them who must go: whoever need not is put back."""
        kept = stopped[-1:]
        for candidate in reversed(stopped[:-1]):
            holder = candidate.target.holder
            again = {fr: -amount for fr, amount in _given_back(holder, wanted).items()}
            with_it = tree.with_usage(holder.queue, again)
            if self._fits(with_it, wanted, borrowing):
                tree = with_it
            else:
                kept.append(candidate)
        return [candidate.target for candidate in reversed(kept)]

    def _fits(self, tree: QuotaTree, wanted: Amounts, borrowing: bool) -> bool:
        name = self.queue.name
        if not borrowing and any(tree.beyond(queue_key(name), fr, amount) > 0 for fr, amount in wanted.items()):
            return False
        return all(amount <= tree.available(name, fr) for fr, amount in wanted.items())

    @staticmethod
    def _borrows(tree: QuotaTree, key: NodeKey, short: Short) -> bool:
        return any(tree.beyond(key, fr) > 0 for fr in short)


def _candidate_order(candidate: _Candidate) -> tuple[bool, int, float, str]:
    return _order(candidate.target.holder)


def _given_back(holder: Holder, of: Iterable[FlavorResource]) -> Amounts:
    """What a queue uses less of these once the holder is gone."""
    return {fr: -holder.amounts[fr] for fr in of if fr in holder.amounts}


def once_gone(tree: QuotaTree, targets: Iterable[Target]) -> QuotaTree:
    """The quota once they have been stopped."""
    for target in targets:
        holder = target.holder
        tree = tree.with_usage(holder.queue, _given_back(holder, holder.amounts))
    return tree
