"""What asks for capacity: a hub Workload as projected at decode, and the request that a decision sees."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dispatcher.core.ids import ClusterName, DataSetName, QueueName, RegionName, StoreName, WorkloadUid
from dispatcher.core.resources import Resources
from dispatcher.core.topology import TopologyWish


class WorkloadClass(StrEnum):
    TRAINING = "training"
    REINFORCEMENT_LEARNING = "reinforcement-learning"
    SIMULATION = "simulation"
    DATA_PROCESSING = "data-processing"
    EVALUATION = "evaluation"
    INFERENCE = "inference"
    INTERACTIVE = "interactive"


_CLASSES = {known.value: known for known in WorkloadClass}


def class_named(name: str) -> WorkloadClass | None:
    """The class of a name that a record has; None: one that only another version knows."""
    return _CLASSES.get(name)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One node selector or required affinity expression; operators In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; empty key with Exists tolerates everything, as in the core API."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class PodSet:
    """`count` equal pods. `terms` are the required node affinity terms: one of them must hold, each an AND.

    `selector` (nodeSelector) must hold as well. `per_pod` is requests, limits standing in where requests are absent.
    """

    name: str
    count: int
    per_pod: Resources
    selector: tuple[Requirement, ...] = ()
    terms: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: TopologyWish | None = None
    """What it asks of topology-aware scheduling; None: nothing."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller that a Workload belongs to (a Job, a JobSet ...)."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CheckState:
    """One entry of Workload.status.admissionChecks."""

    name: str
    state: str
    message: str = ""
    changed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class HubWorkload:
    """A hub Workload, projected. `problem` is set when a part of the object could not be read (a bad quantity ...)."""

    uid: WorkloadUid
    namespace: str
    name: str
    resource_version: str
    created_at: datetime
    local_queue: str
    priority: int = 0
    owner: Owner | None = None
    owner_count: int = 0
    cluster_queue: QueueName | None = None
    active: bool = True
    deleting: bool = False
    finished: bool = False
    finished_reason: str = ""
    finished_at: datetime | None = None
    quota_reserved_at: datetime | None = None
    admitted_at: datetime | None = None
    left_at: datetime | None = None
    """When it was admitted no longer; None while it is, and for one that never was."""
    evicted_at: datetime | None = None
    checks: tuple[CheckState, ...] = ()
    cluster_name: ClusterName | None = None
    nominated: tuple[ClusterName, ...] = ()
    pod_sets: tuple[PodSet, ...] = ()
    replaces_slice: str | None = None
    component_index: int | None = None
    component_count: int | None = None
    group_key: str | None = None
    template_keys: tuple[tuple[str, str], ...] = ()
    claims: tuple[str, ...] = ()
    """Persistent volume claims that its pods mount, as namespace/name."""
    problem: str | None = None
    preempted_by: str = ""
    """Why the hub itself has preempted it, as long as it is evicted for that: Kueue's own reason."""
    idle_notice: str = ""
    """What we wrote on it (core/idle.py): the notice of its end as idle, its end on its way, and the end."""
    idle_ending: str = ""
    idle_ended: str = ""

    @property
    def key(self) -> str:
        """The name a person uses: namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class OwnerMeta:
    """Metadata of a job object: only labels and annotations under `entrepot.dev/`, plus its name and kind.

    `controller_uid` is set when another object controls it: a Job of a JobSet, a JobSet of a TrainJob.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    keys: tuple[tuple[str, str], ...] = ()
    controller_uid: str = ""


@dataclass(frozen=True, slots=True)
class DataUse:
    """A data set that a workload reads, `reads` times over (2 = two epochs' worth)."""

    data_set: DataSetName
    reads: int = 1


@dataclass(frozen=True, slots=True)
class Destination:
    """A place in a store of the catalog: where outputs or checkpoints go."""

    store: StoreName
    prefix: str


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a workload says of itself (design section 6), parsed. None = the owner did not say."""

    team: str | None = None
    project: str | None = None
    workload_class: WorkloadClass | None = None
    data: tuple[DataUse, ...] = ()
    outputs: Destination | None = None
    checkpoint: Destination | None = None
    checkpoint_interval_s: int | None = None
    expected_duration_s: int | None = None
    deadline: datetime | None = None
    clusters: tuple[ClusterName, ...] | None = None
    group: str | None = None
    group_size: int | None = None
    max_cost_usd_micro: int | None = None
    outputs_bytes: int | None = None
    checkpoint_bytes: int | None = None
    users: tuple[RegionName, ...] | None = None
    max_round_trip_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Avoided:
    """A cluster (None = every one) that an earlier attempt of this workload speaks against, until `until` (None: for
    good). `excluded` rejects it; otherwise going back costs what waiting for so long would cost (FR-NOM-03)."""

    cluster: ClusterName | None
    code: str
    since: datetime
    until: datetime | None
    excluded: bool
    while_borrowing: bool = False
    """It rejects the cluster as long as the workload would take borrowed quota there, and costs nothing otherwise."""


@dataclass(frozen=True, slots=True)
class UsualRun:
    """How long runs of a queue and class usually last at speed 1000, and of how many that is known (history.py)."""

    duration_s: int
    runs: int


@dataclass(frozen=True, slots=True)
class Request:
    """What one decision is about: a Workload and what its owner declared. Everything `decide` may know of it."""

    uid: WorkloadUid
    namespace: str
    name: str
    job_kind: str
    job_name: str
    local_queue: str
    hub_queue: QueueName
    priority: int
    created_at: datetime
    waiting_since: datetime
    resource_version: str
    pod_sets: tuple[PodSet, ...]
    declared: Declaration
    listed_clusters: tuple[ClusterName, ...]
    already_nominated: tuple[ClusterName, ...] = ()
    attempt: int = 1
    avoided: tuple[Avoided, ...] = ()
    claims: tuple[str, ...] = ()
    """Persistent volume claims that its pods mount, as namespace/name (claims.py)."""
    usual: UsualRun | None = None
    """Of its queue and class, where its owner declares no run time and enough runs have ended; else unknown."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
