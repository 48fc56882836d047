"""What the embedded fleet does besides the contract that it shares with real clusters: faults, time, accidents."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from connectors.embedded import EmbeddedFleet, ManualClock, NodeSpec, Options, Settings, WorkerSpec
from dispatcher.core.errors import Conflict, Fatal, Refused, Transient
from dispatcher.core.ids import ClusterName
from dispatcher.core.ports import EventType, Nomination, Notice
from dispatcher.core.snapshot import Link, StopPolicy, WorkerCopy, link_of
from dispatcher.core.workload import HubWorkload
from tests import builders as b

ALPHA, BETA = ClusterName("alpha"), ClusterName("beta")


class Hand:
    """One embedded fleet and the hand that moves its clock."""

    def __init__(self, fleet: EmbeddedFleet) -> None:
        self.fleet = fleet

    def go(self, seconds: float) -> None:
        assert isinstance(self.fleet.clock, ManualClock)
        self.fleet.clock.advance(seconds)
        self.fleet.advance()

    def until(self, holds: Callable[[], object], within_s: float = 30.0) -> None:
        for _ in range(int(within_s / 0.05)):
            if holds():
                return
            self.go(0.05)
        raise AssertionError(f"not within {within_s} s")

    def find(self, job: str) -> HubWorkload | None:
        found = self.fleet.hub_view().workloads.values()
        return next((w for w in found if w.owner is not None and w.owner.name == job), None)

    def workload(self, job: str) -> HubWorkload:
        found = self.find(job)
        assert found is not None
        return found

    def copy(self, job: str, cluster: str = "alpha") -> WorkerCopy | None:
        found = self.find(job)
        return None if found is None else self.fleet.worker_view(cluster).copies.get((found.namespace, found.name))

    def submitted(self, manifest: b.Manifest) -> HubWorkload:
        self.fleet.submit(manifest)
        self.go(1)
        return self.workload(manifest["metadata"]["name"])

    async def nominate(self, job: str, *clusters: ClusterName) -> str:
        found = self.workload(job)
        return await self.fleet.hub.nominate(nomination(found, *clusters))

    async def running(self, manifest: b.Manifest, cluster: ClusterName = ALPHA) -> HubWorkload:
        job = manifest["metadata"]["name"]
        self.submitted(manifest)
        await self.nominate(job, cluster)
        self.until(lambda: (c := self.copy(job, cluster)) is not None and c.bound_pods > 0)
        return self.workload(job)


def nomination(workload: HubWorkload, *clusters: ClusterName) -> Nomination:
    return Nomination(workload.uid, workload.namespace, workload.name, workload.resource_version, clusters)


@pytest.fixture
def hand() -> Hand:
    return Hand(b.fleet())


def long_job(name: str, gpus: int = 8, **more: object) -> b.Manifest:
    return b.job(name, template=b.pod_template({b.GPU: gpus}, "10m"), **more)  # type: ignore[arg-type]


# --- the hub and its policy --------------------------------------------------------------------------------------


async def test_a_hub_without_the_clearing_policy_is_refused_with_the_fix() -> None:
    fleet = b.fleet(options=Options(clearing_policy=False))
    with pytest.raises(Fatal) as refusal:
        await fleet.hub.check_ready()
    assert "manifests.yaml" in refusal.value.fix
    await b.fleet().hub.check_ready()


async def test_without_the_clearing_policy_a_worker_runs_what_the_hub_never_latches() -> None:
    hand = Hand(b.fleet(options=Options(clearing_policy=False)))
    await hand.running(long_job("train"))
    hand.go(60)
    assert hand.fleet.refused_latches > 5
    assert (hand.workload("train").cluster_name, hand.workload("train").nominated) == (None, (ALPHA,))
    hand.fleet.set_check(hand.workload("train").uid, "fleet", "Retry")
    hand.go(3)
    assert hand.workload("train").nominated == (ALPHA,), "an eviction leaves a foreign nomination behind"


async def test_a_hub_that_cannot_be_reached_is_transient_for_every_call(hand: Hand) -> None:
    workload = hand.submitted(b.job("train"))
    hand.fleet.break_link("hub")
    with pytest.raises(Transient):
        await hand.fleet.hub.check_ready()
    with pytest.raises(Transient):
        await hand.fleet.hub.nominate(nomination(workload, ALPHA))
    with pytest.raises(Transient):
        await hand.fleet.hub.notify(
            Notice(workload.uid, workload.namespace, workload.name, EventType.NORMAL, "Any", "any")
        )
    hand.fleet.mend_link("hub")
    await hand.fleet.hub.check_ready()
    hand.go(1)
    assert hand.fleet.hub_view().error is None


# --- writes ------------------------------------------------------------------------------------------------------


async def test_a_planned_error_is_raised_once_and_nothing_is_written(hand: Hand) -> None:
    hand.submitted(b.job("train"))
    hand.fleet.fail_next_write(Refused("forbidden"))
    with pytest.raises(Refused, match="forbidden"):
        await hand.nominate("train", ALPHA)
    assert hand.workload("train").nominated == ()
    await hand.nominate("train", ALPHA)


async def test_a_lost_reply_hides_a_write_that_happened(hand: Hand) -> None:
    old = hand.submitted(b.job("train", {b.GPU: 9}))
    hand.fleet.lose_next_reply()
    with pytest.raises(Transient):
        await hand.nominate("train", ALPHA)
    assert hand.workload("train").nominated == (ALPHA,)
    with pytest.raises(Conflict):
        await hand.fleet.hub.nominate(nomination(old, ALPHA))


async def test_writing_the_same_list_again_makes_no_new_version(hand: Hand) -> None:
    hand.submitted(b.job("train", {b.GPU: 9}))
    first = await hand.nominate("train", ALPHA)
    assert await hand.nominate("train", ALPHA) == first


async def test_a_repeated_notice_counts_up_one_event(hand: Hand) -> None:
    workload = hand.submitted(b.job("train"))
    for message in ("a", "a", "b"):
        await hand.fleet.hub.notify(
            Notice(workload.uid, workload.namespace, workload.name, EventType.WARNING, "Held", message)
        )
        hand.go(1)
    assert [(e.notice.message, e.count) for e in hand.fleet.events] == [("a", 2), ("b", 1)]


# --- sight -------------------------------------------------------------------------------------------------------


def test_ports_see_nothing_before_they_run() -> None:
    fleet = EmbeddedFleet(b.hub_objects("alpha"), {"alpha": b.worker()}, ManualClock(b.START))
    assert not fleet.hub_view().synced
    assert link_of(fleet.worker_view("alpha"), 60, b.START) is Link.BLIND


def test_a_silent_watch_keeps_its_picture_and_its_age(hand: Hand) -> None:
    hand.go(1)
    hand.fleet.silence("hub")
    seen_at = hand.fleet.hub_view().observed_at
    hand.fleet.submit(b.job("train"))
    hand.go(30)
    assert (hand.find("train"), hand.fleet.hub_view().observed_at) == (None, seen_at)
    hand.fleet.speak("hub")
    assert hand.find("train") is not None
    assert hand.fleet.hub_view().observed_at == hand.fleet.clock.now()


def test_a_silent_part_makes_the_whole_view_as_old_as_it_is(hand: Hand) -> None:
    hand.go(1)
    hand.fleet.silence("alpha", "nodes")
    seen_at = hand.fleet.worker_view("alpha").observed_at
    hand.fleet.submit(long_job("local"), "alpha")
    hand.go(70)
    view = hand.fleet.worker_view("alpha")
    assert [copy.bound_pods for copy in view.copies.values()] == [1], "other parts go on"
    assert view.nodes[0].requested.gpus() == 0
    assert view.observed_at == seen_at
    assert link_of(view, 60, hand.fleet.clock.now()) is Link.STALE


def test_a_lagging_view_is_old_and_does_not_know_it(hand: Hand) -> None:
    hand.fleet.lag(5, "hub")
    hand.fleet.submit(b.job("train"))
    hand.go(4)
    assert hand.find("train") is None
    assert hand.fleet.hub_view().observed_at == hand.fleet.clock.now()
    hand.go(1.5)
    assert hand.find("train") is not None
    hand.fleet.lag(0, "hub")
    assert hand.workload("train").quota_reserved_at is not None


async def test_a_decision_on_a_lagging_view_is_a_conflict(hand: Hand) -> None:
    hand.submitted(b.job("train", {b.GPU: 9}))
    await hand.nominate("train", ALPHA)
    hand.fleet.lag(5, "hub")
    await hand.nominate("train", ALPHA, BETA)
    with pytest.raises(Conflict):
        await hand.nominate("train", BETA)


def test_a_broken_link_freezes_the_view_with_an_error_and_a_mended_one_lists_anew(hand: Hand) -> None:
    hand.go(1)
    before = hand.fleet.worker_view("alpha")
    hand.fleet.break_link("alpha")
    hand.fleet.submit(long_job("local"), "alpha")
    hand.go(90)
    broken = hand.fleet.worker_view("alpha")
    assert (broken.error is not None, broken.observed_at, len(broken.copies)) == (True, before.observed_at, 0)
    assert not hand.fleet.hub_view().clusters[ALPHA].active
    hand.fleet.mend_link("alpha")
    hand.go(2)
    mended = hand.fleet.worker_view("alpha")
    assert (mended.error, len(mended.copies)) == (None, 1)
    assert mended.generation > before.generation
    assert hand.fleet.hub_view().clusters[ALPHA].active


def test_equal_states_give_equal_parts_of_a_view(hand: Hand) -> None:
    hand.submitted(b.job("train"))
    first = hand.fleet.hub_view()
    hand.go(1)
    second = hand.fleet.hub_view()
    assert second.workloads is first.workloads
    assert second.observed_at != first.observed_at


# --- clusters come and go ----------------------------------------------------------------------------------------


async def test_a_worker_that_returns_cleans_up_what_was_deleted_meanwhile() -> None:
    hand = Hand(b.fleet(options=Options(multikueue=Settings(worker_lost_timeout_s=60))))
    await hand.running(long_job("train"))
    hand.until(lambda: hand.workload("train").cluster_name == ALPHA)
    hand.go(2)
    hand.fleet.break_link("alpha")
    hand.go(65)
    hand.fleet.delete("Job", b.NAMESPACE, "train")
    hand.go(1)
    assert hand.find("train") is None
    hand.fleet.mend_link("alpha")
    hand.until(lambda: not hand.fleet.worker_view("alpha").copies)
    hand.go(1)
    assert hand.fleet.worker_view("alpha").nodes[0].requested.gpus() == 0


async def test_a_worker_that_returns_with_an_older_copy_takes_the_work_from_the_latched_one() -> None:
    """Kueue's own hazard: lost in the moment of the latch, before the hub saw the job active, work is placed anew;
    step 6 knows no clusterName, so the older copy wins when it comes back. Who moves work must fence the source."""
    hand = Hand(b.fleet(options=Options(multikueue=Settings(worker_lost_timeout_s=60))))
    hand.submitted(long_job("train"))
    await hand.nominate("train", ALPHA)
    hand.until(lambda: hand.workload("train").cluster_name == ALPHA)
    hand.fleet.break_link("alpha")
    hand.go(65)
    await hand.nominate("train", BETA)
    hand.until(lambda: hand.workload("train").cluster_name == BETA)
    hand.until(lambda: (c := hand.copy("train", "beta")) is not None and c.bound_pods == 1)
    assert hand.fleet.worker_clusters[ALPHA].pool.nodes["node-0"].pods, "two copies run, and nobody can know"
    hand.fleet.mend_link("alpha")
    hand.until(lambda: hand.copy("train", "beta") is None)
    hand.go(5)
    assert hand.copy("train", "alpha") is not None
    assert hand.workload("train").cluster_name == BETA
    assert hand.fleet.refused_latches > 0
    hand.until(lambda: hand.workload("train").finished, 700)


async def test_a_short_loss_is_measured_from_the_loss_and_not_from_the_admission() -> None:
    hand = Hand(b.fleet(options=Options(multikueue=Settings(worker_lost_timeout_s=60))))
    await hand.running(long_job("train"))
    hand.go(200)
    hand.fleet.break_link("alpha")
    hand.go(30)
    hand.fleet.mend_link("alpha")
    hand.go(60)
    assert hand.workload("train").cluster_name == ALPHA
    assert hand.workload("train").evicted_at is None


@pytest.mark.parametrize(("gone_s", "back_after_s"), [(3, 2), (12, 3), (20, 15), (100, 55), (700, 255)])
def test_a_mended_link_is_noticed_at_multikueue_s_next_try(gone_s: float, back_after_s: float) -> None:
    hand = Hand(b.fleet(options=Options(multikueue=Settings(reconnect_backoff=True))))
    hand.fleet.break_link("alpha")
    hand.go(gone_s)
    hand.fleet.mend_link("alpha")
    hand.go(back_after_s + 0.9)
    assert not hand.fleet.hub_view().clusters[ALPHA].active
    hand.go(0.2)
    assert hand.fleet.hub_view().clusters[ALPHA].active


async def test_a_nomination_of_an_unusable_cluster_waits_for_it(hand: Hand) -> None:
    hand.fleet.switch_off("alpha", "BadKubeConfig")
    view = hand.fleet.hub_view().clusters[ALPHA]
    assert (view.active, view.reason) == (False, "BadKubeConfig")
    hand.submitted(b.job("train"))
    await hand.nominate("train", ALPHA, ClusterName("nowhere"))
    hand.go(10)
    assert not hand.fleet.worker_view("alpha").copies
    hand.fleet.switch_on("alpha")
    hand.until(lambda: hand.workload("train").cluster_name == ALPHA)


def test_without_any_active_cluster_the_hub_queue_reserves_nothing(hand: Hand) -> None:
    for cluster in ("alpha", "beta"):
        hand.fleet.break_link(cluster)
    hand.submitted(b.job("train"))
    assert hand.workload("train").quota_reserved_at is None
    assert not hand.fleet.hub_view().checks["fleet"].active
    hand.fleet.mend_link("beta")
    hand.until(lambda: hand.workload("train").quota_reserved_at is not None)


# --- jobs and nodes ----------------------------------------------------------------------------------------------


async def test_a_job_of_the_same_name_on_the_worker_keeps_ours_from_running_and_stays(hand: Hand) -> None:
    hand.fleet.submit(long_job("train", gpus=1), "alpha")
    hand.submitted(b.job("train"))
    await hand.nominate("train", ALPHA)
    hand.go(120)
    assert hand.workload("train").cluster_name == ALPHA
    assert not hand.workload("train").finished
    local = [copy for copy in hand.fleet.worker_view("alpha").copies.values() if not copy.ours]
    assert [copy.bound_pods for copy in local] == [1]
    hand.fleet.delete("Job", b.NAMESPACE, "train")
    hand.go(5)
    assert [c.ours for c in hand.fleet.worker_view("alpha").copies.values()] == [False]


async def test_a_job_with_more_completions_than_pods_runs_in_waves(hand: Hand) -> None:
    started = hand.fleet.clock.now()
    template = b.pod_template({b.GPU: 1}, "10s")
    await hand.running(b.job("waves", template=template, pods=2, completions=6))
    hand.until(lambda: hand.workload("waves").finished, 60)
    assert 30 <= (hand.fleet.clock.now() - started).total_seconds() <= 35


async def test_a_failed_pod_is_tried_again_until_the_limit(hand: Hand) -> None:
    template = b.pod_template({b.GPU: 1}, "1s", fails=True)
    await hand.running(b.job("broken", template=template, backoffLimit=2))
    started = hand.fleet.clock.now()
    hand.until(lambda: hand.workload("broken").finished, 60)
    assert hand.workload("broken").finished_reason == "Failed"
    assert (hand.fleet.clock.now() - started).total_seconds() > 30, "two delays: 10 s and 20 s"


async def test_a_finished_job_goes_after_its_time_to_live(hand: Hand) -> None:
    await hand.running(b.job("train", ttlSecondsAfterFinished=30))
    hand.until(lambda: hand.workload("train").finished)
    hand.go(20)
    assert hand.find("train") is not None
    hand.go(12)
    assert hand.find("train") is None
    assert not hand.fleet.hub_view().owners
    assert hand.fleet.deleted_workloads == 1


async def test_pods_of_a_node_that_is_taken_away_start_again_elsewhere() -> None:
    members = {"alpha": WorkerSpec(b.worker_objects(), b.gpu_nodes(2, 8))}
    hand = Hand(b.fleet(members, b.hub_objects("alpha")))
    await hand.running(long_job("train"))
    first = next(n for n in hand.fleet.worker_view("alpha").nodes if n.requested.gpus())
    hand.fleet.remove_node("alpha", first.name)
    hand.go(1)
    (left,) = hand.fleet.worker_view("alpha").nodes
    assert (left.name != first.name, left.requested.gpus()) == (True, 8)


async def test_a_node_that_is_not_ready_takes_nothing_and_loses_its_pods_late(hand: Hand) -> None:
    await hand.running(long_job("train"))
    hand.fleet.set_node_ready("alpha", "node-0", False)
    hand.go(200)
    node = hand.fleet.worker_view("alpha").nodes[0]
    assert (node.ready, node.requested.gpus()) == (False, 8)
    hand.go(200)
    assert hand.fleet.worker_view("alpha").nodes[0].requested.gpus() == 0
    hand.fleet.add_node("alpha", b.gpu_nodes(2)[1])
    hand.go(1)
    assert hand.fleet.worker_view("alpha").nodes[1].requested.gpus() == 8


async def test_a_tainted_node_takes_only_pods_that_tolerate_it() -> None:
    taint = {"key": "gpu", "value": "reserved", "effect": "NoSchedule"}
    members = {"alpha": WorkerSpec(b.worker_objects(gpus=16), b.gpu_nodes(1, taints=[taint]))}
    hand = Hand(b.fleet(members, b.hub_objects("alpha")))
    hand.submitted(long_job("stranger"))
    await hand.nominate("stranger", ALPHA)
    tolerant = b.pod_template({b.GPU: 1}, "10m", tolerations=[{"key": "gpu", "operator": "Exists"}])
    await hand.running(b.job("tolerant", template=tolerant))
    stranger = hand.copy("stranger")
    assert stranger is not None
    assert (stranger.admitted_at is not None, stranger.bound_pods) == (True, 0)


def test_pods_spread_over_the_emptier_nodes() -> None:
    members = {"alpha": WorkerSpec(b.worker_objects(gpus=16), b.gpu_nodes(2))}
    hand = Hand(b.fleet(members, b.hub_objects("alpha")))
    template = b.pod_template({b.GPU: 1, "cpu": 4}, "10m")
    hand.fleet.submit(b.job("local", pods=4, template=template), "alpha")
    hand.go(1)
    assert [node.requested.gpus() for node in hand.fleet.worker_view("alpha").nodes] == [2, 2]


def test_the_defaults_of_a_node_are_those_of_the_local_fleet() -> None:
    from tests.fleet.manifests import FleetNode, node_manifest

    shape = ("n", {"tier": "x"}, ({"key": "k", "value": "v", "effect": "NoSchedule"},), {b.GPU: "8"})
    assert NodeSpec.of(node_manifest(FleetNode(*shape))).view() == NodeSpec(*shape).view()


# --- queues ------------------------------------------------------------------------------------------------------


async def test_higher_priority_preempts_as_few_as_it_needs(hand: Hand) -> None:
    objects = b.worker_objects(preemption={"withinClusterQueue": "LowerPriority"})
    hand = Hand(b.fleet({"alpha": WorkerSpec(objects, b.gpu_nodes(1))}, b.hub_objects("alpha")))
    for name, gpus, priority in (("a", 4, "low"), ("b", 2, "low"), ("c", 2, "normal")):
        await hand.running(long_job(name, gpus, priority=priority))
        hand.go(2)
    await hand.running(long_job("urgent", 2, priority="high"))
    hand.go(5)
    evicted = [n for n in ("a", "b", "c") if hand.workload(n).cluster_name is None]
    assert evicted == ["b"], "the one of lowest priority that started last"


async def test_a_queue_takes_back_what_others_borrowed() -> None:
    lines = [b.quota(b.GPU, 4)]
    reclaim = {"reclaimWithinCohort": "Any"}
    objects = [
        b.namespace(),
        b.flavor("h100", {b.GPU_LABEL: "h100"}),
        b.cluster_queue("mine", b.resource_group({"h100": lines}), cohortName="all", preemption=reclaim),
        b.cluster_queue("theirs", b.resource_group({"h100": lines}), cohortName="all"),
        b.local_queue("mine", "mine"),
        b.local_queue("theirs", "theirs"),
        *b.priority_classes(),
    ]
    fleet = b.fleet({"alpha": WorkerSpec(objects, b.gpu_nodes(1))}, b.hub_objects("alpha"))
    hand = Hand(fleet)
    for name in ("t1", "t2"):
        fleet.submit(long_job(name, 4, queue="theirs", priority="high"), "alpha")
        hand.go(2)
    fleet.submit(long_job("m1", 4, queue="mine", priority="low"), "alpha")
    hand.go(2)
    copies = {copy.name[4:6]: copy for copy in fleet.worker_view("alpha").copies.values()}
    assert {name: copy.admitted_at is not None for name, copy in copies.items()} == {
        "t1": True,
        "t2": False,
        "m1": True,
    }
    assert copies["t2"].evicted_reason == "Preempted"


def test_strict_order_lets_nobody_pass_a_head_that_does_not_fit() -> None:
    for strategy, reserved in (("StrictFIFO", False), ("BestEffortFIFO", True)):
        hand = Hand(b.fleet(hub=b.hub_objects("alpha", "beta", gpus=8, queueingStrategy=strategy)))
        for name, gpus in (("first", 6), ("second", 6), ("third", 2)):
            hand.submitted(b.job(name, {b.GPU: gpus}))
        assert hand.workload("first").quota_reserved_at is not None
        assert hand.workload("second").quota_reserved_at is None
        assert (hand.workload("third").quota_reserved_at is not None) is reserved, strategy


async def test_hold_and_drain_evicts_what_runs(hand: Hand) -> None:
    await hand.running(long_job("train"))
    hand.until(lambda: hand.workload("train").cluster_name == ALPHA)
    hand.fleet.hold_queue(b.CLUSTER_QUEUE, StopPolicy.HOLD_AND_DRAIN, "alpha")
    hand.until(lambda: hand.workload("train").cluster_name is None)
    hand.go(2)
    assert hand.fleet.worker_view("alpha").nodes[0].requested.gpus() == 0


def test_retry_with_a_time_puts_the_workload_back_later(hand: Hand) -> None:
    workload = hand.submitted(b.job("train"))
    hand.fleet.set_check(workload.uid, "fleet", "Retry", "too dear now", requeue_after_s=20)
    hand.go(10)
    assert hand.workload("train").quota_reserved_at is None
    hand.go(15)
    assert hand.workload("train").quota_reserved_at is not None
    assert hand.workload("train").evicted_at is None


def test_a_deactivated_workload_rests_until_it_is_activated(hand: Hand) -> None:
    workload = hand.submitted(b.job("train"))
    hand.fleet.set_active(workload.uid, False)
    hand.go(5)
    assert (hand.workload("train").active, hand.workload("train").quota_reserved_at) == (False, None)
    hand.fleet.set_active(workload.uid, True)
    hand.go(1)
    assert hand.workload("train").quota_reserved_at is not None


def test_a_namespace_that_the_queue_does_not_select_gets_nothing() -> None:
    selector = {"matchLabels": {"team": "a"}}
    hand = Hand(b.fleet(hub=b.hub_objects("alpha", "beta", namespaceSelector=selector)))
    hand.submitted(b.job("train"))
    assert hand.workload("train").quota_reserved_at is None
    labelled = b.namespace()
    labelled["metadata"]["labels"] = {"team": "a"}
    hand.fleet.apply(labelled)
    hand.go(1)
    assert hand.workload("train").quota_reserved_at is not None


def test_a_worker_whose_queue_does_not_select_the_namespace_shows_its_local_queue_as_not_active() -> None:
    worker = b.worker(namespaceSelector={"matchLabels": {"team": "a"}})
    hand = Hand(b.fleet({"alpha": worker}, b.hub_objects("alpha")))
    shown = hand.fleet.worker_view("alpha").local_queues
    assert [found.active for found in shown.values()] == [False]
    assert all(queue.active for queue in hand.fleet.worker_view("alpha").queues.values())
    labelled = b.namespace()
    labelled["metadata"]["labels"] = {"team": "a"}
    hand.fleet.apply(labelled, "alpha")
    assert [found.active for found in hand.fleet.worker_view("alpha").local_queues.values()] == [True]


def test_a_job_without_a_queue_label_gets_no_workload(hand: Hand) -> None:
    hand.fleet.submit(b.job("own", queue=""))
    hand.go(5)
    assert not hand.fleet.hub_view().workloads


def test_a_bad_quantity_makes_a_workload_with_a_problem_and_not_an_error(hand: Hand) -> None:
    workload = hand.submitted(b.job("odd", {b.GPU: "some"}))
    assert workload.problem is not None
    assert "some" in workload.problem


# --- history -----------------------------------------------------------------------------------------------------


async def test_the_same_deeds_at_the_same_times_give_the_same_history() -> None:
    async def history() -> list[object]:
        hand, seen = Hand(b.fleet()), list[object]()
        for index in range(12):
            hand.submitted(b.job(f"j{index}", {b.GPU: 1 + index % 5}))
            await hand.nominate(f"j{index}", (ALPHA, BETA)[index % 2])
            seen.append((hand.fleet.hub_view(), hand.fleet.worker_view("alpha"), hand.fleet.worker_view("beta")))
        return seen

    assert repr(await history()) == repr(await history())


async def test_calls_to_workers_cost_time_where_a_rate_is_set() -> None:
    async def seconds(qps: float | None) -> float:
        settings = Settings(remote_qps=qps)
        hand = Hand(
            b.fleet({"alpha": b.worker(nodes=20)}, b.hub_objects("alpha"), options=Options(multikueue=settings))
        )
        for index in range(60):
            hand.fleet.submit(b.job(f"j{index}", template=b.pod_template({b.GPU: 1}, "10m")))
        hand.go(1)
        started = hand.fleet.clock.now()
        for index in range(60):
            await hand.nominate(f"j{index}", ALPHA)
        hand.until(lambda: all(w.cluster_name for w in hand.fleet.hub_view().workloads.values()), 300)
        return (hand.fleet.clock.now() - started).total_seconds()

    assert await seconds(None) < 3
    assert 20 < await seconds(5) < 80, "about two workloads a second (kueue-contract section 1)"
