"""How a nomination is written on which hub: the choice, the three bodies, and what the probe reads."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from connectors.kubernetes.nomination import (
    FIELD_MANAGER,
    KUEUE_MANAGER,
    nomination_call,
    read_call,
    replica,
    replica_call,
    withdrawal_call,
)
from connectors.kubernetes.write_modes import PROBE, gate_of, probe_body
from dispatcher.core.errors import Conflict, Fatal, Refused
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.ports import Nomination
from dispatcher.core.writing import HubWriting, Known, WriteMode, choose_mode

YES, NO, UNKNOWN = Known.YES, Known.NO, Known.UNKNOWN
POLICY, GATE, REPLICA = WriteMode.CLEARING_POLICY, WriteMode.MERGE_PATCH_GATE, WriteMode.FULL_REPLICA
NOMINATION = Nomination(WorkloadUid("uid-1"), "autonomy", "job-train-a", "77", (ClusterName("w1"),))

# --- the choice --------------------------------------------------------------------------------------------------

CHOICES = {
    "the policy is the best": (HubWriting(YES, UNKNOWN), None, POLICY),
    "the policy comes before the gate": (HubWriting(YES, YES), None, POLICY),
    "without a policy a proven gate": (HubWriting(NO, YES), None, GATE),
    "neither: the full replica": (HubWriting(NO, NO), None, REPLICA),
    "nothing is known: the full replica, never a guess": (HubWriting(UNKNOWN, UNKNOWN), None, REPLICA),
    "the replica may be asked for anywhere": (HubWriting(YES, YES), REPLICA, REPLICA),
    "the gate may be asked for where it is proven": (HubWriting(YES, YES), GATE, GATE),
    "the policy may be asked for where it is in force": (HubWriting(YES, NO), POLICY, POLICY),
}


@pytest.mark.parametrize(("found", "wanted", "expected"), CHOICES.values(), ids=CHOICES.keys())
def test_the_best_mode_that_is_known_to_work_is_chosen(
    found: HubWriting, wanted: WriteMode | None, expected: WriteMode
) -> None:
    assert choose_mode(found, wanted) is expected


REFUSALS = {
    "the policy where it is missing": (
        HubWriting(NO, NO, "it is not there"),
        POLICY,
        "it is not there",
        "workload-map.yaml",
    ),
    "the policy where it cannot be seen": (HubWriting(UNKNOWN, NO), POLICY, "cannot be seen", "workload-map.yaml"),
    "the gate where it is off": (
        HubWriting(NO, NO, "", "the gate is off"),
        GATE,
        "the gate is off",
        "WorkloadRequestUseMergePatch=true",
    ),
    "the gate where it cannot be probed": (HubWriting(NO, UNKNOWN), GATE, "cannot be seen", "deploy/any-hub"),
}


@pytest.mark.parametrize(("found", "wanted", "said", "fix"), REFUSALS.values(), ids=REFUSALS.keys())
def test_fr_nom_01_a_mode_in_which_kueue_would_get_stuck_is_refused_with_the_fix(
    found: HubWriting, wanted: WriteMode, said: str, fix: str
) -> None:
    with pytest.raises(Fatal) as refusal:
        choose_mode(found, wanted)
    assert said in str(refusal.value)
    assert fix in refusal.value.fix
    assert "--write-mode=auto" in refusal.value.fix


# --- the bodies --------------------------------------------------------------------------------------------------


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-11-29T21:00:00Z"}


def workload(**status: Any) -> dict[str, Any]:
    """A hub Workload that waits, with the parts that several managers own."""
    found: dict[str, Any] = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "job-train-a",
            "namespace": "autonomy",
            "uid": "uid-1",
            "generation": 2,
            "resourceVersion": "77",
            "creationTimestamp": "2026-11-29T20:59:00Z",
            "labels": {"kueue.x-k8s.io/job-uid": "job-1"},
            "annotations": {"a": "b"},
            "ownerReferences": [{"kind": "Job", "name": "train-a"}],
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "managedFields": [managed(KUEUE_MANAGER, "Apply", "QuotaReserved")],
        },
        "spec": {"active": True, "queueName": "training"},
        "status": {
            "conditions": [condition("QuotaReserved"), condition("Evicted", "False")],
            "admission": {"clusterQueue": "training", "podSetAssignments": [{"name": "main", "count": 1}]},
            "admissionChecks": [{"name": "fleet", "state": "Pending", "message": "", "retryCount": 1}],
            "requeueState": {"count": 2},
            "accumulatedPastExecutionTimeSeconds": 30,
            "schedulingStats": {"evictions": [{"reason": "Preempted", "count": 1}], "other": 1},
        },
    }
    found["status"].update(status)
    return found


def managed(manager: str, operation: str, *conditions: str, **fields: Any) -> dict[str, Any]:
    owned: dict[str, Any] = {"f:conditions": {f'k:{{"type":"{c}"}}': {".": {}} for c in conditions}, **fields}
    return {
        "manager": manager,
        "operation": operation,
        "subresource": "status",
        "time": "2026-11-29T21:00:00Z",
        "fieldsV1": {"f:status": owned},
    }


def test_a_plain_patch_holds_one_field_and_its_guard() -> None:
    call = nomination_call(NOMINATION)
    assert (call.method, call.path) == (
        "PATCH",
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/autonomy/workloads/job-train-a/status",
    )
    assert call.params == {"fieldManager": FIELD_MANAGER}
    assert call.body == {
        "metadata": {"uid": "uid-1", "resourceVersion": "77"},
        "status": {"nominatedClusterNames": ["w1"]},
    }


def test_a_withdrawal_sends_null_so_that_no_manager_keeps_the_list() -> None:
    assert withdrawal_call(NOMINATION).body == {
        "metadata": {"uid": "uid-1", "resourceVersion": "77"},
        "status": {"nominatedClusterNames": None},
    }


def test_fr_nom_09_each_write_has_a_content_type_that_custom_resources_take() -> None:
    """Strategic merge, the default of many clients, is answered with 415."""
    assert nomination_call(NOMINATION).content_type == "application/merge-patch+json"
    assert withdrawal_call(NOMINATION).content_type == "application/merge-patch+json"
    assert replica_call(NOMINATION, workload()).content_type == "application/apply-patch+yaml"


def test_a_replica_is_applied_as_kueue_by_force_and_guarded() -> None:
    call = replica_call(NOMINATION, workload())
    assert call.params == {"fieldManager": "kueue-admission", "force": "true"}
    assert call.body["metadata"] == {
        "name": "job-train-a",
        "namespace": "autonomy",
        "uid": "uid-1",
        "generation": 2,
        "resourceVersion": "77",
        "labels": {"kueue.x-k8s.io/job-uid": "job-1"},
        "annotations": {"a": "b"},
    }
    assert set(call.body) == {"apiVersion", "kind", "metadata", "status"}, "the spec is nobody's business"


def test_fr_nom_01_a_replica_repeats_everything_that_kueue_owns_under_that_name() -> None:
    status = replica(workload(), ["w1"])["status"]
    original = workload()["status"]
    assert status.pop("nominatedClusterNames") == ["w1"]
    assert status.pop("resourceRequests") == [], "admission supersedes them"
    assert status.pop("schedulingStats") == {"evictions": [{"reason": "Preempted", "count": 1}]}
    assert status == {key: original[key] for key in original if key != "schedulingStats"}


STATUS_RULES = {
    "reclaimable pods are another manager's": (
        {"reclaimablePods": [{"name": "main", "count": 1}]},
        "reclaimablePods",
        None,
    ),
    "without admission resource requests are repeated": (
        {"admission": None, "resourceRequests": [{"name": "main"}]},
        "resourceRequests",
        [{"name": "main"}],
    ),
    "an empty requeue state is left out": ({"requeueState": {}}, "requeueState", None),
    "a requeue time is kept": ({"requeueState": {"requeueAt": "t"}}, "requeueState", {"requeueAt": "t"}),
    "unhealthy nodes are kept": ({"unhealthyNodes": [{"name": "n"}]}, "unhealthyNodes", [{"name": "n"}]),
    "preemption gates are kept": ({"preemptionGates": [{"name": "g"}]}, "preemptionGates", [{"name": "g"}]),
    "no evictions: no statistics": ({"schedulingStats": {"evictions": []}}, "schedulingStats", None),
}


@pytest.mark.parametrize(("changed", "key", "expected"), STATUS_RULES.values(), ids=STATUS_RULES.keys())
def test_the_rules_of_a_replicas_fields(changed: dict[str, Any], key: str, expected: Any) -> None:
    current = workload(**{k: v for k, v in changed.items() if v is not None})
    for name, value in changed.items():
        if value is None:
            del current["status"][name]
    assert replica(current, ["w1"])["status"].get(key) == expected


@pytest.mark.parametrize(
    ("owner", "kept"),
    [((KUEUE_MANAGER, "Apply"), True), (("kueue-job-controller-PodsReady", "Apply"), False)],
    ids=["0.19 owns PodsReady as kueue-admission", "0.17 owns it under another name"],
)
def test_pods_ready_is_repeated_exactly_where_this_manager_owns_it(owner: tuple[str, str], kept: bool) -> None:
    current = workload(conditions=[condition("QuotaReserved"), condition("PodsReady", "False")])
    current["metadata"]["managedFields"] = [managed(*owner, "PodsReady")]
    kinds = [c["type"] for c in replica(current, ["w1"])["status"]["conditions"]]
    assert kinds == ["QuotaReserved", *(["PodsReady"] if kept else [])]


def test_a_field_of_a_later_kueue_that_this_manager_owns_is_repeated_too() -> None:
    current = workload(futureField={"x": 1}, foreignField=2)
    current["metadata"]["managedFields"] = [
        managed(KUEUE_MANAGER, "Apply", "QuotaReserved", **{"f:futureField": {}, "f:reclaimablePods": {}}),
        managed("somebody", "Update", **{"f:foreignField": {}}),
    ]
    status = replica(current, ["w1"])["status"]
    assert status["futureField"] == {"x": 1}
    assert "foreignField" not in status


def test_a_replica_does_not_change_what_it_was_made_from() -> None:
    current = workload()
    before = copy.deepcopy(current)
    replica(current, ["w1"])
    assert current == before


@pytest.mark.parametrize(
    "change", [{"resourceVersion": "78"}, {"uid": "uid-2"}], ids=["a newer version", "another object of that name"]
)
def test_fr_rac_01_a_replica_of_anything_newer_than_what_was_decided_on_is_a_conflict(change: dict[str, str]) -> None:
    current = workload()
    current["metadata"].update(change)
    with pytest.raises(Conflict):
        replica_call(NOMINATION, current)


BAD_LISTS = {
    "none": (),
    "too many": tuple(ClusterName(f"w{n}") for n in range(21)),
    "one twice": (ClusterName("w1"), ClusterName("w1")),
    "one without a name": (ClusterName(""),),
}


@pytest.mark.parametrize("clusters", BAD_LISTS.values(), ids=BAD_LISTS.keys())
def test_a_list_that_cannot_be_valid_is_never_sent(clusters: tuple[ClusterName, ...]) -> None:
    bad = Nomination(NOMINATION.uid, "autonomy", "job-train-a", "77", clusters)
    with pytest.raises(Refused):
        nomination_call(bad)
    with pytest.raises(Refused):
        replica_call(bad, workload())


def test_nothing_is_sent_without_a_guard() -> None:
    bare = Nomination(NOMINATION.uid, "autonomy", "job-train-a", "", (ClusterName("w1"),))
    for call in (nomination_call, withdrawal_call):
        with pytest.raises(Refused):
            call(bare)


def test_the_object_for_a_replica_is_read_with_a_permission_that_watching_needs_anyway() -> None:
    call = read_call(NOMINATION)
    assert call.params == {"fieldSelector": "metadata.name=job-train-a"}
    assert call.path.endswith("/namespaces/autonomy/workloads"), "a list, not a get"


# --- the probe ---------------------------------------------------------------------------------------------------

SEEN = {
    "v0.17.0 and v0.19.2, gate off": ([managed(KUEUE_MANAGER, "Apply", "QuotaReserved")], NO),
    "v0.19.2, gate on": ([managed("kueue", "Update", "QuotaReserved")], YES),
    "a manager of another name, gate on": ([managed("manager", "Update", "QuotaReserved")], YES),
    "nobody has written conditions yet": ([managed("kueue", "Update")], UNKNOWN),
    "both: an apply is proof that the gate is off": (
        [managed("kueue", "Update", "QuotaReserved"), managed(KUEUE_MANAGER, "Apply", "QuotaReserved")],
        NO,
    ),
    "our own creation of it says nothing": ([{"manager": "entrepot", "operation": "Update", "fieldsV1": {}}], UNKNOWN),
}


@pytest.mark.parametrize(("entries", "expected"), SEEN.values(), ids=SEEN.keys())
def test_the_gate_shows_in_how_kueue_has_written_the_probe(entries: list[dict[str, Any]], expected: Known) -> None:
    assert gate_of({"metadata": {"managedFields": entries}}) is expected


def test_the_probe_can_never_be_admitted() -> None:
    body = probe_body()
    assert body["spec"]["queueName"] == PROBE, "a LocalQueue of that name is nobody's"
    assert body["metadata"]["namespace"] == "entrepot-system"
    assert "status" not in body
