"""Promised capacity: from our decision until the worker shows it as its own, the amount is deducted (FR-SCO-01)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dispatcher.core.decision import Candidate, Decision, Incoming, Outcome
from dispatcher.core.ids import ClusterName, DataSetName, WorkloadUid
from dispatcher.core.instants import LONGEST_S
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import Hold, Snapshot, WorkerCopy, WorkerView
from dispatcher.core.workload import Request


def hold_of(
    decision: Decision, request: Request, policy: Policy, now: datetime, snapshot: Snapshot | None = None
) -> Hold | None:
    """The capacity that a nomination promises; None when nothing was chosen.

    It lasts for the class's patience, since that long the nomination is trusted, and for `limits.hold_ttl_s` at least.
    `snapshot` is what the decision saw: a copy that lies there already is no answer to this nomination.
    """
    if decision.outcome is Outcome.WAIT or decision.chosen is None:
        return None
    candidate = decision.candidate(decision.chosen)
    if candidate is None or candidate.queue is None:
        return None
    per_pod = {pod_set.name: pod_set.per_pod for pod_set in request.pod_sets}
    plan = policy.classes.get(request.declared.workload_class) if request.declared.workload_class else None
    lasting_s = max(policy.limits.hold_ttl_s, plan.patience_s if plan else 0)
    there = snapshot.cluster(candidate.cluster) if snapshot is not None else None
    left = our_copy(request.key, there.worker if there is not None else None)
    return Hold(
        workload=request.uid,
        workload_key=request.key,
        cluster=candidate.cluster,
        queue=candidate.queue,
        decision=decision.id,
        usage=tuple((p.pod_set, p.pods, per_pod[p.pod_set], p.flavor) for p in candidate.placements),
        made_at=now,
        expires_at=now + timedelta(seconds=lasting_s),
        pod_sets=tuple(
            each for each in request.pod_sets if each.selector or each.terms or each.tolerations or each.topology
        ),
        yields_above=request.priority if decision.ahead is not None else None,
        former_copy=left.uid if left is not None else None,
        incoming=_incoming(candidate, now),
    )


def _incoming(candidate: Candidate, now: datetime) -> tuple[tuple[DataSetName, datetime], ...]:
    """What a run will have brought into the cache, all of it there when the last has come."""
    incoming = candidate.incoming
    takes_s = transfer_of(incoming)
    if takes_s is None:
        return ()
    there_at = now + timedelta(seconds=takes_s)
    return tuple((coming.data_set, there_at) for coming in incoming if coming.transfer_s is not None)


def transfer_of(incoming: Iterable[Incoming]) -> int | None:
    """How long it takes until all that a run brings is there: one after the other over their routes, as the waiting
    term has it. None: of nothing it is known."""
    known = [coming.transfer_s for coming in incoming if coming.transfer_s is not None]
    return min(sum(known), LONGEST_S) if known else None


def live_holds(
    holds: Iterable[Hold], workers: Mapping[ClusterName, WorkerView | None], now: datetime
) -> tuple[Hold, ...]:
    """The holds that still count, oldest first, each once.

    A hold ends when it expires or when its worker shows the reservation of our copy: from then on the worker's own
    numbers contain it, and to count both would deduct it twice. One whose nomination stands and has no copy yet is
    renewed by the loop before it expires (`dispatcher/loops/rounds.py`).
    """
    seen: dict[tuple[str, str, str], Hold] = {}
    for hold in sorted(holds, key=_order):
        if hold.expires_at > now and not is_visible(hold, workers.get(hold.cluster)):
            seen[(hold.workload, hold.cluster, hold.decision)] = hold
    latest = {(hold.workload, hold.cluster): hold for hold in seen.values()}
    return tuple(sorted(latest.values(), key=_order))


@dataclass(slots=True)
class HoldBook:
    """The live holds of one snapshot after another, cluster by cluster. It gives what `live_holds` gives, in parts.

    A snapshot that only has more holds than the one before costs what is new in it; so does time that passes without
    a hold's end.
    """

    _all: tuple[Hold, ...] | None = None
    _live: dict[ClusterName, tuple[Hold, ...]] = field(default_factory=dict)
    _by_workload: dict[WorkloadUid, int] = field(default_factory=dict)
    _since: datetime | None = None
    _until: datetime | None = None
    """Between these two the same holds are live; `_until` None: for ever."""

    def forget(self) -> None:
        """Other views: what they show of holds is to be looked at again."""
        self._all = None

    def has(self, workload: WorkloadUid) -> bool:
        return workload in self._by_workload

    def changes(self, snapshot: Snapshot, now: datetime) -> list[tuple[ClusterName, tuple[Hold, ...]]]:
        """The clusters on which other holds are live than before, with these, oldest first."""
        calm = self._since is not None and self._since <= now and (self._until is None or now < self._until)
        if snapshot.holds is self._all and calm:
            return []
        known = len(self._all) if self._all is not None else 0
        added = snapshot.holds[known:]
        grown = self._all is not None and snapshot.holds[:known] == self._all
        if not (calm and grown):
            return self._read(snapshot, now)
        for hold in added:
            if not self._is_new(hold, snapshot, now):
                return self._read(snapshot, now)
            self._enter(hold)
        self._all = snapshot.holds
        return [(name, self._live[name]) for name in sorted({hold.cluster for hold in added})]

    def _is_new(self, hold: Hold, snapshot: Snapshot, now: datetime) -> bool:
        """Whether a hold is live and the first of its workload, so that it only has to be put in its place."""
        cluster = snapshot.cluster(hold.cluster)
        shown = is_visible(hold, cluster.worker if cluster is not None else None)
        return hold.expires_at > now and not shown and not self.has(hold.workload)

    def _enter(self, hold: Hold) -> None:
        there = list(self._live.get(hold.cluster, ()))
        insort(there, hold, key=_order)
        self._live[hold.cluster] = tuple(there)
        self._by_workload[hold.workload] = self._by_workload.get(hold.workload, 0) + 1
        self._until = hold.expires_at if self._until is None else min(self._until, hold.expires_at)

    def _read(self, snapshot: Snapshot, now: datetime) -> list[tuple[ClusterName, tuple[Hold, ...]]]:
        before, self._live, self._by_workload, self._until = self._live, {}, {}, None
        live = live_holds(snapshot.holds, {c.name: c.worker for c in snapshot.clusters}, now)
        found: dict[ClusterName, list[Hold]] = {}
        for hold in live:
            found.setdefault(hold.cluster, []).append(hold)
            self._by_workload[hold.workload] = self._by_workload.get(hold.workload, 0) + 1
        self._live = {name: tuple(holds) for name, holds in found.items()}
        self._all, self._since = snapshot.holds, now
        self._until = min((hold.expires_at for hold in live), default=None)
        names = sorted({*before, *self._live})
        return [(name, self._live.get(name, ())) for name in names]


def is_visible(hold: Hold, view: WorkerView | None) -> bool:
    """Whether the worker itself shows that the promised copy has reserved, or had: finished work holds nothing."""
    copy = promised_copy(hold, view)
    return copy is not None and (copy.quota_reserved_at is not None or copy.finished)


def promised_copy(hold: Hold, view: WorkerView | None) -> WorkerCopy | None:
    """The copy that MultiKueue made for the nomination of this hold; None while it has not, as far as is seen.

    What an earlier nomination left there may still show its reservation for a while, before MultiKueue deletes it.
    They are told apart by uid: the worker's times are of another clock than ours.
    """
    copy = our_copy(hold.workload_key, view)
    return copy if copy is not None and copy.uid != hold.former_copy else None


def our_copy(workload_key: str, view: WorkerView | None) -> WorkerCopy | None:
    """The copy of a workload on a worker, whichever nomination it was made for."""
    namespace, _, name = workload_key.partition("/")
    copy = view.copies.get((namespace, name)) if view is not None else None
    return copy if copy is not None and copy.ours else None


def promised_before(holds: Iterable[Hold], seen: Snapshot, workload: WorkloadUid) -> tuple[Hold, ...]:
    """Of the holds of now those that a decision which saw `seen` stands behind: what was promised to others before it.

    Decisions of one batch are written side by side, so those behind it in line have promised theirs by now, too. They
    were decided with its own hold deducted: they took what it leaves, and must not take it from it. That is so for
    look-ahead above all, which promises what is not free.
    """
    known = {hold.decision for hold in seen.holds}
    return tuple(hold for hold in holds if hold.workload != workload and hold.decision in known)


def renewed(hold: Hold, now: datetime, ttl_s: int) -> Hold:
    """The same promise with a whole `limits.hold_ttl_s` before it."""
    return replace(hold, expires_at=max(hold.expires_at, now + timedelta(seconds=ttl_s)))


def _order(hold: Hold) -> tuple[datetime, str, str, str]:
    return (hold.made_at, hold.workload, hold.cluster, hold.decision)
