"""What a decision sees: immutable views of the hub and of every worker, each with its age.

Views are made by connectors (real or embedded) and never changed. Mappings are built in sorted key order, so that
iteration, and with it every decision, is deterministic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from dispatcher.core.ids import ClusterName, DataSetName, DecisionId, FlavorName, QueueName, WorkloadUid
from dispatcher.core.resources import NOTHING, Resources
from dispatcher.core.topology import Topology
from dispatcher.core.traffic import EMPTY, Traffic
from dispatcher.core.workload import CheckState, HubWorkload, OwnerMeta, PodSet, WorkloadClass

NO_MAPPING: Mapping[str, object] = MappingProxyType({})
MULTIKUEUE_CONTROLLER = "kueue.x-k8s.io/multikueue"


class StopPolicy(StrEnum):
    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


# --- hub ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """An AdmissionCheck of the hub; `config` names the MultiKueueConfig when the controller is MultiKueue's."""

    name: str
    controller: str
    active: bool
    config: str | None = None


@dataclass(frozen=True, slots=True)
class MultiKueueClusterView:
    name: ClusterName
    active: bool
    reason: str = ""
    message: str = ""
    deleting: bool = False
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class HubQueue:
    name: QueueName
    active: bool
    stop_policy: StopPolicy = StopPolicy.NONE
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalQueueView:
    namespace: str
    name: str
    cluster_queue: QueueName
    active: bool = True
    stop_policy: StopPolicy = StopPolicy.NONE


@dataclass(frozen=True, slots=True)
class HubView:
    """The hub as last seen. `synced` is False until every list has been read once since start or reconnect."""

    synced: bool
    observed_at: datetime | None
    workloads: Mapping[WorkloadUid, HubWorkload] = field(default_factory=dict)
    owners: Mapping[str, OwnerMeta] = field(default_factory=dict)
    checks: Mapping[str, Check] = field(default_factory=dict)
    configs: Mapping[str, tuple[ClusterName, ...]] = field(default_factory=dict)
    clusters: Mapping[ClusterName, MultiKueueClusterView] = field(default_factory=dict)
    queues: Mapping[QueueName, HubQueue] = field(default_factory=dict)
    local_queues: Mapping[tuple[str, str], LocalQueueView] = field(default_factory=dict)
    error: str | None = None

    def shows_what(self, other: HubView) -> bool:
        """Whether both show the very same objects, whatever the age of each look. Parts that nobody has changed are
        kept from one view to the next, so that this costs nothing; a part that was made anew counts as another."""
        return (
            self.workloads is other.workloads
            and self.owners is other.owners
            and self.checks is other.checks
            and self.configs is other.configs
            and self.clusters is other.clusters
            and self.queues is other.queues
            and self.local_queues is other.local_queues
        )


# --- workers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class FlavorView:
    """A worker's ResourceFlavor: the node labels it stands for and the taints it carries."""

    name: FlavorName
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[tuple[str, str, str, str], ...] = ()
    topology: Topology | None = None
    """The Topology by which Kueue lays the pods that take it; None: it leaves them to the scheduler."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota of one resource in one flavor of a ClusterQueue or Cohort. Limits None = not limited."""

    flavor: FlavorName
    resource: str
    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that are assigned together: all of them take the same flavor, tried in this order."""

    resources: tuple[str, ...]
    flavors: tuple[FlavorName, ...]


@dataclass(frozen=True, slots=True)
class ClusterQueueView:
    name: QueueName
    active: bool
    stop_policy: StopPolicy = StopPolicy.NONE
    cohort: str | None = None
    groups: tuple[ResourceGroup, ...] = ()
    quotas: tuple[Quota, ...] = ()
    preempts_lower_priority: bool = False
    reclaims_within_cohort: bool = False
    pending: int = 0
    reclaims_any: bool = False
    """Whether it takes back from any priority, where it reclaims; else from lower ones only."""
    preempts_while_borrowing: bool = False
    borrowing_threshold: int | None = None
    """Of which priority at most it stops others for what it borrows; None: of any below the one who starts."""


@dataclass(frozen=True, slots=True)
class CohortView:
    name: str
    parent: str | None = None
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: what it can give and what bound, unfinished pods ask of it. `pods` is a resource like any other."""

    name: str
    labels: tuple[tuple[str, str], ...]
    allocatable: Resources
    requested: Resources = NOTHING
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    schedulable: bool = True
    deleting: bool = False
    yielding: Resources = NOTHING
    """The part of `requested` that pods hold which yield to any workload (burn-in, idle tests; FR-SCO-06)."""


