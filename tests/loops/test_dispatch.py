"""Dispatch end to end on the embedded fleet: what issue 3 promises, and what field reports taught."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from connectors.embedded import NodeSpec
from dispatcher.core.decision import Outcome, Reason
from dispatcher.core.errors import Conflict, Refused, Transient
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.ports import IntentState
from dispatcher.core.snapshot import StopPolicy
from dispatcher.core.waiting import Phase
from dispatcher.core.workload import HubWorkload, WorkloadClass
from tests.builders import GPU, GPU_LABEL, START
from tests.loops.bench import Bench
from tests.loops.jobs import B200, H100, H200, L40S, RTX, gang, rollouts_and_learner


async def test_a_job_runs_on_the_cluster_that_its_decision_names_and_finishes_on_the_hub(bench: Bench) -> None:
    bench.fleet.submit(gang("train-a"))
    await bench.until(bench.finished("train-a"))
    decision = bench.decision("train-a")
    assert decision.outcome is Outcome.NOMINATE
    assert bench.seen_copies == {bench.workload("train-a").key: {decision.chosen}}


async def test_a_jobset_with_two_pod_sets_on_different_flavors_runs_on_one_cluster(bench: Bench) -> None:
    bench.fleet.submit(rollouts_and_learner("rl-a"))
    await bench.until(bench.finished("rl-a"))
    chosen = bench.decision("rl-a").candidate("onprem-eu")  # type: ignore[arg-type]
    assert chosen is not None
    assert {p.pod_set: p.flavor for p in chosen.placements} == {"learner": "h100", "rollout": "rtx-pro-6000"}


async def test_sixty_mixed_jobs_finish_with_exactly_one_copy_each(bench: Bench) -> None:
    products = (H100, H200, L40S, RTX, B200, H100)
    names = []
    for number in range(60):
        product = products[number % len(products)]
        namespace = "simulation" if product in (L40S, RTX) else "autonomy"
        names.append(f"mixed-{number:02d}")
        size = 1 + number % 3
        bench.fleet.submit(gang(names[-1], pods=size, gpus=1 + number % 2, product=product, namespace=namespace))
    await bench.until(bench.finished(*names), within_s=300)
    assert [clusters for clusters in bench.seen_copies.values() if len(clusters) != 1] == []
    assert len(bench.seen_copies) == 60
    assert bench.fleet.refused_latches == 0


async def test_fr_sco_01_two_gangs_in_the_same_second_never_get_the_same_gpus(bench: Bench) -> None:
    """B200 stand on one cluster only, three nodes: the second gang of two nodes has to wait for the first."""
    bench.fleet.submit(gang("g1", pods=2, product=B200, duration="30s"))
    bench.fleet.submit(gang("g2", pods=2, product=B200, duration="30s"))
    await bench.step()
    await bench.step()
    outcomes = {bench.decision(name).outcome for name in ("g1", "g2")}
    assert outcomes == {Outcome.NOMINATE, Outcome.WAIT}
    waiting = next(n for n in ("g1", "g2") if bench.decision(n).outcome is Outcome.WAIT)
    first = (await bench.store.decisions_of(bench.workload(waiting).key))[-1]
    candidate = first.candidate("cloud-c-us")  # type: ignore[arg-type]
    assert candidate is not None
    assert Reason.HELD in {r.reason for r in candidate.rejections}
    await bench.until(bench.finished("g1", "g2"), within_s=120)


async def test_a_job_that_fits_nowhere_says_so_within_5_s_and_starts_by_itself_when_capacity_appears(
    bench: Bench,
) -> None:
    for index in (1, 2, 3):
        bench.fleet.remove_node("cloud-c-us", f"cloud-c-us-b200-{index}")
    bench.fleet.submit(gang("train-b", product=B200))
    passed = await bench.until(lambda: bool(bench.events("train-b")), within_s=5)
    assert passed <= 5
    reason, message = bench.events("train-b")[0]
    assert reason == "Waiting"
    assert "cloud-c-us" in message
    assert bench.workload("train-b").nominated == ()
    label = {GPU_LABEL: B200}
    bench.fleet.add_node("cloud-c-us", NodeSpec("b200-new", label, (), {GPU: "8", "cpu": "224", "memory": "2Ti"}))
    await bench.until(bench.finished("train-b"), within_s=30)


BAD_INPUT = {
    "an unparsable duration": ({"expected-duration": "3 hours"}, "expected-duration"),
    "an unknown data set": ({"datasets": "radar-2062"}, "radar-2062"),
    "a negative number of reads": ({"datasets": "radar-2026:-2"}, "radar-2026"),
    "a negative cost": ({"max-cost": "-5"}, "max-cost"),
    "an unknown key": ({"expected-duratoin": "PT1H"}, "expected-duratoin"),
    "a cluster that no MultiKueueConfig lists": ({"clusters": "cloud-z"}, "cloud-z"),
}


@pytest.mark.parametrize(("says", "named"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
async def test_bad_input_is_told_in_an_event_and_the_rest_goes_on(
    bench: Bench, says: dict[str, str], named: str
) -> None:
    bench.fleet.submit(gang("wrong", says=says))
    bench.fleet.submit(gang("right"))
    await bench.until(bench.finished("right"))
    assert [reason for reason, _ in bench.events("wrong")] == ["InputProblem"]
    assert named in bench.events("wrong")[0][1]
    assert bench.workload("wrong").nominated == ()
    assert bench.state.problems[bench.workload("wrong").uid][0].fix


async def test_an_unknown_class_is_told_in_an_event(bench: Bench) -> None:
    bench.fleet.submit(gang("wrong", labels={"entrepot.dev/workload-class": "trainning"}))
    await bench.until(lambda: bool(bench.events("wrong")), within_s=5)
    assert "trainning" in bench.events("wrong")[0][1]
    assert WorkloadClass.TRAINING.value in bench.events("wrong")[0][1]


async def test_a_workload_without_an_owner_is_told_and_left_alone(bench: Bench) -> None:
    bench.fleet.submit(gang("pattern"))
    await bench.step()
    pattern = bench.workload("pattern")
    bare = replace(pattern, uid=WorkloadUid("bare"), name="bare", owner=None, owner_count=0)
    bench.fleet.create_workload(bare)
    await bench.until(bench.finished("pattern"))

    def of(uid: str) -> HubWorkload:
        return next(w for w in bench.state.hub_view().workloads.values() if w.name == uid)

    assert of("bare").nominated == ()
    told = [e.notice for e in bench.fleet.events if e.notice.name == "bare"]
    assert [n.reason for n in told] == ["InputProblem"]


async def test_fr_nom_05_a_queue_put_on_hold_between_decision_and_write_cancels_the_write(bench: Bench) -> None:
    bench.fleet.submit(gang("train-c", product=B200))
    bench.clock.advance(1.0)
    bench.fleet.advance()
    planned = await bench.dispatch.plan(set())
    assert [p.decision.chosen for p in planned] == ["cloud-c-us"]
    bench.fleet.hold_queue("autonomy-training", StopPolicy.HOLD, cluster="cloud-c-us")
    bench.fleet.advance()
    await bench.dispatch.write(planned)
    bench.fleet.advance()
    assert bench.workload("train-c").nominated == ()
    assert not await bench.store.intents(IntentState.PLANNED)
    assert bench.state.holds == {}


async def test_fr_rac_01_a_view_that_lags_behind_writes_once_and_never_a_stale_list(bench: Bench) -> None:
    bench.fleet.lag(3.0)
    bench.fleet.submit(gang("train-d"))
    await bench.until(bench.finished("train-d"))
    assert bench.metrics.registry.get_sample_value("entrepot_nominations_total", {"result": "written"}) == 1
    assert list(bench.seen_copies.values()) == [{bench.decision("train-d").chosen}]


async def test_a_lost_reply_is_settled_from_the_view_and_not_written_again(bench: Bench) -> None:
    bench.fleet.lose_next_reply()
    bench.fleet.submit(gang("train-e"))
    await bench.until(bench.finished("train-e"))
    registry = bench.metrics.registry
    assert registry.get_sample_value("entrepot_nominations_total", {"result": "unknown"}) == 1
    assert registry.get_sample_value("entrepot_nominations_total", {"result": "written"}) is None
    assert not await bench.store.intents(IntentState.PLANNED)
    assert len(await bench.store.intents(IntentState.WRITTEN)) == 1


FAILURES = {
    "a conflict": Conflict("the object has been modified"),
    "a refusal": Refused("403 forbidden"),
    "an outage": Transient("503"),
}


@pytest.mark.parametrize("error", FAILURES.values(), ids=FAILURES.keys())
async def test_a_write_that_fails_is_decided_again_and_holds_nothing_meanwhile(
    bench: Bench, error: Conflict | Refused | Transient
) -> None:
    bench.fleet.fail_next_write(error)
    bench.fleet.submit(gang("train-f"))
    await bench.until(bench.finished("train-f"))
    assert list(bench.seen_copies.values()) == [{bench.decision("train-f").chosen}]
    await bench.step()
    assert bench.state.holds == {}


async def test_a_silent_worker_gets_no_new_work_and_its_reason_says_since_when(bench: Bench) -> None:
    bench.fleet.silence("cloud-c-us")
    for _ in range(3):
        await bench.step(30)
    bench.fleet.submit(gang("train-g", product=B200))
    await bench.until(lambda: bool(bench.events("train-g")), within_s=5)
    candidate = bench.decision("train-g").candidate("cloud-c-us")  # type: ignore[arg-type]
    assert candidate is not None
    stale = next(r for r in candidate.rejections if r.reason is Reason.STALE)
    assert stale.detail.since is not None
    bench.fleet.speak("cloud-c-us")
    await bench.until(bench.finished("train-g"), within_s=30)


async def test_nothing_is_decided_while_the_hub_is_silent(bench: Bench) -> None:
    await bench.step()
    bench.fleet.silence("hub")
    bench.fleet.submit(gang("train-h"))
    for _ in range(4):
        await bench.step(30)
    assert bench.state.latest == {}
    bench.fleet.speak("hub")
    await bench.until(bench.finished("train-h"), within_s=30)


async def test_impatience_adds_the_next_best_and_never_takes_a_name_away(bench: Bench) -> None:
    """The nominated worker does not admit (its LocalQueue is gone after the decision): patience runs out."""
    bench.fleet.submit(gang("train-i", product=H100))
    bench.clock.advance(1.0)
    bench.fleet.advance()
    planned = await bench.dispatch.plan(set())
    first = planned[0].hold.cluster
    await bench.dispatch.write(planned)
    bench.fleet.remove("LocalQueue", "training", "autonomy", cluster=first)
    lists: list[tuple[str, ...]] = []
    patience_s = next(c.patience_s for c in bench.state.policy.classes.values() if c.workload_class == "training")

    def admitted() -> bool:
        workload = bench.workload("train-i")
        if workload.nominated and (not lists or lists[-1] != workload.nominated):
            lists.append(workload.nominated)
        return workload.cluster_name is not None or workload.finished

    await bench.until(admitted, within_s=patience_s + 60)
    assert len(lists) == 2
    assert lists[0] == (first,)
    assert lists[1][0] == first
    await bench.until(bench.finished("train-i"), within_s=30)
    assert bench.decision("train-i").outcome is Outcome.ADD


async def test_fr_nom_03_an_eviction_on_the_worker_opens_a_new_round_over_all_clusters(bench: Bench) -> None:
    bench.fleet.submit(gang("train-j", duration="60s"))
    await bench.until(lambda: bench.phase("train-j") is Phase.PLACED, within_s=20)
    first = bench.workload("train-j").cluster_name
    assert first is not None
    bench.fleet.hold_queue("autonomy-training", StopPolicy.HOLD_AND_DRAIN, cluster=first)
    await bench.until(lambda: bench.decision("train-j").attempt == 2, within_s=60)
    assert bench.decision("train-j").chosen not in (None, first)
    await bench.until(bench.finished("train-j"), within_s=120)


async def test_a_deleted_job_gives_back_its_hold(bench: Bench) -> None:
    bench.fleet.submit(gang("train-k", duration="60s"))
    await bench.step()
    await bench.step()
    bench.fleet.delete("Job", "autonomy", "train-k")
    await bench.step()
    await bench.step()
    assert bench.state.holds == {}
    assert not await bench.store.holds()
    assert bench.state.latest == {}


async def test_a_hold_ends_at_its_deadline(bench: Bench) -> None:
    bench.fleet.submit(gang("train-l", product=B200))
    bench.clock.advance(1.0)
    bench.fleet.advance()
    planned = await bench.dispatch.plan(set())
    bench.fleet.remove("LocalQueue", "training", "autonomy", cluster="cloud-c-us")
    bench.dispatch.rounds.open.clear()
    await bench.dispatch.write(await bench.dispatch.plan(set()) or planned)
    assert all(h.expires_at > START + timedelta(seconds=1) for hs in bench.state.holds.values() for h in hs)
    await bench.step(bench.state.policy.limits.hold_ttl_s + 1)
    assert bench.state.holds == {}


async def test_higher_priority_is_decided_first(bench: Bench) -> None:
    bench.fleet.submit(gang("low", pods=3, product=B200, duration="60s", priority="research"))
    bench.fleet.submit(gang("high", pods=3, product=B200, duration="60s", priority="production"))
    await bench.step()
    await bench.step()
    assert bench.decision("high").outcome is Outcome.NOMINATE
    assert bench.decision("low").outcome is Outcome.WAIT


async def test_a_wait_with_the_same_reasons_is_recorded_once(bench: Bench) -> None:
    bench.fleet.submit(gang("huge", pods=16))
    for _ in range(20):
        await bench.step()
    assert len(await bench.store.decisions_of(bench.workload("huge").key)) == 1
    assert len(bench.events("huge")) == 1
