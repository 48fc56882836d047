"""The hub: users' jobs, the Workloads that Kueue makes of them, and the writes of a dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from connectors.embedded.jobspec import JobSpec
from connectors.embedded.kueue import RECONCILE_S, Kueue
from connectors.embedded.manifests import Inventory, Manifest
from connectors.embedded.objects import REJECTED, RETRY, Assignment, Workload
from connectors.embedded.witness import Happening, Witness, nobody
from connectors.embedded.world import World
from connectors.kubernetes.fields import KEY_PREFIX
from dispatcher.core.errors import Conflict, Refused
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.ports import Amendment, Eviction, Nomination, Notice
from dispatcher.core.snapshot import MULTIKUEUE_CONTROLLER
from dispatcher.core.workload import CheckState, HubWorkload, OwnerMeta

MAX_NAME = 256
"""Longest name that the API takes in nominatedClusterNames; how many it takes is checked by the port."""
JobKey = tuple[str, str, str]
"""(kind, namespace, name) of a job object."""


@dataclass(slots=True)
class HubJob:
    """A user's job object on the hub."""

    spec: JobSpec
    uid: str
    owner: OwnerMeta
    workload: Workload | None = None


@dataclass(slots=True)
class Event:
    """A kept Event; repeating one only counts it up."""

    notice: Notice
    first_at: datetime
    last_at: datetime
    count: int = 1


@dataclass(slots=True)
class HubLog:
    """What happened on the hub, for tests and for people: Events, and what left without a trace."""

    events: list[Event] = field(default_factory=list)
    deleted: int = 0


