"""The Kueue contract, as a dispatcher meets it: nomination, copies, the latch, the run, the end.

One suite for the embedded fleet and for real clusters. Where they differ, the embedded fleet is wrong.
"""

from __future__ import annotations

import pytest

from dispatcher.core.errors import Conflict, Refused
from dispatcher.core.ids import ClusterName, QueueName
from dispatcher.core.ports import EventType, Notice
from tests import builders as b
from tests.contract.harness import CLUSTERS, QUEUE, SOON_S, Opener, Scene, nomination

FIRST, SECOND, THIRD = CLUSTERS
QUIET_S = 2.5
"""Long enough for a copy to appear where one is made at all."""


async def test_a_nominated_job_latches_runs_and_finishes(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        waiting = await scene.submitted(fleet.bed.job("train", gpus=4, pods=2, duration="3s"))
        assert waiting.cluster_queue == fleet.bed.name
        assert waiting.owner is not None
        assert (waiting.owner.kind, waiting.owner.name) == ("Job", "train")
        assert [(p.name, p.count, p.per_pod.get(b.GPU)) for p in waiting.pod_sets] == [("main", 2, 4)]
        await scene.nominate("train", FIRST)
        latched = await scene.latched("train", FIRST)
        assert latched.nominated == ()
        await scene.until_copy("train", FIRST, lambda c: c.bound_pods == 2, "both pods are on nodes")
        node = next(n for n in scene.worker(FIRST).nodes if n.name == fleet.bed.node("big"))
        assert (node.requested.get(b.GPU), node.requested.get("pods")) == (8, 2)
        assert list(scene.copies("train")) == [FIRST]
        assert scene.check("train") == "Ready"
        finished = await scene.finished("train")
        assert finished.finished_reason == "Succeeded"
        await scene.until_true(lambda: not scene.copies("train"), "the copy is removed")
        await scene.until_true(lambda: _reserved(scene, FIRST) == 0, "the worker's quota is free")


async def test_a_copy_is_marked_as_ours_and_shows_what_it_holds(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", gpus=3, duration="20s", priority="contract-high"))
        await scene.nominate("train", FIRST)
        copy = await scene.until_copy("train", FIRST, lambda c: c.admitted_at is not None, "is admitted")
        assert (copy.ours, copy.local_queue, copy.cluster_queue) == (True, QUEUE, fleet.bed.name)
        assert copy.priority == 1000
        name, count, per_pod, flavor = copy.pod_sets[0]
        assert (name, count, per_pod.get(b.GPU), flavor) == ("main", 1, 3, fleet.bed.flavor("big"))
        await scene.until_true(lambda: _reserved(scene, FIRST) == 3, "the reservation shows in the queue")


async def test_a_stale_resource_version_is_a_conflict_and_changes_nothing(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        old = await scene.submitted(fleet.bed.job("train", gpus=9))
        await scene.nominate("train", FIRST)
        await scene.until("train", lambda w: w.nominated == (FIRST,), "shows the nomination")
        with pytest.raises(Conflict):
            await fleet.hub.nominate(nomination(old, SECOND))
        await fleet.pass_time(1)
        assert scene.workload("train").nominated == (FIRST,)


async def test_the_reply_to_a_nomination_is_the_version_that_the_view_will_show(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        waiting = await scene.submitted(fleet.bed.job("train", gpus=9))
        version = await scene.nominate("train", FIRST)
        assert version != waiting.resource_version
        seen = await scene.until("train", lambda w: w.nominated == (FIRST,), "shows the nomination")
        assert int(seen.resource_version) >= int(version)


async def test_a_deleted_workload_cannot_be_nominated(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        waiting = await scene.submitted(fleet.bed.job("train"))
        await fleet.delete_job("train")
        await scene.until_true(lambda: scene.find("train") is None, "the Workload is gone")
        with pytest.raises(Conflict):
            await fleet.hub.nominate(nomination(waiting, FIRST))


async def test_nominating_while_a_cluster_is_set_is_a_conflict(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", duration="20s"))
        await scene.nominate("train", FIRST)
        await scene.latched("train", FIRST)
        await fleet.pass_time(1)
        with pytest.raises(Conflict):
            await fleet.hub.nominate(nomination(scene.workload("train"), SECOND))
        assert scene.workload("train").cluster_name == FIRST


async def test_a_list_may_hold_twenty_names_and_no_more(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train"))
        names = [ClusterName(f"nowhere-{index}") for index in range(21)]
        await scene.nominate("train", *names[:20])
        await scene.until("train", lambda w: len(w.nominated) == 20, "holds twenty names")
        with pytest.raises(Refused):
            await fleet.hub.nominate(nomination(scene.workload("train"), *names))
        with pytest.raises(Conflict):
            await fleet.hub.nominate(nomination(scene.workload("train"), ClusterName("n" * 257)))
        assert not scene.copies("train")


async def test_a_job_is_not_dispatched_while_nothing_is_nominated(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train"))
        await fleet.pass_time(QUIET_S)
        assert not scene.copies("train")
        assert scene.workload("train").cluster_name is None


async def test_a_second_nominee_is_added_wins_and_the_first_copy_goes(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await fleet.submit(fleet.bed.job("local", gpus=8, duration="60s", priority="contract-high"), FIRST)
        await scene.until_true(lambda: _reserved(scene, FIRST) == 8, "local work fills the first cluster")
        await scene.submitted(fleet.bed.job("train", gpus=4, duration="20s"))
        await scene.nominate("train", FIRST)
        stuck = await scene.until_copy("train", FIRST, lambda c: bool(c.quota_message), "says what it lacks")
        assert stuck.quota_reserved_at is None
        assert b.GPU in stuck.quota_message
        await scene.nominate("train", FIRST, SECOND)
        await scene.latched("train", SECOND)
        await scene.until_true(lambda: list(scene.copies("train")) == [SECOND], "only the winner has a copy")


async def test_withdrawing_a_name_removes_its_copy(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", gpus=9))
        await scene.nominate("train", FIRST)
        await scene.until_copy("train", FIRST, lambda c: True, "has a copy")
        await scene.nominate("train", SECOND)
        await scene.until_copy("train", SECOND, lambda c: True, "has a copy")
        await scene.until_true(lambda: list(scene.copies("train")) == [SECOND], "the withdrawn copy is gone")


async def test_withdrawing_all_names_leaves_the_job_waiting(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", gpus=9))
        await scene.nominate("train", FIRST)
        await scene.until_copy("train", FIRST, lambda c: bool(c.quota_message), "has a copy")
        await fleet.hub.withdraw(nomination(scene.workload("train")))
        await scene.waiting("train")
        await scene.until_true(lambda: not scene.copies("train"), "no copy is left")


async def test_a_jobset_with_two_pod_sets_takes_two_flavors_of_one_cluster(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene, bed = Scene(fleet), fleet.bed
        parts = {
            "learner": (1, 1, bed.template("big", 8, "3s")),
            "rollout": (2, 1, bed.template("small", 1, "3s")),
        }
        waiting = await scene.submitted(b.job_set("rl", parts, QUEUE, bed.name))
        assert waiting.owner is not None
        assert waiting.owner.kind == "JobSet"
        assert [(p.name, p.count) for p in waiting.pod_sets] == [("learner", 1), ("rollout", 2)]
        await scene.nominate("rl", THIRD)
        copy = await scene.until_copy("rl", THIRD, lambda c: c.bound_pods == 3, "all pods are on nodes")
        assert [flavor for *_, flavor in copy.pod_sets] == [bed.flavor("big"), bed.flavor("small")]
        assert (await scene.finished("rl")).finished_reason == "Succeeded"


@pytest.mark.parametrize("missing", ["LocalQueue", "Namespace"])
async def test_a_worker_that_lacks_a_part_admits_nothing_and_its_view_says_so(open_fleet: Opener, missing: str) -> None:
    async with open_fleet(without=((FIRST, missing),)) as fleet:
        scene = Scene(fleet)
        view = scene.worker(FIRST)
        assert (fleet.bed.name, QUEUE) not in view.local_queues
        assert (fleet.bed.name in view.namespaces) == (missing != "Namespace")
        assert (fleet.bed.name, QUEUE) in scene.worker(SECOND).local_queues
        await scene.submitted(fleet.bed.job("train"))
        await scene.nominate("train", FIRST)
        await fleet.pass_time(QUIET_S)
        copy = scene.copy("train", FIRST)
        assert (copy is None) == (missing == "Namespace")
        assert copy is None or (copy.quota_reserved_at is None and QUEUE in copy.quota_message)
        assert scene.workload("train").cluster_name is None
        await fleet.apply(b.namespace(fleet.bed.name), FIRST)
        await fleet.apply(b.local_queue(QUEUE, fleet.bed.name, fleet.bed.name), FIRST)
        await scene.latched("train", FIRST)


async def test_a_job_larger_than_the_worker_waits_there_for_ever(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("huge", gpus=9))
        await scene.nominate("huge", FIRST)
        copy = await scene.until_copy("huge", FIRST, lambda c: bool(c.quota_message), "says what it lacks")
        assert copy.quota_reserved_at is None
        assert copy.pod_sets[0][3] is None
        assert scene.workload("huge").nominated == (FIRST,)


async def test_a_pod_that_asks_for_no_flavor_of_the_worker_is_not_admitted(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("odd", kind="huge"))
        await scene.nominate("odd", FIRST)
        copy = await scene.until_copy("odd", FIRST, lambda c: bool(c.quota_message), "says what it lacks")
        assert copy.quota_reserved_at is None


async def test_a_nomination_is_not_dispatched_while_another_check_is_pending(open_fleet: Opener) -> None:
    async with open_fleet(gated=True) as fleet:
        scene = Scene(fleet)
        await fleet.serve_gate()
        waiting = await scene.submitted(fleet.bed.job("train"))
        assert {c.name: c.state for c in waiting.checks} == {fleet.bed.check: "Pending", fleet.bed.gate: "Pending"}
        assert scene.hub().checks[fleet.bed.gate].controller == "contract.example/gate"
        await scene.nominate("train", FIRST)
        await fleet.pass_time(QUIET_S)
        assert not scene.copies("train")
        await fleet.set_check(scene.workload("train"), fleet.bed.gate, "Ready")
        await scene.latched("train", FIRST)
        await scene.finished("train")


async def test_a_queue_whose_check_nobody_serves_reserves_nothing(open_fleet: Opener) -> None:
    async with open_fleet(gated=True) as fleet:
        scene = Scene(fleet)
        await fleet.submit(fleet.bed.job("train"))
        await scene.until("train", lambda w: True, "has a Workload")
        await fleet.pass_time(1)
        assert scene.workload("train").quota_reserved_at is None
        assert not scene.hub().queues[QueueName(fleet.bed.name)].active
        await fleet.serve_gate()
        await scene.waiting("train")
        assert scene.hub().queues[QueueName(fleet.bed.name)].active


async def test_a_workload_without_an_owner_is_rejected_and_put_to_rest(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await fleet.create_bare_workload("bare")
        resting = await scene.until("bare", lambda w: not w.active, "is deactivated")
        assert resting.owner is None
        assert resting.owner_count == 0
        assert not scene.copies("bare")


async def test_keys_of_owner_and_pod_template_and_the_priority_are_visible(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        manifest = fleet.bed.job(
            "train",
            duration="7s",
            priority="contract-high",
            labels={"entrepot.dev/team": "planning"},
            annotations={"entrepot.dev/datasets": "radar-2026", "example.org/other": "x"},
        )
        waiting = await scene.submitted(manifest)
        assert waiting.priority == 1000
        assert ("entrepot.dev/simulated-duration", "7s") in waiting.template_keys
        assert waiting.owner is not None
        owner = await fleet.wait_for(lambda: scene.hub().owners.get(waiting.owner.uid), SOON_S, "the owner is seen")
        assert (owner.kind, owner.namespace, owner.name) == ("Job", fleet.bed.name, "train")
        assert owner.keys == (("entrepot.dev/datasets", "radar-2026"), ("entrepot.dev/team", "planning"))


async def test_a_deleted_job_disappears_everywhere(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        workload = await scene.submitted(fleet.bed.job("train", gpus=8, duration="60s"))
        await scene.nominate("train", FIRST)
        await scene.until_copy("train", FIRST, lambda c: c.bound_pods == 1, "runs")
        await fleet.delete_job("train")
        await scene.until_true(lambda: workload.uid not in scene.hub().workloads, "the hub's Workload is gone")
        key = (workload.namespace, workload.name)
        await scene.until_true(lambda: key not in scene.worker(FIRST).copies, "the copy is gone")
        await scene.until_true(lambda: _held(scene, FIRST) == 0, "the pod is gone")


async def test_pods_never_exceed_a_node_though_quota_allows_it(open_fleet: Opener) -> None:
    async with open_fleet(quota=16) as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("train", gpus=8, pods=2, duration="3s"))
        await scene.nominate("train", FIRST)
        copy = await scene.until_copy("train", FIRST, lambda c: c.bound_pods > 0, "a pod is on a node")
        assert copy.admitted_at is not None
        assert copy.bound_pods == 1
        assert _held(scene, FIRST) == 8
        assert (await scene.finished("train")).finished_reason == "Succeeded"


async def test_a_job_whose_pods_fail_finishes_as_failed(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        await scene.submitted(fleet.bed.job("broken", duration="1s", fails=True, backoffLimit=0))
        await scene.nominate("broken", FIRST)
        assert (await scene.finished("broken")).finished_reason == "Failed"


async def test_a_notice_appears_as_an_event_and_repeats_do_not_pile_up(open_fleet: Opener) -> None:
    async with open_fleet() as fleet:
        scene = Scene(fleet)
        workload = await scene.submitted(fleet.bed.job("train"))
        notice = Notice(
            workload.uid, workload.namespace, workload.name, EventType.NORMAL, "ContractHeld", "first costs less"
        )
        await fleet.hub.notify(notice)
        await fleet.hub.notify(notice)
        found = [event for event in await fleet.events(workload) if event[1] == "ContractHeld"]
        assert found == [("Normal", "ContractHeld", "first costs less")]


def _reserved(scene: Scene, cluster: ClusterName) -> int:
    """GPUs that the bed's queue on a worker has reserved."""
    queue = scene.worker(cluster).queues[QueueName(scene.fleet.bed.name)]
    return sum(quota.reserved for quota in queue.quotas if quota.resource == b.GPU)


def _held(scene: Scene, cluster: ClusterName) -> int:
    """GPUs that pods hold on the bed's nodes of a worker."""
    nodes = [n for n in scene.worker(cluster).nodes if n.name.startswith(f"{scene.fleet.bed.name}-")]
    return sum(node.requested.get(b.GPU) for node in nodes)
