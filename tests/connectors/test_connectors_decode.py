"""Projections: what is kept of each object, what an odd object becomes, and what it costs in memory."""

from __future__ import annotations

import copy
import gc
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest

from connectors.kubernetes import decode, decode_nodes, decode_queues
from connectors.kubernetes.cache import Cache
from connectors.kubernetes.decode import CopyRecord, hub_workload, owner_record, worker_copy
from connectors.kubernetes.decode_nodes import PodUse
from connectors.kubernetes.loads import Loads
from connectors.kubernetes.pods import pod_requests
from dispatcher.core.resources import QuantityError, Resources, parse_quantity
from dispatcher.core.snapshot import Check, NodeView, Quota, ResourceGroup, StopPolicy, Taint, WorkerCopy
from dispatcher.core.topology import Slice, Topology, TopologyWish
from dispatcher.core.workload import CheckState, Owner, Requirement, Toleration
from tests.connectors.objects import (
    T0,
    Raw,
    cluster_queue,
    condition,
    node,
    pod,
    pod_set,
    pod_template,
    without,
    workload,
)

AT_0 = datetime(2026, 8, 1, 10, tzinfo=UTC)
AT_1 = datetime(2026, 8, 1, 10, 0, 5, tzinfo=UTC)
GIB = 2**30


# --- hub workloads -----------------------------------------------------------------------------------------------


def test_a_waiting_workload_in_full() -> None:
    found = hub_workload(workload())
    assert (found.uid, found.key, found.resource_version) == ("uid-job-train-1a2b3", "team-a/job-train-1a2b3", "812")
    assert (found.created_at, found.quota_reserved_at) == (AT_0, AT_1)
    assert (found.local_queue, found.cluster_queue, found.priority) == ("main", "training", 100)
    assert found.owner == Owner("batch/v1", "Job", "train", "uid-train")
    assert found.checks == (CheckState("fleet", "Pending", "", AT_1),)
    assert found.pod_sets[0].per_pod == Resources.of({"cpu": 8000, "memory": 64 * GIB, "nvidia.com/gpu": 8})
    assert (found.active, found.deleting, found.finished) == (True, False, False)
    assert (found.cluster_name, found.nominated, found.evicted_at, found.admitted_at) == (None, (), None, None)
    assert found.problem is None


