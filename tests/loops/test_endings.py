"""Field reports whose right outcome is the end of something: an attempt that nobody approves of any more, a preemption
that does not come, a copy too many, a dispatch that never ran.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.decision import Fit
from dispatcher.core.ids import ClusterName, QueueName
from dispatcher.core.waiting import Phase
from dispatcher.core.watchdog import FindingCode
from dispatcher.web.look import Look
from dispatcher.web.models import StateCode
from tests.loops.bench import Bench
from tests.loops.jobs import H100, gang
from tests.loops.test_field_reports import Listening, check
from tests.loops.test_watch_copies import Watched, answer, waits_for_check, watch, with_provisioning

BUDGET = "budget"
TRAINING = QueueName("autonomy-training")


@pytest.fixture
def watched(bench: Bench) -> Watched:
    return watch(bench)


# --- an approval that is taken back --------------------------------------------------------------------------------


async def approved(watched: Watched, job: str) -> None:
    """A job whose budget check is Ready, on a hub that has one beside MultiKueue's."""
    bench = watched.bench
    queues = bench.fleet.hub_cluster.inventory.queues
    for name, spec in list(queues.items()):
        queues[name] = replace(spec, checks=(*spec.checks, BUDGET))
    bench.fleet.apply(check(BUDGET))
    bench.fleet.set_check_active(BUDGET, True)
    bench.fleet.submit(gang(job, duration="5s"))
    await watched.until(lambda: bench.phase(job) is Phase.OTHER_CHECKS)
    answer_budget(watched, job, "Ready")


def answer_budget(watched: Watched, job: str, state: str) -> None:
    watched.bench.fleet.set_check(watched.bench.workload(job).uid, BUDGET, state)


def copies(watched: Watched, job: str) -> list[str]:
    """Clusters that hold a copy of a job at this instant."""
    workload = watched.bench.workload(job)
    key = (workload.namespace, workload.name)
    return [name for name, worker in watched.bench.fleet.worker_clusters.items() if key in worker.copies]


@pytest.mark.parametrize("copied", [False, True], ids=["before a copy was made", "with a copy on the worker"])
async def test_fr_nom_02_an_approval_that_is_taken_back_ends_the_attempt_before_it_runs(
    watched: Watched, copied: bool
) -> None:
    bench = watched.bench
    with_provisioning(watched)
    await approved(watched, "train-a")
    await watched.until(lambda: bool(bench.workload("train-a").nominated), step_s=0.02)
    if copied:
        await watched.until(lambda: waits_for_check(watched, "train-a"))
    first = bench.workload("train-a").nominated[0]
    answer_budget(watched, "train-a", "Pending")
    await watched.until(
        lambda: bench.phase("train-a") is Phase.OTHER_CHECKS and not bench.workload("train-a").nominated
    )
    await watched.until(lambda: copies(watched, "train-a") == [])
    for _ in range(50):
        await watched.step()
    assert copies(watched, "train-a") == [], "nothing comes back while nobody approves"
    assert bench.fleet.refused_latches == 0
    assert watched.reasons("train-a") == ["ApprovalRevoked"]
    assert f"after it had been nominated to {first}" in dict(bench.events("train-a"))["ApprovalRevoked"]
    assert watched.codes() == []
    answer_budget(watched, "train-a", "Ready")
    await watched.until(lambda: bool(bench.workload("train-a").nominated) and waits_for_check(watched, "train-a"))
    answer(watched, "train-a", bench.workload("train-a").nominated[0], "Ready")
    await watched.until(bench.finished("train-a"))


async def test_fr_nom_02_work_that_runs_is_left_to_whoever_took_the_approval_back(watched: Watched) -> None:
    """To end running work is a decision of its own, with a checkpoint before it."""
    bench = watched.bench
    await approved(watched, "train-a")
    await watched.until(lambda: bench.phase("train-a") is Phase.PLACED)
    answer_budget(watched, "train-a", "Pending")
    for _ in range(5):
        await watched.step()
    assert bench.workload("train-a").evicted_at is None
    await watched.until(bench.finished("train-a"))


# --- preemptions, one after the other --------------------------------------------------------------------------------


