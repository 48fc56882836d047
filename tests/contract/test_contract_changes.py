"""The Kueue contract when things change after the nomination: moves, evictions, lost workers, operators' edits."""

from __future__ import annotations

from datetime import UTC, datetime

from dispatcher.core.errors import Conflict
from dispatcher.core.ids import ClusterName, QueueName
from dispatcher.core.ports import Eviction
from dispatcher.core.snapshot import NodeView, StopPolicy
from dispatcher.core.workload import HubWorkload
from tests import builders as b
from tests.contract.harness import CLUSTERS, LOST_S, QUEUE, SOON_S, Opener, Scene

FIRST, SECOND, THIRD = CLUSTERS
QUIET_S = 2.5


async def test_retry_on_the_fleet_check_moves_a_running_job(open_fleet: Opener) -> None:
    """The migration primitive: evicted, remote job gone, both cluster fields empty, waiting again; then elsewhere."""
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", gpus=8, duration="60s"))
        await scene.nominate("train", FIRST)
        await scene.until_copy("train", FIRST, lambda c: c.bound_pods == 1, "runs")
        before = await scene.latched("train", FIRST)
        await fleet.set_check(before, fleet.bed.check, "Retry")
        again = await scene.waiting("train")
        assert again.uid == before.uid
        assert (again.cluster_name, again.nominated, again.admitted_at) == (None, (), None)
        assert before.left_at is None
        assert before.admitted_at is not None
        assert again.left_at is not None, "Kueue keeps since when it is admitted no longer"
        assert again.left_at >= before.admitted_at
        await scene.until_true(lambda: not scene.copies("train"), "no copy is left")
        await scene.until_true(lambda: _held(scene, FIRST) == 0, "no pod is left")
        await scene.nominate("train", SECOND)
        await scene.latched("train", SECOND)
        await scene.until_copy("train", SECOND, lambda c: c.bound_pods == 1, "runs elsewhere")
        assert list(scene.copies("train")) == [SECOND]


async def test_retry_while_nominated_clears_the_nomination(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("huge", gpus=9))
        await scene.nominate("huge", FIRST)
        await scene.until_copy("huge", FIRST, lambda c: True, "has a copy")
        await fleet.set_check(scene.workload("huge"), fleet.bed.check, "Retry")
        await scene.waiting("huge")
        await scene.until_true(lambda: not scene.copies("huge"), "no copy is left")


async def test_fr_nom_02_an_approval_taken_back_leaves_the_copy_there_until_the_attempt_is_ended(
    open_fleet: Opener,
) -> None:
    """MultiKueue takes nothing back by itself: the copy could be admitted at any moment. Our own write ends it."""
    async with open_fleet(gated=True) as fleet:
        scene, bed = Scene(fleet), fleet.bed
        await fleet.serve_gate()
        await scene.submitted(bed.job("huge", gpus=9))
        await fleet.set_check(scene.workload("huge"), bed.gate, "Ready")
        await scene.until("huge", lambda w: _state(w, bed.gate) == "Ready", "is approved")
        await scene.nominate("huge", FIRST)
        await scene.until_copy("huge", FIRST, lambda c: True, "has a copy")
        await fleet.set_check(scene.workload("huge"), bed.gate, "Pending")
        taken_back = await scene.until("huge", lambda w: _state(w, bed.gate) == "Pending", "is approved no more")
        await fleet.pass_time(QUIET_S)
        assert list(scene.copies("huge")) == [FIRST]
        assert taken_back.nominated == (FIRST,)
        await _end(scene, "huge")
        await scene.waiting("huge")
        await scene.until_true(lambda: not scene.copies("huge"), "no copy is left")
        await fleet.pass_time(QUIET_S)
        assert not scene.copies("huge")


def _state(workload: HubWorkload, check: str) -> str:
    return {c.name: c.state for c in workload.checks}.get(check, "")


async def _end(scene: Scene, job: str) -> None:
    """End an attempt as the daemon does, from the newest view, again if somebody else wrote in between."""
    for _ in range(20):
        found = scene.workload(job)
        message = "ended by a test of the contract"
        ended = Eviction(found.uid, found.namespace, found.name, found.resource_version, scene.fleet.bed.check, message)
        try:
            await scene.fleet.hub.evict(ended, datetime.now(UTC))
        except Conflict:
            await scene.fleet.pass_time(0.2)
        else:
            return
    raise AssertionError(f"the attempt of {job} could not be ended")


async def test_an_eviction_on_the_worker_brings_the_job_back_to_the_hub(open_fleet: Opener) -> None:
    """Local work of higher priority preempts ours; the hub opens a new round, and another worker can take it."""
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", gpus=8, duration="60s", priority="contract-low"))
        await scene.nominate("train", FIRST)
        await scene.until_copy("train", FIRST, lambda c: c.bound_pods == 1, "runs")
        await scene.latched("train", FIRST)
        await fleet.submit(fleet.bed.job("local", gpus=8, duration="60s", priority="contract-high"), FIRST)
        await scene.waiting("train")
        await scene.nominate("train", SECOND)
        await scene.latched("train", SECOND)
        await scene.until_true(lambda: list(scene.copies("train")) == [SECOND], "only the new copy is left")
        local = [c for c in scene.worker(FIRST).copies.values() if c.namespace == fleet.bed.name]
        assert [(c.ours, c.priority) for c in local] == [(False, 1000)]


