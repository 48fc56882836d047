"""What the hub knows of those who might be stopped: class and checkpoints, as their owners say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.snapshot import HubView, Stake
from dispatcher.core.stakes import Said, running_of, said_of, stake_of, stakes_of
from dispatcher.core.workload import Owner, OwnerMeta, WorkloadClass
from tests.core_builders import NOW, QUEUE, copy, decided, nodes, plan, policy, queue, quota, request, snapshot, worker
from tests.unit.test_waiting import workload

TRAINING, SIMULATION = WorkloadClass.TRAINING, WorkloadClass.SIMULATION
RUNS = workload(cluster_queue=QUEUE)
OWNER = Owner("batch/v1", "Job", "train", "job")
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
    hub = HubView(True, NOW, owners={OWNER.uid: owner} if owner is not None else {})
    assert stake_of(said_of(replace(RUNS, owner=OWNER), hub), BOOK) == expected


def test_only_of_ours_that_might_be_stopped_anything_is_asked() -> None:
    queues = [queue(quotas=quota(16, used=16), preempts_lower_priority=True)]
    copies = [copy(name, 8, ours=name != "local", admitted_at=NOW) for name in ("mine", "local")]
    view = worker("onprem", nodes(2, used=8), queues, copies=copies)
    wanted = replace(request("urgent"), priority=9, pod_sets=(replace(request().pod_sets[0], count=2),))
    found = decided(wanted, view).candidates
    ours = dict.fromkeys(("team/mine", "team/local", "team/other"), said_of(RUNS, HubView(True, NOW)))
    assert stakes_of(found, ours.get, BOOK) == {"team/mine": Stake(TRAINING, None)}


def test_what_was_said_is_a_stake_by_the_rules_that_are_asked() -> None:
    """So a snapshot file answers under an edited blueprint as well."""
    saves = Said(SIMULATION, QUEUE, keeps_checkpoints=True)
    other = replace(BOOK, classes={SIMULATION: plan(SIMULATION, checkpoint_interval_s=60)})
    assert [stake_of(saves, rules) for rules in (BOOK, other)] == [Stake(SIMULATION, 1800), Stake(SIMULATION, 60)]


def test_a_snapshot_takes_along_what_is_said_of_whoever_has_a_copy_somewhere() -> None:
    shown = {name: replace(RUNS, uid=name, namespace="team", name=name) for name in ("runs", "waits", "done")}
    shown["done"] = replace(shown["done"], finished=True)
    copies = [copy(name, 1, ours=name != "local", admitted_at=NOW) for name in ("runs", "done", "local", "left-over")]
    hub = HubView(True, NOW, workloads={w.uid: w for w in shown.values()})
    found = running_of(hub, snapshot(worker("onprem", nodes(2), copies=copies)))
    assert found == {"team/runs": Said(None, QUEUE)}
