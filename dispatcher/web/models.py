"""The documented shape of every answer (docs/cli.md, docs/openapi.json).

Each answer carries codes for programs and text for people, side by side; programs never have to read the text. Money is
integer micro-USD, ages are whole seconds, instants are UTC. A value that is not known is null, never zero.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from dispatcher.core.counterfactual import Obstacle
from dispatcher.core.decision import Basis, Detail, Fit, Outcome, Reason, Resolver, TermKind
from dispatcher.core.snapshot import Link, StopPolicy
from dispatcher.web.codes import StateCode as StateCode
from dispatcher.web.models_cost import BillLine as BillLine
from dispatcher.web.models_cost import CheckpointAdviceView as CheckpointAdviceView
from dispatcher.web.models_cost import Money as Money
from dispatcher.web.models_cost import VictimView as VictimView
from dispatcher.web.models_energy import RunView
from dispatcher.web.models_footing import FootingView
from dispatcher.web.models_idle import IdleView
from dispatcher.web.models_law import FindingView, LawView
from dispatcher.web.models_order import ExpectedView, TurnView
from dispatcher.web.models_room import GapView, GhostView, RoomView
from dispatcher.web.wire import Wire as Wire


class Job(Wire):
    kind: str
    name: str


# --- decisions ---------------------------------------------------------------------------------------------------


class TermView(Wire):
    kind: TermKind
    amount: Money
    text: str
    bill: tuple[BillLine, ...]
    unknown: RejectionView | None
    """Why the amount is not known, when it is not."""
    advice: CheckpointAdviceView | None
    """What would make it less."""


class RejectionView(Wire):
    reason: Reason
    resolver: Resolver
    text: str
    resolver_text: str
    detail: Detail


class PlacementView(Wire):
    pod_set: str
    flavor: str
    pods: int
    nodes: int


class CandidateView(Wire):
    """One cluster in one decision. All filters ran on it: `rejections` holds every reason, not only the first."""

    cluster: str
    chosen: bool
    eligible: bool
    fit: Fit
    fit_text: str
    total: Money
    terms: tuple[TermView, ...]
    rejections: tuple[RejectionView, ...]
    queue: str | None
    placements: tuple[PlacementView, ...]
    observed_at: datetime | None
    data_age_s: int | None
    """How old the view of this cluster was when the decision was made; null = it had never been seen."""
    view_digest: str
    preempts: tuple[VictimView, ...] = ()
    """Whom Kueue would stop there for the start; what that costs is the term `preemption`."""


class EstimateView(Wire):
    duration_s: int
    basis: Basis
    text: str
    runs: int = 0
    """Of how many earlier runs it is the median, where the basis is history."""


class LookAheadView(Wire):
    """A nomination to a full cluster: how many of the class were on their way there, and how many may be."""

    queued: int
    limit: int


class DecisionSummary(Wire):
    id: str
    decided_at: datetime
    namespace: str
    name: str
    job: Job
    attempt: int
    outcome: Outcome
    chosen: str | None
    total: Money | None
    """Expected cost of the chosen cluster; null when nothing was chosen."""
    text: str
    repeats: str | None = None
    """Id of the recorded decision that this wait says again: a wait for the same reasons is recorded once."""


class DecisionView(DecisionSummary):
    uid: str
    waiting_since: datetime
    already_nominated: tuple[str, ...]
    workload_class: str
    estimate: EstimateView
    candidates: tuple[CandidateView, ...]
    """The chosen one first, then the eligible ones by total, then the rejected ones, fewest reasons first."""
    request_digest: str
    snapshot_digest: str
    policy_digest: str
    resource_version: str
    code_version: str
    law_digest: str = ""
    """The bundle of rules that it was decided under; empty = before there were bundles."""
    valid_until: datetime | None
    """Until when (exclusive) the law allows the chosen cluster; null = nothing is known that ends it."""
    ahead: LookAheadView | None
    """Set where nothing fits and the chosen cluster takes it when others leave."""
    kept: RejectionView | None
    """Why nothing is nominated whatever fits: the hub stands in the way. Then its `text` speaks of the hub."""


class DecisionList(Wire):
    items: tuple[DecisionSummary, ...]


class DifferenceView(Wire):
    kind: TermKind
    amount: Money
    """Positive where the cluster is dearer than the chosen one."""


class CounterfactualView(Wire):
    """What would have had to change for this cluster to be the choice."""

    cluster: str
    obstacle: Obstacle
    text: str
    gap: Money | None
    """Its total minus the chosen one's; null when either is not known."""
    differences: tuple[DifferenceView, ...]
    blocking: tuple[Reason, ...]
    """All of these would have to be lifted."""
    alone: bool
    """Whether one single thing stood in the way."""
    would_win: bool | None
    """Whether it would have been chosen with that lifted and all else equal; null when that cannot be told."""


