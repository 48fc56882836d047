"""Faults of copies on workers, on the embedded fleet: each is told once, counted, learnt from, and the job goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from connectors.embedded import EmbeddedFleet, ManualClock
from connectors.embedded.fleet import Options
from connectors.embedded.objects import Workload
from connectors.embedded.worker import Worker
from dispatcher.core.decision import Outcome, Reason, TermKind
from dispatcher.core.errors import Conflict, Refused, Transient
from dispatcher.core.ids import ClusterName
from dispatcher.core.ports import Nomination
from dispatcher.core.snapshot import Check, StopPolicy
from dispatcher.core.waiting import Phase
from dispatcher.core.watchdog import FindingCode
from dispatcher.core.workload import CheckState
from dispatcher.loops import watch_copies
from dispatcher.loops.watch_copies import EXCLUSION_S, CopiesLoop
from dispatcher.runtime import Waker
from tests.builders import START
from tests.loops.bench import Bench, example_plan, start
from tests.loops.jobs import B200, H100, gang

MOMENT_S = 0.02
CHEAP = {"expected-duration": "PT10M"}
"""Short enough that half an hour of waiting weighs more than any difference of prices."""


@dataclass(slots=True)
class Watched:
    """A bench whose daemon also watches copies; time goes in small steps, since workers' answers are short."""

    bench: Bench
    copies: CopiesLoop

    async def step(self, seconds: float = 0.2) -> None:
        self.bench.clock.advance(seconds)
        self.bench.fleet.advance()
        self.bench._watch_copies()
        await self.copies.cycle()
        await self.bench.dispatch.cycle()
        await self.bench.notices.drain()

    async def until(self, done: object, within_s: float = 60.0, step_s: float = 0.2) -> None:
        """Step until `done`. What is visible for a moment only needs small steps: a daemon is woken by each change."""
        passed = 0.0
        while not done():  # type: ignore[operator]
            assert passed < within_s, f"did not happen within {within_s} s: {self.bench.phases()} {self.codes()}"
            await self.step(step_s)
            passed += step_s

    async def running(self, job: str, **more: object) -> ClusterName:
        """Submit a job and wait until it has pods on its cluster."""
        self.bench.fleet.submit(gang(job, duration="600s", says=CHEAP, **more))
        await self.until(lambda: self.bench.phase(job) is Phase.PLACED and self._pods(job) > 0)
        cluster = self.bench.workload(job).cluster_name
        assert cluster is not None
        return cluster

    def _pods(self, job: str) -> int:
        workload = self.bench.workload(job)
        views = self.bench.state.worker_views().values()
        copies = [view.copies.get((workload.namespace, workload.name)) for view in views]
        return sum(copy.bound_pods for copy in copies if copy is not None)

    def worker(self, cluster: ClusterName) -> Worker:
        return self.bench.fleet.worker_clusters[cluster]

    def copy(self, job: str, cluster: ClusterName) -> Workload:
        workload = self.bench.workload(job)
        return self.worker(cluster).copies[workload.namespace, workload.name]

    async def mend_hub_job(self, job: str) -> None:
        """What the Event tells a person to do: the hub's job no longer counts pods of a copy that is gone."""
        uid = self.bench.workload(job).uid
        await self.until(lambda: self.bench.phase(job) is Phase.EVICTING)
        self.bench.fleet.hub_cluster.workloads[uid].job_active = 0
        self.bench.fleet._multikueue.enqueue(uid, 0.0)

    def codes(self) -> list[FindingCode]:
        return [finding.code for finding in self.bench.state.findings]

    def reasons(self, job: str) -> list[str]:
        """Reasons of the Events on a job's Workload, without those of dispatch."""
        return [r for r, _ in self.bench.events(job) if r not in ("Nominated", "NominationAdded", "Waiting")]

    def counted(self, code: FindingCode) -> float:
        return self.bench.metrics.findings.labels(code)._value.get()


def watch(bench: Bench) -> Watched:
    bench.dispatch.health.register(watch_copies.LOOP, 60.0)
    health, lessons = bench.dispatch.health, bench.store.lesson_log
    loop = CopiesLoop(bench.state, bench.notices, bench.metrics, health, Waker(bench.clock), lessons=lessons)
    return Watched(bench, loop)