def test_claims_that_pods_mount_by_name_are_kept() -> None:
    """FR-SCO-17. One that is made for each pod begins empty everywhere, and is none of them."""
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "radar", "readOnly": True}},
        {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "empty", "emptyDir": {}},
    ]
    more = [*volumes, {"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
    sets = [pod_set("learner", volumes=volumes), pod_set("rollout", volumes=more)]
    found = hub_workload(workload(spec={"podSets": sets}))
    assert (found.claims, found.problem) == (("team-a/home", "team-a/radar"), None)
    assert hub_workload(workload()).claims == ()


STATES = [
    ("nominated", {"nominatedClusterNames": ["w2", "w1"]}, "nominated", ("w2", "w1")),
    ("latched", {"clusterName": "w1"}, "cluster_name", "w1"),
    ("an empty cluster name is none", {"clusterName": ""}, "cluster_name", None),
    ("evicted", {"conditions": [condition("Evicted")]}, "evicted_at", AT_1),
    ("no longer evicted", {"conditions": [condition("Evicted", "False")]}, "evicted_at", None),
    ("quota unknown", {"conditions": [condition("QuotaReserved", "Unknown")]}, "quota_reserved_at", None),
    ("finished", {"conditions": [condition("Finished", reason="Succeeded")]}, "finished_reason", "Succeeded"),
    ("not admitted to any queue", {"admission": None}, "cluster_queue", None),
    ("conditions of another shape", {"conditions": {"a": 1}}, "quota_reserved_at", None),
    ("a time that is none", {"conditions": [condition("QuotaReserved", at="soon")]}, "quota_reserved_at", None),
    ("checks of another shape", {"admissionChecks": ["x", {"name": "a"}]}, "checks", (CheckState("a", ""),)),
]


@pytest.mark.parametrize(("status", "field", "value"), [s[1:] for s in STATES], ids=[s[0] for s in STATES])
def test_status_of_a_workload(status: Raw, field: str, value: object) -> None:
    assert getattr(hub_workload(workload(status=status)), field) == value


@pytest.mark.parametrize(
    ("raw", "field", "value"),
    [
        (workload(deletionTimestamp=T0), "deleting", True),
        (workload(spec={"active": False}), "active", False),
        (without(workload(), "spec", "active"), "active", True),
        (without(workload(), "spec", "priority"), "priority", 0),
        (workload(ownerReferences=[]), "owner", None),
        (without(workload(), "metadata", "ownerReferences"), "owner_count", 0),
        (
            workload(annotations={decode.SLICE_ANNOTATION: "team-a/job-train-0"}),
            "replaces_slice",
            "team-a/job-train-0",
        ),
    ],
    ids=["deleting", "deactivated", "active by default", "no priority", "no owner", "no owner list", "elastic slice"],
)
def test_metadata_and_spec_of_a_workload(raw: Raw, field: str, value: object) -> None:
    assert getattr(hub_workload(raw), field) == value


PROBLEMS = [
    ("a negative quantity", workload(spec={"podSets": [pod_set(requests={"cpu": "-1"})]}), "pod set main: cpu: '-1'"),
    ("an unknown suffix", workload(spec={"podSets": [pod_set(requests={"memory": "4Q"})]}), "memory: '4Q'"),
    ("a count that is no number", workload(spec={"podSets": [{**pod_set(), "count": "x"}]}), "count 'x'"),
    ("no count", workload(spec={"podSets": [without(pod_set(), "count")]}), "count None"),
    ("no creation time", without(workload(), "metadata", "creationTimestamp"), "creationTimestamp"),
    (
        "a component without a number",
        workload(annotations={decode.OWNER_GVK_ANNOTATION: "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet"}),
        decode.COMPONENT_ANNOTATION,
    ),
]


@pytest.mark.parametrize(("raw", "named"), [p[1:] for p in PROBLEMS], ids=[p[0] for p in PROBLEMS])
def test_what_cannot_be_read_is_a_problem_and_the_name_stays_known(raw: Raw, named: str) -> None:
    found = hub_workload(raw)
    assert found.problem is not None
    assert named in found.problem
    assert (found.uid, found.name) == ("uid-job-train-1a2b3", "job-train-1a2b3")


def shapes() -> list[Raw]:
    """A workload with each of its parts replaced by something of another type."""
    found: list[Raw] = [{}, {"metadata": None}, {"metadata": [], "spec": 7, "status": "x"}]
    for path in (("metadata",), ("spec",), ("status",), ("spec", "podSets"), ("metadata", "ownerReferences")):
        for odd in (None, 7, "x", [1], [[]], {"a": 1}, [{"template": 3, "count": True}]):
            raw: Any = copy.deepcopy(workload())
            place = raw
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = odd
            found.append(raw)
    return found


@pytest.mark.parametrize("raw", shapes(), ids=lambda raw: f"{len(json.dumps(raw))}")
def test_no_shape_of_an_object_stops_a_decoder(raw: Raw) -> None:
    hub_workload(raw)
    worker_copy(raw)
    owner_record(raw, "Job")
    decode_nodes.node(raw)
    decode_nodes.namespace(raw)
    for projection in (
        decode_queues.check,
        decode_queues.hub_queue,
        decode_queues.local_queue,
        decode_queues.multikueue_cluster,
        decode_queues.multikueue_config,
        decode_queues.flavor,
        decode_queues.cluster_queue,
        decode_queues.queue_record,
        decode_queues.cohort,
    ):
        projection(raw)


def test_a_component_of_a_leader_worker_set() -> None:
    raw = workload(
        annotations={
            decode.OWNER_GVK_ANNOTATION: "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet",
            decode.OWNER_NAME_ANNOTATION: "serve",
            decode.COMPONENT_ANNOTATION: "2",
        },
        ownerReferences=[
            {"apiVersion": "v1", "kind": "Pod", "name": "serve-2", "uid": "uid-pod"},
            {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "serve", "uid": "uid-lws"},
        ],
    )
    found = hub_workload(raw)
    assert found.owner == Owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", "uid-lws")
    assert (found.component_index, found.group_key, found.problem) == (2, "team-a/LeaderWorkerSet/serve", None)


def test_without_a_controller_the_first_owner_speaks_as_in_multikueue() -> None:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": f"p{n}", "uid": f"u{n}"} for n in range(3)]
    found = hub_workload(workload(ownerReferences=owners))
    assert found.owner == Owner("v1", "Pod", "p0", "u0")
    assert found.owner_count == 3


def test_selectors_affinity_and_tolerations_of_a_pod_set() -> None:
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100", "h200"]}],
                        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n7"]}],
                    },
                    {},
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
        }
    }
    tolerations = [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}, {"value": "x", "key": "k"}]
    template = pod_set(nodeSelector={"zone": "b", "arch": "amd64"}, affinity=affinity, tolerations=tolerations)
    found = hub_workload(workload(spec={"podSets": [template]})).pod_sets[0]
    assert found.selector == (Requirement("arch", "In", ("amd64",)), Requirement("zone", "In", ("b",)))
    assert found.terms == (
        (Requirement("gpu", "In", ("h100", "h200")), Requirement("metadata.name", "NotIn", ("n7",))),
        (Requirement("metadata.name", "In", ()),),
    ), "a term without expressions matches no node"
    assert found.tolerations == (
        Toleration("dedicated", "Exists", "", "NoSchedule"),
        Toleration("k", "Equal", "x", ""),
    )


