"""The survey against apiservers in this process: what it reads, and what it does when a cluster does not play along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.credentials import SecretSource
from connectors.kubernetes.survey import SurveyPlan, survey
from connectors.kubernetes.survey.worker import Given
from dispatcher.core.doctor.facts import (
    READ_TOPOLOGIES,
    WRITE_WORKLOADS,
    Holder,
    HubFacts,
    KubeconfigFault,
    PolicyFault,
    Source,
    WorkerFacts,
)
from dispatcher.core.policy import Credentials
from tests.connectors.apiserver import KUEUE, ApiServer, always, named
from tests.connectors.objects import cluster_queue, condition, node, workload
from tests.connectors.support import START, EagerClock, b64

Raw = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SECRETS, PODS, JOBS = "/api/v1/secrets", "/api/v1/pods", "/apis/batch/v1/jobs"
ORIGIN = "kueue.x-k8s.io/multikueue-origin"
DEADLINE_S = 5.0
"""Shorter than the deadline of a call; by the event loop's clock, which a test moves."""


def basics(api: ApiServer) -> None:
    """What every cluster serves; reviews of permissions, of which there are a hundred, only after `allow`."""
    kinds = ("clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloads")
    api.serve(*(f"{KUEUE}/{kind}" for kind in kinds), "/api/v1/nodes", JOBS, PODS)
    api.serve("/apis/apps/v1/deployments", "/api/v1/configmaps")
    api.serve("/apis/apps/v1/namespaces/kueue-system/deployments")
    api.extra |= {
        KUEUE: {"resources": [{"name": "workloads"}]},
        "/apis": {"groups": [{"name": "jobset.x-k8s.io", "versions": [{"groupVersion": "jobset.x-k8s.io/v1alpha2"}]}]},
        "/apis/jobset.x-k8s.io/v1alpha2": {"resources": [{"name": "jobsets", "kind": "JobSet"}]},
    }
    api.faults["POST", WHO] = answering({"status": {"userInfo": {"username": f"admin-{api.name}"}}})
    api.put(f"{KUEUE}/clusterqueues", cluster_queue())
    api.put(f"{KUEUE}/localqueues", {**named("main", "team-a"), "spec": {"clusterQueue": "training"}})
    api.put(f"{KUEUE}/resourceflavors", {**named("h100"), "spec": {"nodeLabels": {"gpu": "h100"}}})


def answering(body: Raw) -> Any:
    async def answer(_: web.Request) -> web.StreamResponse | None:
        return web.json_response(body, status=201)

    return answer


def allow(api: ApiServer, *denied: tuple[str, str]) -> None:
    async def review(request: web.Request) -> web.StreamResponse | None:
        asked = (await request.json())["spec"]["resourceAttributes"]
        return web.json_response({"status": {"allowed": (asked["verb"], asked["resource"]) not in denied}}, status=201)

    api.faults["POST", REVIEWS] = review


def secret(api: ApiServer, name: str, content: bytes, namespace: str = "kueue-system") -> None:
    api.put(SECRETS, {**named(name, namespace), "data": {"kubeconfig": b64(content)}})


def multikueue_cluster(name: str) -> Raw:
    source = {"clusterSource": {"kubeConfig": {"location": f"{name}-kubeconfig", "locationType": "Secret"}}}
    return {**named(name), "spec": source, "status": {"conditions": [condition("Active")]}}