# --- workloads ---------------------------------------------------------------------------------------------------


class Evidence(Wire):
    """What the worker itself shows of the copy, and how old that is."""

    cluster: str
    link: Link
    observed_at: datetime | None
    age_s: int | None
    copy_found: bool
    quota_reserved_at: datetime | None
    admitted_at: datetime | None
    evicted_at: datetime | None
    evicted_reason: str
    finished: bool
    bound_pods: int | None
    quota_message: str


class StateView(Wire):
    code: StateCode
    text: str
    since: datetime | None
    cluster: str | None
    evidence: tuple[Evidence, ...]
    """One entry for the cluster that it is placed on, or for each nominated one."""


class InputProblemView(Wire):
    key: str
    value: str
    rule: str
    fix: str


class WorkloadSummary(Wire):
    namespace: str
    name: str
    uid: str
    job: Job | None
    local_queue: str
    cluster_queue: str | None
    workload_class: str | None
    priority: int
    created_at: datetime
    waiting_since: datetime | None
    """When the hub reserved its quota: since then it waits for a cluster. Null before that."""
    order: int | None
    """Place among those that wait for a decision, 1 is next; null when it does not wait."""
    turn: TurnView | None
    """Null when it does not wait, or came after the last look."""
    expected: ExpectedView | None
    """Null where it is not worked out (`expected_unknown`), and where room is not what is lacking."""
    state: StateView
    decision_id: str | None
    reason: str
    """Why it is where it is, or nowhere, in one sentence."""
    problems: tuple[InputProblemView, ...]
    expected_unknown: str | None = None
    """Why `expected` is null where it might be known: too many wait before it. Null where nothing was left out."""
    idle: IdleView | None = None
    """Null where it may be idle for as long as it likes, or does not run."""


class WorkloadList(Wire):
    now: datetime
    hub_synced: bool
    hub_link: Link = Link.CONNECTED
    """`stale`: the hub has been silent beyond `limits.silence_limit`, and the list is as old as `hub_age_s`."""
    hub_age_s: int | None
    """Seconds since the hub was last heard of; null when it never was."""
    total: int
    items: tuple[WorkloadSummary, ...]


class Match(Wire):
    namespace: str
    name: str
    job: Job | None
    live: bool
    """False: it is no longer on the hub, only its decisions are kept."""


class MatchList(Wire):
    items: tuple[Match, ...]
    near: tuple[str, ...]
    """When nothing matches: names that may have been meant."""


class ClusterAge(Wire):
    cluster: str
    link: Link | None
    age_s: int | None
    """Age of the newest view of the cluster, now."""
    decided_with_age_s: int | None
    """Age of the view that the decision was made with."""
    text: str
    """How well it is seen now, with its error when there is one; empty from records alone."""


class WaitView(Wire):
    """One thing that would have to change on one cluster, or on "the hub"; `since` when that is known."""

    cluster: str
    reason: Reason
    resolver: Resolver
    text: str
    resolver_text: str
    since: datetime | None


class WhyView(Wire):
    namespace: str
    name: str
    job: Job | None
    workload: WorkloadSummary | None
    """Null when the workload is no longer on the hub, or when the answer comes from records alone."""
    headline: str
    decision: DecisionView | None
    counterfactuals: tuple[CounterfactualView, ...]
    waits_for: tuple[WaitView, ...]
    waiting_since: datetime | None
    problems: tuple[InputProblemView, ...]
    findings: tuple[FindingView, ...] = ()
    gaps: tuple[GapView, ...] = ()
    """Where what queues and pods say of what is in use disagrees, on the clusters that were weighed."""
    data_age: tuple[ClusterAge, ...]
    policy_digest: str | None
    """The policy in force now; null when the answer comes from records alone."""
    policy_changed: bool
    """Whether the policy in force differs from the one that the decision was made under."""
    history: tuple[DecisionSummary, ...]
    history_error: str | None
    from_records: bool
    runs: tuple[RunView, ...] = ()
    """What its ended runs used, newest first."""


class WhyNotCode(StrEnum):
    CHOSEN = "chosen"
    REJECTED = "rejected"
    DEARER = "dearer"
    NOT_CONSIDERED = "not-considered"


