"""What the hub knows of those who might be stopped: class and checkpoints, as their owners say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.snapshot import HubView, Stake
from dispatcher.core.stakes import stake_of, stakes_of
from dispatcher.core.workload import OwnerMeta, WorkloadClass
from tests.core_builders import NOW, QUEUE, copy, decided, nodes, plan, policy, queue, quota, request, worker
from tests.unit.test_waiting import workload

TRAINING, SIMULATION = WorkloadClass.TRAINING, WorkloadClass.SIMULATION
RUNS = workload(cluster_queue=QUEUE)
BOOK = replace(
    policy(),
    classes={kind: plan(kind, checkpoint_interval_s=1800 if kind is SIMULATION else None) for kind in WorkloadClass},
)


def said(**keys: str) -> OwnerMeta:
    told = tuple((f"entrepot.dev/{key.replace('_', '-')}", value) for key, value in sorted(keys.items()))
    return OwnerMeta("job", "Job", RUNS.namespace, "train", told)


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        pytest.param(None, Stake(TRAINING, None), id="nobody is seen who says anything: the class of its queue"),
        pytest.param(said(workload_class="simulation"), Stake(SIMULATION, None), id="its class, and no checkpoints"),
        pytest.param(said(checkpoint="lake/a", checkpoint_interval="PT10M"), Stake(TRAINING, 600), id="as it says"),
        pytest.param(
            said(checkpoint="lake/a", workload_class="simulation"), Stake(SIMULATION, 1800), id="as its class"
        ),
        pytest.param(said(checkpoint="lake/a"), Stake(TRAINING, None), id="how often is nobody's word"),
        pytest.param(said(checkpoint_interval="PT10M"), Stake(TRAINING, None), id="without a store none can be used"),
        pytest.param(said(checkpoint="lake/a", checkpoint_interval="ten"), Stake(TRAINING, None), id="unreadable"),
    ],
)
def test_a_stake_is_what_its_owner_says(owner: OwnerMeta | None, expected: Stake) -> None:
    assert stake_of(RUNS, owner, BOOK) == expected


def test_only_of_ours_that_might_be_stopped_anything_is_asked() -> None:
    queues = [queue(quotas=quota(16, used=16), preempts_lower_priority=True)]
    copies = [copy(name, 8, ours=name != "local", admitted_at=NOW) for name in ("mine", "local")]
    view = worker("onprem", nodes(2, used=8), queues, copies=copies)
    wanted = replace(request("urgent"), priority=9, pod_sets=(replace(request().pod_sets[0], count=2),))
    found = decided(wanted, view).candidates
    ours = {"team/mine": replace(RUNS, namespace="team", name="mine"), "team/local": RUNS, "team/other": RUNS}
    assert stakes_of(found, ours, HubView(True, NOW), BOOK) == {"team/mine": Stake(TRAINING, None)}