@pytest_asyncio.fixture
async def watched(bench: Bench) -> Watched:
    return watch(bench)


@pytest_asyncio.fixture
async def without_policy(tmp_path: Path) -> AsyncIterator[Watched]:
    """A hub that cannot clear nominations of our manager: what an older daemon, or a policy taken away, leaves."""
    fleet = EmbeddedFleet.of_plan(example_plan(), ManualClock(START), Options(clearing_policy=False))
    found = await start(tmp_path, fleet=fleet)
    yield watch(found)
    await found.store.close()


# --- the cluster is dearer for a while -----------------------------------------------------------------------------


async def test_fr_nom_03_after_an_eviction_on_the_worker_all_legal_clusters_are_weighed_anew(watched: Watched) -> None:
    first = await watched.running("train-a")
    workload = watched.bench.workload("train-a")
    queue = watched.copy("train-a", first).cluster_queue
    assert queue is not None
    watched.bench.fleet.hold_queue(queue, StopPolicy.HOLD, first)  # what preempted it is in its place
    watched.bench.fleet.evict(first, workload.namespace, workload.name, "Preempted")
    await watched.until(lambda: watched.bench.phase("train-a") is Phase.EVICTING, step_s=MOMENT_S)
    watched.bench.fleet.hold_queue(queue, StopPolicy.NONE, first)
    await watched.until(
        lambda: watched.bench.phase("train-a") is Phase.PLACED and watched.bench.decision("train-a").attempt == 2
    )
    decision = watched.bench.decision("train-a")
    assert decision.chosen != first
    back = decision.candidate(first)
    assert back is not None
    assert not back.rejections, "the cluster that evicted is dearer, not excluded"
    waiting = next(term for term in back.terms if term.kind is TermKind.WAITING)
    assert [line.what for line in waiting.bill] == ["return to where it was stopped (copy-evicted)"]
    assert watched.reasons("train-a") == ["EvictedOnWorker"]
    assert "(Preempted)" in dict(watched.bench.events("train-a"))["EvictedOnWorker"]


async def test_a_copy_that_is_deleted_on_the_worker_is_told_and_the_job_goes_on_when_its_pods_are_gone(
    watched: Watched,
) -> None:
    first = await watched.running("train-a")
    copy = watched.copy("train-a", first)
    watched.worker(first).delete(copy)
    await watched.until(lambda: watched.counted(FindingCode.COPY_VANISHED) == 1)
    assert watched.reasons("train-a") == ["LostOnWorker"]
    assert [(a.cluster, a.excluded) for a in watched.bench.state.avoided[watched.bench.workload("train-a").uid]] == [
        (first, False)
    ]


# --- the cluster is left out for a while ---------------------------------------------------------------------------


def with_provisioning(watched: Watched) -> None:
    """Every worker has a check of its own, such as a provisioning request."""
    for cluster in watched.bench.fleet.worker_clusters.values():
        cluster.inventory.checks["prov"] = Check("prov", "kueue.x-k8s.io/provisioning-request", True)
        for name, spec in list(cluster.inventory.queues.items()):
            cluster.inventory.queues[name] = replace(spec, checks=("prov",))
        cluster.kueue.inventory_changed()


async def nominated(watched: Watched, job: str) -> ClusterName:
    """A job whose copy waits on its cluster for a check of that cluster's own."""
    with_provisioning(watched)
    watched.bench.fleet.submit(gang(job, duration="5s", says=CHEAP))
    await watched.until(lambda: watched.bench.phase(job) is Phase.NOMINATED and waits_for_check(watched, job))
    return watched.bench.workload(job).nominated[0]


def waits_for_check(watched: Watched, job: str) -> bool:
    workload = watched.bench.workload(job)
    found = watched.worker(workload.nominated[0]).copies.get((workload.namespace, workload.name))
    return found is not None and found.quota_reserved_at is not None and "prov" in found.checks


def answer(watched: Watched, job: str, cluster: ClusterName, state: str) -> None:
    watched.worker(cluster).kueue.set_check(watched.copy(job, cluster), CheckState("prov", state, "no capacity"))


REFUSALS = {
    "rejected": ("Rejected", FindingCode.COPY_REJECTED, "RejectedOnWorker"),
    "provisioning failed": ("Retry", FindingCode.PROVISIONING_FAILED, "ProvisioningFailed"),
}


