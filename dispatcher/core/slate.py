"""What a decision weighs: every cluster as a ground, a candidate on each, and the slate of all of them.

`plain_slate` weighs every cluster anew and is the definition of what a slate is; `memo.py` remembers, and gives the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dispatcher.core.context import Setting
from dispatcher.core.decision import Candidate
from dispatcher.core.holds import live_holds
from dispatcher.core.index import ClusterIndex, ViewIndex
from dispatcher.core.snapshot import ClusterSnapshot, Hold, Snapshot, digest_of, digest_of_all
from dispatcher.core.traffic import waits_for_others
from dispatcher.core.workload import Request


@dataclass(frozen=True, slots=True)
class Ground:
    """One cluster of a decision: what is seen of it, its numbers, and the promises that count on it, oldest first.

    `index` is None where nothing was ever seen completely.
    """

    cluster: ClusterSnapshot
    index: ClusterIndex | None
    holds: tuple[Hold, ...]

    def knows(self, request: Request) -> bool:
        """Whether the request is not just any of its shape here."""
        return (
            any(hold.workload == request.uid for hold in self.holds)
            or any(entry.cluster in (None, self.cluster.name) for entry in request.avoided)
            or (self.index is not None and _same_name(self.index, request))
        )


Weigh = Callable[[Setting, Ground], Candidate]
"""Judges and prices a request on one cluster (`decide.weigh`). The holds are those of others."""


@dataclass(frozen=True, slots=True)
class Slate:
    """All candidates of one decision in name order, those that may be chosen, those that are only full, and what the
    record says of inputs."""

    candidates: tuple[Candidate, ...]
    eligible: tuple[Candidate, ...]
    full: tuple[Candidate, ...]
    candidates_digest: str
    snapshot_digest: str
    request_digest: str


def view_digest(cluster: ClusterSnapshot, index: ClusterIndex | None) -> str:
    """The digest of a view as a candidate shows it: its content and its age."""
    view = cluster.worker
    if index is None or view is None:
        return ""
    return digest_of((index.digest, view.observed_at, view.generation, view.error))


def body_digest(candidate: Candidate) -> str:
    """The digest of what was found of a candidate; the age of its view is in the snapshot's digest."""
    c = candidate
    told = (c.cluster, c.fit, c.rejections, c.terms, c.total_usd_micro, c.queue, c.placements)
    return digest_of((*told, c.preempts) if c.preempts else told)


def ground_digest(cluster: ClusterSnapshot, seen: str, holds: Iterable[Hold]) -> str:
    """What was seen of a cluster, by content: its link, hub object and view, and the promises that counted."""
    told = (cluster.name, cluster.link.value, cluster.multikueue, seen)
    found = digest_of((*told, cluster.cached) if cluster.cached else told)
    for hold in holds:
        found = with_promise(found, hold)
    return found


def with_promise(found: str, hold: Hold) -> str:
    """Promise by promise, so that one more costs one more."""
    return digest_of((found, hold.workload, hold.cluster, hold.decision, hold.made_at, hold.expires_at))


def _same_name(index: ClusterIndex, request: Request) -> bool:
    if (request.namespace, request.name) in index.foreign.workloads:
        return True
    jobs, job = index.foreign.jobs, request.job_name
    return bool(job) and any((request.namespace, kind, job) in jobs for kind in (request.job_kind, ""))


def plain_slate(setting: Setting, snapshot: Snapshot, weigh: Weigh) -> Slate:
    """Every cluster weighed anew: the definition of what a slate is."""
    clusters = sorted(snapshot.clusters, key=lambda c: c.name)
    live = live_holds(snapshot.holds, {c.name: c.worker for c in clusters}, setting.now)
    views, candidates, grounds = ViewIndex(), [], []
    for cluster in clusters:
        index, there = views.of(cluster), tuple(hold for hold in live if hold.cluster == cluster.name)
        seen = view_digest(cluster, index)
        grounds.append(ground_digest(cluster, seen, there))
        found = weigh_alone(setting, Ground(cluster, index, there), weigh)
        candidates.append(stamped(found, cluster, seen))
    return Slate(
        tuple(candidates),
        tuple(candidate for candidate in candidates if candidate.eligible),
        tuple(candidate for candidate in candidates if waits_for_others(candidate)),
        digest_of_all(body_digest(candidate) for candidate in candidates),
        digest_of_all(grounds),
        digest_of(setting.request),
    )


def weigh_alone(setting: Setting, ground: Ground, weigh: Weigh) -> Candidate:
    """Weighed for this very request: what was promised to itself, or gives way to it, is no obstacle."""
    uid, priority = setting.request.uid, setting.request.priority
    others = tuple(hold for hold in ground.holds if hold.stands_before(uid, priority))
    return weigh(setting, Ground(ground.cluster, ground.index, others))


def stamped(candidate: Candidate, cluster: ClusterSnapshot, seen: str) -> Candidate:
    observed_at = cluster.worker.observed_at if cluster.worker is not None else None
    return replace(candidate, observed_at=observed_at, view_digest=seen)
