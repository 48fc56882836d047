"""Which workloads wait for a nomination: kueue-contract section 4, one row a rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dispatcher.core.ids import ClusterName, QueueName, WorkloadUid
from dispatcher.core.snapshot import Check, HubView, MultiKueueClusterView
from dispatcher.core.waiting import Phase, candidates_of, in_phase, standing
from dispatcher.core.workload import CheckState, HubWorkload, Owner

T0 = datetime(2026, 11, 29, 8, 0, tzinfo=UTC)
OWNER = Owner("batch/v1", "Job", "train-a", "job-1")
FLEET = CheckState("fleet", "Pending", changed_at=T0)


def workload(**changes: object) -> HubWorkload:
    base = HubWorkload(
        uid=WorkloadUid("w1"),
        namespace="autonomy",
        name="job-train-a",
        resource_version="10",
        created_at=T0,
        local_queue="training",
        owner=OWNER,
        owner_count=1,
        cluster_queue=QueueName("training"),
        quota_reserved_at=T0,
        checks=(FLEET,),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def hub(*workloads: HubWorkload) -> HubView:
    return HubView(
        synced=True,
        observed_at=T0,
        workloads={w.uid: w for w in workloads},
        checks={
            "fleet": Check("fleet", "kueue.x-k8s.io/multikueue", True, "fleet"),
            "budget": Check("budget", "entrepot.dev/budget", True),
        },
        configs={"fleet": (ClusterName("b"), ClusterName("a"))},
        clusters={name: MultiKueueClusterView(name, active=True) for name in (ClusterName("a"), ClusterName("b"))},
    )


CASES = {
    "quota reserved and the check pending waits": ({}, Phase.WAITING),
    "a nomination is in progress": ({"nominated": (ClusterName("a"),)}, Phase.NOMINATED),
    "a cluster is latched": ({"cluster_name": ClusterName("a")}, Phase.PLACED),
    "a finished one is over": ({"finished": True}, Phase.FINISHED),
    "finished wins over being deleted": ({"finished": True, "deleting": True}, Phase.FINISHED),
    "one being deleted is left alone": ({"deleting": True}, Phase.DELETING),
    "a deactivated one is left alone": ({"active": False}, Phase.INACTIVE),
    "without hub quota there is nothing to nominate": ({"quota_reserved_at": None}, Phase.NO_QUOTA),
    "an eviction in flight is waited out": ({"evicted_at": T0}, Phase.EVICTING),
    "an eviction in flight hides even a stale cluster name (FR-RAC-01)": (
        {"evicted_at": T0, "cluster_name": ClusterName("a")},
        Phase.EVICTING,
    ),
    "a workload without a MultiKueue check is not ours": ({"checks": ()}, Phase.NOT_MULTIKUEUE),
    "a check in Retry is not dispatched": ({"checks": (replace(FLEET, state="Retry"),)}, Phase.CHECK_CLOSED),
    "a rejected check is not dispatched": ({"checks": (replace(FLEET, state="Rejected"),)}, Phase.CHECK_CLOSED),
    "another check still pending holds it back (FR-NOM-02)": (
        {"checks": (FLEET, CheckState("budget", "Pending"))},
        Phase.OTHER_CHECKS,
    ),
    "another check in Retry holds it back": (
        {"checks": (FLEET, CheckState("budget", "Retry"))},
        Phase.OTHER_CHECKS,
    ),
    "all other checks ready lets it go": ({"checks": (FLEET, CheckState("budget", "Ready"))}, Phase.WAITING),
    "an unreadable object is held": ({"problem": "bad quantity"}, Phase.UNREADABLE),
    "a workload without an owner is held": ({"owner": None}, Phase.NO_OWNER),
}


@pytest.mark.parametrize(("changes", "phase"), CASES.values(), ids=CASES.keys())
def test_standing(changes: dict[str, object], phase: Phase) -> None:
    subject = workload(**changes)
    assert standing(subject, hub(subject)).phase is phase


def test_fr_nom_02_no_decision_while_another_check_is_pending() -> None:
    subject = workload(checks=(FLEET, CheckState("budget", "Pending")))
    found = standing(subject, hub(subject))
    assert (found.phase, found.names) == (Phase.OTHER_CHECKS, ("budget",))
    assert in_phase(hub(subject), frozenset({Phase.WAITING})) == []


def test_fr_nom_11_a_resize_stays_where_the_replaced_slice_runs() -> None:
    old = workload(uid=WorkloadUid("w0"), name="slice-0", cluster_name=ClusterName("a"))
    new = workload(replaces_slice="autonomy/slice-0")
    assert standing(new, hub(old, new)).phase is Phase.SLICE_PINNED
    assert in_phase(hub(old, new), frozenset({Phase.WAITING, Phase.NOMINATED})) == [], "nobody decides on it"


def test_a_resize_of_a_slice_that_never_ran_is_decided_like_any_other() -> None:
    old = workload(uid=WorkloadUid("w0"), name="slice-0")
    new = workload(replaces_slice="autonomy/slice-0")
    assert standing(new, hub(old, new)).phase is Phase.WAITING


def component(index: int, count: int = 2) -> HubWorkload:
    return workload(
        uid=WorkloadUid(f"c{index}"), name=f"lws-{index}", group_key="lws", component_index=index, component_count=count
    )


def test_only_the_primary_component_of_a_multi_workload_owner_is_nominated() -> None:
    view = hub(component(1), component(0))
    assert [standing(w, view).phase for w in (component(0), component(1))] == [Phase.WAITING, Phase.FOLLOWS_COMPONENT]


def test_no_component_is_nominated_before_all_of_them_exist() -> None:
    view = hub(component(0, count=3), component(1, count=3))
    assert standing(component(0, count=3), view).phase is Phase.COMPONENTS_MISSING


def test_priority_comes_first_then_the_longer_wait_then_a_stable_tie() -> None:
    late = workload(uid=WorkloadUid("late"), quota_reserved_at=T0 + timedelta(seconds=9))
    early = workload(uid=WorkloadUid("early"))
    twin = workload(uid=WorkloadUid("eaaa"))
    urgent = workload(uid=WorkloadUid("urgent"), priority=1000, quota_reserved_at=T0 + timedelta(hours=1))
    order = [uid for uid, _ in in_phase(hub(late, early, twin, urgent), frozenset({Phase.WAITING}))]
    assert order == ["urgent", "eaaa", "early", "late"]


def test_candidates_keep_the_order_of_the_multikueue_config() -> None:
    subject = workload()
    assert candidates_of(subject, hub(subject)) == ("b", "a")
