"""Field reports that concern the daemon's loops, told step by step with the numbers of their inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.core.decision import Outcome, Reason
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import ComputePrice, Policy
from dispatcher.core.ports import Nomination
from dispatcher.core.waiting import Phase, standing
from dispatcher.core.watchdog import FindingCode
from dispatcher.core.workload import WorkloadClass
from dispatcher.web.look import Look
from tests.loops.bench import Bench, example, start
from tests.loops.jobs import B200, H100, gang
from tests.loops.test_watch_copies import Watched, watch

ONPREM = ClusterName("onprem-eu")


class Listening:
    """The hub's writes, as they go out: the real port, with a list of what was asked of it.

    The first `not_taken` clusters that are nominated lose their LocalQueue at that moment, so that they take nothing.
    """

    def __init__(self, bench: Bench, not_taken: int = 0) -> None:
        self.writes: list[Nomination] = []
        self._fleet, self._not_taken = bench.fleet, not_taken
        self._port = bench.state.hub
        bench.state.hub = self  # type: ignore[assignment]

    async def nominate(self, nomination: Nomination) -> str:
        self.writes.append(nomination)
        if self._not_taken:
            self._not_taken -= 1
            self._fleet.remove("LocalQueue", "training", "autonomy", cluster=nomination.clusters[-1])
        return await self._port.nominate(nomination)

    async def withdraw(self, nomination: Nomination) -> str:
        self.writes.append(replace(nomination, clusters=()))
        return await self._port.withdraw(nomination)

    def __getattr__(self, name: str) -> object:
        return getattr(self._port, name)


def lists(writes: Iterable[Nomination]) -> list[tuple[str, ...]]:
    return [write.clusters for write in writes]


@pytest.fixture
def watched(bench: Bench) -> Watched:
    return watch(bench)


# --- nomination --------------------------------------------------------------------------------------------------


async def test_fr_nom_02_nothing_is_nominated_before_the_other_check_is_ready(bench: Bench) -> None:
    queues = bench.fleet.hub_cluster.inventory.queues
    for name, spec in list(queues.items()):
        queues[name] = replace(spec, checks=(*spec.checks, "budget"))
    bench.fleet.apply(check("budget"))
    bench.fleet.set_check_active("budget", True)
    bench.fleet.submit(gang("train-a"))
    for _ in range(10):
        await bench.step()
    assert bench.phase("train-a") is Phase.OTHER_CHECKS
    assert bench.workload("train-a").nominated == ()
    assert bench.seen_copies == {}
    bench.fleet.set_check(bench.workload("train-a").uid, "budget", "Ready")
    await bench.until(bench.finished("train-a"))


async def test_fr_nom_08_the_owned_site_goes_first_and_the_next_is_added_after_patience(tmp_path: Path) -> None:
    """It looks free and its worker does not take the job; the preference is a price, the patience 5 minutes."""
    bench = await start(tmp_path, policy=owned_is_cheapest())
    told = Listening(bench, not_taken=1)
    bench.fleet.submit(gang("train-a"))
    await bench.until(lambda: bool(told.writes), 10)
    first = bench.clock.now()
    await bench.until(lambda: len(told.writes) == 2, 320)
    widened = bench.clock.now() - first
    assert 300 <= widened.total_seconds() <= 310
    cloud = bench.decision("train-a").chosen
    assert lists(told.writes) == [("onprem-eu",), ("onprem-eu", cloud)]
    history = await bench.store.decisions_of(bench.workload("train-a").key)
    assert [d.outcome for d in history] == [Outcome.ADD, Outcome.NOMINATE], "each widening is on record"
    assert (history[0].decided_at - history[1].decided_at).total_seconds() >= 300
    assert [reason for reason, _ in bench.events("train-a")][-1] == "NominationAdded"
    await bench.store.close()


async def test_fr_nom_08_an_owned_site_without_room_is_not_waited_for(tmp_path: Path) -> None:
    bench = await start(tmp_path, policy=owned_is_cheapest())
    for node in bench.fleet.worker_view(ONPREM).nodes:
        bench.fleet.cordon(ONPREM, node.name)
    bench.fleet.submit(gang("train-a"))
    await bench.until(bench.finished("train-a"), 30)
    decision = bench.decision("train-a")
    assert decision.chosen not in (None, ONPREM)
    owned = decision.candidate(ONPREM)
    assert owned is not None
    assert [r.reason for r in owned.rejections] == [Reason.NODES_UNAVAILABLE]
    await bench.store.close()


def owned_is_cheapest() -> Policy:
    """The example's policy with GPUs of our own at a cent an hour."""
    policy, _ = example()
    ours = policy.clusters[ONPREM].provider

    def cheap(price: ComputePrice) -> ComputePrice:
        return replace(price, usd_micro_per_hour=10_000) if price.provider == ours else price

    compute = {key: cheap(price) for key, price in policy.prices.compute.items()}
    return replace(policy, prices=replace(policy.prices, compute=compute))


