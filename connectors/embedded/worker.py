"""A worker cluster: its Kueue, its nodes, and the Workloads and jobs on it (ours and local ones)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from connectors.embedded.flavors import flavor_tolerations
from connectors.embedded.jobs import Gang, JobRun
from connectors.embedded.jobspec import JobSpec
from connectors.embedded.kueue import RECONCILE_S, Kueue
from connectors.embedded.manifests import Inventory, Manifest, NodeSpec
from connectors.embedded.nodes import Needs, NodePool
from connectors.embedded.objects import Assignment, Workload
from connectors.embedded.topology import Promised, holds_together, lay_out, not_laid_out, units
from connectors.embedded.witness import Happening, Pace, Witness, nobody
from connectors.embedded.world import World
from dispatcher.core.errors import Refused
from dispatcher.core.ids import ClusterName, FlavorName, WorkloadUid
from dispatcher.core.resources import PODS, Resources
from dispatcher.core.snapshot import Lying
from dispatcher.core.workload import HubWorkload, PodSet, Requirement

JobKey = tuple[str, str, str]
"""(kind, namespace, name) of a job object."""


class Worker:
    """One worker. `told` hears which hub Workload's copy has changed: MultiKueue's watch on this cluster.

    `touched` names the Workloads whose view is out of date.
    """

    def __init__(self, name: ClusterName, world: World, objects: Iterable[Manifest], nodes: Iterable[NodeSpec]) -> None:
        self.name = name
        self.world = world
        self.revision = 0
        self.link_up = True
        self.copies: dict[tuple[str, str], Workload] = {}
        self.copies_by_hub: dict[WorkloadUid, Workload] = {}
        self.jobs: dict[JobKey, JobRun] = {}
        self.inventory = Inventory(objects)
        self.told: Callable[[WorkloadUid], None] = lambda _: None
        self.witness: Witness = nobody
        self.pace: Pace | None = None
        self.touched: dict[tuple[str, str], None] = {}
        self._versions = 0
        self._made = 0
        self._run_of: dict[WorkloadUid, JobRun] = {}
        self._workload_of: dict[str, Workload] = {}
        self.pool = NodePool(world)
        for node in nodes:
            self.pool.add(node)
        self.kueue = Kueue(world, self.inventory, self)
        self.pool.changed = self.kueue.nodes_changed

    # --- Kueue's listener ----------------------------------------------------------------------------------------

    def changed(self, workload: Workload) -> None:
        self._versions += 1
        workload.resource_version = self._versions
        self._touch(workload)
        if workload.hub_uid is not None:
            self.told(workload.hub_uid)

    def _touch(self, workload: Workload) -> None:
        self.touched[workload.key] = None
        self.revision += 1

    def admitted(self, workload: Workload) -> None:
        self.world.after(RECONCILE_S, lambda: self._start(workload))

    def evicted(self, workload: Workload) -> None:
        """The job is suspended; a moment after its last pod has gone Kueue gives the quota back."""
        run = self._run_of.get(workload.uid)
        if run is None or run.finished is not None:
            self._release_soon(workload)
        else:
            run.stop(lambda: self._release_soon(workload))

    def witnessed(self, what: Happening, workload: Workload) -> None:
        self.witness(what, self.name, workload)

    def _release_soon(self, workload: Workload) -> None:
        self.witnessed(Happening.GONE, workload)
        self.world.after(RECONCILE_S, lambda: self.kueue.release(workload))

    def check_active(self, name: str) -> bool:
        check = self.inventory.checks.get(name)
        return check is not None and check.active

    # --- jobs ----------------------------------------------------------------------------------------------------

    def pods_bound(self, run: JobRun) -> None:
        workload = self._workload_of.get(run.uid)
        if workload is not None:
            self._touch(workload)

    def job_changed(self, run: JobRun) -> None:
        self.revision += 1
        workload = self._workload_of.get(run.uid)
        if workload is not None:
            self.changed(workload)

    def job_finished(self, run: JobRun, reason: str) -> None:
        workload = self._workload_of.get(run.uid)
        if workload is not None:
            self.world.after(RECONCILE_S, lambda: self._finish(workload, run, reason))

    def _finish(self, workload: Workload, run: JobRun, reason: str) -> None:
        if workload.deleted:
            return
        self.kueue.finish(workload, reason)
        if run.spec.ttl_s is not None:
            self.world.after(run.spec.ttl_s, lambda: self.delete(workload))

    def _start(self, workload: Workload) -> None:
        run = self._run_of.get(workload.uid)
        if run is None or not workload.admitted or workload.assignment is None:
            return
        needs = tuple(needs for needs, _ in self._pods(workload, workload.assignment))
        run.start(needs)

    def _pods(self, workload: Workload, given: Assignment) -> list[Promised]:
        """The pods of every set as Kueue starts them, and how many they are."""
        domains = given.domains or ((),) * len(workload.pod_sets)
        return [
            (self._needs(pod_set, [flavor for _, flavor in flavors], domain), pod_set.count)
            for pod_set, flavors, domain in zip(workload.pod_sets, given.flavors, domains, strict=True)
        ]

    def _needs(self, pod_set: PodSet, flavors: list[FlavorName], domain: tuple[Requirement, ...] = ()) -> Needs:
        """The pod as Kueue starts it: the flavors' node labels and tolerations are added to the template's, and the
        labels of the domain that it is to lie in."""
        selector, tolerations = [*pod_set.selector, *domain], list(pod_set.tolerations)
        for name in dict.fromkeys(flavors):
            flavor = self.inventory.flavors.get(name)
            if flavor is not None:
                selector += [Requirement(key, "In", (value,)) for key, value in flavor.labels]
                tolerations += flavor_tolerations(flavor)
        requests = {**dict(pod_set.per_pod.items), PODS: 1}
        return Needs(tuple(sorted(requests.items())), tuple(selector), pod_set.terms, tuple(tolerations))

    def laid_out(self, workload: Workload, wanted: Assignment) -> str:
        """See `Listener.laid_out`."""
        promised = [pods for other in self.copies.values() for pods in self._to_come(other)]
        given = dict(zip([p.name for p in workload.pod_sets], self._pods(workload, wanted), strict=True))
        flavors = dict(zip(given, wanted.flavors, strict=True))
        domains: dict[str, tuple[Requirement, ...]] = {}
        for unit in units(workload.pod_sets):
            wish, pods = unit[0].topology, [given[pod_set.name] for pod_set in unit]
            named = [self.inventory.flavors[flavor].topology for each in unit for _, flavor in flavors[each.name]]
            topology = next((found for found in named if found is not None), None)
            if wish is None or topology is None or not holds_together(wish):
                domains.update(dict.fromkeys((pod_set.name for pod_set in unit), ()))
                continue
            layout = lay_out(self.pool.nodes.values(), topology, wish, pods, promised)
            if layout.selector is None:
                return not_laid_out(max(unit, key=lambda each: each.count), topology, layout.most)
            for pod_set, (_, count) in zip(unit, pods, strict=True):
                domains[pod_set.name] = layout.selector
                taken = [flavor for _, flavor in flavors[pod_set.name]]
                promised.append((self._needs(pod_set, taken, layout.selector), count))
        wanted.domains = tuple(domains[name] for name in given)
        return ""

    def _to_come(self, workload: Workload) -> Iterator[Promised]:
        """Pods that have a place in a domain and are on no node yet."""
        given = workload.assignment
        if given is None or not given.domains or workload.finished:
            return
        bound = self.bound_pods(workload)
        for (needs, count), domain in zip(self._pods(workload, given), given.domains, strict=True):
            left, bound = max(0, count - bound), max(0, bound - count)
            if left and domain:
                yield needs, left

    # --- what MultiKueue does here -------------------------------------------------------------------------------

    def create_copy(self, original: Workload) -> None:
        """Clone a hub Workload. Raises Refused where the namespace is missing or the name is taken."""
        if original.namespace not in self.inventory.namespaces:
            raise Refused(f"{self.name}: namespaces {original.namespace!r} not found")
        if original.key in self.copies:
            raise Refused(f"{self.name}: workload {original.namespace}/{original.name} already exists")
        self._create(original.base, original.priority, original.job, original.uid)

    def create_job(self, copy: Workload) -> bool:
        """Create the real job of an admitted copy. False where another job of that name stands in the way."""
        assert copy.job is not None
        key = (copy.job.kind, copy.job.namespace, copy.job.name)
        standing = self.jobs.get(key)
        if standing is not None:
            return standing.hub_uid == copy.hub_uid
        run = self._create_job(copy.job, copy)
        run.hub_uid = copy.hub_uid
        self._start(copy)
        return True

    def delete(self, workload: Workload) -> None:
        """Delete a Workload of this worker and its job."""
        if workload.deleted:
            return
        run = self._run_of.pop(workload.uid, None)
        if run is not None:
            run.delete(lambda: self.witnessed(Happening.GONE, workload))
            self._workload_of.pop(run.uid, None)
            self.jobs.pop((run.spec.kind, run.spec.namespace, run.spec.name), None)
        self.kueue.remove(workload)
        self.copies.pop(workload.key, None)
        if workload.hub_uid is not None:
            self.copies_by_hub.pop(workload.hub_uid, None)
        self.changed(workload)

    def active_pods(self, workload: Workload) -> int:
        """Pods of a Workload's job that have not gone: status.active of the job."""
        run = self._run_of.get(workload.uid)
        return 0 if run is None else run.active_pods

    def bound_pods(self, workload: Workload) -> int:
        """Pods of a Workload's job that are on nodes."""
        run = self._run_of.get(workload.uid)
        return 0 if run is None else run.bound_pods

    def lying(self, workload: Workload) -> Lying:
        """Where the pods of a Workload's job are."""
        run = self._run_of.get(workload.uid)
        there = Counter((node, pod.needs.requests) for node, pod in run.placed()) if run is not None else Counter()
        return tuple((node, Resources.of(dict(asked)), count) for (node, asked), count in sorted(there.items()))

    def job_runs(self, workload: Workload) -> bool:
        """Whether a Workload's job is not suspended and not over."""
        run = self._run_of.get(workload.uid)
        return run is not None and run.running

    def has_job(self, workload: Workload) -> bool:
        return workload.uid in self._run_of

    # --- local work ----------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec) -> None:
        """Somebody creates a job on the worker itself. Raises Refused where that cannot be."""
        if (spec.kind, spec.namespace, spec.name) in self.jobs:
            raise Refused(f"{self.name}: {spec.kind} {spec.namespace}/{spec.name} already exists")
        if spec.namespace not in self.inventory.namespaces:
            raise Refused(f"{self.name}: namespaces {spec.namespace!r} not found")
        run = self._create_job(spec, None)
        self.world.after(RECONCILE_S, lambda: self._create_local(run))

    def _create_local(self, run: JobRun) -> None:
        spec = run.spec
        priority = self.inventory.priorities.get(spec.priority_class or "", 0)
        base = spec.workload("local", run.uid, priority, self.world.stamp())
        workload = self._create(base, priority, spec, None)
        self._bind(run, workload)

    def _create(
        self, base_of: HubWorkload, priority: int, job: JobSpec | None, hub_uid: WorkloadUid | None
    ) -> Workload:
        self._made += 1
        now = self.world.stamp()
        base = replace(base_of, uid=WorkloadUid(f"{self.name}-{self._made:08d}"), created_at=now)
        workload = Workload(base=base, seq=self._made, queue_order_at=now, priority=priority, job=job, hub_uid=hub_uid)
        self.copies[workload.key] = workload
        if hub_uid is not None:
            self.copies_by_hub[hub_uid] = workload
        self.kueue.add(workload)
        return workload

    def _create_job(self, spec: JobSpec, workload: Workload | None) -> JobRun:
        run = JobRun(self.world, self.pool, spec, self)
        self._made += 1
        run.uid = f"{self.name}-job-{self._made:08d}"
        self.jobs[spec.kind, spec.namespace, spec.name] = run
        if workload is not None:
            self._bind(run, workload)
        return run

    def _bind(self, run: JobRun, workload: Workload) -> None:
        self._run_of[workload.uid] = run
        self._workload_of[run.uid] = workload
        if self.pace is not None:
            run.gang = self._gang(self.pace, run.spec, workload)

    def _gang(self, pace: Pace, spec: JobSpec, workload: Workload) -> Gang:
        job = f"{spec.namespace}/{spec.name}"

        def begins() -> float:
            self.witnessed(Happening.STARTED, workload)
            taken = workload.assignment.flavors if workload.assignment is not None else ()
            return pace.begins(self.name, job, dict(entry for flavors in taken for entry in flavors))

        def stops(ran_s: float) -> None:
            self.witnessed(Happening.STOPPED, workload)
            pace.stops(self.name, job, ran_s)

        def ends() -> None:
            self.witnessed(Happening.ENDED, workload)
            pace.ends(self.name, job)

        return Gang(self.world, begins, ends, stops)