def test_only_keys_of_ours_are_kept_and_contradictions_stay_visible() -> None:
    one = {"labels": {"entrepot.dev/team": "a", "app": "x"}, "annotations": {"entrepot.dev/datasets": "radar"}}
    other = {"labels": {"entrepot.dev/team": "b"}, "annotations": {"other.dev/k": "v", "entrepot.dev/odd": 3}}
    pods = [pod_set("a", metadata=one), pod_set("b", metadata=other)]
    assert hub_workload(workload(spec={"podSets": pods})).template_keys == (
        ("entrepot.dev/datasets", "radar"),
        ("entrepot.dev/team", "a"),
        ("entrepot.dev/team", "b"),
    )
    meta = {"metadata": {"uid": "u", "name": "train", "namespace": "team-a", **one}}
    assert owner_record(meta, "Job").meta.keys == (("entrepot.dev/datasets", "radar"), ("entrepot.dev/team", "a"))


@pytest.mark.parametrize(("kind", "components"), [("LeaderWorkerSet", 4), ("Job", None)])
def test_only_multi_workload_kinds_have_components(kind: str, components: int | None) -> None:
    assert owner_record({"metadata": {"uid": "u"}, "spec": {"replicas": 4}}, kind).components == components


# --- pods --------------------------------------------------------------------------------------------------------


def container(requests: Raw | None = None, limits: Raw | None = None, sidecar: bool = False) -> Raw:
    resources = {k: v for k, v in (("requests", requests), ("limits", limits)) if v is not None}
    return {"resources": resources, **({"restartPolicy": "Always"} if sidecar else {})}


