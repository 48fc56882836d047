"""Field reports on clusters that are lost, or only out of sight: when something is done about it, and how often."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.core.footing import Mode
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import Away, Policy, QueuePolicy, Unreachable
from dispatcher.core.ports import Eviction
from dispatcher.core.waiting import Phase
from dispatcher.core.watchdog import FindingCode
from dispatcher.web.look import Look
from tests.loops.bench import Bench, example, start
from tests.loops.jobs import B200, H100, H200, gang
from tests.loops.test_field_reports import Listening, Unseen
from tests.loops.test_watch_copies import Watched, watch

MINUTE = 60.0
MOVES = Unreachable(Away.MOVE, 15 * 60)


class Ending(Listening):
    """Also counts the ends of attempts that are asked for."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.ended: list[Eviction] = []

    async def evict(self, eviction: Eviction, now: object) -> str:
        self.ended.append(eviction)
        return await self._port.evict(eviction, now)  # type: ignore[arg-type]


def with_rule(rule: Unreachable, *, of_queue: bool = False) -> Policy:
    """The example's policy with one rule for all classes; or for its queues, while the classes say otherwise."""
    policy, _ = example()

    def queue(plan: QueuePolicy) -> QueuePolicy:
        return replace(plan, on_unreachable=rule)

    if of_queue:
        classes = {name: replace(plan, on_unreachable=MOVES) for name, plan in policy.classes.items()}
        return replace(policy, classes=classes, queues={name: queue(plan) for name, plan in policy.queues.items()})
    return replace(policy, classes={name: replace(p, on_unreachable=rule) for name, p in policy.classes.items()})


async def running(watched: Watched, *jobs: tuple[str, str]) -> dict[str, ClusterName]:
    """Long jobs on the clusters that have these products, seen running for a while."""
    bench = watched.bench
    for name, product in jobs:
        bench.fleet.submit(gang(name, product=product, duration="90000s"))
    await watched.until(lambda: all(bench.phase(name) is Phase.PLACED for name, _ in jobs))
    for _ in range(8):
        await watched.step(10.0)
    assert bench.state.footing.mode is Mode.STEADY
    placed = {name: bench.workload(name).cluster_name for name, _ in jobs}
    return {name: cluster for name, cluster in placed.items() if cluster is not None}


async def minutes(watched: Watched, count: float) -> None:
    for _ in range(int(count * 6)):
        await watched.step(10.0)


# --- whose wish it is ----------------------------------------------------------------------------------------------

STAYS = {
    "stay, which is the default": (Unreachable(), False, "on_unreachable: stay", 0),
    "ask": (Unreachable(Away.ASK), False, "on_unreachable: ask", 1),
    "the queue says stay, its classes say move": (Unreachable(), True, "on_unreachable: stay", 0),
}


@pytest.mark.parametrize(("rule", "of_queue", "told", "findings"), STAYS.values(), ids=STAYS.keys())
async def test_fr_rac_12_what_is_to_stay_stays_and_why_says_so(
    tmp_path: Path, rule: Unreachable, of_queue: bool, told: str, findings: int
) -> None:
    bench = await start(tmp_path, policy=with_rule(rule, of_queue=of_queue))
    watched, hub = watch(bench), Ending(bench)
    placed = await running(watched, ("train-a", B200))
    bench.fleet.silence(placed["train-a"])
    await minutes(watched, 60)
    assert hub.ended == []
    assert bench.workload("train-a").cluster_name == placed["train-a"]
    assert told in Look.at(bench.state).summary(bench.workload("train-a")).state.text
    assert watched.counted(FindingCode.CLUSTER_AWAY) == findings
    assert watched.reasons("train-a") == ["ClusterAway"] * findings
    await bench.store.close()


@pytest.mark.parametrize("of_queue", [False, True], ids=["by its class", "by its queue"])
async def test_fr_rac_12_what_is_to_move_is_ended_after_its_time_and_only_there(tmp_path: Path, of_queue: bool) -> None:
    policy = with_rule(MOVES, of_queue=of_queue)
    if of_queue:
        policy = replace(policy, classes=example()[0].classes)
    bench = await start(tmp_path, policy=policy)
    watched, hub = watch(bench), Ending(bench)
    placed = await running(watched, ("train-a", B200), ("train-b", H200))
    assert placed["train-a"] != placed["train-b"]
    bench.fleet.silence(placed["train-a"])
    await minutes(watched, 14)
    assert hub.ended == []
    assert "Its attempt ends in" in Look.at(bench.state).summary(bench.workload("train-a")).state.text
    await minutes(watched, 2)
    assert [eviction.uid for eviction in hub.ended] == [bench.workload("train-a").uid]
    assert "cannot be reached" in hub.ended[0].message
    await minutes(watched, 30)
    assert len(hub.ended) == 1
    assert bench.workload("train-b").cluster_name == placed["train-b"]
    assert watched.reasons("train-a") == ["ClusterAway"]
    await bench.store.close()