class Hub:
    """The hub cluster. `told` hears of every status write and of every deletion: MultiKueue's watch.

    `touched` names the Workloads whose view is out of date.
    """

    def __init__(self, world: World, objects: Iterable[Manifest], clearing_policy: bool) -> None:
        self.world = world
        self.revision = 0
        self.clearing_policy = clearing_policy
        self.inventory = Inventory(objects)
        self.jobs: dict[JobKey, HubJob] = {}
        self.log = HubLog()
        self.told: Callable[[WorkloadUid], None] = lambda _: None
        self.cluster_active: Callable[[ClusterName], bool] = lambda _: False
        self.witness: Witness = nobody
        self.inactive_checks: set[str] = set()
        self.active_checks: set[str] = set()
        self.touched: dict[WorkloadUid, None] = {}
        self.jobs_revision = 0
        self._versions = 0
        self._made = 0
        self._events: dict[tuple[str, str, str, str], Event] = {}
        self.kueue = Kueue(world, self.inventory, self)
        self.kueue.clears_nominations = clearing_policy

    @property
    def workloads(self) -> dict[WorkloadUid, Workload]:
        return self.kueue.workloads

    # --- Kueue's listener ----------------------------------------------------------------------------------------

    def changed(self, workload: Workload) -> None:
        self._versions += 1
        workload.resource_version = self._versions
        self.touched[workload.uid] = None
        self.revision += 1
        self.told(workload.uid)

    def admitted(self, workload: Workload) -> None:
        """The hub runs nothing itself."""

    def laid_out(self, workload: Workload, wanted: Assignment) -> str:
        """With MultiKueue a worker finds the domains."""
        return ""

    def witnessed(self, what: Happening, workload: Workload) -> None:
        self.witness(what, None, workload)

    def evicted(self, workload: Workload) -> None:
        """MultiKueue stops the remote job first; it hears of the write itself."""

    def check_active(self, name: str) -> bool:
        """A MultiKueue check is active while one of its clusters is; any other when its controller said so."""
        check = self.inventory.checks.get(name)
        if check is None or name in self.inactive_checks:
            return False
        if check.controller != MULTIKUEUE_CONTROLLER:
            return check.active or name in self.active_checks
        return any(self.cluster_active(cluster) for cluster in self.inventory.configs.get(check.config or "", ()))

    # --- what users do -------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec) -> None:
        """A user creates a job. Raises Refused where the API would."""
        key = (spec.kind, spec.namespace, spec.name)
        if key in self.jobs:
            raise Refused(f"{spec.kind} {spec.namespace}/{spec.name} already exists")
        if spec.namespace not in self.inventory.namespaces:
            raise Refused(f"namespaces {spec.namespace!r} not found")
        self._made += 1
        uid = f"hub-job-{self._made:08d}"
        job = self.jobs[key] = HubJob(spec, uid, spec.owner_meta(uid))
        self._jobs_changed()
        if spec.queue:
            self.world.after(RECONCILE_S, lambda: self._create_workload(key, job))

    def _create_workload(self, key: JobKey, job: HubJob) -> None:
        if self.jobs.get(key) is not job:
            return
        priority = self.inventory.priorities.get(job.spec.priority_class or "", 0)
        base = job.spec.workload(self._next_uid(), job.uid, priority, self.world.stamp())
        job.workload = self._add(base, job.spec)

    def create_workload(self, base: HubWorkload) -> WorkloadUid:
        """Somebody creates a Workload: a bare one, or a further slice of the job that it names as its owner."""
        owner = base.owner.uid if base.owner is not None else ""
        job = next((found.spec for found in self.jobs.values() if found.uid == owner), None)
        return self._add(replace(base, uid=WorkloadUid(self._next_uid()), created_at=self.world.stamp()), job).uid

    def _add(self, base: HubWorkload, job: JobSpec | None) -> Workload:
        workload = Workload(base=base, seq=self._made, queue_order_at=base.created_at, priority=base.priority, job=job)
        self.kueue.add(workload)
        return workload

    def _next_uid(self) -> str:
        """Ascending names: views keep the order of creation, which is the order of their keys."""
        self._made += 1
        return f"hub-{self._made:08d}"

    def delete_job(self, kind: str, namespace: str, name: str) -> None:
        """A user deletes a job; its Workload goes with it. Raises Refused when there is none."""
        job = self.jobs.pop((kind, namespace, name), None)
        if job is None:
            raise Refused(f"{kind} {namespace}/{name} not found")
        self._jobs_changed()
        if job.workload is not None:
            self.delete_workload(job.workload)

    def _jobs_changed(self) -> None:
        self.jobs_revision += 1
        self.revision += 1

    def delete_workload(self, workload: Workload) -> None:
        """A Workload is told to go; its finalizer holds it for a moment."""
        if workload.deleting:
            return
        workload.deleting = True
        self.changed(workload)
        self.world.after(RECONCILE_S, lambda: self._gone(workload))

    def _gone(self, workload: Workload) -> None:
        self.kueue.remove(workload)
        self.log.deleted += 1
        self.touched[workload.uid] = None
        self.revision += 1
        self.told(workload.uid)

    # --- what the dispatcher writes ------------------------------------------------------------------------------

    def nominate(self, nomination: Nomination) -> str:
        """The status write, with the API's rules (kueue-contract section 3.1). Returns the resourceVersion.

        Raises Conflict for all that an apiserver answers with 404, 409 or 422.
        """
        workload = self.workloads.get(nomination.uid)
        if workload is None:
            raise Conflict(f"workload {nomination.namespace}/{nomination.name} not found")
        if nomination.resource_version != str(workload.resource_version):
            raise Conflict(f"workload {nomination.name}: the object has been modified")
        if any(len(name) > MAX_NAME for name in nomination.clusters):
            raise Conflict(f"workload {nomination.name}: a cluster name has at most {MAX_NAME} characters")
        if workload.cluster_name is not None and nomination.clusters:
            raise Conflict("clusterName and nominatedClusterNames are mutually exclusive")
        if workload.nominated != nomination.clusters:
            workload.nominated = nomination.clusters
            self.witnessed(Happening.NOMINATED, workload)
            self.changed(workload)
        return str(workload.resource_version)

    def evict(self, eviction: Eviction) -> str:
        """Somebody sets one check to Retry. Returns the resourceVersion; raises Conflict as `nominate`."""
        workload = self.workloads.get(eviction.uid)
        if workload is None:
            raise Conflict(f"workload {eviction.namespace}/{eviction.name} not found")
        if eviction.resource_version != str(workload.resource_version):
            raise Conflict(f"workload {eviction.name}: the object has been modified")
        check = workload.checks.get(eviction.check)
        if check is None:
            raise Conflict(f"workload {eviction.name} has no check {eviction.check}")
        retry = replace(check, state=RETRY, message=eviction.message)
        self.kueue.set_check(workload, retry, eviction.requeue_after_s)
        return str(workload.resource_version)

    def amend(self, amendment: Amendment) -> str:
        """Somebody edits annotations, and spec.active. Returns the resourceVersion; raises Conflict as `nominate`."""
        workload = self.workloads.get(amendment.uid)
        if workload is None:
            raise Conflict(f"workload {amendment.namespace}/{amendment.name} not found")
        if amendment.resource_version != str(workload.resource_version):
            raise Conflict(f"workload {amendment.name}: the object has been modified")
        for key, value in amendment.annotations:
            if value is None:
                workload.annotations.pop(key, None)
            else:
                workload.annotations[key] = value
        if amendment.deactivate and workload.active:
            self.kueue.deactivate(workload)
        else:
            self.changed(workload)
        return str(workload.resource_version)

    def annotate_job(self, key: JobKey, annotations: Mapping[str, str]) -> None:
        """Somebody annotates a job object. Raises Refused when there is none."""
        job = self.jobs.get(key)
        if job is None:
            raise Refused(f"{'/'.join(key)} not found")
        kept = dict(job.owner.keys) | {k: v for k, v in annotations.items() if k.startswith(KEY_PREFIX)}
        job.owner = replace(job.owner, keys=tuple(sorted(kept.items())))
        self._jobs_changed()

    def latch(self, workload: Workload, cluster: ClusterName, check: CheckState) -> None:
        """MultiKueue's write of the winner. The clearing policy empties the list in the same request.

        Raises Conflict where the API or Kueue's webhook refuses it: without the policy a nomination of a foreign
        manager stays and excludes clusterName (section 3.2); a cluster that is not nominated cannot win (3.1).
        """
        if workload.cluster_name == cluster:
            self.kueue.set_check(workload, check)
            return
        if cluster not in workload.nominated:
            raise Conflict(f"clusterName {cluster} is not one of the nominated clusters")
        if not self.clearing_policy:
            raise Conflict("clusterName and nominatedClusterNames are mutually exclusive")
        workload.cluster_name, workload.nominated = cluster, ()
        self.kueue.set_check(workload, check)

    def notify(self, notice: Notice) -> None:
        """Keep an Event; the same words again only count up."""
        key = (notice.uid, notice.type, notice.reason, notice.message)
        known = self._events.get(key)
        if known is not None:
            known.count, known.last_at = known.count + 1, self.world.now
            return
        event = self._events[key] = Event(notice, self.world.now, self.world.now)
        self.log.events.append(event)

    # --- MultiKueue's reads and the end of a job -----------------------------------------------------------------

    def multikueue_check(self, workload: Workload) -> CheckState | None:
        """The entry of the Workload's MultiKueue check."""
        for name in sorted(workload.checks):
            check = self.inventory.checks.get(name)
            if check is not None and check.controller == MULTIKUEUE_CONTROLLER:
                return workload.checks[name]
        return None

    def listed_clusters(self, check_name: str) -> tuple[ClusterName, ...]:
        """The clusters of the MultiKueueConfig behind a check."""
        check = self.inventory.checks.get(check_name)
        return self.inventory.configs.get(check.config or "", ()) if check is not None else ()

    def finish(self, workload: Workload, reason: str) -> None:
        """The remote job has ended and its status was copied; the job goes after its TTL."""
        self.kueue.finish(workload, reason)
        job = workload.job
        if job is not None and job.ttl_s is not None:
            self.world.after(job.ttl_s, lambda: self._expire(workload, job))

    def _expire(self, workload: Workload, job: JobSpec) -> None:
        standing = self.jobs.get((job.kind, job.namespace, job.name))
        if standing is not None and standing.workload is workload:
            self.delete_job(job.kind, job.namespace, job.name)

    def reject(self, workload: Workload, check: CheckState, message: str) -> None:
        """No remote can run this: Rejected deactivates the Workload (section 5, step 0)."""
        self.kueue.set_check(workload, replace(check, state=REJECTED, message=message))