PODS = [
    ("one container", {"containers": [container({"cpu": "1500m"})]}, {"cpu": 1500}),
    ("containers add up", {"containers": [container({"cpu": "1"}), container({"cpu": "2"})]}, {"cpu": 3000}),
    ("a limit stands in", {"containers": [container({"cpu": "1"}, {"cpu": "4", "gpu": "2"})]}, {"cpu": 1000, "gpu": 2}),
    (
        "the largest init container counts when it is larger",
        {"containers": [container({"cpu": "1"})], "initContainers": [container({"cpu": "3"}), container({"cpu": "2"})]},
        {"cpu": 3000},
    ),
    (
        "init containers do not add up with containers",
        {"containers": [container({"cpu": "4"})], "initContainers": [container({"cpu": "3"})]},
        {"cpu": 4000},
    ),
    (
        "a sidecar stays on",
        {"containers": [container({"cpu": "4"})], "initContainers": [container({"cpu": "1"}, sidecar=True)]},
        {"cpu": 5000},
    ),
    (
        "an init container runs beside the sidecars before it, not those after",
        {
            "containers": [container({"cpu": "1"})],
            "initContainers": [
                container({"cpu": "2"}, sidecar=True),
                container({"cpu": "5"}),
                container({"cpu": "1"}, sidecar=True),
            ],
        },
        {"cpu": 7000},
    ),
    (
        "the largest is taken for each resource by itself",
        {"containers": [container({"cpu": "1", "gpu": "8"})], "initContainers": [container({"cpu": "2", "disk": "1"})]},
        {"cpu": 2000, "gpu": 8, "disk": 1},
    ),
    ("overhead comes on top", {"containers": [container({"cpu": "1"})], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
    (
        "pod-level requests replace the sum",
        {"containers": [container({"cpu": "1", "gpu": "1"})], "resources": {"requests": {"cpu": "6"}}},
        {"cpu": 6000, "gpu": 1},
    ),
    ("a pod that asks for nothing", {"containers": [{}]}, {}),
]


@pytest.mark.parametrize(("spec", "asked"), [p[1:] for p in PODS], ids=[p[0] for p in PODS])
def test_what_a_pod_asks_for(spec: Raw, asked: dict[str, int]) -> None:
    assert pod_requests(spec) == Resources.of(asked)


def test_a_pod_with_an_unreadable_request_says_which() -> None:
    with pytest.raises(QuantityError, match="cpu"):
        pod_requests({"containers": [container({"cpu": "lots"})]})


def loads_of(nodes: Sequence[NodeView], pods: Sequence[PodUse]) -> Loads:
    """What the pods take of the nodes, as a worker's view counts it."""
    node_cache: Cache[NodeView] = Cache()
    pod_cache: Cache[PodUse] = Cache()
    found = Loads(node_cache, pod_cache)
    for seen in nodes:
        node_cache.put(("", seen.name), 1, seen)
    for at, use in enumerate(pods):
        pod_cache.put(("", str(at)), 1, use)
    return found


def copies_of(record: CopyRecord, pods: Sequence[PodUse]) -> Mapping[tuple[str, str], WorkerCopy]:
    records: Cache[CopyRecord] = Cache()
    records.put((record.copy.namespace, record.copy.name), 1, record)
    return loads_of((), pods).copies(records)


def test_pods_count_on_their_nodes_and_for_their_jobs() -> None:
    kueue = {"kueue.x-k8s.io/podset": "main", "batch.kubernetes.io/job-name": "train"}
    raws = [
        pod("a", "n1", "2", labels=kueue),
        pod("b", "n1", "1", labels={"batch.kubernetes.io/job-name": "train"}),
        pod("waiting", None, "8"),
        pod("ended", "n1", "8", phase="Succeeded"),
        pod("burn-in", "n2", "8", priority=-1000),
    ]
    pods = [use for raw in raws if (use := decode_nodes.pod_use(raw)) is not None]
    nodes = loads_of([decode_nodes.node(node(n)) for n in ("n2", "n1", "n3")], pods).nodes()
    assert [(n.name, n.requested.get("nvidia.com/gpu"), n.requested.get("pods")) for n in nodes] == [
        ("n1", 3, 2),
        ("n2", 8, 1),
        ("n3", 0, 0),
    ]
    assert [n.yielding.get("nvidia.com/gpu") for n in nodes] == [0, 8, 0]
    copies = copies_of(worker_copy(workload()), pods)
    assert copies["team-a", "job-train-1a2b3"].bound_pods == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"batch.kubernetes.io/job-name": "train"}},
        {"meta": {"annotations": {"kueue.x-k8s.io/workload": "job-train-1a2b3"}}},
        {"meta": {"ownerReferences": [{"kind": "Job", "name": "train", "uid": "uid-train"}]}},
        {
            "labels": {"batch.kubernetes.io/job-name": "train", "jobset.sigs.k8s.io/jobset-name": "train"},
            "meta": {
                "annotations": {"kueue.x-k8s.io/workload": "job-train-1a2b3"},
                "ownerReferences": [{"uid": "uid-train"}],
            },
        },
    ],
    ids=["job label", "workload annotation", "owner", "all of them, counted once"],
)
def test_a_pod_is_matched_to_its_copy(changes: Raw) -> None:
    use = decode_nodes.pod_use(pod("p", "n1", **changes))
    assert use is not None
    copies = copies_of(worker_copy(workload()), [use])
    assert copies["team-a", "job-train-1a2b3"].bound_pods == 1


def test_a_pod_of_a_jobset_is_matched_by_the_jobset_not_by_a_job_of_that_name() -> None:
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "js",
        "uid": "uid-js",
        "controller": True,
    }
    record = worker_copy(workload(ownerReferences=[owner]))
    labels = {"jobset.sigs.k8s.io/jobset-name": "js", "batch.kubernetes.io/job-name": "js-leader-0"}
    uses = [use for n in range(3) if (use := decode_nodes.pod_use(pod(f"p{n}", "n1", labels=labels)))]
    stranger = decode_nodes.pod_use(pod("x", "n1", labels={"batch.kubernetes.io/job-name": "js"}))
    assert stranger is not None
    copies = copies_of(record, [*uses, stranger])
    assert copies["team-a", "job-train-1a2b3"].bound_pods == 3


