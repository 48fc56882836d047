"""Decisions as answers. All words come from `core.explain`; here they are only put beside the codes."""

from __future__ import annotations

from dispatcher.core import explain
from dispatcher.core.counterfactual import Counterfactual
from dispatcher.core.decision import Candidate, CheckpointAdvice, Decision, Line, Rejection, Term, Victim
from dispatcher.core.ids import ClusterName, DecisionId
from dispatcher.web.models import (
    BillLine,
    CandidateView,
    CheckpointAdviceView,
    CounterfactualView,
    DecisionSummary,
    DecisionView,
    DifferenceView,
    EstimateView,
    Job,
    LookAheadView,
    Money,
    PlacementView,
    RejectionView,
    TermView,
    VictimView,
    WaitView,
    WhyNotCode,
    WhyNotView,
)
from dispatcher.web.status import age_s

UNKNOWN = "unknown"


def money(usd_micro: int | None) -> Money:
    return Money(usd_micro=usd_micro, text=UNKNOWN if usd_micro is None else explain.money(usd_micro))


def job_of(decision: Decision) -> Job:
    return Job(kind=decision.job_kind, name=decision.job_name)


def summary(decision: Decision, repeats: DecisionId | None = None) -> DecisionSummary:
    """`repeats`: see recorded.repeated."""
    namespace, _, name = decision.key.partition("/")
    chosen = decision.candidate(decision.chosen) if decision.chosen is not None else None
    return DecisionSummary(
        id=decision.id,
        decided_at=decision.decided_at,
        namespace=namespace,
        name=name,
        job=job_of(decision),
        attempt=decision.attempt,
        outcome=decision.outcome,
        chosen=decision.chosen,
        total=money(chosen.total_usd_micro) if chosen is not None else None,
        text=explain.sentence(decision),
        repeats=repeats,
    )


def full(decision: Decision, repeats: DecisionId | None = None) -> DecisionView:
    return DecisionView(
        **dict(summary(decision, repeats)),
        uid=decision.workload,
        waiting_since=decision.waiting_since,
        already_nominated=decision.already_nominated,
        workload_class=decision.workload_class,
        estimate=EstimateView(
            duration_s=decision.estimate.duration_s,
            basis=decision.estimate.basis,
            text=explain.estimate_text(decision),
            runs=decision.estimate.runs,
        ),
        candidates=tuple(candidate(c, decision) for c in ranked(decision)),
        request_digest=decision.request_digest,
        snapshot_digest=decision.snapshot_digest,
        policy_digest=decision.policy_digest,
        resource_version=decision.resource_version,
        code_version=decision.code_version,
        law_digest=decision.law_digest,
        valid_until=decision.valid_until,
        ahead=LookAheadView(queued=ahead.queued, limit=ahead.limit) if (ahead := decision.ahead) is not None else None,
        kept=_rejection(decision.kept, explain.HUB) if decision.kept is not None else None,
    )


def ranked(decision: Decision) -> list[Candidate]:
    """The chosen one first, then the eligible ones by total, then the rejected ones, fewest reasons first."""

    def place(c: Candidate) -> tuple[bool, bool, int, str]:
        amount = c.total_usd_micro or 0 if c.eligible else len(c.rejections)
        return (c.cluster != decision.chosen, not c.eligible, amount, c.cluster)

    return sorted(decision.candidates, key=place)


def candidate(found: Candidate, decision: Decision) -> CandidateView:
    return CandidateView(
        cluster=found.cluster,
        chosen=found.cluster == decision.chosen,
        eligible=found.eligible,
        fit=found.fit,
        fit_text=explain.fit_text(found.fit),
        total=money(found.total_usd_micro),
        terms=tuple(_term(term, found.cluster) for term in found.terms),
        rejections=tuple(_rejection(r, found.cluster) for r in found.rejections),
        queue=found.queue,
        placements=tuple(
            PlacementView(pod_set=p.pod_set, flavor=p.flavor, pods=p.pods, nodes=p.nodes) for p in found.placements
        ),
        observed_at=found.observed_at,
        data_age_s=age_s(found.observed_at, decision.decided_at) if found.observed_at is not None else None,
        view_digest=found.view_digest,
        preempts=tuple(_victim(victim) for victim in found.preempts),
    )


def _victim(victim: Victim) -> VictimView:
    return VictimView(
        key=victim.key,
        ours=victim.ours,
        queue=victim.queue,
        priority=victim.priority,
        gpus=victim.gpus,
        reclaimed=victim.reclaimed,
        began_at=victim.began_at,
        workload_class=victim.workload_class,
        checkpoint_s=victim.checkpoint_s,
        lost_s=victim.lost_s,
        restart_s=victim.restart_s,
        cost=money(victim.cost_usd_micro),
        text=explain.victim_text(victim),
    )


