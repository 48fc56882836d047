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
    "the deadline passed": (workload(nominated=(A,)), None, 301, True),
}


@pytest.mark.parametrize(("seen", "copy", "age_s", "ended"), HOLDS.values(), ids=HOLDS.keys())
def test_hold_ended(seen: HubWorkload | None, copy: WorkerCopy | None, age_s: int, ended: bool) -> None:
    view = hub(*((seen,) if seen else ()))
    assert hold_ended(HOLD, seen, view, worker(copy), T0 + timedelta(seconds=age_s)) is ended


def test_fr_rac_09_a_workload_with_an_open_round_keeps_its_hold_and_is_settled_once() -> None:
    rounds = Rounds()
    rounds.begin(ROUND)
    holds = {WorkloadUid("w1"): (HOLD,)}
    first = rounds.settle(hub(workload()), {A: worker(None)}, holds, T0)
    assert (first.marks, first.released) == ((), ())
    second = rounds.settle(hub(workload(resource_version="11", nominated=(A,))), {A: worker(None)}, holds, T0)
    assert (second.marks, second.released) == (((DecisionId("d1"), IntentState.WRITTEN),), ())
    third = rounds.settle(hub(workload(resource_version="11", nominated=(A,))), {A: worker(None)}, holds, T0)
    assert third.marks == ()