# --- worker objects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (node("n"), (True, True, False, ())),
        (node("n", conditions=[condition("Ready", "Unknown")]), (False, True, False, ())),
        (node("n", conditions=[]), (False, True, False, ())),
        (node("n", spec={"unschedulable": True}), (True, False, False, ())),
        (node("n", meta={"deletionTimestamp": T0}), (True, True, True, ())),
        (
            node("n", spec={"taints": [{"key": "k", "effect": "NoSchedule"}]}),
            (True, True, False, (Taint("k", "", "NoSchedule"),)),
        ),
    ],
    ids=["ready", "unknown", "never reported", "cordoned", "deleting", "tainted"],
)
def test_states_of_a_node(raw: Raw, expected: tuple[bool, bool, bool, tuple[Taint, ...]]) -> None:
    found = decode_nodes.node(raw)
    assert (found.ready, found.schedulable, found.deleting, found.taints) == expected


def test_a_node_gives_only_what_can_be_read() -> None:
    assert decode_nodes.node(node("n", gpus="many")).allocatable == Resources.of(
        {"cpu": 64_000, "memory": 512 * GIB, "pods": 110}
    )


def test_a_namespace_that_is_being_deleted_takes_no_work() -> None:
    labelled = decode_nodes.namespace({"metadata": {"name": "team-a", "labels": {"team": "a"}}})
    assert labelled == decode_nodes.NamespaceRecord("team-a", (("team", "a"),))
    assert decode_nodes.namespace({"metadata": {"name": "team-a", "deletionTimestamp": T0}}) is None


IN_A, BY_TEAM = {"matchLabels": {"team": "a"}}, {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
SELECTORS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "absent: of none": ({}, []),
    "null: of none": ({"namespaceSelector": None}, []),
    "empty: of all": ({"namespaceSelector": {}}, ["a", "b", "none"]),
    "by a label": ({"namespaceSelector": IN_A}, ["a"]),
    "by an expression": ({"namespaceSelector": BY_TEAM}, ["a", "b"]),
    "by both": ({"namespaceSelector": {**IN_A, **BY_TEAM}}, ["a"]),
    "not in": (
        {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}},
        ["b", "none"],
    ),
    "by an operator that nobody knows: of none": (
        {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Near"}]}},
        [],
    ),
}


@pytest.mark.parametrize(("spec", "expected"), SELECTORS.values(), ids=SELECTORS.keys())
def test_which_namespaces_a_cluster_queue_takes_work_of(spec: dict[str, Any], expected: list[str]) -> None:
    raw = cluster_queue()
    del raw["spec"]["namespaceSelector"]
    raw["spec"].update(spec)
    namespaces = {"a": {"team": "a"}, "b": {"team": "b"}, "none": dict[str, str]()}
    record = decode_queues.queue_record(raw)
    assert record.view == decode_queues.cluster_queue(cluster_queue())
    assert [name for name, labels in namespaces.items() if decode_queues.takes(record.selector, labels)] == expected


def test_a_cluster_queue_in_full() -> None:
    found = decode_queues.cluster_queue(cluster_queue())
    assert found.quotas == (
        Quota("h100", "cpu", 500, None, None, 0),
        Quota("h100", "nvidia.com/gpu", 16, 8, 0, 9),
    ), "a limit of 0 is a limit; an absent one is none"
    assert found.groups == (ResourceGroup(("cpu", "nvidia.com/gpu"), ("h100",)),)
    assert (found.active, found.cohort, found.pending) == (True, "fleet", 3)
    assert (found.preempts_lower_priority, found.reclaims_within_cohort) == (True, True)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (None, StopPolicy.NONE),
        ("None", StopPolicy.NONE),
        ("Hold", StopPolicy.HOLD),
        ("HoldAndDrain", StopPolicy.HOLD_AND_DRAIN),
        ("SomethingNew", StopPolicy.HOLD),
    ],
)
def test_stop_policies(written: str | None, read: StopPolicy) -> None:
    spec = {} if written is None else {"stopPolicy": written}
    assert decode_queues.stop_policy(spec) is read


@pytest.mark.parametrize("policy", ["Never", "LowerPriority", "LowerOrNewerEqualPriority"])
def test_preemption_within_a_queue(policy: str) -> None:
    found = decode_queues.cluster_queue(cluster_queue(preemption={"withinClusterQueue": policy}))
    assert found.preempts_lower_priority is (policy != "Never")
    assert not found.reclaims_within_cohort


