"""Laws of the embedded world that no history may break."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from connectors.embedded import EmbeddedFleet, ManualClock, WorkerSpec
from connectors.embedded.kueue import Kueue
from connectors.embedded.quota import QuotaNode
from dispatcher.core.errors import Conflict
from dispatcher.core.ports import Nomination
from dispatcher.core.snapshot import StopPolicy
from dispatcher.core.workload import HubWorkload
from tests import builders as b

CLUSTERS = ("alpha", "beta", "gamma")
PRIORITIES = ("low", "normal", "high")
LONG_S = 4000


def worker_spec() -> WorkerSpec:
    """Two queues of one cohort over two nodes of eight GPUs; one lends little, one borrows little."""
    preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    lines_a = [b.quota(b.GPU, 10, borrow=6, lend=4), b.quota("cpu", 1000)]
    lines_b = [b.quota(b.GPU, 6, borrow=4), b.quota("cpu", 1000)]
    objects = [
        b.namespace(),
        b.flavor("h100", {b.GPU_LABEL: "h100"}),
        b.cluster_queue("qa", b.resource_group({"h100": lines_a}), cohortName="all", preemption=preemption),
        b.cluster_queue("qb", b.resource_group({"h100": lines_b}), cohortName="all", preemption=preemption),
        b.local_queue("qa", "qa"),
        b.local_queue("qb", "qb"),
        *b.priority_classes(),
    ]
    return WorkerSpec(objects, b.gpu_nodes(2))


def hub_manifests() -> list[dict[str, Any]]:
    lines = [b.quota(b.GPU, 40), b.quota("cpu", 1000)]
    group = b.resource_group({"any": lines})
    queues = [b.cluster_queue(name, group, **b.checks("fleet")) for name in ("qa", "qb")]
    return [
        b.namespace(),
        b.flavor("any"),
        *b.multikueue(*CLUSTERS),
        *queues,
        b.local_queue("qa", "qa"),
        b.local_queue("qb", "qb"),
        *b.priority_classes(),
    ]


class EmbeddedWorld(RuleBasedStateMachine):
    """Users, a careless dispatcher, operators and accidents, in any order."""

    @initialize()
    def start(self) -> None:
        self.clock = ManualClock(b.START)
        self.fleet = EmbeddedFleet(hub_manifests(), {name: worker_spec() for name in CLUSTERS}, self.clock)
        self.fleet.connect()
        self.jobs: dict[str, bool] = {}
        self.broken: set[str] = set()
        self.ever_broken = False

    def workloads(self) -> list[HubWorkload]:
        return list(self.fleet.hub_view().workloads.values())

    @rule(
        queue=st.sampled_from(("qa", "qb")),
        gpus=st.integers(1, 4),
        pods=st.integers(1, 2),
        priority=st.sampled_from(PRIORITIES),
        runs_s=st.integers(1, 30),
        fails=st.sampled_from((False, False, False, True)),
    )
    def submit(self, queue: str, gpus: int, pods: int, priority: str, runs_s: int, fails: bool) -> None:
        name = f"job-{len(self.jobs)}"
        template = b.pod_template({b.GPU: gpus, "cpu": 1}, f"{runs_s}s", fails=fails)
        self.fleet.submit(b.job(name, pods=pods, queue=queue, priority=priority, template=template, backoffLimit=0))
        self.jobs[name] = True

    @rule(clusters=st.lists(st.sampled_from(CLUSTERS), min_size=1, max_size=2, unique=True))
    def nominate_all_who_wait(self, clusters: list[str]) -> None:
        for position, workload in enumerate(w for w in self.workloads() if w.quota_reserved_at and not w.nominated):
            if workload.cluster_name is None and not workload.finished:
                self.write(workload, (clusters[position % len(clusters)],))

    @rule(pick=st.integers(0, 30), clusters=st.lists(st.sampled_from(CLUSTERS), min_size=0, max_size=3, unique=True))
    def nominate_anybody(self, pick: int, clusters: list[str]) -> None:
        found = self.workloads()
        if found:
            workload = found[pick % len(found)]
            self.write(workload, tuple(clusters))

    def write(self, workload: HubWorkload, clusters: tuple[str, ...]) -> None:
        nomination = Nomination(
            workload.uid,
            workload.namespace,
            workload.name,
            workload.resource_version,
            clusters,  # type: ignore[arg-type]
        )
        try:
            asyncio.run(self.fleet.hub.nominate(nomination) if clusters else self.fleet.hub.withdraw(nomination))
        except Conflict:
            assert workload.cluster_name is not None

    @rule(milliseconds=st.sampled_from((20, 50, 300, 1000, 3000, 6000)))
    def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)
        self.fleet.advance()

    @rule(pick=st.integers(0, 30))
    def delete(self, pick: int) -> None:
        alive = [name for name, is_alive in self.jobs.items() if is_alive]
        if alive:
            name = alive[pick % len(alive)]
            self.fleet.delete("Job", b.NAMESPACE, name)
            self.jobs[name] = False

    @rule(pick=st.integers(0, 30))
    def retry(self, pick: int) -> None:
        found = [w for w in self.workloads() if w.quota_reserved_at is not None and not w.finished]
        if found:
            self.fleet.set_check(found[pick % len(found)].uid, "fleet", "Retry", "moved")

    @rule(pick=st.integers(0, 30), cluster=st.sampled_from(CLUSTERS))
    def evict_on_worker(self, pick: int, cluster: str) -> None:
        keys = list(self.fleet.worker_view(cluster).copies)
        if keys and cluster not in self.broken:
            self.fleet.evict(cluster, *keys[pick % len(keys)])

    @rule(cluster=st.sampled_from(CLUSTERS))
    def flip_link(self, cluster: str) -> None:
        if cluster in self.broken:
            self.fleet.mend_link(cluster)
            self.broken.discard(cluster)
        else:
            self.fleet.break_link(cluster)
            self.broken.add(cluster)
            self.ever_broken = True

    @rule(cluster=st.sampled_from(CLUSTERS), node=st.sampled_from(("node-0", "node-1")), cordoned=st.booleans())
    def cordon(self, cluster: str, node: str, cordoned: bool) -> None:
        self.fleet.cordon(cluster, node, cordoned)

    @rule(cluster=st.sampled_from((None, *CLUSTERS)), policy=st.sampled_from(list(StopPolicy)))
    def hold(self, cluster: str | None, policy: StopPolicy) -> None:
        self.fleet.hold_queue("qa", policy, cluster)

    @rule(cluster=st.sampled_from(CLUSTERS))
    def replace_node(self, cluster: str) -> None:
        self.fleet.remove_node(cluster, "node-1")
        self.fleet.add_node(cluster, b.gpu_nodes(2)[1])

    @invariant()
    def quota_is_never_exceeded(self) -> None:
        for kueue in self.kueues():
            for queue in kueue.queues.values():
                expected: dict[Any, int] = {}
                for workload in queue.reserved.values():
                    assert workload.assignment is not None
                    for key, value in workload.assignment.usage:
                        expected[key] = expected.get(key, 0) + value
                assert {key: value for key, value in queue.node.used.items() if value} == expected
                for key, value in queue.node.used.items():
                    assert value <= queue.node.most(key)
            for root in {id(node.root()): node.root() for node in kueue.tree.queues.values()}.values():
                self.within(root)

    def within(self, node: QuotaNode) -> None:
        for key, value in node.used.items():
            assert value >= 0
            if node.parent is None:
                assert value <= node.subtree.get(key, 0)
        for child in node.children:
            self.within(child)

    @invariant()
    def no_node_is_over_allocated(self) -> None:
        for cluster in CLUSTERS:
            for node in self.fleet.worker_clusters[cluster].pool.nodes.values():  # type: ignore[index]
                taken: dict[str, int] = {}
                for pod in node.pods.values():
                    for name, value in pod.needs.requests:
                        taken[name] = taken.get(name, 0) + value
                for name, allocatable in node.view.allocatable.items:
                    assert taken.get(name, 0) <= allocatable
                    assert node.free[name] == allocatable - taken.get(name, 0)

    @invariant()
    def a_view_shows_what_nodes_hold(self) -> None:
        for cluster in CLUSTERS:
            if cluster not in self.broken:
                for node in self.fleet.worker_view(cluster).nodes:
                    for name, value in node.requested.items:
                        assert value <= node.allocatable.get(name)

    @invariant()
    def at_most_one_copy_runs(self) -> None:
        """A worker that was cut off may go on running what the hub gave up: then only its own clean-up helps."""
        if self.ever_broken:
            return
        for workload in self.fleet.hub_cluster.workloads.values():
            running = []
            for name, worker in self.fleet.worker_clusters.items():
                copy = worker.copies_by_hub.get(workload.uid)
                if copy is not None and worker.active_pods(copy) > 0 and copy.active:
                    running.append(name)
            assert len(running) <= 1
            if running and workload.cluster_name is not None:
                assert running == [workload.cluster_name]

    @invariant()
    def the_exclusive_fields_exclude_each_other(self) -> None:
        for workload in self.workloads():
            assert workload.cluster_name is None or not workload.nominated
            assert workload.quota_reserved_at is None or workload.cluster_queue is not None

    @invariant()
    def nothing_is_lost(self) -> None:
        made = len(self.fleet.hub_cluster.workloads) + self.fleet.deleted_workloads
        assert made <= len(self.jobs)
        assert len(self.fleet.hub_cluster.jobs) == sum(self.jobs.values())

    def kueues(self) -> list[Kueue]:
        return [self.fleet.hub_cluster.kueue, *(worker.kueue for worker in self.fleet.worker_clusters.values())]

    def teardown(self) -> None:
        """When all is mended and somebody nominates, every job that was not deleted finishes, and all is free."""
        if not hasattr(self, "fleet"):
            return
        for cluster in CLUSTERS:
            if cluster in self.broken:
                self.fleet.mend_link(cluster)
            self.fleet.hold_queue("qa", StopPolicy.NONE, cluster)
            for node in ("node-0", "node-1"):
                self.fleet.cordon(cluster, node, False)
        self.fleet.hold_queue("qa", StopPolicy.NONE)
        for _ in range(LONG_S // 20):
            self.clock.advance(20)
            self.fleet.advance()
            waiting = [w for w in self.workloads() if not w.finished]
            if not waiting:
                break
            for workload in waiting:
                if workload.quota_reserved_at is not None and workload.cluster_name is None:
                    self.write(workload, CLUSTERS)
        self.clock.advance(5)
        self.fleet.advance()
        states = self.workloads()
        assert all(workload.finished for workload in states)
        assert len(states) == sum(self.jobs.values())
        assert len(states) + self.fleet.deleted_workloads <= len(self.jobs)
        for cluster in CLUSTERS:
            view = self.fleet.worker_view(cluster)
            assert not view.copies
            assert all(node.requested.gpus() == 0 for node in view.nodes)
            assert all(quota.reserved == 0 for queue in view.queues.values() for quota in queue.quotas)


EmbeddedWorld.TestCase.settings = settings(
    max_examples=15, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestEmbeddedWorld = EmbeddedWorld.TestCase