@dataclass
class Bed:
    """A hub and two workers."""

    hub: ApiServer
    near: ApiServer
    far: ApiServer
    clock: EagerClock
    deadline_s: float = 30.0
    progress: Callable[[str], None] = lambda _: None

    async def survey(
        self, credentials: dict[str, Credentials] | None = None, data_keys: dict[str, Credentials] | None = None
    ) -> tuple[HubFacts, dict[str, WorkerFacts]]:
        client = ApiClient("hub", Given(self.hub.kubeconfig()), self.clock)

        async def get_secret(namespace: str, name: str) -> Any:
            return await client.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")

        def source_of(each: Credentials) -> SecretSource:
            return SecretSource(get_secret, each.secret_namespace or "", each.secret_name or "", each.secret_key)

        plan = SurveyPlan(credentials or {}, cluster_deadline_s=self.deadline_s, data_keys=data_keys or {})
        try:
            hub, workers = await survey(client, source_of, plan, self.clock, self.progress)
        finally:
            await client.close()
        return hub, {worker.cluster.name: worker for worker in workers}


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    async with ApiServer("hub") as hub, ApiServer("near") as near, ApiServer("far") as far:
        for api in (hub, near, far):
            basics(api)
        kinds = ("admissionchecks", "multikueueconfigs", "multikueueclusters")
        hub.serve(*(f"{KUEUE}/{kind}" for kind in kinds), SECRETS)
        hub.serve(f"{ADMISSION}/mutatingadmissionpolicies", f"{ADMISSION}/mutatingadmissionpolicybindings")
        hub.extra[ADMISSION] = {"resources": [{"name": "mutatingadmissionpolicies"}]}
        for api in (near, far):
            hub.put(f"{KUEUE}/multikueueclusters", multikueue_cluster(api.name))
            secret(hub, f"{api.name}-kubeconfig", api.kubeconfig())
            api.put("/api/v1/nodes", node("n1"))
        hub.put(f"{KUEUE}/multikueueconfigs", {**named("fleet"), "spec": {"clusters": ["near", "far"]}})
        yield Bed(hub, near, far, EagerClock())


async def test_everything_of_a_healthy_fleet_is_read(bed: Bed) -> None:
    allow(bed.near)
    hub, workers = await bed.survey()
    assert (hub.cluster.error, hub.cluster.kubernetes, hub.cluster.account) == (None, "v1.36.3", "admin-hub")
    assert hub.cluster.identity == "uid-hub"
    assert set(hub.clusters or {}) == {"near", "far"}
    assert (hub.clusters or {})["near"].source is Source.SECRET
    assert hub.configs == {"fleet": ("near", "far")}
    assert [(k.cluster, k.holder, k.faults) for k in hub.kubeconfigs] == [
        ("far", Holder.MULTIKUEUE, ()),
        ("near", Holder.MULTIKUEUE, ()),
    ]
    near = workers["near"].cluster
    assert near.error is None
    assert [n.name for n in near.nodes or ()] == ["n1"]
    assert set(near.local_queues or {}) == {("team-a", "main")}
    assert near.denied == ()


async def test_the_survey_changes_nothing(bed: Bed) -> None:
    allow(bed.near)
    await bed.survey()
    for api in (bed.hub, bed.near, bed.far):
        assert {s.path for s in api.seen if s.method != "GET"} <= {REVIEWS, WHO}