@pytest.mark.parametrize(
    ("preemption", "read"),
    [
        pytest.param({}, (False, False, False, None), id="nothing is written"),
        pytest.param({"reclaimWithinCohort": "Never"}, (False, False, False, None), id="never"),
        pytest.param({"reclaimWithinCohort": "LowerPriority"}, (True, False, False, None), id="from lower priority"),
        pytest.param({"reclaimWithinCohort": "Any"}, (True, True, False, None), id="from any"),
        pytest.param(
            {"borrowWithinCohort": {"policy": "Never"}}, (False, False, False, None), id="not while borrowing"
        ),
        pytest.param(
            {
                "reclaimWithinCohort": "Any",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 7},
            },
            (True, True, True, 7),
            id="while borrowing, up to a threshold",
        ),
    ],
)
def test_preemption_in_a_cohort(preemption: Raw, read: tuple[bool, bool, bool, int | None]) -> None:
    found = decode_queues.cluster_queue(cluster_queue(preemption=preemption))
    rights = (found.reclaims_within_cohort, found.reclaims_any, found.preempts_while_borrowing)
    assert (*rights, found.borrowing_threshold) == read


@pytest.mark.parametrize(
    ("evicted", "preempted", "read"),
    [
        pytest.param(("True", "Preempted"), ("True", "InCohortReclamation"), "InCohortReclamation", id="as Kueue says"),
        pytest.param(("True", "AdmissionCheck"), ("True", "InCohortReclamation"), "", id="evicted for something else"),
        pytest.param(("False", "QuotaReserved"), ("True", "InClusterQueue"), "", id="no longer evicted"),
        pytest.param(("True", "Preempted"), ("False", "QuotaReserved"), "", id="no longer preempted"),
    ],
)
def test_why_it_was_preempted(evicted: tuple[str, str], preempted: tuple[str, str], read: str) -> None:
    kinds = (("Evicted", evicted), ("Preempted", preempted))
    said = [{**condition(kind, status), "reason": reason} for kind, (status, reason) in kinds]
    raw = workload(status={"conditions": said})
    assert hub_workload(raw).preempted_by == read
    assert worker_copy(raw).copy.preempted_by == read


