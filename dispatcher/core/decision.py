"""The record of a decision: complete enough to explain it, to argue with it and to replay it.

Reasons are enums with typed detail. No text is made here: `explain.py` alone turns a record into words.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dispatcher.core.ids import ClusterName, DataSetName, DecisionId, FlavorName, QueueName, WorkloadUid


class Reason(StrEnum):
    """Why a cluster was rejected. Stable codes: they are in records, metrics and the API."""

    NOT_LISTED = "not-listed"
    NOT_IN_BLUEPRINT = "not-in-blueprint"
    MULTIKUEUE_INACTIVE = "multikueue-inactive"
    TERMINATING = "terminating"
    STALE = "stale"
    BLIND = "blind"
    NAMESPACE_MISSING = "namespace-missing"
    LOCAL_QUEUE_MISSING = "local-queue-missing"
    QUEUE_MISSING = "queue-missing"
    QUEUE_INACTIVE = "queue-inactive"
    QUEUE_STOPPED = "queue-stopped"
    NAME_TAKEN = "name-taken"
    NOT_IN_ANNOTATION = "not-in-annotation"
    NO_SUCH_PRODUCT = "no-such-product"
    UNKNOWN_PRODUCT = "unknown-product"
    LABEL_MISMATCH = "label-mismatch"
    TAINT = "taint"
    QUOTA = "quota"
    NODES = "nodes"
    TOPOLOGY = "topology"
    TOPOLOGY_MISMATCH = "topology-mismatch"
    HELD = "held"
    NEVER_FITS = "never-fits"
    NODES_UNAVAILABLE = "nodes-unavailable"
    RESIDENCY = "residency"
    RESIDENCY_INDETERMINATE = "residency-indeterminate"
    RULES_MISSING = "rules-missing"
    RULES_TOO_OLD = "rules-too-old"
    RULES_EXPIRED = "rules-expired"
    CLOCK_WRONG = "clock-wrong"
    MAX_COST = "max-cost"
    PRICE_UNKNOWN = "price-unknown"
    PRICE_OLD = "price-old"
    DATA_SIZE_UNKNOWN = "data-size-unknown"
    EGRESS_UNKNOWN = "egress-unknown"
    DATA_MISSING = "data-missing"
    CATALOG_OLD = "catalog-old"
    CLAIM_UNBOUND = "claim-unbound"
    CLAIM_ELSEWHERE = "claim-elsewhere"
    HOME_UNKNOWN = "home-unknown"
    INTERRUPTION_UNKNOWN = "interruption-unknown"
    ENERGY_UNKNOWN = "energy-unknown"
    TOO_FAR = "too-far"
    LATENCY_UNKNOWN = "latency-unknown"
    ALREADY_NOMINATED = "already-nominated"
    EVICTED_HERE = "evicted-here"
    FAILED_HERE = "failed-here"
    OUTCOME_UNKNOWN = "outcome-unknown"
    RESERVED = "reserved"
    WORTH_WAITING = "worth-waiting"
    TOO_MANY_OUTSTANDING = "too-many-outstanding"
    NOMINATION_REFUSED = "nomination-refused"
    RECLAIMED = "reclaimed"
    NOT_PREEMPTIBLE = "not-preemptible"


IN_USE = frozenset({Reason.QUOTA, Reason.NODES, Reason.TOPOLOGY})
"""Others use what is needed there: that comes and goes."""
NO_ROOM = IN_USE | {Reason.HELD}
"""They use it, or it is promised to them."""


class Resolver(StrEnum):
    """Who or what can lift a rejection."""

    WAIT = "wait"
    BURST = "burst"
    MOVE = "move"
    OWNER = "owner"
    OPERATOR = "operator"
    NOBODY = "nobody"


class Fit(StrEnum):
    """How a request fits a cluster. Order of preference is the order here; UNKNOWN never outranks a fit."""

    NOW = "now"
    BY_PREEMPTION = "by-preemption"
    WHEN_OTHERS_LEAVE = "when-others-leave"
    NEVER = "never"
    UNKNOWN = "unknown"


class TermKind(StrEnum):
    RUN = "run"
    DATA_IN = "data-in"
    HOME = "home"
    WAITING = "waiting"
    INTERRUPTION = "interruption"
    STRANDED = "stranded"
    LATENCY = "latency"
    ENERGY = "energy"
    PREEMPTION = "preemption"


class Basis(StrEnum):
    """Where an estimate comes from, best first."""

    DECLARED = "declared"
    HISTORY = "history"
    CLASS_DEFAULT = "class-default"


@dataclass(frozen=True, slots=True)
class LegalDetail:
    """Why the law says no: the flows that it concerns, the code (`residency.verdict.Code`), the rule and the clause
    that decide, the fact that would decide it and why it is not known (`gap`), the chain by which the label came, where
    the flow would go, the law behind the rule, the rule's own line, and the duty that cannot be met."""

    flows: tuple[str, ...]
    code: str
    rule: str = ""
    clause: str = ""
    fact: str = ""
    gap: str = ""
    chain: tuple[str, ...] = ()
    destination: str = ""
    law: str = ""
    rule_line: str = ""
    duty: str = ""


