"""Open nominations and their holds, between the write and the moment the views show it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dispatcher.core.ids import ClusterName, DecisionId, FlavorName, QueueName, WorkloadUid
from dispatcher.core.ports import IntentState
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import Hold, WorkerCopy, WorkerView
from dispatcher.core.workload import HubWorkload
from dispatcher.loops.rounds import Round, Rounds, hold_ended, round_state
from tests.unit.test_waiting import T0, hub, workload

A, B = ClusterName("a"), ClusterName("b")
TTL_S = 300
ROUND = Round(DecisionId("d1"), WorkloadUid("w1"), "10", (A,), T0)
HOLD = Hold(
    workload=WorkloadUid("w1"),
    workload_key="autonomy/job-train-a",
    cluster=A,
    queue=QueueName("training"),
    decision=DecisionId("d1"),
    usage=(("main", 1, Resources.of({"nvidia.com/gpu": 8}), FlavorName("h100")),),
    made_at=T0,
    expires_at=T0 + timedelta(minutes=5),
)

ROUNDS: dict[str, tuple[HubWorkload | None, int, IntentState]] = {
    "the view has not moved: leave it": (workload(), 1, IntentState.PLANNED),
    "the view has not moved for too long: not made": (workload(), 16, IntentState.ABANDONED),
    "the nomination shows": (workload(resource_version="11", nominated=(A,)), 1, IntentState.WRITTEN),
    "it went so fast that only the cluster shows": (
        workload(resource_version="12", cluster_name=A),
        1,
        IntentState.WRITTEN,
    ),
    "the view moved and shows somebody else's change": (workload(resource_version="11"), 1, IntentState.ABANDONED),
    "the workload is gone": (None, 1, IntentState.ABANDONED),
}


@pytest.mark.parametrize(("seen", "age_s", "expected"), ROUNDS.values(), ids=ROUNDS.keys())
def test_round_state(seen: HubWorkload | None, age_s: int, expected: IntentState) -> None:
    assert round_state(ROUND, seen, T0 + timedelta(seconds=age_s)) is expected


def test_an_added_name_is_written_only_when_that_name_shows() -> None:
    added = replace(ROUND, clusters=(A, B))
    before = workload(resource_version="11", nominated=(A,))
    after = workload(resource_version="12", nominated=(A, B))
    assert round_state(added, before, T0) is IntentState.ABANDONED
    assert round_state(added, after, T0) is IntentState.WRITTEN


def worker(copy: WorkerCopy | None) -> WorkerView:
    copies = {("autonomy", "job-train-a"): copy} if copy is not None else {}
    return WorkerView(A, synced=True, observed_at=T0, copies=copies)


OURS = WorkerCopy(uid="c1", namespace="autonomy", name="job-train-a", ours=True)
HOLDS: dict[str, tuple[HubWorkload | None, WorkerCopy | None, int, bool]] = {
    "nominated and nothing on the worker yet": (workload(nominated=(A,)), None, 0, False),
    "a copy without quota does not count": (workload(nominated=(A,)), OURS, 0, False),
    "the worker reserved: its own figures show it": (
        workload(nominated=(A,)),
        replace(OURS, quota_reserved_at=T0),
        0,
        True,
    ),
    "somebody else's object of that name proves nothing": (
        workload(nominated=(A,)),
        replace(OURS, ours=False, quota_reserved_at=T0),
        0,
        False,
    ),
    "admitted elsewhere": (workload(cluster_name=B), None, 0, True),
    "placed here but not yet visible": (workload(cluster_name=A), None, 0, False),
    "deleted": (None, None, 0, True),
    "finished": (workload(finished=True), None, 0, True),
    "the nomination was cleared": (workload(), None, 0, True),
    "the deadline passed and the worker does not take the copy": (workload(nominated=(A,)), OURS, 301, True),
    "the deadline passed and MultiKueue has not come to make the copy": (workload(nominated=(A,)), None, 301, False),
    "the deadline passed and all there is of a copy is another's": (
        workload(nominated=(A,)),
        replace(OURS, ours=False),
        301,
        False,
    ),
    "the deadline passed and the nomination ended": (workload(), None, 301, True),
    "the deadline passed and another cluster is nominated": (workload(nominated=(B,)), None, 301, True),
}
STALE = replace(OURS, quota_reserved_at=T0)
REPEATED = replace(HOLD, former_copy="c1")
FORMER: dict[str, tuple[HubWorkload, WorkerCopy | None, int, bool]] = {
    "the copy of an earlier nomination still shows its quota": (workload(nominated=(A,)), STALE, 0, False),
    "the copy of an earlier nomination has finished": (
        workload(nominated=(A,)),
        replace(OURS, finished=True),
        0,
        False,
    ),
    "it lies there after the deadline: the new one is still to be made": (workload(nominated=(A,)), STALE, 301, False),
    "another copy is the new one": (workload(nominated=(A,)), replace(STALE, uid="c2"), 0, True),
    "another copy that its worker does not take": (workload(nominated=(A,)), replace(OURS, uid="c2"), 301, True),
    "placed here: MultiKueue took up the copy that was left": (workload(cluster_name=A), STALE, 0, True),
    "placed here and what was left is gone": (workload(cluster_name=A), None, 0, False),
}


@pytest.mark.parametrize(("seen", "copy", "age_s", "ended"), HOLDS.values(), ids=HOLDS.keys())
def test_hold_ended(seen: HubWorkload | None, copy: WorkerCopy | None, age_s: int, ended: bool) -> None:
    view = hub(*((seen,) if seen else ()))
    assert hold_ended(HOLD, seen, view, worker(copy), T0 + timedelta(seconds=age_s)) is ended


@pytest.mark.parametrize(("seen", "copy", "age_s", "ended"), FORMER.values(), ids=FORMER.keys())
def test_a_copy_that_lay_there_before_is_not_the_answer(
    seen: HubWorkload, copy: WorkerCopy | None, age_s: int, ended: bool
) -> None:
    now = T0 + timedelta(seconds=age_s)
    assert hold_ended(REPEATED, seen, hub(seen), worker(copy), now) is ended


def test_a_hold_that_waits_for_its_copy_is_renewed_before_its_deadline_and_no_other_is() -> None:
    late, now = timedelta(minutes=5), T0 + timedelta(seconds=200)
    with_copy = replace(HOLD, workload=WorkloadUid("w2"), workload_key="autonomy/job-train-b")
    young = replace(HOLD, workload=WorkloadUid("w3"), workload_key="autonomy/c", expires_at=now + late)
    seen = [
        workload(nominated=(A,)),
        workload(uid="w2", name="job-train-b", nominated=(A,)),
        workload(uid="w3", name="c", nominated=(A,)),
    ]
    view = WorkerView(
        A, synced=True, observed_at=T0, copies={("autonomy", "job-train-b"): replace(OURS, name="job-train-b")}
    )
    holds = {h.workload: (h,) for h in (HOLD, with_copy, young)}
    early = Rounds().settle(hub(*seen), {A: view}, holds, T0 + timedelta(seconds=100), TTL_S)
    assert (early.released, early.renewed) == ((), {}), "nothing is near its deadline"
    found = Rounds().settle(hub(*seen), {A: view}, holds, now, TTL_S)
    assert found.released == ()
    assert found.renewed == {
        WorkloadUid("w1"): (replace(HOLD, expires_at=now + late),),
        WorkloadUid("w3"): (young,),
    }
    again = Rounds().settle(hub(*seen), {A: view}, {**holds, **found.renewed}, now + timedelta(seconds=1), TTL_S)
    assert again.renewed == {}, "each renewal has the cluster weighed anew: it is rare"


def test_a_hold_that_outlived_its_deadline_while_nobody_led_is_renewed_at_the_first_look() -> None:
    now = T0 + timedelta(hours=1)
    found = Rounds().settle(hub(workload(nominated=(A,))), {A: worker(None)}, {WorkloadUid("w1"): (HOLD,)}, now, TTL_S)
    assert found.released == ()
    assert found.renewed[WorkloadUid("w1")][0].expires_at == now + timedelta(seconds=TTL_S)


def test_a_promise_beside_one_that_waits_for_its_copy_ends_at_its_own_deadline() -> None:
    other = replace(HOLD, cluster=B, decision=DecisionId("d2"))
    seen, now = workload(nominated=(A, B)), T0 + timedelta(seconds=301)
    holds = {WorkloadUid("w1"): (HOLD, other)}
    found = Rounds().settle(hub(seen), {A: worker(OURS), B: worker(None)}, holds, now, TTL_S)
    kept, waiting = found.renewed[WorkloadUid("w1")]
    assert kept == HOLD
    assert waiting.expires_at == now + timedelta(seconds=TTL_S)
    again = Rounds().settle(hub(seen), {A: worker(OURS), B: worker(None)}, {**holds, **found.renewed}, now, TTL_S)
    assert again.renewed == {}


def test_fr_rac_09_a_workload_with_an_open_round_keeps_its_hold_and_is_settled_once() -> None:
    rounds = Rounds()
    rounds.begin(ROUND)
    holds = {WorkloadUid("w1"): (HOLD,)}
    first = rounds.settle(hub(workload()), {A: worker(None)}, holds, T0, TTL_S)
    assert (first.marks, first.released) == ((), ())
    second = rounds.settle(hub(workload(resource_version="11", nominated=(A,))), {A: worker(None)}, holds, T0, TTL_S)
    assert (second.marks, second.released) == (((DecisionId("d1"), IntentState.WRITTEN),), ())
    third = rounds.settle(hub(workload(resource_version="11", nominated=(A,))), {A: worker(None)}, holds, T0, TTL_S)
    assert third.marks == ()