def test_a_queue_with_an_unreadable_quota_is_no_queue() -> None:
    raw = cluster_queue()
    raw["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "-5"
    with pytest.raises(QuantityError):
        decode_queues.cluster_queue(raw)


MILLI = "2147483648500m"
"""2 GiB and half a byte, as an apiserver keeps a decimal fraction of a GiB."""


def memory_of_a_node(text: str) -> int:
    raw = node("n1")
    raw["status"]["allocatable"]["memory"] = text
    return decode_nodes.node(raw).allocatable.get("memory")


def memory_of_a_pod(text: str) -> int:
    containers = [{"name": "c", "resources": {"requests": {"memory": text}}}]
    use = decode_nodes.pod_use(pod("p1", "n1", containers=containers))
    assert use is not None
    return use.requests.get("memory")


def memory_of_a_quota(text: str) -> int:
    flavor = {"name": "h100", "resources": [{"name": "memory", "nominalQuota": text}]}
    raw = cluster_queue(resourceGroups=[{"coveredResources": ["memory"], "flavors": [flavor]}])
    return decode_queues.cluster_queue(raw).quotas[0].nominal


READERS: dict[str, Callable[[str], int]] = {
    "a node": memory_of_a_node,
    "a pod on a node": memory_of_a_pod,
    "a job's template": lambda text: pod_requests(pod_template({"memory": text})["spec"]).get("memory"),
    "a quota": memory_of_a_quota,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_fr_cfg_04_memory_in_milli_bytes_is_read_everywhere(read: Callable[[str], int]) -> None:
    assert parse_quantity(MILLI) == Fraction(4294967297, 2)
    assert read(MILLI) == 2147483649, "whole bytes, rounded up as the scheduler does"


@pytest.mark.parametrize("text", ["NaN", "inf", "1e", "2Gii", "0x10", "--1", "-1Gi", "1_000", "1/2", ""])
def test_fr_cfg_04_what_is_no_quantity_is_an_error_that_names_its_place(text: str) -> None:
    problem = hub_workload(workload(spec={"podSets": [pod_set(requests={"memory": text})]})).problem
    assert problem is not None, "the Workload is held, and its owner told"
    assert problem.startswith(f"pod set main: memory: {text!r} ")
    with pytest.raises(QuantityError, match="memory"):
        memory_of_a_pod(text)
    with pytest.raises(QuantityError):
        memory_of_a_quota(text)
    assert memory_of_a_node(text) == 0, "what a node offers and cannot be read is not there"


def test_fr_nom_04_what_is_being_deleted_is_not_active_from_that_instant() -> None:
    meta = {"name": "x", "deletionTimestamp": T0}
    active = {"metadata": meta, "spec": {}, "status": {"conditions": [condition("Active")]}}
    assert not decode_queues.cluster_queue(active).active
    assert not decode_queues.hub_queue(active).active
    assert not decode_queues.local_queue(active).active
    assert not decode_queues.check(active).active
    assert decode_queues.multikueue_cluster(active).deleting


def test_checks_and_multikueue_objects() -> None:
    spec = {
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "fleet-config"},
    }
    raw = {"metadata": {"name": "fleet"}, "spec": spec, "status": {"conditions": [condition("Active")]}}
    assert decode_queues.check(raw) == Check("fleet", "kueue.x-k8s.io/multikueue", True, "fleet-config")
    other = {**raw, "spec": {**spec, "controllerName": "entrepot.dev/budget"}}
    assert decode_queues.check(other).config is None
    assert decode_queues.multikueue_config({"spec": {"clusters": ["w2", "w1"]}}) == ("w2", "w1")


@pytest.mark.parametrize(
    ("source", "secret"),
    [
        ({"kubeConfig": {"location": "w1-kubeconfig", "locationType": "Secret"}}, "w1-kubeconfig"),
        ({"kubeConfig": {"location": "w1-kubeconfig"}}, "w1-kubeconfig"),
        ({"kubeConfig": {"location": "/etc/w1", "locationType": "Path"}}, None),
        ({"clusterProfileRef": {"name": "w1"}}, None),
    ],
    ids=["secret", "secret by default", "path", "cluster profile"],
)
def test_where_multikueue_keeps_a_kubeconfig(source: Raw, secret: str | None) -> None:
    raw = {
        "metadata": {"name": "w1"},
        "spec": {"clusterSource": source},
        "status": {"conditions": [condition("Active", "False", reason="ClientConnectionFailed", message="refused")]},
    }
    found = decode_queues.multikueue_cluster(raw)
    assert found.secret == secret
    assert (found.active, found.reason, found.message) == (False, "ClientConnectionFailed", "refused")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, None),
        ({"podIndexLabel": "batch.kubernetes.io/job-completion-index"}, None),
        ({"required": "rack", "podIndexLabel": "i"}, TopologyWish("rack")),
        ({"preferred": "rack"}, TopologyWish(preferred="rack")),
        ({"unconstrained": True}, TopologyWish()),
        ({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}, TopologyWish(slices=(Slice("rack", 2),))),
        ({"required": "rack", "podSetGroupName": "g"}, TopologyWish("rack", group="g")),
        (
            {
                "required": "block",
                "podsetSliceRequiredTopologyConstraints": [
                    {"topology": "rack", "size": 4},
                    {"topology": "host", "size": 2},
                ],
            },
            TopologyWish("block", slices=(Slice("rack", 4), Slice("host", 2))),
        ),
    ],
)
def test_what_a_pod_set_asks_of_a_topology(asked: Raw | None, expected: TopologyWish | None) -> None:
    entry = pod_set() if asked is None else {**pod_set(), "topologyRequest": asked}
    raw = workload(spec={"podSets": [entry]})
    assert decode.hub_workload(raw).pod_sets[0].topology == expected
    level = expected.required if expected is not None else None
    assert decode.worker_copy(raw).copy.required == ((("main", level),) if level else ())


@pytest.mark.parametrize("size", [None, 0])
def test_a_slice_of_no_size_holds_the_workload(size: int | None) -> None:
    asked = {"podSetSliceRequiredTopology": "rack", **({"podSetSliceSize": size} if size is not None else {})}
    found = decode.hub_workload(workload(spec={"podSets": [{**pod_set(), "topologyRequest": asked}]}))
    assert found.problem == "pod set main: the size of a topology slice is not a number of pods"


def test_a_flavor_has_the_levels_of_its_topology_where_they_can_be_read() -> None:
    raw = {"metadata": {"name": "h100"}, "spec": {"nodeLabels": {"gpu": "h100"}, "topologyName": "racks"}}
    levels = {"metadata": {"name": "racks"}, "spec": {"levels": [{"nodeLabel": "block"}, {"nodeLabel": "rack"}]}}
    racks, found = decode_queues.topology(levels), decode_queues.flavor(raw)
    assert racks == Topology("racks", ("block", "rack"))
    assert decode_queues.with_levels(found, {"racks": racks}).topology == racks
    assert decode_queues.with_levels(found, {}).topology == Topology("racks")
    plain = decode_queues.flavor({"metadata": {"name": "h100"}, "spec": {"nodeLabels": {"gpu": "h100"}}})
    assert decode_queues.with_levels(plain, {"racks": racks}).topology is None


