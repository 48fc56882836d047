"""Builders of decisions, holds and intents: every field has a sensible value, a test names what it is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from dispatcher.core.decision import (
    Basis,
    Candidate,
    Decision,
    Detail,
    Estimate,
    Fit,
    Line,
    Outcome,
    Placement,
    Reason,
    Rejection,
    Resolver,
    Term,
    TermKind,
)
from dispatcher.core.ids import ClusterName, DecisionId, FlavorName, QueueName, WorkloadUid
from dispatcher.core.ports import Intent, IntentState
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import Hold

NOW = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
USD = 1_000_000


def priced(name: str, run: int, data_in: int = 0, waiting: int = 0, stranded: int = 0) -> Candidate:
    """A candidate that could be chosen; amounts in micro-USD."""
    amounts = {
        TermKind.RUN: run,
        TermKind.DATA_IN: data_in,
        TermKind.WAITING: waiting,
        TermKind.STRANDED: stranded,
    }
    terms = tuple(
        Term(kind, amount, (Line(f"{kind.value} bill", 8, "gpu-hour", amount // 8, amount, "price book"),))
        for kind, amount in amounts.items()
    )
    return Candidate(
        cluster=ClusterName(name),
        fit=Fit.NOW,
        rejections=(),
        terms=terms,
        total_usd_micro=sum(amounts.values()),
        queue=QueueName("training"),
        placements=(Placement("main", FlavorName("h100"), 1, 1),),
        observed_at=NOW - timedelta(seconds=4),
        view_digest="0123456789abcdef",
    )


def rejected(name: str, *rejections: Rejection) -> Candidate:
    return replace(priced(name, 0), fit=Fit.WHEN_OTHERS_LEAVE, rejections=rejections, terms=(), total_usd_micro=None)


def no_nodes(free: int = 2) -> Rejection:
    detail = Detail(subject="main", resource="nvidia.com/gpu", flavor=FlavorName("h100"), needed=8, found=free)
    return Rejection(Reason.NODES, Resolver.WAIT, detail)


def decision(
    number: int = 1,
    *,
    key: str = "team-a/job-train-1f3a",
    job: str = "train",
    chosen: str | None = "onprem-1",
    candidates: tuple[Candidate, ...] | None = None,
    at: datetime = NOW,
) -> Decision:
    """Decision `number` of a workload; `chosen` None makes it a WAIT."""
    default = (
        priced("onprem-1", 36 * USD, 0, 5 * USD, 200_000),
        priced("cloud-eu", 31 * USD, 19 * USD, 5 * USD),
    )
    waiting = (rejected("cloud-eu", no_nodes()), rejected("onprem-1", no_nodes()))
    return Decision(
        id=DecisionId(f"d{number:015d}"),
        workload=WorkloadUid(f"uid-{key}"),
        key=key,
        job_kind="Job",
        job_name=job,
        attempt=1,
        decided_at=at,
        waiting_since=at - timedelta(minutes=12),
        outcome=Outcome.WAIT if chosen is None else Outcome.NOMINATE,
        chosen=None if chosen is None else ClusterName(chosen),
        already_nominated=(),
        workload_class="training",
        estimate=Estimate(3600, Basis.DECLARED),
        candidates=candidates if candidates is not None else (waiting if chosen is None else default),
        request_digest="aaaaaaaaaaaaaaaa",
        snapshot_digest="bbbbbbbbbbbbbbbb",
        policy_digest="cccccccccccccccc",
        resource_version="41",
        code_version="0.1.0",
    )


def hold_of(record: Decision) -> Hold:
    assert record.chosen is not None
    return Hold(
        workload=record.workload,
        workload_key=record.key,
        cluster=record.chosen,
        queue=QueueName("training"),
        decision=record.id,
        usage=(("main", 1, Resources.of({"cpu": 8000, "nvidia.com/gpu": 8}), FlavorName("h100")),),
        made_at=record.decided_at,
        expires_at=record.decided_at + timedelta(minutes=5),
    )


def intent_of(record: Decision) -> Intent:
    assert record.chosen is not None
    return Intent(record.id, record.workload, (record.chosen,), IntentState.PLANNED, record.decided_at)
