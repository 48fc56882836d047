"""Why this cluster: filter, price, rank, record. Pure: the same inputs give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from dispatcher.core.appraisal import Appraisal
from dispatcher.core.context import Context, Setting, class_of, estimate_of, look
from dispatcher.core.decision import Candidate, Decision, Fit, Outcome, Rejection
from dispatcher.core.filters import judge, legality_of
from dispatcher.core.holds import hold_of
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.legality import legality
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.opening import hold_out
from dispatcher.core.passing import open_to
from dispatcher.core.policy import Policy
from dispatcher.core.slate import Ground, Slate, plain_slate
from dispatcher.core.snapshot import Link, Snapshot, digest_of
from dispatcher.core.terms import price, total_of
from dispatcher.core.traffic import Traffic, choose_ahead, tie
from dispatcher.core.version import CODE_VERSION
from dispatcher.core.victims import victims_of, with_losses
from dispatcher.core.workload import Request

__all__ = ["CODE_VERSION", "decide", "hold_of", "rank"]

_PREFERENCE = {Fit.NOW: 0, Fit.BY_PREEMPTION: 1}


def decide(
    request: Request, snapshot: Snapshot, policy: Policy, now: datetime, memo: CandidateMemo | None = None
) -> Decision:
    """Choose one cluster for a request, or none, and record everything that was weighed.

    `memo` saves weighing what has not changed since earlier decisions, and changes no answer.

    Raises:
        ValueError: the request names no class and its queue is not in the plan (see `class_of`).
    """
    setting = setting_of(request, snapshot, policy, now)
    slate = memo.slate(setting, snapshot, weigh) if memo is not None else plain_slate(setting, snapshot, weigh)
    if snapshot.wall_ahead_s:  # by which clock dates were judged is part of what was seen
        slate = replace(slate, snapshot_digest=digest_of((slate.snapshot_digest, snapshot.wall_ahead_s)))
    slate = with_losses(slate, setting, snapshot.stakes)
    kept = snapshot.traffic.keeps_back()
    if kept is None and snapshot.traffic.reserved:
        slate = open_to(slate, setting, snapshot.traffic.reserved)
    if kept is None and snapshot.traffic.openings:
        slate = hold_out(slate, setting, snapshot.traffic.openings)
    order = rank(request.uid, slate.eligible) if kept is None else ()
    if order or kept is not None:
        return _record(setting, slate, order[0] if order else None, kept)
    return _record_full(setting, slate, snapshot.traffic)


def steps(request: Request, snapshot: Snapshot, policy: Policy, now: datetime, memo: CandidateMemo) -> Iterator[None]:
    """Do the work of `decide` with this memo a cluster at a time: where a fleet is large and a request of a new kind,
    the caller can let others have their turn between two steps. The decision itself then costs little.

    Raises:
        ValueError: as `decide`.
    """
    return memo.steps(setting_of(request, snapshot, policy, now), snapshot, weigh)


def setting_of(request: Request, snapshot: Snapshot, policy: Policy, now: datetime) -> Setting:
    """What is the same for all candidates of a decision.

    Raises:
        ValueError: as `decide`.
    """
    plan = policy.classes[class_of(request, policy)]
    return Setting(request, policy, now, plan, estimate_of(request, plan), snapshot.wall_ahead_s)


def weigh(setting: Setting, ground: Ground) -> Candidate:
    """One candidate: how the request fits, what it costs there, and everything that stands against it."""
    priced = _appraised(look(setting, ground.cluster, ground.index, ground.holds))
    fit = priced.fit
    return Candidate(
        cluster=ground.cluster.name,
        fit=fit.fit if ground.cluster.link is Link.CONNECTED else Fit.UNKNOWN,
        rejections=judge(priced),
        terms=priced.terms,
        total_usd_micro=total_of(priced.terms),
        queue=fit.queue,
        placements=fit.placements,
        observed_at=None,
        view_digest="",
        preempts=victims_of(priced),
        held_s=priced.held_s,
    )


def _appraised(seen: Context) -> Context:
    """With its terms, and what the law says."""

    def appraise() -> Appraisal:
        terms, held_s = price(seen)
        return Appraisal(terms, legality_of(seen), held_s)

    known, fit = seen.setting.appraisals, seen.fit
    if known is None:
        found = appraise()
    else:
        coming = tuple([hold for hold in seen.holds if hold.incoming])
        read = (fit.placements, fit.flavors, fit.broken, fit.borrows, seen.cluster.cached, coming)
        found = known.of(seen.cluster.name, read, appraise)
    return seen.appraised(found)


def rank(uid: WorkloadUid, candidates: tuple[Candidate, ...]) -> tuple[ClusterName, ...]:
    """The eligible candidates, best first: fits now before preemptions, those before preemptions of which nobody knows
    what they cost, then cost, a stable hash, the name."""
    keys = [
        (_PREFERENCE[c.fit], not c.loss_known, c.total_usd_micro, tie(uid, c.cluster), c.cluster)
        for c in candidates
        if c.eligible and c.total_usd_micro is not None and c.fit in _PREFERENCE
    ]
    return tuple(name for *_, name in sorted(keys))


def _record_full(setting: Setting, slate: Slate, traffic: Traffic) -> Decision:
    """Nothing fits: a cluster that is only full is chosen where the class may look ahead there, else none.

    A workload that is nominated already queues in one place only.
    """
    limit = setting.plan.look_ahead
    if not limit or setting.request.already_nominated:
        return _record(setting, slate, None)
    # How full the road was is part of what was seen.
    seen = digest_of((slate.snapshot_digest, tuple(traffic.queued.items()), traffic.claimed))
    slate = replace(slate, snapshot_digest=seen)
    found = choose_ahead(setting.request.uid, slate.full, traffic, setting.plan.workload_class, limit)
    if found is None:
        return _record(setting, slate, None)
    return replace(_record(setting, slate, found[0]), ahead=found[1])


def _record(setting: Setting, slate: Slate, chosen: ClusterName | None, kept: Rejection | None = None) -> Decision:
    request = setting.request
    outcome = Outcome.WAIT if chosen is None else Outcome.ADD if request.already_nominated else Outcome.NOMINATE
    told = (slate.request_digest, slate.snapshot_digest, slate.candidates_digest, setting.policy.digest, CODE_VERSION)
    return Decision(
        id=DecisionId(digest_of((*told, setting.now, outcome, chosen, *((kept,) if kept is not None else ())))),
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
        candidates=slate.candidates,
        request_digest=slate.request_digest,
        snapshot_digest=slate.snapshot_digest,
        policy_digest=setting.policy.digest,
        resource_version=request.resource_version,
        code_version=CODE_VERSION,
        law_digest=setting.policy.residency.digest,
        valid_until=_valid_until(setting, slate, chosen),
        kept=kept,
    )


def _valid_until(setting: Setting, slate: Slate, chosen: ClusterName | None) -> datetime | None:
    """Until when the law allows the chosen cluster, as far as that is known now."""
    site = setting.policy.clusters.get(chosen) if chosen is not None else None
    if site is None:
        return None
    placements = next(c.placements for c in slate.candidates if c.cluster == chosen)
    flavors = tuple(dict.fromkeys(placement.flavor for placement in placements))
    end = setting.dated + timedelta(seconds=setting.estimate.duration_s)
    return legality(setting.request, site, setting.policy, setting.dated, flavors, end).valid_until
