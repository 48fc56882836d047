"""A hub Workload and its owner become one request, or everything that keeps it from being decided."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from dispatcher.core.declaration import InputProblem
from dispatcher.core.ids import ClusterName, QueueName, WorkloadUid
from dispatcher.core.request import build_request
from dispatcher.core.snapshot import MULTIKUEUE_CONTROLLER, Check, HubQueue, HubView, LocalQueueView
from dispatcher.core.workload import CheckState, HubWorkload, Owner, OwnerMeta, Request, WorkloadClass
from tests.core_builders import NOW, QUEUE, pods, policy

K = "entrepot.dev/"
WORKLOAD = HubWorkload(
    uid=WorkloadUid("u1"),
    namespace="team",
    name="job-train-a",
    resource_version="41",
    created_at=NOW - timedelta(minutes=9),
    local_queue="main",
    owner=Owner("batch/v1", "Job", "train-a", "o1"),
    owner_count=1,
    cluster_queue=QUEUE,
    quota_reserved_at=NOW - timedelta(minutes=3),
    checks=(CheckState("budget", "Ready"), CheckState("fleet", "Pending")),
    pod_sets=(pods(),),
)
OWNER = OwnerMeta("o1", "Job", "team", "train-a")
HUB = HubView(
    synced=True,
    observed_at=NOW,
    checks={
        "budget": Check("budget", "entrepot.dev/budget", active=True),
        "fleet": Check("fleet", MULTIKUEUE_CONTROLLER, active=True, config="fleet-config"),
    },
    configs={"fleet-config": (ClusterName("onprem"), ClusterName("cloud"))},
    queues={QUEUE: HubQueue(QUEUE, active=True, checks=("budget", "fleet"))},
    local_queues={("team", "main"): LocalQueueView("team", "main", QUEUE)},
)


def built(workload: HubWorkload = WORKLOAD, owner: OwnerMeta | None = OWNER, hub: HubView = HUB) -> Request:
    found = build_request(workload, owner, hub, policy())
    assert isinstance(found, Request), found
    return found


def refused(
    workload: HubWorkload = WORKLOAD, owner: OwnerMeta | None = OWNER, hub: HubView = HUB
) -> list[InputProblem]:
    found = build_request(workload, owner, hub, policy())
    assert not isinstance(found, Request)
    return list(found)


def with_keys(**keys: str) -> OwnerMeta:
    return replace(OWNER, keys=tuple((K + k.replace("_", "-"), v) for k, v in keys.items()))


def test_a_plain_job_becomes_a_request() -> None:
    request = built()
    assert (request.job_kind, request.job_name, request.hub_queue) == ("Job", "train-a", QUEUE)
    assert request.listed_clusters == ("onprem", "cloud")
    assert request.waiting_since == WORKLOAD.quota_reserved_at
    assert request.declared.workload_class is WorkloadClass.TRAINING


def test_the_key_goes_before_the_queues_default_class() -> None:
    assert built(owner=with_keys(workload_class="evaluation")).declared.workload_class is WorkloadClass.EVALUATION


def test_keys_of_the_pod_template_count_where_the_job_is_silent() -> None:
    workload = replace(WORKLOAD, template_keys=((K + "team", "radar"), (K + "max-cost", "5")))
    declared = built(workload, with_keys(team="radar")).declared
    assert (declared.team, declared.max_cost_usd_micro) == ("radar", 5_000_000)


def test_job_and_template_that_disagree_hold_the_workload() -> None:
    workload = replace(WORKLOAD, template_keys=((K + "team", "lidar"),))
    (found,) = refused(workload, with_keys(team="radar"))
    assert found.key == K + "team"
    assert "'radar' and 'lidar'" in found.rule


def test_a_cluster_that_nobody_knows_is_a_problem_and_a_known_one_is_not() -> None:
    assert built(owner=with_keys(clusters="onprem")).declared.clusters == ("onprem",)
    (found,) = refused(owner=with_keys(clusters="onprem, clout"))
    assert found.fix == "did you mean 'cloud'?"


def test_a_workload_without_owner_is_held() -> None:
    (found,) = refused(replace(WORKLOAD, owner=None, owner_count=0), None)
    assert "no owner" in found.rule


def test_an_owner_that_is_not_visible_holds_rather_than_passes_as_silent() -> None:
    (found,) = refused(owner=None)
    assert "not visible" in found.rule
    assert found.value == "Job team/train-a"


def test_a_broken_object_is_told_with_its_reason() -> None:
    (found,) = refused(replace(WORKLOAD, pod_sets=(), problem="main: cpu: '-1' is negative"))
    assert "'-1' is negative" in found.rule


def test_the_local_queue_stands_in_for_the_reservation() -> None:
    assert built(replace(WORKLOAD, cluster_queue=None)).hub_queue == QUEUE
    assert any("no LocalQueue" in p.rule for p in refused(replace(WORKLOAD, cluster_queue=None, local_queue="x")))


def test_a_queue_without_multikueue_lists_nobody() -> None:
    hub = replace(HUB, checks={"fleet": Check("fleet", "other", active=True)})
    assert [p.key for p in refused(hub=hub)] == ["clusterQueue"]


def test_a_queue_outside_the_plan_needs_a_class() -> None:
    other = QueueName("unplanned")
    hub = replace(HUB, queues={other: HubQueue(other, active=True, checks=("fleet",))})
    workload = replace(WORKLOAD, cluster_queue=other)
    assert [p.key for p in refused(workload, hub=hub)] == [K + "workload-class"]
    assert built(workload, with_keys(workload_class="training"), hub).hub_queue == other


def test_all_problems_come_at_once() -> None:
    keys = {p.key for p in refused(replace(WORKLOAD, owner=None, owner_count=0), with_keys(team="", colour="red"))}
    assert keys == {"metadata.ownerReferences", K + "team", K + "colour"}


def test_a_longest_round_trip_that_would_bind_nobody_is_a_problem() -> None:
    (problem,) = refused(owner=with_keys(max_round_trip="40ms"))
    assert problem.key == "entrepot.dev/max-round-trip"
    assert "neither the job nor its class names any" in problem.rule


def test_what_others_see_of_its_use_holds_nothing_whatever_they_write() -> None:
    assert built(owner=with_keys(last_activity="yesterday", activity_checked="?")) == built()