@pytest.mark.parametrize(("state", "code", "event"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_worker_that_refuses_the_copy_is_left_out_and_another_is_added_at_once(
    watched: Watched, state: str, code: FindingCode, event: str
) -> None:
    first = await nominated(watched, "train-a")
    answer(watched, "train-a", first, state)
    await watched.until(lambda: len(watched.bench.workload("train-a").nominated) == 2, 5, MOMENT_S)
    decision = watched.bench.decision("train-a")
    assert decision.outcome is Outcome.ADD
    refused = decision.candidate(first)
    assert refused is not None
    assert Reason.FAILED_HERE in {r.reason for r in refused.rejections}
    second = watched.bench.workload("train-a").nominated[1]
    await watched.until(lambda: _copy_with_quota(watched, "train-a", second))
    answer(watched, "train-a", second, "Ready")
    await watched.until(watched.bench.finished("train-a"))
    assert event in watched.reasons("train-a")
    assert watched.counted(code) >= 1


def _copy_with_quota(watched: Watched, job: str, cluster: ClusterName) -> bool:
    workload = watched.bench.workload(job)
    copy = watched.worker(cluster).copies.get((workload.namespace, workload.name))
    return copy is not None and copy.quota_reserved_at is not None


async def test_a_copy_that_was_deactivated_on_the_worker_goes_elsewhere(watched: Watched) -> None:
    first = await watched.running("train-a")
    watched.worker(first).kueue.deactivate(watched.copy("train-a", first))
    await watched.until(lambda: watched.counted(FindingCode.COPY_DEACTIVATED) == 1)
    await watched.until(lambda: watched.counted(FindingCode.EVICTION_STUCK) == 1)
    assert "kubectl -n autonomy patch job train-a" in dict(watched.bench.events("train-a"))["EvictionStuck"]
    await watched.mend_hub_job("train-a")
    await watched.until(lambda: watched.bench.decision("train-a").attempt == 2)
    assert watched.bench.decision("train-a").chosen != first
    assert watched.reasons("train-a")[0] == "DeactivatedOnWorker"


async def test_an_exclusion_ends_and_the_next_one_lasts_twice_as_long(watched: Watched) -> None:
    first = await watched.running("train-a")
    uid = watched.bench.workload("train-a").uid
    watched.worker(first).kueue.deactivate(watched.copy("train-a", first))
    await watched.until(lambda: uid in watched.bench.state.avoided)
    entry = watched.bench.state.avoided[uid][0]
    assert entry.until is not None
    assert (entry.until - entry.since).total_seconds() == EXCLUSION_S
    await watched.mend_hub_job("train-a")
    await watched.step(EXCLUSION_S + 1)
    assert uid not in watched.bench.state.avoided
    await watched.until(lambda: watched._pods("train-a") > 0)
    watched.copies._times[uid, watched.bench.workload("train-a").cluster_name, "copy-deactivated"] = 1
    second = watched.bench.workload("train-a").cluster_name
    assert second is not None
    watched.worker(second).kueue.deactivate(watched.copy("train-a", second))
    await watched.until(lambda: uid in watched.bench.state.avoided)
    entry = watched.bench.state.avoided[uid][0]
    assert entry.until is not None
    assert (entry.until - entry.since).total_seconds() == 2 * EXCLUSION_S


async def test_fr_rac_06_out_of_sync_is_a_failed_dispatch_and_not_an_end(watched: Watched) -> None:
    first = await watched.running("train-a")
    copy = watched.copy("train-a", first)
    watched.worker(first)._run_of[copy.uid].stop(lambda: None)  # there never was a pod
    watched.worker(first).kueue.finish(copy, "OutOfSync")
    await watched.until(lambda: watched.counted(FindingCode.COPY_OUT_OF_SYNC) == 1)
    await watched.until(
        lambda: watched.bench.phase("train-a") is Phase.PLACED and watched.bench.decision("train-a").attempt == 2
    )
    assert watched.bench.decision("train-a").chosen != first
    assert watched.reasons("train-a") == ["DispatchFailed"]
    assert not watched.bench.workload("train-a").finished


async def test_fr_rac_07_a_local_job_of_the_same_name_excludes_the_cluster_before_anything_is_written(
    watched: Watched,
) -> None:
    watched.bench.fleet.submit(gang("train-a", duration="600s"), "onprem-eu")
    await watched.step(1)
    cluster = await watched.running("train-a")
    assert cluster != "onprem-eu"
    candidate = watched.bench.decision("train-a").candidate(ClusterName("onprem-eu"))
    assert candidate is not None
    assert Reason.NAME_TAKEN in {r.reason for r in candidate.rejections}
    local = [
        c for c in watched.bench.fleet.worker_view("onprem-eu").copies.values() if c.job_name == "train-a" or not c.ours
    ]
    assert len(local) == 1, "nothing of the team's was deleted"


async def test_a_local_job_that_takes_the_name_after_the_nomination_is_found_out(watched: Watched) -> None:
    first = await nominated(watched, "train-a")
    watched.bench.fleet.submit(gang("train-a", duration="600s"), first)
    await watched.step(1)
    answer(watched, "train-a", first, "Ready")
    await watched.until(lambda: watched.counted(FindingCode.NAME_TAKEN) == 1, within_s=10)
    assert "NameTaken" in watched.reasons("train-a")


# --- nothing is run twice ------------------------------------------------------------------------------------------


async def test_fr_rac_03_what_may_have_finished_unseen_is_not_started_again(watched: Watched) -> None:
    """A TTL of nothing on the worker: the pods end, the job and its copy are gone before the hub has read of it."""
    first = await watched.running("train-a", product=H100)
    worker, copy = watched.worker(first), watched.copy("train-a", first)
    run = worker._run_of[copy.uid]
    run.stop(lambda: None)  # the pods have ended; nobody has written a status yet
    await watched.step(0.1)
    worker.delete(copy)
    uid = watched.bench.workload("train-a").uid
    await watched.until(lambda: uid in watched.bench.state.avoided)
    assert watched.codes() == [FindingCode.OUTCOME_UNKNOWN] or watched.counted(FindingCode.OUTCOME_UNKNOWN) == 1
    await watched.mend_hub_job("train-a")
    await watched.until(lambda: watched.bench.phase("train-a") is Phase.WAITING)
    for _ in range(50):
        await watched.step()
    assert watched.bench.seen_copies[watched.bench.workload("train-a").key] == {first}, "it ran once"
    decision = watched.bench.decision("train-a")
    assert decision.outcome is Outcome.WAIT
    assert {Reason.OUTCOME_UNKNOWN} <= {r.reason for c in decision.candidates for r in c.rejections}
    assert "OutcomeUnknown" in watched.reasons("train-a")


async def test_fr_rac_10_pods_on_two_clusters_are_an_alarm(watched: Watched) -> None:
    first = await watched.running("train-a", product=H100)
    other = next(c for c in ("onprem-eu", "cloud-a-fi") if c != first)
    hub_workload = watched.bench.fleet.hub_cluster.workloads[watched.bench.workload("train-a").uid]
    worker = watched.worker(ClusterName(other))
    worker.create_copy(hub_workload)
    await watched.step(0.1)
    worker.create_job(watched.copy("train-a", ClusterName(other)))
    await watched.step(0.2)
    await watched.step(0.2)
    assert watched.counted(FindingCode.TWO_COPIES_RUNNING) == 1
    text = dict(watched.bench.events("train-a"))["RunsTwice"]
    assert first in text
    assert other in text


# --- a hub that does not clear nominations -------------------------------------------------------------------------


async def test_fr_nom_01_a_hub_that_does_not_latch_is_an_alarm(without_policy: Watched) -> None:
    without_policy.bench.fleet.submit(gang("train-a", duration="600s"))
    await without_policy.until(lambda: without_policy.counted(FindingCode.NOT_LATCHED) == 1, within_s=90)
    assert without_policy.bench.workload("train-a").cluster_name is None
    text = dict(without_policy.bench.events("train-a"))["NotLatched"]
    assert "the hub has not taken notice" in text


async def test_a_nomination_that_an_eviction_left_behind_is_cleared_before_anything_is_decided(
    without_policy: Watched,
) -> None:
    bench = without_policy.bench
    bench.fleet.submit(gang("train-a", product=B200, gpus=8, pods=3, duration="600s"))
    await without_policy.until(lambda: bench.phase("train-a") is Phase.NOMINATED)
    workload = bench.workload("train-a")
    await without_policy.until(lambda: bool(bench.seen_copies))
    check = workload.checks[0].name
    bench.fleet.set_check(workload.uid, check, "Retry")
    await without_policy.until(lambda: without_policy.counted(FindingCode.LEFT_BEHIND) == 1, 5, MOMENT_S)
    assert bench.workload("train-a").nominated == ()
    assert bench.metrics.nominations.labels("withdrawn")._value.get() == 1
    assert "NominationCleared" in without_policy.reasons("train-a")


FAULTS = {
    "the object moved": (Conflict("newer"), None),
    "the hub refuses": (Refused("forbidden"), "refused"),
    "the hub is away": (Transient("gone"), "unknown"),
}


@pytest.mark.parametrize(("error", "result"), FAULTS.values(), ids=FAULTS.keys())
async def test_a_withdrawal_that_fails_is_counted_and_tried_again(
    without_policy: Watched, error: Conflict | Refused | Transient, result: str | None
) -> None:
    bench = without_policy.bench
    await nominate_by_hand(without_policy, "train-a")
    hub_workload = bench.fleet.hub_cluster.workloads[bench.workload("train-a").uid]
    bench.fleet.hub_cluster.kueue.evict(hub_workload, "Preempted")
    bench.fleet.fail_next_write(error)
    await without_policy.copies.cycle()
    assert bench.workload("train-a").nominated
    if result is not None:
        assert bench.metrics.nominations.labels(result)._value.get() == 1
    await without_policy.copies.cycle()
    assert bench.workload("train-a").nominated == ()


async def nominate_by_hand(watched: Watched, job: str) -> None:
    """A nomination by somebody else, on a job that waits for a cluster which nobody has."""
    bench = watched.bench
    bench.fleet.submit(gang(job, duration="600s"))
    bench.clock.advance(1)
    bench.fleet.advance()
    workload = bench.workload(job)
    await bench.fleet.hub.nominate(
        Nomination(
            workload.uid, workload.namespace, workload.name, workload.resource_version, (ClusterName("cloud-z"),)
        )
    )


# --- when nothing may be concluded, and who may act ----------------------------------------------------------------


async def test_a_silent_hub_is_not_judged(watched: Watched) -> None:
    await watched.running("train-a")
    watched.bench.fleet.silence("hub")
    before = watched.bench.state.findings
    watched.bench.clock.advance(120)
    watched.bench.fleet.advance()
    await watched.copies.cycle()
    assert watched.bench.state.findings == before == ()


class Standby:
    """A replica that does not lead."""

    term = 1

    def may_write(self, now_s: float) -> bool:
        return False


async def test_a_replica_that_stands_by_learns_but_neither_tells_nor_writes(without_policy: Watched) -> None:
    bench = without_policy.bench
    without_policy.copies.leadership = Standby()
    await nominate_by_hand(without_policy, "train-a")
    bench.fleet.hub_cluster.kueue.evict(bench.fleet.hub_cluster.workloads[bench.workload("train-a").uid], "Preempted")
    await without_policy.copies.cycle()
    await bench.notices.drain()
    assert without_policy.codes() == [FindingCode.LEFT_BEHIND]
    assert bench.workload("train-a").nominated
    assert without_policy.reasons("train-a") == []


async def test_what_is_so_for_long_is_told_once_and_open_until_it_is_over(without_policy: Watched) -> None:
    without_policy.bench.fleet.submit(gang("train-a", duration="600s"))
    await without_policy.until(lambda: without_policy.counted(FindingCode.NOT_LATCHED) == 1, within_s=90)
    for _ in range(20):
        await without_policy.step()
    assert without_policy.counted(FindingCode.NOT_LATCHED) == 1
    gauge = without_policy.bench.metrics.findings_open.labels(FindingCode.NOT_LATCHED)
    assert gauge._value.get() == 1
    assert without_policy.reasons("train-a") == ["NotLatched"]
    without_policy.bench.fleet.delete("Job", "autonomy", "train-a")
    await without_policy.step(1)
    assert gauge._value.get() == 0