# --- race --------------------------------------------------------------------------------------------------------


async def test_fr_rac_01_while_the_cache_is_older_than_the_eviction_nothing_is_written(bench: Bench) -> None:
    """The hub has evicted and cleared the cluster; our view still shows the version before, then catches up."""
    told = Listening(bench)
    bench.fleet.submit(gang("train-a", duration="600s"))
    await bench.until(lambda: bench.phase("train-a") is Phase.PLACED)
    placed = bench.workload("train-a")
    bench.fleet.lag(8.0)
    bench.fleet.set_check(placed.uid, "entrepot", "Retry")
    told.writes.clear()
    while bench.workload("train-a").resource_version == placed.resource_version:
        await bench.step()
        assert told.writes == [], "no write on the old version"
    await bench.until(lambda: bench.phase("train-a") is Phase.PLACED)
    assert len(told.writes) == 1
    (write,) = told.writes
    decision = bench.decision("train-a")
    assert decision.resource_version == write.resource_version, "the record says on which version it was decided"
    assert int(write.resource_version) > int(placed.resource_version)
    assert bench.fleet.refused_latches == 0


async def test_fr_rac_09_two_cycles_in_50_ms_write_one_nomination(bench: Bench) -> None:
    told = Listening(bench)
    bench.fleet.lag(2.0)
    bench.fleet.submit(gang("train-a"))
    while not told.writes:
        await bench.step(0.5)
    version = bench.workload("train-a").resource_version
    bench.clock.advance(0.05)
    await bench.dispatch.cycle()
    assert bench.workload("train-a").resource_version == version, "the view has not moved"
    assert bench.workload("train-a").nominated == ()
    await bench.dispatch.cycle()
    assert len(told.writes) == 1


async def test_fr_rac_12_what_runs_on_an_unreachable_cluster_stays_there(watched: Watched) -> None:
    """Unknown may be a lost link and not lost work. Kueue's own timeout of 15 minutes rules, we do not move."""
    bench = watched.bench
    bench.fleet.submit(gang("train-a", product=B200, duration="3600s"))
    await watched.until(lambda: bench.phase("train-a") is Phase.PLACED)
    first = bench.workload("train-a").cluster_name
    assert first is not None
    told = Listening(bench)
    bench.fleet.break_link(first)
    for _ in range(14 * 6):
        await watched.step(10.0)
    assert told.writes == []
    assert bench.workload("train-a").cluster_name == first
    assert watched.codes() == [], "of a cluster that is not seen nothing is concluded"
    summary = Look.at(bench.state).summary(bench.workload("train-a"))
    assert summary.state.text.startswith(f"unknown: {first} was last seen 14m ago; then it was admitted there")
    bench.fleet.mend_link(first)
    await watched.until(lambda: Look.at(bench.state).summary(bench.workload("train-a")).state.code == "running")
    assert told.writes == []


# --- watch cache -------------------------------------------------------------------------------------------------


async def test_fr_wat_02_a_worker_away_since_the_start_is_waited_for_once(bench: Bench) -> None:
    """The anchor is the start of the process: the wait ends by it, and does not begin again with each pass."""
    bench.fleet.submit(gang("train-a", duration="600s"))
    await bench.until(lambda: bench.phase("train-a") is Phase.PLACED)
    away = bench.workload("train-a").cluster_name
    assert away is not None
    await bench.restart()
    told = Listening(bench)
    bench.state.workers = {n: Unseen(p) if n == away else p for n, p in bench.state.workers.items()}  # type: ignore[misc]
    started = bench.clock.now()
    bench.fleet.submit(gang("train-b", product=B200 if away != "cloud-c-us" else H100))
    while not told.writes:
        await bench.step(0.5)
        assert (bench.clock.now() - started).total_seconds() < 15, "the wait does not end"
    assert (bench.clock.now() - started).total_seconds() > 5
    candidate = bench.decision("train-b").candidate(away)
    assert candidate is not None
    assert Reason.BLIND in {r.reason for r in candidate.rejections}
    for _ in range(10):
        await bench.step(60.0)
    assert lists(told.writes) == [(bench.decision("train-b").chosen,)], "what runs on it is left alone"


class Unseen:
    """A worker's port of which nothing has been read since the start."""

    def __init__(self, port: object) -> None:
        self._port = port

    def view(self) -> object:
        view = self._port.view()  # type: ignore[attr-defined]
        return type(view)(cluster=view.cluster, synced=False, observed_at=None)


