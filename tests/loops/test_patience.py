"""Patience with a nominated cluster counts from its copy, and until there is one, from MultiKueue's queue."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from connectors.embedded import EmbeddedFleet, ManualClock, NodeSpec, Options, Settings, WorkerSpec
from dispatcher.core.decision import Outcome
from dispatcher.core.ids import ClusterName, DecisionId
from dispatcher.core.policy import Policy
from dispatcher.core.ports import Intent, IntentState, WorkerPort
from dispatcher.core.snapshot import Hold, WorkerCopy, WorkerView
from dispatcher.core.waiting import Phase
from dispatcher.core.workload import HubWorkload, WorkloadClass
from dispatcher.loops.patience import Patience
from dispatcher.loops.rounds import Round
from tests.builders import START
from tests.core_builders import hold
from tests.loops.bench import Bench, example, example_plan, start
from tests.loops.jobs import B200, H100, H200, L40S, RTX, gang
from tests.unit.test_waiting import workload

A, B = ClusterName("onprem-eu"), ClusterName("cloud-c-us")
NOMINATED = workload(nominated=(A,))
COPY = WorkerCopy(uid="c1", namespace=NOMINATED.namespace, name=NOMINATED.name, ours=True)


@dataclass(slots=True)
class Unmade:
    """A worker as it looks while MultiKueue has not made its copies, or with `copies` of our own choice.

    Its LocalQueues are those of the beginning: a decision may choose it after they are gone, and nothing is admitted.
    """

    port: WorkerPort
    copies: tuple[WorkerCopy, ...] = ()
    first: WorkerView = field(init=False)

    def __post_init__(self) -> None:
        self.first = self.port.view()

    def view(self) -> WorkerView:
        copies = {(c.namespace, c.name): c for c in self.copies}
        return replace(self.port.view(), copies=copies, local_queues=self.first.local_queues)

    def __getattr__(self, name: str) -> object:
        return getattr(self.port, name)


def behind(bench: Bench, *names: str) -> list[Unmade]:
    """From now on these workers, or all, show no copies."""
    found = {ClusterName(n): Unmade(bench.state.workers[ClusterName(n)]) for n in names or bench.state.workers}
    bench.state.workers = {**bench.state.workers, **found}  # type: ignore[dict-item]
    return list(found.values())


def waits(patience: Patience, at_s: float, queued: int = 300, seen: HubWorkload = NOMINATED) -> float:
    return patience.waited_s(seen, lambda: queued, START + timedelta(seconds=at_s))


def test_until_there_is_a_copy_each_nomination_before_it_is_given_a_second(bench: Bench) -> None:
    behind(bench)
    patience = Patience(bench.state)
    assert waits(patience, 0) == -300
    assert waits(patience, 150, queued=150) == -150, "the queue gets shorter as time passes: not both count"
    assert waits(patience, 360, queued=0) == 60


def test_with_a_copy_it_counts_from_when_the_copy_was_seen(bench: Bench) -> None:
    there = behind(bench, A)[0]
    patience = Patience(bench.state)
    waits(patience, 0)
    there.copies = (COPY,)
    assert waits(patience, 100) == 0
    assert waits(patience, 130) == 30


def test_a_copy_that_comes_after_the_queue_should_have_made_it_has_its_whole_patience(bench: Bench) -> None:
    there = behind(bench, A)[0]
    patience = Patience(bench.state)
    waits(patience, 0, queued=1)
    assert waits(patience, 200) == 199
    there.copies = (COPY,)
    assert waits(patience, 201) == 0


def test_what_an_earlier_nomination_left_there_is_no_copy_of_this_one(bench: Bench) -> None:
    there = behind(bench, A)[0]
    patience = Patience(bench.state)
    made = replace(_hold(NOMINATED), former_copy=COPY.uid)
    bench.state.holds[NOMINATED.uid] = (made,)
    there.copies = (COPY,)
    assert waits(patience, 0) == -300
    there.copies = (replace(COPY, uid="c2"),)
    assert waits(patience, 10) == 0


def test_a_cluster_that_was_added_is_given_a_patience_of_its_own(bench: Bench) -> None:
    there = behind(bench, A, B)
    there[0].copies = (COPY,)
    patience = Patience(bench.state)
    assert waits(patience, 0) == 0
    assert waits(patience, 400, queued=20, seen=replace(NOMINATED, nominated=(A, B))) == -20


def test_what_was_waited_for_is_forgotten_with_the_workload(bench: Bench) -> None:
    behind(bench)
    patience = Patience(bench.state)
    waits(patience, 0)
    patience.keep({})
    assert waits(patience, 500, queued=5) == -5


@pytest.mark.parametrize(
    ("named", "expected_s"),
    [
        pytest.param("training", 300, id="its class's, though another class waits longer"),
        pytest.param("gardening", 900, id="the longest of all for a class that only another version knows"),
        pytest.param(None, 900, id="the longest of all for a nomination that is not ours"),
    ],
)
async def test_how_long_a_class_waits_for_a_worker(bench: Bench, named: str | None, expected_s: int) -> None:
    plans = bench.state.policy.classes
    simulation = replace(plans[WorkloadClass.SIMULATION], patience_s=900)
    bench.state.policy = replace(bench.state.policy, classes={**plans, WorkloadClass.SIMULATION: simulation})
    bench.fleet.submit(gang("train-a", product=H100))
    await bench.until(lambda: bench.phase("train-a") is Phase.NOMINATED, within_s=10)
    previous = replace(bench.decision("train-a"), workload_class=named) if named is not None else None
    assert bench.dispatch.planner._patience_s(previous) == expected_s


async def test_a_connected_cluster_that_never_gets_a_copy_ends_in_a_next_cluster(bench: Bench) -> None:
    bench.fleet.submit(gang("train-a", product=H100))
    first = await _nominated_and_not_taken(bench, "train-a")
    behind(bench, first)
    began = bench.clock.now()
    await bench.until(lambda: bench.decision("train-a").outcome is Outcome.ADD, within_s=320)
    assert (bench.clock.now() - began).total_seconds() >= 299
    assert bench.workload("train-a").nominated[:1] == (first,)


async def test_a_hold_outlives_its_deadline_and_a_restart_while_multikueue_has_made_no_copy(bench: Bench) -> None:
    there = behind(bench, B)[0]
    _takes_nothing(bench, B)
    bench.fleet.submit(gang("train-a", pods=3, product=B200))
    await bench.until(lambda: bench.phase("train-a") is Phase.NOMINATED, within_s=10)
    uid = bench.workload("train-a").uid
    await bench.step(bench.state.policy.limits.hold_ttl_s + 60)
    assert [hold.cluster for hold in bench.state.holds[uid]] == [B]
    await bench.restart()
    bench.state.workers = {**bench.state.workers, B: there}  # type: ignore[dict-item]
    bench.fleet.submit(gang("train-b", pods=3, product=B200))
    for _ in range(5):
        await bench.step()
    assert bench.state.holds[uid][0].expires_at > bench.clock.now()
    assert bench.decision("train-b").outcome is Outcome.WAIT, "the room is still promised"
    bench.fleet.delete("Job", "autonomy", "train-a")
    await bench.until(lambda: bench.decision("train-b").outcome is Outcome.NOMINATE, within_s=10)
    assert uid not in bench.state.holds


async def test_a_promise_that_was_given_up_does_not_come_back_with_one_that_is_renewed(bench: Bench) -> None:
    behind(bench, B)
    _takes_nothing(bench, B)
    bench.fleet.submit(gang("train-a", pods=3, product=B200))
    await bench.until(lambda: bench.phase("train-a") is Phase.NOMINATED, within_s=10)
    await bench.step()
    uid, now = bench.workload("train-a").uid, bench.clock.now()
    (first,) = bench.state.holds[uid]
    added = replace(first, cluster=A, decision=DecisionId("never-written"))
    intent = Intent(added.decision, uid, (B, A), IntentState.PLANNED, now, 0)
    await bench.store.commit(replace(bench.decision("train-a"), id=added.decision, resource_version="0"), added, intent)
    bench.state.holds[uid] = (replace(first, expires_at=now), added)
    bench.dispatch.rounds.begin(Round(added.decision, uid, "0", (B, A), now))
    await bench.step()
    (kept,) = bench.state.holds[uid]
    assert (kept.decision, kept.expires_at > bench.clock.now()) == (first.decision, True)


async def test_a_second_nomination_keeps_its_hold_while_the_copy_of_the_first_still_shows_its_quota(
    bench: Bench,
) -> None:
    bench.fleet.submit(gang("train-a", pods=3, product=B200, duration="600s"))
    await bench.until(lambda: bench.phase("train-a") is Phase.PLACED, within_s=30)
    await bench.step(5)
    stale = next(c for c in bench.state.worker_views()[B].copies.values() if c.quota_reserved_at is not None)
    uid = bench.workload("train-a").uid
    bench.fleet.set_active(uid, False)
    await bench.until(lambda: bench.workload("train-a").quota_reserved_at is None, within_s=30)
    assert bench.state.holds == {}
    behind(bench, B)[0].copies = (stale,)
    _takes_nothing(bench, B)
    bench.fleet.set_active(uid, True)
    await bench.until(lambda: bench.workload("train-a").nominated == (B,), within_s=30)
    for _ in range(5):
        await bench.step()
    assert [hold.former_copy for hold in bench.state.holds[uid]] == [stale.uid]
    assert [hold.former_copy for hold in await bench.store.holds()] == [stale.uid]


async def test_a_deep_queue_of_multikueue_is_not_taken_for_clusters_that_do_not_admit(tmp_path: Path) -> None:
    """Sixty jobs at five looks a second, of a class whose patience is over long before the last has its copy."""
    bench = await start(tmp_path, fleet=_stock(), policy=_patience(5))
    products, names = (H100, H200, L40S, RTX, B200, H100), [f"deep-{n:02d}" for n in range(60)]
    for number, name in enumerate(names):
        product = products[number % len(products)]
        namespace = "simulation" if product in (L40S, RTX) else "autonomy"
        bench.fleet.submit(gang(name, product=product, gpus=1, namespace=namespace, duration="5s"))
    await bench.until(bench.finished(*names), within_s=900)
    decisions = [d for name in names for d in await bench.store.decisions_of(bench.workload(name).key)]
    assert [d.key for d in decisions if d.outcome is Outcome.ADD] == []
    assert [found for found in bench.seen_copies.values() if len(found) != 1] == []
    await bench.store.close()


# --- what the tests stand on -----------------------------------------------------------------------------------------


async def _nominated_and_not_taken(bench: Bench, job: str) -> ClusterName:
    """The cluster that a job is nominated to, where it finds no LocalQueue."""
    bench.clock.advance(1.0)
    bench.fleet.advance()
    planned = await bench.dispatch.plan(set())
    first = planned[0].hold.cluster
    await bench.dispatch.write(planned)
    _takes_nothing(bench, first)
    assert bench.workload(job).nominated == (first,)
    return first


def _takes_nothing(bench: Bench, cluster: ClusterName) -> None:
    bench.fleet.remove("LocalQueue", "training", "autonomy", cluster=cluster)


def _hold(seen: HubWorkload) -> Hold:
    return hold(seen.name, A, workload=seen.uid, workload_key=seen.key)


def _patience(seconds: int) -> Policy:
    policy, _ = example()
    return replace(policy, classes={c: replace(plan, patience_s=seconds) for c, plan in policy.classes.items()})


def _stock() -> EmbeddedFleet:
    """The example fleet under a MultiKueue that sends 5 requests a second to a cluster, as Kueue's own does."""
    made = example_plan()
    workers = {
        name: WorkerSpec(
            made.workers[name], [NodeSpec(n.name, n.labels, n.taints, n.capacity) for n in made.nodes[name]]
        )
        for name in sorted(made.workers)
    }
    return EmbeddedFleet(made.hub, workers, ManualClock(START), Options(multikueue=Settings(remote_qps=5.0)))