@dataclass(frozen=True, slots=True)
class DomainDetail:
    """How many of `pods` have room in the domain of a topology's `level` that has most of it: `largest`, the values of
    its labels from broad to narrow; empty: no node carries the labels. Where `level` is empty they may lie in several.

    With `slice_size`, so many of them at a time must share a domain of `slice_level`, and only whole slices count.
    `beside` is the pod set that must lie in the same domain; its pods are among them.
    """

    level: str
    pods: int
    fits: int
    largest: tuple[str, ...] = ()
    slice_level: str = ""
    slice_size: int = 0
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Detail:
    """Typed detail of a rejection: which thing, what was needed, what was there. Unused fields stay None.

    `subject` names the thing judged (a pod set, a data set, a queue, a key), `resource` and `flavor` narrow it;
    `needed` / `found` are amounts in the resource's unit or micro-USD; `expected` / `seen` are the two values that
    disagree; `line` is the blueprint line (file:line:column) that decides; `since` is when it became so.
    """

    subject: str = ""
    resource: str | None = None
    flavor: FlavorName | None = None
    needed: int | None = None
    found: int | None = None
    largest_node_free: int | None = None
    expected: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    holder: str | None = None
    line: str | None = None
    since: datetime | None = None
    legal: LegalDetail | None = None
    domain: DomainDetail | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    reason: Reason
    resolver: Resolver
    detail: Detail = Detail()


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a term's bill: what, how many of which unit, at which unit price, from which source."""

    what: str
    quantity: int
    unit: str
    unit_price_usd_micro: int
    amount_usd_micro: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A data set that a run reads through the cluster's cache, and how long it would take to bring it there where
    nobody else had; None = not known, or nothing that others could count on. `size_bytes` is the room that it takes."""

    data_set: DataSetName
    transfer_s: int | None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointAdvice:
    """The checkpoint interval that loses least: `interval_s` for checkpoints that stop the run for `write_s` where it
    is interrupted every `mean_time_s`; `used_s` is what the owner or the class says."""

    interval_s: int
    write_s: int
    mean_time_s: int
    used_s: int | None


@dataclass(frozen=True, slots=True)
class Term:
    """One amount of expected money. `amount_usd_micro` None = unknown, and `unknown` says why.

    `incoming` (data in) is what later work may share, `advice` (interruption) is for the owner; neither is money.
    """

    kind: TermKind
    amount_usd_micro: int | None
    bill: tuple[Line, ...] = ()
    unknown: Rejection | None = None
    incoming: tuple[Incoming, ...] = ()
    advice: CheckpointAdvice | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Which flavor a pod set would take, and on how many nodes its pods would lie."""

    pod_set: str
    flavor: FlavorName
    pods: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Victim:
    """A workload that Kueue would stop for a start, and what that costs (core/victims.py).

    `reclaimed`: it gives back what its queue has borrowed; otherwise it gives way to a higher priority in its queue.
    `began_at` None: nothing of it runs yet. `usd_micro_per_hour` is the price of what it holds. `lost_s` is its work
    since the last checkpoint, `restart_s` what it takes to go on, `cost_usd_micro` both at what an hour of it costs and
    what an hour of delay costs its class; None = not known.
    """

    key: str
    ours: bool
    queue: QueueName
    priority: int
    gpus: int
    reclaimed: bool
    began_at: datetime | None
    usd_micro_per_hour: int | None
    workload_class: str | None = None
    checkpoint_s: int | None = None
    lost_s: int | None = None
    restart_s: int | None = None
    cost_usd_micro: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One cluster in one decision. `total_usd_micro` None = it cannot be priced. Candidates keep all rejections."""

    cluster: ClusterName
    fit: Fit
    rejections: tuple[Rejection, ...]
    terms: tuple[Term, ...]
    total_usd_micro: int | None
    queue: QueueName | None
    placements: tuple[Placement, ...]
    observed_at: datetime | None
    view_digest: str
    preempts: tuple[Victim, ...] = ()
    """Whom Kueue would stop for it there. What stopping them costs, as far as that is known, is in the total."""
    held_s: int = 0
    """For how long it would have what it takes there before its data has come and it works (terms/arriving.py)."""

    @property
    def eligible(self) -> bool:
        return not self.rejections and self.total_usd_micro is not None

    def like(self, other: Candidate) -> bool:
        """Whether both can be chosen or waited for alike: they differ at most in the amounts that rejections tell, and
        in how the same total is made up."""
        if self is other:
            return True
        return self._what() == other._what() and self._against() == other._against()

    def _what(self) -> tuple[object, ...]:
        whole = (self.cluster, self.fit, self.total_usd_micro, self.queue)
        return (*whole, self.placements, self.preempts, self.held_s)

    def _against(self) -> list[tuple[Reason, Resolver]]:
        return [(rejection.reason, rejection.resolver) for rejection in self.rejections]

    @property
    def incoming(self) -> tuple[Incoming, ...]:
        """What a run there reads through the cluster's cache."""
        return tuple(coming for term in self.terms for coming in term.incoming)

    @property
    def loss_known(self) -> bool:
        """Whether it is known of everybody who would be stopped what that costs."""
        return all(victim.cost_usd_micro is not None for victim in self.preempts)