PodUsage = tuple[tuple[str, int, Resources, FlavorName | None], ...]
"""What pod sets take: the name of each, its pods, what one of them takes, and the flavor that it has."""


Lying = tuple[tuple[str, Resources, int], ...]
"""On which node how many pods are, and what each of them asks for; sorted by the node."""


def gpus_of(usage: PodUsage) -> int:
    """Pieces of accelerator, of all pods."""
    return sum(count * per_pod.gpus() for _, count, per_pod, _ in usage)


@dataclass(frozen=True, slots=True)
class WorkerCopy:
    """A Workload on a worker: one of ours (origin label) or local work. `bound_pods` counts pods on nodes, per job.

    `job_kind` and `job_name` are the owner's; a job of the same name that is not ours excludes the cluster (FR-RAC-07).
    """

    uid: str
    namespace: str
    name: str
    ours: bool
    local_queue: str = ""
    cluster_queue: QueueName | None = None
    priority: int = 0
    quota_reserved_at: datetime | None = None
    quota_message: str = ""
    admitted_at: datetime | None = None
    evicted_at: datetime | None = None
    evicted_reason: str = ""
    finished: bool = False
    finished_reason: str = ""
    active: bool = True
    checks: tuple[CheckState, ...] = ()
    pod_sets: PodUsage = ()
    bound_pods: int = 0
    job_kind: str = ""
    job_name: str = ""
    preempted_by: str = ""
    """Why it was preempted, where its eviction is that: Kueue's own reason (core/watchdog.py)."""
    required: tuple[tuple[str, str], ...] = ()
    """The topology level that a pod set requires, of those that require one."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as last seen. `observed_at` is the age of its quietest watch: all parts are at least that fresh."""

    cluster: ClusterName
    synced: bool
    observed_at: datetime | None
    generation: int = 0
    error: str | None = None
    namespaces: tuple[str, ...] = ()
    local_queues: Mapping[tuple[str, str], LocalQueueView] = field(default_factory=dict)
    queues: Mapping[QueueName, ClusterQueueView] = field(default_factory=dict)
    cohorts: Mapping[str, CohortView] = field(default_factory=dict)
    flavors: Mapping[FlavorName, FlavorView] = field(default_factory=dict)
    nodes: tuple[NodeView, ...] = ()
    copies: Mapping[tuple[str, str], WorkerCopy] = field(default_factory=dict)
    astray: tuple[tuple[str, int], ...] = ()
    """Nodes that are in no list and on which pods still are, with their number. For people; no decision reads it."""
    lies: Mapping[tuple[str, str], Lying] = field(default_factory=dict, compare=False, repr=False)
    """Where the pods of copies are, of those on flavors with a topology. When a domain will be free is worked out by it
    (keeping.py); no decision reads it."""


class Link(StrEnum):
    """How well we see the hub or a worker. Only a CONNECTED worker may be nominated, and only by a CONNECTED hub."""

    CONNECTED = "connected"
    STALE = "stale"
    BLIND = "blind"