def test_a_flavor_with_taints_and_tolerations() -> None:
    raw = {
        "metadata": {"name": "h100"},
        "spec": {
            "nodeLabels": {"gpu": "h100"},
            "nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        },
    }
    found = decode_queues.flavor(raw)
    assert found.labels == (("gpu", "h100"),)
    assert found.taints == (Taint("spot", "true", "NoSchedule"),)
    assert found.tolerations == (("spot", "Exists", "", ""),)


def test_a_copy_of_ours_with_what_the_worker_counted() -> None:
    usage = {"nvidia.com/gpu": "16", "cpu": "16"}
    assignment = {"name": "main", "count": 2, "flavors": {"cpu": "c", "nvidia.com/gpu": "g"}, "resourceUsage": usage}
    raw = workload(
        labels={decode.ORIGIN_LABEL: "hub1"},
        spec={"podSets": [pod_set(count=4)]},
        status={"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}},
    )
    copy_ = worker_copy(raw).copy
    assert copy_.ours
    assert copy_.pod_sets == (("main", 2, Resources.of({"cpu": 8000, "nvidia.com/gpu": 8}), "g"),)
    assert (copy_.job_kind, copy_.job_name, copy_.cluster_queue) == ("Job", "train", "q")


def test_a_local_copy_without_quota_shows_what_it_asks_for_and_why_it_waits() -> None:
    waits = condition("QuotaReserved", "False", message="insufficient quota for nvidia.com/gpu")
    copy_ = worker_copy(workload(status={"admission": None, "conditions": [waits]})).copy
    assert not copy_.ours
    assert copy_.quota_reserved_at is None
    assert copy_.quota_message == "insufficient quota for nvidia.com/gpu"
    assert copy_.pod_sets[0][3] is None
    assert copy_.pod_sets[0][2].get("nvidia.com/gpu") == 8


# --- memory ------------------------------------------------------------------------------------------------------


def test_a_projected_workload_costs_about_a_kilobyte_and_a_small_part_of_its_json() -> None:
    texts = [json.dumps(numbered(n)) for n in range(300)]
    raws = [json.loads(text) for text in texts]
    projected = [hub_workload(json.loads(text)) for text in texts]
    per_dict, per_object = footprint(raws) // 300, footprint(projected) // 300
    assert per_object <= 1100, f"{per_object} bytes"
    assert per_object * 15 < per_dict, f"{per_object} bytes of {per_dict}"


def test_pods_and_nodes_share_what_they_have_in_common() -> None:
    """Eight pods of one job on a node are one value, and forty labels of a fleet are kept once."""
    keys = {decode_nodes.JOB_NAME_LABEL: "train", decode_nodes.JOBSET_NAME_LABEL: "set"}
    uses = [decode_nodes.pod_use(json.loads(json.dumps(pod(f"p{n}", f"n{n // 8}", labels=keys)))) for n in range(800)]
    assert len({id(use) for use in uses}) == 100
    assert footprint(uses) // 800 <= 60
    labels = {f"feature.node.kubernetes.io/cpu-{n}": "true" for n in range(40)}
    raws = [
        json.dumps(node(f"n{n}", meta={"labels": {**labels, "kubernetes.io/hostname": f"n{n}"}})) for n in range(300)
    ]
    nodes = [decode_nodes.node(json.loads(raw)) for raw in raws]
    assert footprint(nodes) // 300 <= 800


def numbered(n: int) -> Raw:
    raw = workload(f"job-train-{n}")
    raw["metadata"]["ownerReferences"][0] |= {"name": f"train-{n}", "uid": f"uid-train-{n}"}
    return raw


def footprint(root: object) -> int:
    """Bytes of everything reachable, each thing once: what is shared is counted once for all."""
    seen: dict[int, int] = {}
    stack = [root]
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, type):
            continue
        seen[id(thing)] = sys.getsizeof(thing)
        stack.extend(gc.get_referents(thing))
    return sum(seen.values())


def test_the_template_helper_is_what_the_sizes_rest_on() -> None:
    """The comparison above means something only while the fixture is as fat as real ones (over 4 KB of JSON)."""
    assert len(json.dumps(workload())) > 4000
    assert pod_template()["spec"]["containers"][0]["env"]