@dataclass(frozen=True, slots=True)
class LookAhead:
    """A nomination to a cluster that is full: how many workloads of the class were on their way there, and how many
    may be."""

    queued: int
    limit: int


class Outcome(StrEnum):
    NOMINATE = "nominate"
    ADD = "add"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The run time used, and where it comes from. `runs`: of how many earlier ones, where it is from HISTORY."""

    duration_s: int
    basis: Basis
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for one workload at one instant. Same inputs, same bytes; `id` is derived from content."""

    id: DecisionId
    workload: WorkloadUid
    key: str
    job_kind: str
    job_name: str
    attempt: int
    decided_at: datetime
    waiting_since: datetime
    outcome: Outcome
    chosen: ClusterName | None
    already_nominated: tuple[ClusterName, ...]
    workload_class: str
    estimate: Estimate
    candidates: tuple[Candidate, ...]
    request_digest: str
    snapshot_digest: str
    policy_digest: str
    resource_version: str
    code_version: str
    law_digest: str = ""
    """The bundle of rules that it was decided under."""
    valid_until: datetime | None = None
    """Until when (exclusive) the law allows the chosen cluster; None: nothing is known that ends it."""
    ahead: LookAhead | None = None
    """Set where nothing fits and the chosen cluster is to take it when others leave."""
    kept: Rejection | None = None
    """Why nothing is nominated although a cluster may be eligible: the hub, not a cluster, stands in the way."""

    def candidate(self, name: ClusterName) -> Candidate | None:
        return next((c for c in self.candidates if c.cluster == name), None)