def link_of(view: HubView | WorkerView | None, silence_limit_s: int, now: datetime) -> Link:
    """BLIND: never fully listed since start or reconnect. STALE: its watches have been silent beyond the limit."""
    if view is None or not view.synced or view.observed_at is None:
        return Link.BLIND
    if (now - view.observed_at).total_seconds() > silence_limit_s:
        return Link.STALE
    return Link.CONNECTED


@dataclass(frozen=True, slots=True)
class Stake:
    """What the hub knows of work that runs and that a decision might stop: its class, and how often it saves what it
    has done; None: not known, and no checkpoints."""

    workload_class: WorkloadClass | None
    checkpoint_interval_s: int | None


# --- holds and the whole -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hold:
    """Capacity promised to a workload by a decision and not yet visible as the worker's own reservation.

    `usage` has one entry per pod set and flavor: (pod set name, count, resources of one pod, flavor); a pod set whose
    resources lie in two resource groups takes two flavors. `pod_sets` is what its pods ask of nodes beside the flavor
    (selectors, tolerations); where it is empty, any node of the flavor may be the promised one.
    """

    workload: WorkloadUid
    workload_key: str
    cluster: ClusterName
    queue: QueueName
    decision: DecisionId
    usage: tuple[tuple[str, int, Resources, FlavorName], ...]
    made_at: datetime
    expires_at: datetime
    pod_sets: tuple[PodSet, ...] = ()
    yields_above: int | None = None
    """A promise of capacity that others still use gives way to every priority above this one. None: it does not."""
    former_copy: str | None = None
    """The uid of the copy that an earlier nomination had left on the cluster when this one was decided."""
    incoming: tuple[tuple[DataSetName, datetime], ...] = ()
    """Data sets that the workload brings into the cluster's cache, and when they are likely to be there."""

    def stands_before(self, uid: WorkloadUid, priority: int) -> bool:
        """Whether the promise counts against a request: it is another's, and does not give way to it."""
        return self.workload != uid and (self.yields_above is None or priority <= self.yields_above)


@dataclass(frozen=True, slots=True)
class Cached:
    """A data set in a cluster's cache, or on its way there (`core/caches.py`): brought by the work `key`, which
    `decision` sent there, from `began_at` on. It is `there` since `there_at`, or is expected then."""

    data_set: DataSetName
    size_bytes: int
    key: str
    decision: DecisionId
    began_at: datetime
    there_at: datetime
    there: bool


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """One candidate cluster as a decision sees it; `worker` is None when nothing has ever been read from it. `cached`
    is in name order."""

    name: ClusterName
    link: Link
    multikueue: MultiKueueClusterView | None
    worker: WorkerView | None
    cached: tuple[Cached, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything outside the request and the policy that a decision may depend on. Clusters are sorted by name."""

    clusters: tuple[ClusterSnapshot, ...]
    holds: tuple[Hold, ...] = ()
    traffic: Traffic = EMPTY
    wall_ahead_s: int = 0
    """How far the wall clock was ahead of the instant of the snapshot; dates are judged by the later (instants.py)."""
    stakes: Mapping[str, Stake] = field(default_factory=dict)
    """Of those whom this decision might stop, by namespace/name, sorted."""

    def cluster(self, name: ClusterName) -> ClusterSnapshot | None:
        return next((c for c in self.clusters if c.name == name), None)

    def amid(self, traffic: Traffic) -> Snapshot:
        """The same fleet, as one request meets it."""
        if traffic is self.traffic:
            return self
        return Snapshot(self.clusters, self.holds, traffic, self.wall_ahead_s, self.stakes)

    def with_hold(self, hold: Hold) -> Snapshot:
        return replace(self, holds=(*self.holds, hold))


def digest_of(value: object) -> str:
    """A short content digest of a frozen value (dataclasses, tuples, sorted mappings): same content, same digest."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def digest_of_all(digests: Iterable[str]) -> str:
    """One digest for several, in their order: what has many parts is digested part by part, each only once."""
    return hashlib.sha256("/".join(digests).encode()).hexdigest()[:16]