def _term(term: Term, cluster: ClusterName) -> TermView:
    return TermView(
        kind=term.kind,
        amount=money(term.amount_usd_micro),
        text=explain.term_text(term),
        bill=tuple(_bill_line(*pair) for pair in zip(term.bill, explain.bill_text(term), strict=True)),
        unknown=_rejection(term.unknown, cluster) if term.unknown is not None else None,
        advice=_advice(term.advice) if term.advice is not None else None,
    )


def _advice(found: CheckpointAdvice) -> CheckpointAdviceView:
    return CheckpointAdviceView(
        interval_s=found.interval_s,
        write_s=found.write_s,
        mean_time_s=found.mean_time_s,
        used_s=found.used_s,
        text=explain.advice_text(found),
    )


def _bill_line(line: Line, text: str) -> BillLine:
    return BillLine(
        what=line.what,
        quantity=line.quantity,
        unit=line.unit,
        unit_price=money(line.unit_price_usd_micro),
        amount=money(line.amount_usd_micro),
        source=line.source,
        text=text,
    )


def _rejection(rejection: Rejection, cluster: ClusterName) -> RejectionView:
    return RejectionView(
        reason=rejection.reason,
        resolver=rejection.resolver,
        text=explain.rejection_text(rejection, cluster),
        resolver_text=explain.resolver_text(rejection.resolver),
        detail=rejection.detail,
    )


def counterfactuals(decision: Decision) -> tuple[CounterfactualView, ...]:
    return tuple(_counterfactual(found) for found in explain.counterfactuals(decision))


def _counterfactual(found: Counterfactual) -> CounterfactualView:
    return CounterfactualView(
        cluster=found.cluster,
        obstacle=found.obstacle,
        text=explain.counterfactual_text(found),
        gap=money(found.gap_usd_micro) if found.gap_usd_micro is not None else None,
        differences=tuple(DifferenceView(kind=d.kind, amount=money(d.usd_micro)) for d in found.differences),
        blocking=tuple(rejection.reason for rejection in found.blocking),
        alone=found.alone,
        would_win=found.would_win,
    )


def waits_for(decision: Decision) -> tuple[WaitView, ...]:
    """What stands between the workload and each cluster; empty when a cluster was chosen."""
    if decision.chosen is not None:
        return ()
    kept = (_wait(decision.kept, explain.HUB),) if decision.kept is not None else ()
    return (*kept, *(_wait(each, found.cluster) for found in ranked(decision) for each in found.rejections))


def _wait(rejection: Rejection, cluster: ClusterName) -> WaitView:
    return WaitView(
        cluster=cluster,
        reason=rejection.reason,
        resolver=rejection.resolver,
        text=explain.rejection_text(rejection, cluster),
        resolver_text=explain.resolver_text(rejection.resolver),
        since=rejection.detail.since,
    )


def why_not(
    decision: Decision, cluster: ClusterName, *, from_records: bool, repeats: DecisionId | None = None
) -> WhyNotView:
    """Why the decision did not choose `cluster` (or that it did, or never looked at it)."""
    namespace, _, name = decision.key.partition("/")
    asked = decision.candidate(cluster)
    chosen = decision.candidate(decision.chosen) if decision.chosen is not None else None
    totals = (asked.total_usd_micro if asked else None, chosen.total_usd_micro if chosen else None)
    difference = totals[0] - totals[1] if totals[0] is not None and totals[1] is not None else None
    return WhyNotView(
        namespace=namespace,
        name=name,
        job=job_of(decision),
        cluster=cluster,
        code=_why_not_code(asked, decision),
        text=explain.why_not_text(decision, cluster),
        decision=summary(decision, repeats),
        candidate=candidate(asked, decision) if asked is not None else None,
        chosen=candidate(chosen, decision) if chosen is not None else None,
        difference=money(difference) if difference is not None else None,
        counterfactuals=tuple(c for c in counterfactuals(decision) if c.cluster == cluster),
        from_records=from_records,
    )


def _why_not_code(asked: Candidate | None, decision: Decision) -> WhyNotCode:
    if asked is None:
        return WhyNotCode.NOT_CONSIDERED
    if asked.cluster == decision.chosen:
        return WhyNotCode.CHOSEN
    return WhyNotCode.DEARER if asked.eligible else WhyNotCode.REJECTED
