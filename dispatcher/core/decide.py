"""Why this cluster: filter, price, rank, record. Pure: the same inputs give the same bytes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime

from dispatcher.core.context import Context, Setting, class_of, estimate_of, look
from dispatcher.core.decision import Candidate, Decision, Fit, Outcome, Rejection
from dispatcher.core.filters import judge
from dispatcher.core.holds import hold_of, live_holds
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.index import ViewIndex
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import Hold, Link, Snapshot, digest_of
from dispatcher.core.terms import price, total_of
from dispatcher.core.version import CODE_VERSION
from dispatcher.core.workload import Request

__all__ = ["CODE_VERSION", "decide", "hold_of", "rank"]

_PREFERENCE = {Fit.NOW: 0, Fit.BY_PREEMPTION: 1}


def decide(
    request: Request, snapshot: Snapshot, policy: Policy, now: datetime, views: ViewIndex | None = None
) -> Decision:
    """Choose one cluster for a request, or none, and record everything that was weighed.

    `views` saves work between decisions on the same snapshot and changes no answer.

    Raises:
        ValueError: the request names no class and its queue is not in the plan (see `class_of`).
    """
    plan = policy.classes[class_of(request, policy)]
    setting = Setting(request, policy, now, plan, estimate_of(request, plan))
    holds = live_holds(snapshot.holds, {cluster.name: cluster.worker for cluster in snapshot.clusters}, now)
    indexes = views if views is not None else ViewIndex()
    candidates: list[Candidate] = []
    for cluster in sorted(snapshot.clusters, key=lambda c: c.name):
        seen = look(setting, cluster, tuple(h for h in holds if h.cluster == cluster.name), indexes)
        priced = replace(seen, terms=price(seen))
        candidates.append(_candidate(priced, judge(priced)))
    order = rank(request.uid, tuple(candidates))
    return _record(
        setting, tuple(candidates), order[0] if order else None, _snapshot_digest(snapshot, candidates, holds)
    )


def rank(uid: WorkloadUid, candidates: tuple[Candidate, ...]) -> tuple[ClusterName, ...]:
    """The eligible candidates, best first: fits now before preemptions, then cost, a stable hash, the name."""
    keys = [
        (_PREFERENCE[c.fit], c.total_usd_micro, _tie(uid, c.cluster), c.cluster)
        for c in candidates
        if c.eligible and c.total_usd_micro is not None and c.fit in _PREFERENCE
    ]
    return tuple(name for _, _, _, name in sorted(keys))


def _tie(uid: WorkloadUid, cluster: ClusterName) -> str:
    """Spreads equal candidates over clusters, always the same way for one workload."""
    return hashlib.sha256(f"{uid}/{cluster}".encode()).hexdigest()


def _candidate(context: Context, rejections: tuple[Rejection, ...]) -> Candidate:
    worker, fit = context.cluster.worker, context.fit
    return Candidate(
        cluster=context.cluster.name,
        fit=fit.fit if context.cluster.link is Link.CONNECTED else Fit.UNKNOWN,
        rejections=rejections,
        terms=context.terms,
        total_usd_micro=total_of(context.terms),
        queue=fit.queue,
        placements=fit.placements,
        observed_at=worker.observed_at if worker else None,
        view_digest=context.index.digest if context.index else "",
    )


def _record(
    setting: Setting, candidates: tuple[Candidate, ...], chosen: ClusterName | None, snapshot_digest: str
) -> Decision:
    request = setting.request
    outcome = Outcome.WAIT if chosen is None else Outcome.ADD if request.already_nominated else Outcome.NOMINATE
    blank = Decision(
        id=DecisionId(""),
        workload=request.uid,
        key=request.key,
        job_kind=request.job_kind,
        job_name=request.job_name,
        attempt=request.attempt,
        decided_at=setting.now,
        waiting_since=request.waiting_since,
        outcome=outcome,
        chosen=chosen,
        already_nominated=request.already_nominated,
        workload_class=setting.plan.workload_class,
        estimate=setting.estimate,
        candidates=candidates,
        request_digest=digest_of(request),
        snapshot_digest=snapshot_digest,
        policy_digest=setting.policy.digest,
        resource_version=request.resource_version,
        code_version=CODE_VERSION,
    )
    return replace(blank, id=DecisionId(digest_of(blank)))


def _snapshot_digest(snapshot: Snapshot, candidates: list[Candidate], holds: tuple[Hold, ...]) -> str:
    """What was seen, by content: each cluster's link, hub object and view, and the promises that counted."""
    seen = {candidate.cluster: candidate.view_digest for candidate in candidates}
    clusters = tuple((c.name, c.link.value, c.multikueue, seen[c.name]) for c in snapshot.clusters)
    promised = tuple((h.workload, h.cluster, h.decision, h.made_at, h.expires_at) for h in holds)
    return digest_of((tuple(sorted(clusters, key=lambda entry: entry[0])), promised))