class WhyNotView(Wire):
    namespace: str
    name: str
    job: Job | None
    cluster: str
    code: WhyNotCode
    text: str
    decision: DecisionSummary
    candidate: CandidateView | None
    chosen: CandidateView | None
    difference: Money | None
    """What the cluster would have cost more than the chosen one; null when either has no total."""
    counterfactuals: tuple[CounterfactualView, ...]
    from_records: bool


# --- clusters and the daemon -------------------------------------------------------------------------------------


class QuotaView(Wire):
    flavor: str
    resource: str
    nominal: int
    borrowing_limit: int | None
    lending_limit: int | None
    reserved: int


class WorkerQueueView(Wire):
    name: str
    active: bool
    stop_policy: StopPolicy
    cohort: str | None
    pending: int
    quotas: tuple[QuotaView, ...]


class NodeTotals(Wire):
    nodes: int
    usable: int
    """Ready, schedulable and not being deleted."""
    gpus: int
    """On usable nodes; a MIG slice counts as one."""
    gpus_free: int
    gpus_yielding: int = 0
    """Held by pods that yield to anyone: not in `gpus_free`, and free for whatever comes."""


class FlavorPlan(Wire):
    name: str
    product: str | None
    purchase: str


class ClusterView(Wire):
    name: str
    in_blueprint: bool
    provider: str | None
    region: str | None
    country: str | None
    flavors: tuple[FlavorPlan, ...]
    link: Link
    text: str
    observed_at: datetime | None
    age_s: int | None
    error: str | None
    multikueue_active: bool | None
    """Whether the hub's Kueue has a connection of its own; null when the hub does not list the cluster."""
    multikueue_reason: str
    nodes: NodeTotals | None
    """Null until the cluster has been read completely once."""
    queues: tuple[WorkerQueueView, ...]
    running: int | None
    """Our workloads that are admitted there."""
    local: int | None
    """Admitted workloads that did not come from this hub."""
    holds: int
    held_gpus: int
    rooms: tuple[RoomView, ...] = ()
    """What each of its queues has free of its accelerators."""
    ghosts: tuple[GhostView, ...] = ()
    """Room that is charged there for what has not been there for long."""


class ClusterList(Wire):
    now: datetime
    items: tuple[ClusterView, ...]


class BlueprintView(Wire):
    digest: str
    loaded_from: str
    loaded_at: datetime
    ok: bool
    """Whether the files on disk are the policy in force."""
    errors: tuple[str, ...]
    failed_at: datetime | None
    law: LawView
    clusters: tuple[str, ...]
    queues: tuple[str, ...]
    data_sets: tuple[str, ...]


class LoopView(Wire):
    name: str
    ok: bool
    alive: bool
    last_beat_age_s: float
    limit_s: float | None
    """Null: this loop may be silent."""
    error: str | None


class LeaderView(Wire):
    """Who leads among the replicas, as the one that answers sees it."""

    leading: bool
    me: str
    holder: str | None
    """Null: nobody, as far as we see."""
    role: str
    """unknown, standby, leading, unsure or resting."""
    term: int
    """0 while the one that answers does not lead."""
    text: str


class HealthView(Wire):
    ok: bool
    text: str
    loops: tuple[LoopView, ...]
    leader: LeaderView | None
    """Null: this daemon runs alone."""
    footing: FootingView


class ReadyView(Wire):
    ok: bool
    reasons: tuple[str, ...]


# --- to take away ------------------------------------------------------------------------------------------------


class SnapshotDocument(Wire):
    """A snapshot file: canonical JSON, keys sorted. `version` grows when an older reader could misread it."""

    format: str
    version: int
    taken_at: datetime
    policy_digest: str
    code_version: str
    hub: dict[str, object]
    """Queues, checks and configs of the hub: how a Workload finds its clusters."""
    snapshot: dict[str, object]
    """The clusters, each as far as it is seen, and the promises that count."""
    book: dict[str, object] | None = None
    """All work of the hub and the policy in force, for previews of other rules."""
    running: list[object] | None = None
    """What the hub knows of work that a start might stop: class, queue, checkpoints."""


class RecordDocument(Wire):
    """A decision with everything that it saw. Bytes of the same record are the same."""

    format: str
    version: int
    decision: dict[str, object]
    decision_sha256: str
    """Of the stored bytes of the decision, which a replay must make again."""
    inputs: dict[str, object]
    """`request`, `snapshot`, `policy` and `now`."""


class Problem(Wire):
    """RFC 9457 problem details, with what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    fix: str
    near: tuple[str, ...]
    """Names that may have been meant."""