async def test_fr_wat_03_a_cluster_that_vanished_is_taken_off_the_list_in_one_pass(watched: Watched) -> None:
    bench = watched.bench
    gone, kept, told = await nominated_to_two(watched)
    bench.fleet.remove("MultiKueueCluster", gone)
    bench.clock.advance(0.1)
    bench.fleet.advance()
    await watched.copies.cycle()
    assert lists(told.writes) == [(kept,)]
    bench.fleet.advance()
    assert bench.workload("train-a").nominated == (kept,)
    await bench.notices.drain()
    assert f"{gone} is no cluster of this hub any more" in dict(bench.events("train-a"))["ClusterGone"]
    await watched.step()
    assert watched.counted(FindingCode.CLUSTER_GONE) == 1
    assert watched.codes() == []


async def test_fr_wat_03_the_last_name_is_taken_off_and_the_job_is_decided_anew(watched: Watched) -> None:
    bench = watched.bench
    gone, kept, _ = await nominated_to_two(watched)
    bench.fleet.remove("MultiKueueCluster", gone)
    bench.fleet.remove("MultiKueueCluster", kept)
    await watched.step()
    await watched.step()
    await watched.until(lambda: bench.phase("train-a") is Phase.PLACED)
    decision = bench.decision("train-a")
    assert decision.attempt == 2
    for name in (gone, kept):
        candidate = decision.candidate(ClusterName(name))
        assert candidate is None or Reason.MULTIKUEUE_INACTIVE in {r.reason for r in candidate.rejections}


CAPS = {"one": (1, 1), "two": (2, 2), "as long as the API allows: every cluster with such cards": (20, 4)}


@pytest.mark.parametrize(("cap", "length"), CAPS.values(), ids=CAPS.keys())
async def test_fr_scl_01_a_list_that_nobody_takes_ends_at_the_cap(tmp_path: Path, cap: int, length: int) -> None:
    """Best first and one at a time; at `max_nominations` it stays as it is, however long nobody takes the work."""
    policy, _ = example()
    bench = await start(tmp_path, policy=replace(policy, limits=replace(policy.limits, max_nominations=cap)))
    told = Listening(bench, not_taken=9)
    bench.fleet.submit(gang("train-a", product=H100))
    for _ in range(100):
        await bench.step(20.0)
    last = bench.workload("train-a").nominated
    assert lists(told.writes) == [last[:at] for at in range(1, length + 1)]
    assert bench.phase("train-a") is Phase.NOMINATED
    await bench.store.close()


async def test_fr_nom_11_a_resize_of_a_placed_slice_is_no_new_nomination_and_why_says_where_it_goes(
    tmp_path: Path,
) -> None:
    """An elastic group runs with four pods and asks for eight; whether there is room for them is Kueue's matter."""
    bench = await start(tmp_path)
    watched, told = watch(bench), Listening(bench)
    bench.fleet.submit(gang("ring", pods=4, gpus=1, duration="900s"))
    await watched.until(lambda: bench.phase("ring") is Phase.PLACED)
    old = bench.workload("ring")
    (pods,) = old.pod_sets
    grown = replace(
        old, name=f"{old.name}-grown", pod_sets=(replace(pods, count=8),), replaces_slice=f"{old.namespace}/{old.name}"
    )
    uid = bench.fleet.create_workload(grown)
    told.writes.clear()
    before = old.resource_version, len(await bench.store.recent(100))
    for _ in range(300):
        await watched.step(1.0)
    new = bench.state.hub_view().workloads[uid]
    assert standing(new, bench.state.hub_view()).phase is Phase.SLICE_PINNED
    assert (told.writes, new.nominated, uid in bench.state.latest) == ([], (), False)
    old = bench.state.hub_view().workloads[old.uid]
    assert (old.resource_version, len(await bench.store.recent(100))) == before
    told_to_owner = Look.at(bench.state).summary(new)
    assert told_to_owner.state.text == f"goes where another workload goes: {old.namespace}/{old.name}"
    assert [found.uid for found in Look.at(bench.state).named("autonomy", "ring")] == [uid], "of two slices the newest"
    await bench.store.close()


async def nominated_to_two(watched: Watched) -> tuple[str, str, Listening]:
    """A job that two clusters were asked to take, of which neither does."""
    told = Listening(watched.bench, not_taken=2)
    watched.bench.fleet.submit(gang("train-a", product=H100))
    patience_s = watched.bench.state.policy.classes[WorkloadClass.TRAINING].patience_s
    await watched.until(lambda: bool(told.writes), 10)
    await watched.until(lambda: len(told.writes) == 2, patience_s + 20, step_s=1.0)
    await watched.step()
    first, second = watched.bench.workload("train-a").nominated
    told.writes.clear()
    return first, second, told


def check(name: str) -> dict[str, object]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": "entrepot.dev/budget"},
    }