async def test_a_worker_that_hangs_becomes_a_fact_and_stops_nobody(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    passing = loop.time

    def pass_the_deadline(told: str) -> None:
        if told == "far: read":
            monkeypatch.setattr(loop, "time", lambda: passing() + DEADLINE_S)

    async def hang(_: web.Request) -> web.StreamResponse | None:
        await asyncio.Event().wait()
        return None

    bed.near.faults["GET", "/version"] = hang
    bed.deadline_s, bed.progress = DEADLINE_S, pass_the_deadline
    _, workers = await bed.survey()
    assert workers["near"].cluster.error == "it was not read within 5 s"
    assert workers["far"].cluster.error is None
    assert workers["far"].cluster.nodes


async def test_a_worker_that_refuses_connections_becomes_a_fact(bed: Bed) -> None:
    await bed.near.stop_listening()
    _, workers = await bed.survey()
    assert (workers["near"].cluster.error or "").startswith("near: GET /version")
    assert workers["far"].cluster.error is None


async def test_a_worker_that_does_not_know_us_becomes_a_fact(bed: Bed) -> None:
    bed.near.tokens = {"other"}
    hub, workers = await bed.survey()
    assert "401" in (workers["near"].cluster.error or "")
    assert next(k for k in hub.kubeconfigs if k.cluster == "near").denied == ()


async def test_a_hub_that_cannot_be_reached_is_told_and_no_worker_is_asked(bed: Bed) -> None:
    await bed.hub.stop_listening()
    hub, workers = await bed.survey({"near": Credentials("entrepot-system", "near")})
    assert hub.cluster.error
    assert workers == {}
    assert bed.near.seen == []


async def test_what_may_not_be_read_is_unknown_and_not_empty(bed: Bed) -> None:
    bed.hub.faults["LIST", JOBS] = always(403, "jobs is forbidden")
    hub, _ = await bed.survey()
    assert hub.jobs is None
    assert hub.workloads == ()
    assert ("list jobs.batch", "forbidden") in {(u.what, u.why) for u in hub.cluster.unread}


async def test_permissions_are_asked_for_and_the_missing_ones_named(bed: Bed) -> None:
    allow(bed.near, ("list", "nodes"), ("create", "workloads"))
    hub, workers = await bed.survey()
    assert [verb.text() for verb in workers["near"].cluster.denied or ()] == ["list nodes"]
    mine = next(k for k in hub.kubeconfigs if k.cluster == "near")
    assert [verb.text() for verb in mine.denied] == ["create workloads.kueue.x-k8s.io"]


async def test_what_a_component_of_deploy_grants_is_asked_for_and_is_no_fault_to_lack(bed: Bed) -> None:
    allow(bed.hub, ("patch", "workloads"))
    allow(bed.near, ("patch", "workloads"))
    allow(bed.far)
    hub, workers = await bed.survey()
    assert hub.cluster.not_granted == (WRITE_WORKLOADS,)
    assert (workers["near"].cluster.denied, workers["near"].cluster.not_granted) == ((), (WRITE_WORKLOADS,))
    assert workers["far"].cluster.not_granted == ()


async def test_topologies_are_asked_for_and_a_worker_that_does_not_grant_them_lacks_nothing_needed(bed: Bed) -> None:
    """The role of an earlier release: the daemon reads such a worker all the same."""
    allow(bed.near, ("list", "topologies"), ("watch", "topologies"))
    _, workers = await bed.survey()
    assert workers["near"].cluster.denied == ()
    assert workers["near"].cluster.not_granted == READ_TOPOLOGIES


async def test_the_secrets_of_data_are_looked_at_by_name_and_key_and_nothing_of_them_is_told(bed: Bed) -> None:
    allow(bed.hub, ("get", "secrets"))
    bed.hub.put(SECRETS, {**named("token", "ours"), "data": {"token": b64("hunter2")}})
    bed.hub.put(SECRETS, {**named("odd", "ours"), "data": {"tokne": b64("hunter2")}})
    bed.hub.faults["GET", "/api/v1/namespaces/ours/secrets/shut"] = always(403, "no")
    named_secrets = {of: Credentials("ours", of, "token") for of in ("token", "odd", "gone", "shut")}
    hub, _ = await bed.survey(data_keys={**named_secrets, "file": Credentials(file="/run/token")})
    assert [(key.of, key.fault) for key in hub.data_keys] == [
        ("gone", "Secret ours/gone does not exist"),
        ("odd", "Secret ours/odd has no key 'token'; it has tokne"),
        ("token", ""),
    ]
    assert ("get secrets shut in ours", "forbidden") in {(u.what, u.why) for u in hub.cluster.unread}
    assert {verb.name for verb in hub.cluster.not_granted if verb.resource == "secrets"} == set(named_secrets)
    assert hub.cluster.denied == ()
    assert "hunter2" not in repr(hub)


async def test_a_cluster_that_answers_no_reviews_has_unknown_permissions(bed: Bed) -> None:
    bed.near.faults["POST", REVIEWS] = always(403, "no")
    _, workers = await bed.survey()
    assert workers["near"].cluster.denied is None
    assert len(bed.near.requests("POST", REVIEWS)) == 2, "one for each of our two accounts there, and then no more"


async def test_a_plan_for_a_cluster_that_the_hub_lacks_is_not_looked_at(bed: Bed) -> None:
    secret(bed.hub, "near", bed.near.kubeconfig(), "entrepot-system")
    credentials = {name: Credentials("entrepot-system", name) for name in ("near", "moon")}
    hub, workers = await bed.survey(credentials)
    assert set(workers) == {"near", "far"}
    assert {(k.cluster, k.holder) for k in hub.kubeconfigs if k.holder is Holder.ENTREPOT} == {
        ("near", Holder.ENTREPOT)
    }


async def test_missing_secrets_and_keys_are_told_apart(bed: Bed) -> None:
    bed.hub.delete(SECRETS, "near-kubeconfig", "kueue-system")
    bed.hub.put(SECRETS, {**named("far-kubeconfig", "kueue-system"), "data": {"config": "eA=="}})
    hub, workers = await bed.survey()
    assert {k.cluster: [fault for fault, _ in k.faults] for k in hub.kubeconfigs} == {
        "near": [KubeconfigFault.NO_SECRET],
        "far": [KubeconfigFault.NO_KEY],
    }
    assert all(worker.cluster.error for worker in workers.values())


@pytest.mark.parametrize(
    ("served", "present", "faults"),
    [
        pytest.param(True, False, ((PolicyFault.MISSING, ""),), id="served and absent is missing"),
        pytest.param(False, False, ((PolicyFault.API_NOT_SERVED, ""),), id="not served is another matter"),
    ],
)
async def test_a_missing_policy_is_not_a_missing_kind(bed: Bed, served: bool, present: bool, faults: object) -> None:
    if not served:
        bed.hub.extra[ADMISSION] = {"resources": []}
    hub, _ = await bed.survey()
    assert hub.policy_faults == faults


async def test_a_policy_that_may_not_be_read_is_unknown(bed: Bed) -> None:
    path = f"{ADMISSION}/mutatingadmissionpolicies/clear-nominated-cluster-names"
    bed.hub.faults["GET", path] = always(403, "no")
    hub, _ = await bed.survey()
    assert hub.policy_faults is None


async def test_copies_are_told_from_local_work_by_their_origin(bed: Bed) -> None:
    bed.near.put(f"{KUEUE}/workloads", workload("copy", labels={ORIGIN: "hub-1"}))
    bed.near.put(f"{KUEUE}/workloads", workload("local"))
    _, workers = await bed.survey()
    assert [(copy.name, copy.origin) for copy in workers["near"].copies or ()] == [("copy", "hub-1")]
    assert [(job.kind, job.name) for job in workers["near"].foreign_jobs or ()] == [("Job", "train")]


async def test_jobs_of_the_hub_are_read_with_what_can_be_set_wrong(bed: Bed) -> None:
    spec = {"ttlSecondsAfterFinished": 0, "managedBy": "kueue.x-k8s.io/multikueue"}
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    bed.hub.put(JOBS, {**named("train", "team-a", labels=labels), "spec": spec, "status": {}})
    done = {"conditions": [condition("Complete")]}
    bed.hub.put(JOBS, {**named("old", "team-a", labels=labels), "spec": {}, "status": done})
    hub, _ = await bed.survey()
    read = {job.name: (job.queue, job.ttl_s, job.managed_by, job.finished) for job in hub.jobs or ()}
    assert read["train"] == ("main", 0, "kueue.x-k8s.io/multikueue", False)
    assert read["old"] == ("main", None, "", True)


async def test_pods_on_hub_nodes_come_with_every_job_they_may_belong_to(bed: Bed) -> None:
    owner = {"kind": "Job", "name": "train-0", "uid": "u"}
    labels = {"jobset.sigs.k8s.io/jobset-name": "rl", "batch.kubernetes.io/job-name": "train-0"}
    bed.hub.put(PODS, named("p", "team-a", labels=labels, ownerReferences=[owner]))
    bed.hub.put(PODS, named("loner", "team-a"))
    hub, _ = await bed.survey()
    assert hub.bound_pods == (("team-a", "p", ("Job/train-0", "JobSet/rl")),)
    (listed,) = bed.hub.requests("LIST", PODS)
    assert listed.query["fieldSelector"].startswith("spec.nodeName!=")


@pytest.mark.parametrize("offset_s", [0, 30, -30])
async def test_a_servers_clock_is_bounded_from_both_sides(bed: Bed, offset_s: int) -> None:
    async def dated(_: web.Request) -> web.StreamResponse | None:
        date = START.timestamp() + offset_s
        stamp = format_datetime(START.fromtimestamp(date, START.tzinfo), usegmt=True)
        return web.json_response({"gitVersion": "v1.36.3"}, headers={"Date": stamp})

    bed.near.faults["GET", "/version"] = dated
    bed.clock.elapsed_s = 0.0
    _, workers = await bed.survey()
    skew = workers["near"].cluster.skew
    assert skew is not None
    assert skew.low_ms <= offset_s * 1000 <= skew.high_ms
    assert skew.high_ms - skew.low_ms <= 1000 + 200


async def test_kueues_version_and_configuration_are_read_where_they_may_be(bed: Bed) -> None:
    manager = {"name": "manager", "image": "x/kueue:v0.17.0", "args": ["--feature-gates=MultiKueue=true"]}
    pod = {"template": {"spec": {"containers": [manager]}}}
    bed.hub.put("/apis/apps/v1/namespaces/kueue-system/deployments", {**named("kueue"), "spec": pod})
    text = "kind: Configuration\nmultiKueue: {dispatcherName: x}\nintegrations: {frameworks: [jobset.x-k8s.io/jobset]}"
    data = {"controller_manager_config.yaml": text}
    bed.hub.put("/api/v1/configmaps", {**named("kueue-manager-config", "kueue-system"), "data": data})
    hub, workers = await bed.survey()
    assert hub.cluster.kueue.exact == (0, 17, 0)
    assert hub.cluster.config is not None
    assert (hub.cluster.config.dispatcher, hub.cluster.config.gate("MultiKueue")) == ("x", True)
    assert workers["near"].cluster.kinds == frozenset({("jobset.x-k8s.io", "jobset")})


async def test_a_quota_that_cannot_be_read_costs_its_queue_and_is_told(bed: Bed) -> None:
    odd = cluster_queue("odd")
    odd["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "many"
    bed.near.put(f"{KUEUE}/clusterqueues", odd)
    _, workers = await bed.survey()
    assert set(workers["near"].cluster.queues or {}) == {"training"}
    assert "clusterqueues odd" in {unread.what for unread in workers["near"].cluster.unread}


async def test_a_hub_without_kueue_is_read_as_far_as_it_goes(bed: Bed) -> None:
    del bed.hub.extra[KUEUE]
    for path in [path for path in bed.hub.collections if path.startswith(KUEUE)]:
        bed.hub.collections.pop(path)
    hub, workers = await bed.survey()
    assert (hub.cluster.error, hub.cluster.kueue_served, hub.checks) == (None, False, None)
    assert workers == {}


async def test_long_lists_are_read_to_their_end(bed: Bed) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    for number in range(501):
        bed.hub.put(JOBS, {**named(f"train-{number}", "team-a", labels=labels), "spec": {}, "status": {}})
    hub, _ = await bed.survey()
    assert len(hub.jobs or ()) == 501
