"""The embedded fleet: a hub and workers in memory, behind the core's ports, with the faults a test may wish for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from connectors.embedded.faults import Feed
from connectors.embedded.hub import Event, Hub
from connectors.embedded.jobspec import job_of
from connectors.embedded.manifests import Manifest, NodeSpec
from connectors.embedded.multikueue import MultiKueue, Settings
from connectors.embedded.objects import Workload
from connectors.embedded.ports import Driver, EmbeddedHub, EmbeddedWorker
from connectors.embedded.projection import HubProjection, WorkerProjection
from connectors.embedded.witness import Pace, Witness
from connectors.embedded.worker import Worker
from connectors.embedded.world import World
from dispatcher.core.errors import EntrepotError, Refused
from dispatcher.core.ids import ClusterName, QueueName, WorkloadUid
from dispatcher.core.ports import Clock
from dispatcher.core.snapshot import HubView, StopPolicy, WorkerView
from dispatcher.core.workload import CheckState, HubWorkload

RELIST_S = 0.2
"""From a mended link to a watcher that has listed everything anew."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker to make: the objects applied to it (Node manifests among them become nodes) and more nodes."""

    objects: Sequence[Manifest] = ()
    nodes: Sequence[NodeSpec] = ()


class PlannedNode(Protocol):
    """A node as a blueprint declares it."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def taints(self) -> Sequence[Mapping[str, str]]: ...
    @property
    def capacity(self) -> Mapping[str, str]: ...


class Plan(Protocol):
    """The objects and nodes of a whole fleet, as `dispatcher.config.render` makes them of a blueprint."""

    @property
    def hub(self) -> Sequence[Manifest]: ...
    @property
    def workers(self) -> Mapping[ClusterName, Sequence[Manifest]]: ...
    @property
    def nodes(self) -> Mapping[ClusterName, Sequence[PlannedNode]]: ...


@dataclass(frozen=True, slots=True)
class Options:
    """How the hub is set up. Without the clearing policy nothing that we nominate can ever be admitted."""

    clearing_policy: bool = True
    multikueue: Settings = field(default_factory=Settings)


class EmbeddedFleet:
    """A hub and its workers. All methods act at the clock's now; what follows from them happens as time passes.

    `hub` and `workers` are the ports. Until their `run` is started (or `connect` is called) they see nothing, as a
    connector that has not listed yet. `hub_cluster` and `worker_clusters` are what the ports look at: the truth.
    """

    def __init__(
        self,
        hub_objects: Iterable[Manifest],
        workers: Mapping[str, WorkerSpec],
        clock: Clock,
        options: Options | None = None,
    ) -> None:
        chosen = options or Options()
        self.clock = clock
        self.world = World(clock.now())
        self.hub_cluster = Hub(self.world, hub_objects, chosen.clearing_policy)
        self.worker_clusters = {
            ClusterName(name): _worker(ClusterName(name), self.world, spec) for name, spec in sorted(workers.items())
        }
        self._multikueue = MultiKueue(self.world, self.hub_cluster, self.worker_clusters, chosen.multikueue)
        self._driver = Driver(self.world, clock)
        self._generations = dict.fromkeys(self.worker_clusters, 1)
        hub_projection = HubProjection(self.hub_cluster, self._multikueue)
        self.hub = EmbeddedHub(
            self.hub_cluster, self._driver, Feed(self.world, hub_projection.revision, hub_projection.view)
        )
        self.workers: dict[ClusterName, EmbeddedWorker] = {
            name: EmbeddedWorker(worker, self._driver, self._worker_feed(name))
            for name, worker in self.worker_clusters.items()
        }

    def _worker_feed(self, name: ClusterName) -> Feed[WorkerView]:
        projection = WorkerProjection(self.worker_clusters[name])
        return Feed(
            self.world,
            lambda: self._generations[name] + projection.revision(),
            lambda now: projection.view(now, self._generations[name] + projection.revision()),
        )

    @classmethod
    def of_plan(cls, plan: Plan, clock: Clock, options: Options | None = None) -> EmbeddedFleet:
        """The fleet that a blueprint stands for, with every node that it declares."""
        workers: dict[str, WorkerSpec] = {
            name: WorkerSpec(objects, [NodeSpec(n.name, n.labels, n.taints, n.capacity) for n in plan.nodes[name]])
            for name, objects in sorted(plan.workers.items())
        }
        return cls(plan.hub, workers, clock, options)

    # --- time and sight ------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Let the ports see without running them: for tests and the simulator, which move the world themselves."""
        self.hub.feed.started = True
        for worker in self.workers.values():
            worker.feed.started = True

    def measure(self, witness: Witness, pace: Pace) -> None:
        """Tell a witness everything from now on, and let jobs that start run at a pace: for the simulator."""
        self.hub_cluster.witness = witness
        for worker in self.worker_clusters.values():
            worker.witness, worker.pace = witness, pace

    def advance(self, to: datetime | None = None) -> None:
        """Let everything happen that is due until `to`, by default the clock's now."""
        self.world.advance(to or self.clock.now())

    def revision(self) -> int:
        """Grows with everything that any view of the fleet would show, faults of sight apart."""
        hub = self.hub_cluster
        total = hub.revision + hub.kueue.revision
        for worker in self.worker_clusters.values():
            total += worker.revision + worker.kueue.revision + worker.pool.revision
        return total

    @property
    def events(self) -> tuple[Event, ...]:
        """The Events on hub Workloads, in order of their first appearance."""
        return tuple(self.hub_cluster.log.events)

    @property
    def deleted_workloads(self) -> int:
        return self.hub_cluster.log.deleted

    @property
    def refused_latches(self) -> int:
        """How often the hub refused MultiKueue's clusterName: not zero means workloads that run unseen."""
        return self._multikueue.refused_latches

    def hub_view(self) -> HubView:
        return self.hub.view()

    def worker_view(self, cluster: str) -> WorkerView:
        return self.workers[ClusterName(cluster)].view()

    # --- users and operators -------------------------------------------------------------------------------------

    def submit(self, manifest: Manifest, cluster: str | None = None) -> None:
        """Create a job on the hub, or local work on a worker.

        Raises:
            Refused: it cannot be read, its namespace is missing, or the name is taken.
        """
        self.advance()
        spec = job_of(manifest)
        if cluster is None:
            self.hub_cluster.submit(spec)
        else:
            self.worker_clusters[ClusterName(cluster)].submit(spec)

    def create_workload(self, workload: HubWorkload) -> WorkloadUid:
        """Create a Workload on the hub: a bare one, or a further slice of the job that it names as its owner."""
        self.advance()
        return self.hub_cluster.create_workload(workload)

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete a job on the hub. Raises Refused when it is not there."""
        self.advance()
        self.hub_cluster.delete_job(kind, namespace, name)

    def apply(self, manifest: Manifest, cluster: str | None = None) -> None:
        """Create or replace a Kueue object or a Namespace, as `kubectl apply` would; a Node joins. None = the hub."""
        self.advance()
        if manifest.get("kind") == "Node" and cluster is not None:
            self.worker_clusters[ClusterName(cluster)].pool.add(NodeSpec.of(manifest))
            return
        place = self._place(cluster)
        place.inventory.apply(manifest)
        self._inventory_changed(place)

    def remove(self, kind: str, name: str, namespace: str = "default", cluster: str | None = None) -> None:
        """Delete a Kueue object or a Namespace. None = the hub."""
        self.advance()
        place = self._place(cluster)
        place.inventory.remove(kind, name, namespace)
        self._inventory_changed(place)

    def _place(self, cluster: str | None) -> Hub | Worker:
        return self.hub_cluster if cluster is None else self.worker_clusters[ClusterName(cluster)]

    def _inventory_changed(self, place: Hub | Worker) -> None:
        place.revision += 1
        place.kueue.inventory_changed()

    def hold_queue(self, queue: str, policy: StopPolicy = StopPolicy.HOLD, cluster: str | None = None) -> None:
        """Set a ClusterQueue's stopPolicy. None = the hub."""
        self.advance()
        place = self._place(cluster)
        spec = place.inventory.queues[QueueName(queue)]
        place.inventory.queues[QueueName(queue)] = replace(spec, view=replace(spec.view, stop_policy=policy))
        self._inventory_changed(place)

    def annotate(self, kind: str, namespace: str, name: str, annotations: Mapping[str, str]) -> None:
        """Annotate a job on the hub, as `kubectl annotate --overwrite` would. Raises Refused when it is not there."""
        self.advance()
        self.hub_cluster.annotate_job((kind, namespace, name), annotations)

    def set_check(
        self, workload: WorkloadUid, check: str, state: str, message: str = "", requeue_after_s: float | None = None
    ) -> None:
        """Write one entry of a hub Workload's admission checks: a budget's answer, or Retry, the move's primitive."""
        self.advance()
        found = self._workload(workload)
        self.hub_cluster.kueue.set_check(found, CheckState(check, state, message), requeue_after_s)

    def set_check_active(self, check: str, active: bool) -> None:
        """Let the controller of a hub AdmissionCheck serve it, or be gone."""
        self.advance()
        (self.hub_cluster.active_checks.add if active else self.hub_cluster.active_checks.discard)(check)
        (self.hub_cluster.inactive_checks.discard if active else self.hub_cluster.inactive_checks.add)(check)
        self.hub_cluster.revision += 1
        self.hub_cluster.kueue.checks_changed()

    def set_active(self, workload: WorkloadUid, active: bool) -> None:
        """Edit spec.active of a hub Workload."""
        self.advance()
        found = self._workload(workload)
        if active:
            self.hub_cluster.kueue.activate(found)
        else:
            self.hub_cluster.kueue.deactivate(found)

    def _workload(self, uid: WorkloadUid) -> Workload:
        found = self.hub_cluster.workloads.get(uid)
        if found is None:
            raise Refused(f"workload {uid} not found")
        return found

    # --- what befalls workers ------------------------------------------------------------------------------------

    def evict(self, cluster: str, namespace: str, name: str, reason: str = "Preempted") -> None:
        """The worker's Kueue evicts a Workload. Raises Refused when it is not there."""
        self.advance()
        self.worker_clusters[ClusterName(cluster)].kueue.evict(self._copy(cluster, namespace, name), reason)

    def delete_copy(self, cluster: str, namespace: str, name: str) -> None:
        """Somebody deletes a Workload, and its job with it, on the worker. Raises Refused when it is not there."""
        self.advance()
        self.worker_clusters[ClusterName(cluster)].delete(self._copy(cluster, namespace, name))

    def _copy(self, cluster: str, namespace: str, name: str) -> Workload:
        copy = self.worker_clusters[ClusterName(cluster)].copies.get((namespace, name))
        if copy is None:
            raise Refused(f"{cluster}: workload {namespace}/{name} not found")
        return copy

    def cordon(self, cluster: str, node: str, cordoned: bool = True) -> None:
        self.advance()
        self.worker_clusters[ClusterName(cluster)].pool.cordon(node, cordoned)

    def set_node_ready(self, cluster: str, node: str, ready: bool) -> None:
        self.advance()
        self.worker_clusters[ClusterName(cluster)].pool.set_ready(node, ready)

    def add_node(self, cluster: str, node: NodeSpec) -> None:
        self.advance()
        self.worker_clusters[ClusterName(cluster)].pool.add(node)

    def remove_node(self, cluster: str, node: str) -> None:
        self.advance()
        self.worker_clusters[ClusterName(cluster)].pool.remove(node)

    def switch_off(self, cluster: str, reason: str = "BadKubeConfig") -> None:
        """The MultiKueueCluster is no longer Active, though the worker itself is well."""
        self.advance()
        self._multikueue.switch_off(ClusterName(cluster), reason)

    def switch_on(self, cluster: str) -> None:
        self.advance()
        self._multikueue.switch_on(ClusterName(cluster))

    # --- faults of sight and of writes ---------------------------------------------------------------------------

    def silence(self, place: str = "hub", part: str | None = None) -> None:
        """Let the watch of the hub or of a worker go quiet without an error; `part` is one field of the view."""
        self.advance()
        self._feed(place).silence(part)

    def speak(self, place: str = "hub") -> None:
        """End a silence."""
        self.advance()
        self._feed(place).speak()

    def lag(self, seconds: float, place: str = "hub") -> None:
        """Let a view be that old, unknown to whoever reads it. Zero ends it."""
        self.advance()
        self._feed(place).set_lag(seconds)

    def break_link(self, place: str) -> None:
        """Cut the hub or a worker off: from us, and a worker from MultiKueue as well. Work on it goes on."""
        self.advance()
        self._feed(place).break_link("connection refused")
        if place == "hub":
            self.hub.link_up = False
        else:
            self.worker_clusters[ClusterName(place)].link_up = False
            self._multikueue.link_lost(ClusterName(place))

    def mend_link(self, place: str) -> None:
        """The hub or a worker can be reached again, and is listed anew."""
        self.advance()
        if place == "hub":
            self.hub.link_up = True
        else:
            self.worker_clusters[ClusterName(place)].link_up = True
            self._generations[ClusterName(place)] += 1
            self._multikueue.link_back(ClusterName(place))
        self.world.after(RELIST_S, self._feed(place).speak)

    def fail_next_write(self, error: EntrepotError) -> None:
        """The next nomination raises `error` and changes nothing."""
        self.hub.faults.errors.append(error)

    def lose_next_reply(self) -> None:
        """The next nomination is written, but its writer is told Transient."""
        self.hub.faults.lost_replies += 1

    def _feed(self, place: str) -> Feed[HubView] | Feed[WorkerView]:
        return self.hub.feed if place == "hub" else self.workers[ClusterName(place)].feed


def _worker(name: ClusterName, world: World, spec: WorkerSpec) -> Worker:
    nodes = [NodeSpec.of(item) for item in spec.objects if item.get("kind") == "Node"]
    return Worker(name, world, spec.objects, [*nodes, *spec.nodes])