async def test_a_hub_that_refuses_the_end_is_asked_again_and_it_is_counted(tmp_path: Path) -> None:
    from dispatcher.core.errors import Refused, Transient

    bench = await start(tmp_path, policy=with_rule(MOVES))
    watched, hub = watch(bench), Ending(bench)
    placed = await running(watched, ("train-a", B200))
    bench.fleet.silence(placed["train-a"])
    for error in (Refused("forbidden"), Transient("gone")):
        bench.fleet.fail_next_write(error)
    await minutes(watched, 17)
    assert len(hub.ended) == 3
    counted = {
        sample.labels["result"]: sample.value
        for metric in bench.metrics.endings.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }
    assert counted == {"refused": 1.0, "unknown": 1.0, "asked": 1.0}
    await bench.store.close()


# --- a flap --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flap_s", [8, 120], ids=["before it counts as lost", "after it counts as lost"])
@pytest.mark.parametrize("lost_by", ["break_link", "silence"])
async def test_fr_rac_04_a_flap_after_hours_of_work_that_may_move_causes_no_write(
    tmp_path: Path, lost_by: str, flap_s: int
) -> None:
    """Checks ready for nine hours, grace 15 minutes, and every class would move: nothing is spent of the grace but the
    flap. `test_fr_rac_12_what_is_to_move...` shows that the same rule does end work."""
    bench = await start(tmp_path, policy=with_rule(MOVES))
    watched, hub = watch(bench), Ending(bench)
    placed = await running(watched, ("train-a", B200), ("train-b", H200), ("train-c", H100))
    for _ in range(9 * 4):
        await watched.step(15 * MINUTE)
    before = {name: bench.workload(name).resource_version for name in placed}
    hub.writes.clear()
    mends = {"break_link": bench.fleet.mend_link, "silence": bench.fleet.speak}
    for name in bench.fleet.workers:
        getattr(bench.fleet, lost_by)(name)
        for _ in range(4):
            await watched.step(flap_s / 4)
        lost = bench.state.footing.lost_for_s(name, bench.clock.now())
        assert (lost is not None) is (flap_s > bench.state.policy.limits.silence_limit_s)
        mends[lost_by](name)
        await watched.step(2.0)
    assert (hub.ended, hub.writes) == ([], [])
    assert {name: bench.workload(name).resource_version for name in placed} == before
    assert {name: bench.workload(name).cluster_name for name in placed} == placed
    await bench.store.close()


# --- since when ----------------------------------------------------------------------------------------------------


async def test_fr_wat_02_a_worker_away_since_the_start_is_acted_on_once_one_grace_after_it(tmp_path: Path) -> None:
    """Restart at t0 with the worker unreachable, grace 15 minutes: nothing at t0+14m, at t0+16m exactly once."""
    bench = await start(tmp_path, policy=with_rule(MOVES))
    watched = watch(bench)
    placed = await running(watched, ("train-a", B200))
    await bench.restart()
    watched, hub = watch(bench), Ending(bench)
    away = placed["train-a"]
    bench.state.workers = {n: Unseen(p) if n == away else p for n, p in bench.state.workers.items()}  # type: ignore[misc]
    await minutes(watched, 14)
    assert hub.ended == []
    await minutes(watched, 2)
    assert len(hub.ended) == 1
    await minutes(watched, 30)
    assert len(hub.ended) == 1
    assert bench.workload("train-a").cluster_name != away
    await bench.store.close()


async def test_fr_rac_02_the_fleet_out_of_sight_with_the_hub_moves_nothing_when_the_hub_is_back(tmp_path: Path) -> None:
    """An hour without the hub, then an hour with it and without any worker: our own fault, whatever a class wishes."""
    bench = await start(tmp_path, policy=with_rule(MOVES))
    watched, hub = watch(bench), Ending(bench)
    placed = await running(watched, ("train-a", B200), ("train-b", H200), ("train-c", H100))
    hub.writes.clear()
    for place in ("hub", *bench.fleet.workers):
        bench.fleet.silence(place)
    await minutes(watched, 60)
    bench.fleet.speak("hub")
    await minutes(watched, 1)
    assert bench.state.footing.mode in (Mode.WARMING, Mode.FROZEN)
    await minutes(watched, 60)
    assert bench.state.footing.mode is Mode.FROZEN
    assert bench.metrics.footing.labels(Mode.FROZEN)._value.get() == 1
    for name in bench.fleet.workers:
        bench.fleet.speak(name)
    await minutes(watched, 20)
    assert (bench.state.footing.mode, hub.ended, hub.writes) == (Mode.STEADY, [], [])
    assert {name: bench.workload(name).cluster_name for name in placed} == placed
    await bench.store.close()


async def test_fr_rac_02_a_cluster_that_is_gone_is_not_taken_off_a_list_before_we_see_well(tmp_path: Path) -> None:
    """A copy that we do not see yet may win: right after a start nothing is taken back."""
    from tests.loops.test_field_reports import nominated_to_two

    bench = await start(tmp_path)
    watched = watch(bench)
    gone, kept, _ = await nominated_to_two(watched)
    await bench.restart()
    watched, told = watch(bench), Listening(bench)
    bench.fleet.remove("MultiKueueCluster", gone)
    await minutes(watched, 0.9)
    assert told.writes == []
    await minutes(watched, 0.5)
    assert [write.clusters for write in told.writes][:1] == [(kept,)]
    await bench.store.close()