async def test_a_worker_that_cannot_be_reached_grows_stale_and_returns(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", duration="60s"))
        await scene.nominate("train", SECOND)
        await scene.latched("train", SECOND)
        await fleet.cut(THIRD)
        await scene.until_true(lambda: scene.worker(THIRD).error is not None, "the view tells of an error")
        await scene.until_true(lambda: not scene.hub().clusters[THIRD].active, "the hub has lost it as well")
        seen_at = _seen(scene, THIRD)
        assert scene.hub().clusters[SECOND].active
        await fleet.pass_time(3)
        assert _seen(scene, THIRD) == seen_at
        assert _seen(scene, SECOND) > seen_at
        assert scene.workload("train").cluster_name == SECOND
        await fleet.mend(THIRD)
        await scene.until_true(lambda: scene.hub().clusters[THIRD].active, "the hub has it again")
        await scene.until_true(
            lambda: scene.worker(THIRD).error is None and scene.worker(THIRD).synced and _seen(scene, THIRD) > seen_at,
            "it is seen again",
        )


async def test_a_job_runs_on_through_a_short_loss_of_its_worker(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", duration="25s"))
        await scene.nominate("train", FIRST)
        await scene.until_copy("train", FIRST, lambda c: c.bound_pods == 1, "runs")
        latched = await scene.latched("train", FIRST)
        await fleet.unplug(FIRST)
        await scene.until_true(lambda: not scene.hub().clusters[FIRST].active, "the hub has lost it")
        await fleet.pass_time(3)
        await fleet.plug(FIRST)
        await scene.until_true(lambda: scene.hub().clusters[FIRST].active, "the hub has it again")
        assert scene.workload("train").cluster_name == FIRST
        assert scene.workload("train").admitted_at == latched.admitted_at or latched.admitted_at is None
        assert (await scene.finished("train")).finished_reason == "Succeeded"


async def test_running_work_of_a_worker_lost_for_long_is_evicted_but_moves_only_when_it_is_back(
    open_fleet: Opener,
) -> None:
    """The eviction comes with the timeout. It ends when the remote job is seen to have stopped, never before: what
    was running on a lost worker cannot be placed elsewhere, and cannot run twice."""
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", gpus=8, duration="10m"))
        await scene.nominate("train", FIRST)
        await scene.until_copy("train", FIRST, lambda c: c.bound_pods == 1, "runs")
        await scene.latched("train", FIRST)
        await fleet.pass_time(3)
        await fleet.unplug(FIRST)
        await fleet.pass_time(LOST_S / 2)
        assert scene.workload("train").cluster_name == FIRST, "not before the timeout"
        evicted = await scene.until("train", lambda w: w.evicted_at is not None, "is evicted", LOST_S + SOON_S)
        assert (evicted.cluster_name, evicted.nominated) == (None, ())
        await fleet.pass_time(5)
        assert scene.workload("train").quota_reserved_at is not None
        await fleet.plug(FIRST)
        await scene.waiting("train", LOST_S + SOON_S)
        await scene.until_true(lambda: _held(scene, FIRST) == 0, "no pod is left")
        await scene.nominate("train", SECOND)
        await scene.latched("train", SECOND)
        await scene.until_true(lambda: list(scene.copies("train")) == [SECOND], "one copy is left")


async def test_a_job_that_somebody_deletes_on_the_worker_is_evicted_and_stays_so(open_fleet: Opener) -> None:
    """Nothing is left there that could say that it stopped: the hub's job looks active for ever."""
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", gpus=8, duration="10m"))
        await scene.nominate("train", FIRST)
        await scene.until_copy("train", FIRST, lambda c: c.bound_pods == 1, "runs")
        latched = await scene.latched("train", FIRST)
        await fleet.pass_time(3)
        await fleet.delete_copy(FIRST, latched, "train")
        evicted = await scene.until("train", lambda w: w.evicted_at is not None, "is evicted")
        assert (evicted.cluster_name, evicted.nominated) == (None, ())
        await fleet.pass_time(5)
        stuck = scene.workload("train")
        assert stuck.evicted_at is not None
        assert stuck.quota_reserved_at is not None


async def test_a_held_queue_on_the_worker_admits_nothing_until_it_is_released(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene, name = Scene(fleet), QueueName(fleet.bed.name)
        queue = next(m for m in fleet.bed.worker_objects(FIRST) if m["kind"] == "ClusterQueue")
        await fleet.apply({**queue, "spec": {**queue["spec"], "stopPolicy": "Hold"}}, FIRST)
        await scene.until_true(lambda: not scene.worker(FIRST).queues[name].active, "the queue is not active")
        assert scene.worker(FIRST).queues[name].stop_policy is StopPolicy.HOLD
        await scene.submitted(fleet.bed.job("train"))
        await scene.nominate("train", FIRST)
        await fleet.pass_time(QUIET_S)
        copy = scene.copy("train", FIRST)
        assert copy is not None
        assert copy.quota_reserved_at is None
        await fleet.apply({**queue, "spec": {**queue["spec"], "stopPolicy": "None"}}, FIRST)
        await scene.latched("train", FIRST)


async def test_a_queue_that_selects_other_namespaces_is_shown_as_closed_and_admits_nothing(open_fleet: Opener) -> None:
    """Kueue calls queue and LocalQueue active, and keeps the copy waiting for ever."""
    async with open_fleet() as fleet:
        scene, key = Scene(fleet), (fleet.bed.name, QUEUE)
        queue = next(m for m in fleet.bed.worker_objects(FIRST) if m["kind"] == "ClusterQueue")
        await scene.until_true(lambda: scene.worker(FIRST).local_queues[key].active, "the LocalQueue is active")
        other = {"matchLabels": {"kubernetes.io/metadata.name": "another"}}
        await fleet.apply({**queue, "spec": {**queue["spec"], "namespaceSelector": other}}, FIRST)
        await scene.until_true(lambda: not scene.worker(FIRST).local_queues[key].active, "it takes nothing from here")
        assert scene.worker(FIRST).queues[QueueName(fleet.bed.name)].active
        await scene.submitted(fleet.bed.job("train"))
        await scene.nominate("train", FIRST)
        await fleet.pass_time(QUIET_S)
        copy = scene.copy("train", FIRST)
        assert copy is not None
        assert copy.quota_reserved_at is None
        await fleet.apply(queue, FIRST)
        await scene.until_true(lambda: scene.worker(FIRST).local_queues[key].active, "it takes work again")
        await scene.latched("train", FIRST)


async def test_a_hub_queue_reserves_by_priority_then_by_age(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        queue = next(m for m in fleet.bed.hub_objects() if m["kind"] == "ClusterQueue")
        await fleet.apply({**queue, "spec": {**queue["spec"], "stopPolicy": "Hold"}})
        await scene.until_true(lambda: not scene.hub().queues[QueueName(fleet.bed.name)].active, "is held")
        for name, gpus, priority in (("low", 600, "contract-low"), ("high", 600, "contract-high")):
            await fleet.submit(fleet.bed.job(name, gpus=gpus, priority=priority))
            await scene.until(name, lambda w: True, "has a Workload")
        await fleet.apply({**queue, "spec": {**queue["spec"], "stopPolicy": "None"}})
        await scene.waiting("high")
        await fleet.pass_time(1)
        assert scene.workload("low").quota_reserved_at is None


async def test_a_job_starts_by_itself_when_capacity_appears(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await fleet.submit(fleet.bed.job("local", gpus=8, duration="3s", priority="contract-high"), FIRST)
        await scene.until_true(lambda: _held(scene, FIRST) == 8, "local work fills the node")
        await scene.submitted(fleet.bed.job("train", gpus=8))
        await scene.nominate("train", FIRST)
        await scene.finished("train")


async def test_a_cordoned_node_is_seen_and_takes_no_pod(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene, node = Scene(fleet), fleet.bed.node("big")
        await fleet.cordon(FIRST, node)
        await scene.until_true(lambda: not _node(scene, FIRST, node).schedulable, "the view shows it")
        assert _node(scene, FIRST, node).ready
        await scene.submitted(fleet.bed.job("train"))
        await scene.nominate("train", FIRST)
        copy = await scene.until_copy("train", FIRST, lambda c: c.admitted_at is not None, "quota alone admits it")
        await fleet.pass_time(1)
        assert copy.bound_pods == 0
        assert _held(scene, FIRST) == 0


async def test_a_raised_quota_is_seen_and_used(open_fleet: Opener) -> None:
    async with open_fleet(quota=2) as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", gpus=4))
        await scene.nominate("train", FIRST)
        await scene.until_copy("train", FIRST, lambda c: bool(c.quota_message), "says what it lacks")
        wider = next(m for m in type(fleet.bed)(fleet.bed.name).worker_objects(FIRST) if m["kind"] == "ClusterQueue")
        await fleet.apply(wider, FIRST)
        await scene.latched("train", FIRST)
        quotas = scene.worker(FIRST).queues[QueueName(fleet.bed.name)].quotas
        assert {quota.nominal for quota in quotas if quota.resource == b.GPU} == {8}


def _seen(scene: Scene, cluster: ClusterName) -> datetime:
    at = scene.worker(cluster).observed_at
    assert at is not None
    return at


def _node(scene: Scene, cluster: ClusterName, name: str) -> NodeView:
    return next(node for node in scene.worker(cluster).nodes if node.name == name)


def _held(scene: Scene, cluster: ClusterName) -> int:
    nodes = [n for n in scene.worker(cluster).nodes if n.name.startswith(f"{scene.fleet.bed.name}-")]
    return sum(node.requested.get(b.GPU) for node in nodes)