def full(bench: Bench, *, but: str = "") -> dict[str, ClusterName]:
    """Low work that runs on H100, with where it does."""
    views = bench.state.hub_view().workloads.values()
    placed = {w.owner.name: w.cluster_name for w in views if w.owner is not None and w.cluster_name is not None}
    return {name: cluster for name, cluster in placed.items() if name.startswith("low") and cluster != but}


async def filled(watched: Watched) -> None:
    """No H100 is free anywhere that training may use, and all of it is used by work of low priority."""
    bench = watched.bench
    for number in range(16):
        bench.fleet.submit(gang(f"low-{number:02d}", product=H100, duration="90000s", priority="research"))
    for _ in range(12):
        await watched.step(1.0)
    assert len(set(full(bench).values())) >= 2


def victims(bench: Bench) -> set[str]:
    """Low work that was running and no longer is."""
    hub = bench.state.hub_view().workloads.values()
    return {w.owner.name for w in hub if w.owner is not None and w.owner.name.startswith("low") and w.evicted_at}


async def test_fr_nom_07_with_room_on_one_cluster_nobody_is_preempted_on_any(watched: Watched) -> None:
    bench = watched.bench
    await filled(watched)
    waiting = [w.owner.name for w in bench.state.hub_view().workloads.values() if w.owner and w.cluster_name is None]
    for name in waiting:
        bench.fleet.delete("Job", "autonomy", name)
    leaves, free = next(iter(sorted(full(bench).items())))
    bench.fleet.delete("Job", "autonomy", leaves)
    for _ in range(5):
        await watched.step(1.0)
    running = full(bench)
    bench.fleet.submit(gang("urgent", product=H100, priority="release-gate", duration="60s"))
    told = Listening(bench)
    await watched.until(lambda: bench.phase("urgent") is Phase.PLACED)
    assert [write.clusters for write in told.writes] == [(free,)]
    assert victims(bench) == set()
    assert full(bench) == running


async def test_fr_nom_07_a_preemption_that_does_not_come_is_given_up_before_the_next_is_tried(watched: Watched) -> None:
    bench = watched.bench
    await filled(watched)
    before = full(bench)
    bench.fleet.submit(gang("urgent", product=H100, priority="release-gate", duration="60s"))
    told = Listening(bench)
    await watched.until(lambda: bool(told.writes), step_s=0.02)
    first = told.writes[0].clusters[0]
    candidate = bench.decision("urgent").candidate(first)
    assert candidate is not None
    assert candidate.fit is Fit.BY_PREEMPTION
    keep(watched, first)
    patience_s = 300
    for _ in range(patience_s - 10):
        await watched.step(1.0)
        assert len(told.writes) == 1, "one at a time"
    await watched.until(lambda: bench.phase("urgent") is Phase.PLACED, 60)
    second = bench.workload("urgent").cluster_name
    assert [write.clusters for write in told.writes] == [(first,), (second,)]
    assert second != first
    assert {before[name] for name in set(before) - set(full(bench))} == {second}, "victims fell in one place only"
    assert "PreemptionInVain" in watched.reasons("urgent")
    assert watched.counted(FindingCode.PREEMPTION_IN_VAIN) == 1
    assert bench.decision("urgent").attempt == 2


def keep(watched: Watched, cluster: ClusterName) -> None:
    """From now on nobody is preempted there, and we do not see it: its queues look as they did."""
    worker = watched.worker(cluster)
    for name, spec in list(worker.inventory.queues.items()):
        worker.inventory.queues[name] = replace(spec, within_queue="Never", within_cohort="Never")
    worker.kueue.inventory_changed()


async def test_fr_nom_07_where_no_other_cluster_could_do_better_it_stays_nominated(watched: Watched) -> None:
    bench = watched.bench
    await filled(watched)
    for name in list(bench.fleet.worker_clusters):
        keep(watched, name)
    bench.fleet.submit(gang("urgent", product=H100, priority="release-gate", duration="60s"))
    told = Listening(bench)
    await watched.until(lambda: bool(told.writes), 10, step_s=0.02)
    for name in bench.fleet.workers:
        if name != told.writes[0].clusters[0]:
            bench.fleet.break_link(name)
    for _ in range(400):
        await watched.step(1.0)
    assert len(told.writes) == 1
    assert bench.workload("urgent").nominated == told.writes[0].clusters
    assert watched.counted(FindingCode.PREEMPTION_IN_VAIN) == 0


