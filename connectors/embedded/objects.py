"""The Workload as the embedded apiservers hold it: the one mutable record of the world that views are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from connectors.embedded.jobspec import JobSpec
from connectors.embedded.manifests import FlavorResource
from dispatcher.core.ids import ClusterName, FlavorName, QueueName, WorkloadUid
from dispatcher.core.workload import CheckState, HubWorkload, Owner, PodSet, Requirement

PENDING, READY, RETRY, REJECTED = "Pending", "Ready", "Retry", "Rejected"


@dataclass(slots=True, eq=False)
class Assignment:
    """What Kueue gave a Workload: per pod set the flavor of each resource, and the quota that this uses."""

    flavors: tuple[tuple[tuple[str, FlavorName], ...], ...]
    usage: tuple[tuple[FlavorResource, int], ...]
    borrows: bool = False
    domains: tuple[tuple[Requirement, ...], ...] = ()
    """By which node labels each pod set is held together, where any is."""


class Shape:
    """What is the same of Workloads that fit, or do not fit, together: priority and pod sets. Hashed once: queues ask
    for it all the time."""

    __slots__ = ("_hash", "pod_sets", "priority")

    def __init__(self, priority: int, pod_sets: tuple[PodSet, ...]) -> None:
        self.priority = priority
        self.pod_sets = pod_sets
        self._hash = hash((priority, pod_sets))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Shape) and self.priority == other.priority and self.pod_sets == other.pod_sets
        )


@dataclass(slots=True, eq=False)
class Workload:
    """A Workload on the hub or on a worker: `base` is what its manifest said, the rest is its status.

    Times are whole seconds, as the API writes them; None = the condition is not True. `queue` is the ClusterQueue that
    its LocalQueue leads to, `cluster_queue` the one that has reserved quota for it. `hub_uid` is set on copies that
    MultiKueue made (the origin label). `job_active` is, on the hub, status.active of its job as MultiKueue copied it
    last from the remote one. `seq` is the order of creation, which breaks ties of priority and time.
    """

    base: HubWorkload
    seq: int
    queue_order_at: datetime
    priority: int
    job: JobSpec | None
    hub_uid: WorkloadUid | None = None
    resource_version: int = 0
    queue: QueueName | None = None
    cluster_queue: QueueName | None = None
    assignment: Assignment | None = None
    quota_reserved_at: datetime | None = None
    quota_message: str = ""
    admitted_at: datetime | None = None
    left_at: datetime | None = None
    evicted_at: datetime | None = None
    evicted_reason: str = ""
    preempted_by: str = ""
    requeue_at: datetime | None = None
    finished_at: datetime | None = None
    finished_reason: str = ""
    active: bool = True
    deleting: bool = False
    deleted: bool = False
    checks: dict[str, CheckState] = field(default_factory=dict)
    cluster_name: ClusterName | None = None
    nominated: tuple[ClusterName, ...] = ()
    queued: bool = False
    job_active: int = 0
    annotations: dict[str, str] = field(default_factory=dict)
    shape: Shape = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.shape = Shape(self.priority, self.base.pod_sets)

    @property
    def uid(self) -> WorkloadUid:
        return self.base.uid

    @property
    def namespace(self) -> str:
        return self.base.namespace

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def local_queue(self) -> str:
        return self.base.local_queue

    @property
    def pod_sets(self) -> tuple[PodSet, ...]:
        return self.base.pod_sets

    @property
    def owner(self) -> Owner | None:
        return self.base.owner

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def finished(self) -> bool:
        return self.finished_at is not None

    @property
    def admitted(self) -> bool:
        """Admitted and not on its way out."""
        return self.admitted_at is not None and self.evicted_at is None and not self.finished