# --- a copy too many -------------------------------------------------------------------------------------------------


async def run_twice(watched: Watched) -> tuple[ClusterName, ClusterName]:
    """A job that runs where the hub placed it, and once more where MultiKueue does not come to take it away."""
    first = await watched.running("train-a", product=H100)
    second = next(ClusterName(c) for c in ("onprem-eu", "cloud-a-fi") if c != first)
    worker = watched.worker(second)
    worker.create_copy(watched.bench.fleet.hub_cluster.workloads[watched.bench.workload("train-a").uid])
    await watched.step(0.1)
    worker.create_job(watched.copy("train-a", second))
    watched.bench.fleet.switch_off(second)
    return first, second


def pods(watched: Watched, cluster: ClusterName) -> int:
    workload = watched.bench.workload("train-a")
    copy = watched.bench.fleet.worker_view(cluster).copies.get((workload.namespace, workload.name))
    return copy.bound_pods if copy is not None else 0


async def test_fr_rac_10_the_newer_copy_is_stopped_and_the_older_one_runs_on(watched: Watched) -> None:
    first, second = await run_twice(watched)
    await watched.until(lambda: watched.counted(FindingCode.TWO_COPIES_RUNNING) == 1, 5)
    await watched.until(lambda: pods(watched, second) == 0)
    assert pods(watched, first) > 0
    assert watched.bench.workload("train-a").cluster_name == first
    assert endings(watched) == {"asked": 1}
    text = dict(watched.bench.events("train-a"))["RunsTwice"]
    assert f"the one on {second} is surplus" in text


async def test_fr_rac_10_a_worker_that_does_not_let_us_is_asked_once_and_the_alarm_stays(watched: Watched) -> None:
    watched.bench.fleet.workers[ClusterName("onprem-eu")].may_stop = False
    watched.bench.fleet.workers[ClusterName("cloud-a-fi")].may_stop = False
    first, second = await run_twice(watched)
    for _ in range(20):
        await watched.step()
    assert pods(watched, second) > 0
    assert endings(watched) == {"refused": 1}
    assert FindingCode.TWO_COPIES_RUNNING in watched.codes()
    assert "kubectl -n autonomy patch workload" in dict(watched.bench.events("train-a"))["RunsTwice"]
    assert pods(watched, first) > 0


def endings(watched: Watched) -> dict[str, int]:
    """How often an end was asked for, by what came of it."""
    samples = [s for metric in watched.bench.metrics.endings.collect() for s in metric.samples]
    return {s.labels["result"]: int(s.value) for s in samples if s.name.endswith("_total") and s.value}


# --- a dispatch that never ran ----------------------------------------------------------------------------------------


async def test_fr_rac_06_what_the_hub_books_as_finished_without_a_pod_is_a_failed_dispatch(watched: Watched) -> None:
    """Kueue before 0.17.8 copies the worker's OutOfSync to the hub: its Finished is no success on any page."""
    bench = watched.bench
    first = await watched.running("train-a", product=H100)
    workload = bench.fleet.hub_cluster.workloads[bench.workload("train-a").uid]
    bench.fleet.hub_cluster.kueue.finish(workload, "OutOfSync")
    await watched.step()
    assert bench.phase("train-a") is Phase.FINISHED
    told = Look.at(bench.state).summary(bench.workload("train-a"))
    assert told.state.code is StateCode.DISPATCH_FAILED
    assert told.reason.startswith(f"failed to dispatch to {first}")
    assert watched.reasons("train-a") == ["DispatchFailed"], "no Event speaks of an end"
    assert watched.counted(FindingCode.COPY_OUT_OF_SYNC) == 1
    avoided = bench.state.avoided[bench.workload("train-a").uid]
    assert [(entry.cluster, entry.excluded) for entry in avoided] == [(first, True)]
