"""`deploy/` on real apiservers: the daemon works with exactly its permissions, needs each of them, has no others."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from connectors.kubernetes import KubernetesHub, KubernetesWorker, connect_hub
from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.credentials import SecretSource
from connectors.kubernetes.kubeconfig import parse
from connectors.kubernetes.preflight import NEEDED
from demo.jobs import manifests as demo_jobs
from dispatcher.core.errors import Conflict, Fatal, Refused
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.ports import EventType, Notice, Stop
from dispatcher.runtime import SystemClock
from tests.fleet import Endpoint, LocalFleet, binaries, rbac
from tests.fleet.api import ApiRefusal, KubeApi
from tests.local.daemon import Hub, Running, daemon, wait_for
from tests.unit.deploy_files import DEPLOY, Grant, grants

pytestmark = pytest.mark.local
WORKER = "onprem-eu"
NAMESPACE = "simulation"
CLUSTER_SCOPED_REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
HUB_ROLE = next(m for m in rbac.hub_manifests([WORKER]) if m["kind"] == "ClusterRole")
READER_ROLE = next(m for m in rbac.worker_manifests() if m["kind"] == "ClusterRole")
MONITORING = {"PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, which the local fleet does not have: tests/unit looks at them."""
NOT_SEEN_HERE = {
    Grant("create", "coordination.k8s.io", "leases"): "one daemon alone may not need to elect a leader",
    Grant("get", "coordination.k8s.io", "leases", "entrepot"): "the same",
    Grant("update", "coordination.k8s.io", "leases", "entrepot"): "the same",
    Grant("patch", "coordination.k8s.io", "leases", "entrepot"): "the same",
    Grant("create", "kueue.x-k8s.io", "workloads"): "the clearing policy is in force here, so nothing is probed",
    Grant("delete", "kueue.x-k8s.io", "workloads", "entrepot-probe"): "the same",
}


@pytest.fixture
def hub(local_fleet: LocalFleet) -> Hub:
    return Hub(local_fleet)


def demo_job(name: str, as_name: str) -> dict[str, Any]:
    """A job of demo/jobs under another name, so that it meets no other test's."""
    found = copy.deepcopy(next(m for m in demo_jobs() if m["metadata"]["name"] == name))
    found["metadata"]["name"] = as_name
    return found


def account(endpoint: Endpoint, name: str) -> KubeApi:
    """A client that is one of our ServiceAccounts."""
    with endpoint.api() as admin:
        return KubeApi(endpoint.server_url, rbac.mint(admin, name, 3600), endpoint.ca_pem)


@contextlib.contextmanager
def without(endpoint: Endpoint, role: dict[str, Any], taken: Grant, user: str) -> Iterator[None]:
    """Take one permission away, and give it back. Waits each time until the apiserver acts on it."""
    with endpoint.api() as api:
        api.apply(lacking(role, taken))
        try:
            wait_for(lambda: not allowed(api, user, taken), 10)
            yield
        finally:
            api.apply(role)
            wait_for(lambda: allowed(api, user, taken), 10)


def lacking(role: dict[str, Any], taken: Grant) -> dict[str, Any]:
    """The role with one permission less; every other one is written as a rule of its own."""
    kept = [g for g in grants(role) if g != taken]
    assert len(kept) == len(list(grants(role))) - 1
    rules = [
        {"apiGroups": [g.group], "resources": [g.resource], "verbs": [g.verb]}
        | ({"resourceNames": [g.name]} if g.name else {})
        for g in kept
    ]
    return {**role, "rules": rules}


def allowed(api: KubeApi, user: str, grant: Grant) -> bool:
    resource, _, subresource = grant.resource.partition("/")
    attributes = {"verb": grant.verb, "group": grant.group, "resource": resource, "name": grant.name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "resourceAttributes": attributes | ({"subresource": subresource} if subresource else {}),
        },
    }
    return bool(api.request("POST", CLUSTER_SCOPED_REVIEW, review)["status"]["allowed"])


def words(grant: Grant) -> str:
    return " ".join(part for part in (grant.verb, grant.resource, grant.name) if part)


def audit(fleet: LocalFleet, cluster: str, since: int = 0) -> list[dict[str, Any]]:
    """What the daemon's account asked of a cluster, without the first `since` requests."""
    lines = fleet.audit_lines(cluster)[since:]
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("}")]
    user = rbac.user_name(rbac.DAEMON if cluster == "hub" else rbac.READER)
    assert {entry["user"]["username"] for entry in entries} <= {user}, "nobody else has a ServiceAccount here"
    return entries


def used(entries: Sequence[dict[str, Any]], granted: set[Grant]) -> set[Grant]:
    """Permissions by which requests were let through; with the name where the permission is for one name."""
    found = set()
    for entry in entries:
        target = entry.get("objectRef")
        if not target or entry.get("responseStatus", {}).get("code", 0) == 403:
            continue
        resource = target["resource"] + (f"/{target['subresource']}" if "subresource" in target else "")
        grant = Grant(entry["verb"], target.get("apiGroup", ""), resource)
        named = Grant(grant.verb, grant.group, grant.resource, target.get("name", ""))
        found.add(named if named in granted else grant)
    return found


# --- it works with exactly this ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished_job(local_fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A job of the demo that ran to its end under our own accounts, and what the daemon then said of its clusters."""
    hub, job = Hub(local_fleet), demo_job("sweep-rain", "rbac-sweep")
    before = {name: len(audit(local_fleet, name)) for name in ("hub", *local_fleet.workers)}
    with daemon(local_fleet, tmp_path_factory.mktemp("rbac")) as running:
        hub.create(job)
        wait_for(lambda: hub.finished(NAMESPACE, ["rbac-sweep"]), 120, lambda: running.log()[-2000:])
        workload = hub.workloads(NAMESPACE)["rbac-sweep"]
        wait_for(lambda: bool(hub.events(workload)), 10)
        clusters = {c["name"]: c for c in running.get("/v1/clusters")["items"]}
    hub.delete(job)
    return {"workload": workload, "events": hub.events(workload), "clusters": clusters, "before": before}


def test_a_job_finishes_with_the_accounts_of_deploy_alone(finished_job: dict[str, Any]) -> None:
    assert finished_job["workload"]["status"]["clusterName"] in LOCAL_CLUSTERS
    assert [e["reason"] for e in finished_job["events"] if e["reportingComponent"] == "entrepot"] == ["Nominated"]
    assert {name for name, c in finished_job["clusters"].items() if c["link"] == "connected"} == LOCAL_CLUSTERS


LOCAL_CLUSTERS = {"onprem-eu", "cloud-a-fi", "cloud-c-us"}


def test_a_worker_whose_secret_we_may_not_read_says_so(finished_job: dict[str, Any]) -> None:
    """The fleet has no cloud-b-fr, so its Secret is not among the names of the Role."""
    error = finished_job["clusters"]["cloud-b-fr"]["error"]
    assert 'cloud-b-fr-entrepot" is forbidden' in error
    assert 'cannot get resource "secrets"' in error


async def test_every_permission_on_the_hub_is_used_and_no_other_is_asked_for(
    local_fleet: LocalFleet, finished_job: dict[str, Any]
) -> None:
    await repeat_an_event(local_fleet, finished_job["workload"])
    granted = {
        grant
        for role in rbac.hub_manifests(sorted(local_fleet.workers))
        if role["kind"] in ("Role", "ClusterRole")
        for grant in grants(role)
    }
    entries = audit(local_fleet, "hub", finished_job["before"]["hub"])
    refused = {e["objectRef"]["name"] for e in entries if e.get("responseStatus", {}).get("code") == 403}
    assert refused == {"cloud-b-fr-entrepot"}
    seen = used(entries, granted)
    assert seen - granted == set()
    assert granted - seen - set(NOT_SEEN_HERE) == set()
    assert {e["requestURI"].split("?")[0] for e in entries if "objectRef" not in e} <= {
        "/version",
        "/apis/kueue.x-k8s.io/v1beta2",
    }, "beyond the roles only what every authenticated account may read"


def test_every_permission_on_a_worker_is_used_and_no_other_is_asked_for(
    local_fleet: LocalFleet, finished_job: dict[str, Any]
) -> None:
    granted = set(grants(READER_ROLE))
    for cluster in sorted(local_fleet.workers):
        entries = audit(local_fleet, cluster, finished_job["before"][cluster])
        assert [e for e in entries if e.get("responseStatus", {}).get("code") == 403] == []
        assert used(entries, granted) == granted


async def repeat_an_event(fleet: LocalFleet, workload: dict[str, Any]) -> None:
    """Write the same Event from two daemons in turn: the second meets it, reads its count and counts it up."""
    meta = workload["metadata"]
    notice = Notice(
        WorkloadUid(meta["uid"]), meta["namespace"], meta["name"], EventType.NORMAL, "RbacProof", "written twice"
    )
    for _ in range(2):
        connected = connect_hub(fleet.daemon_kubeconfig_path, SystemClock())
        await connected.notify(notice)
        await connected.close()


# --- it may do nothing else --------------------------------------------------------------------------------------

BATCH = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
FORBIDDEN_ON_THE_HUB = [
    ("read MultiKueue's kubeconfig", "GET", f"/api/v1/namespaces/kueue-system/secrets/{WORKER}-kubeconfig"),
    ("list our own Secrets", "GET", "/api/v1/namespaces/entrepot-system/secrets"),
    ("read the store's Secret", "GET", "/api/v1/namespaces/entrepot-system/secrets/entrepot-store"),
    ("read a job", "GET", f"{BATCH}/any"),
    ("create a job", "POST", BATCH),
    ("delete a job", "DELETE", f"{BATCH}/any"),
    ("delete a Workload", "DELETE", f"{KUEUE}/namespaces/{NAMESPACE}/workloads/any"),
    ("change a Workload's spec", "PATCH", f"{KUEUE}/namespaces/{NAMESPACE}/workloads/any"),
    ("change a queue", "PATCH", f"{KUEUE}/clusterqueues/simulation"),
    ("read pods", "GET", "/api/v1/pods"),
    ("list namespaces", "GET", "/api/v1/namespaces"),
    ("delete an Event", "DELETE", f"/api/v1/namespaces/{NAMESPACE}/events/any"),
    ("mint tokens", "POST", "/api/v1/namespaces/entrepot-system/serviceaccounts/entrepot/token"),
    ("widen its own role", "PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/entrepot"),
    ("take another lease", "PATCH", "/apis/coordination.k8s.io/v1/namespaces/entrepot-system/leases/other"),
]
FORBIDDEN_ON_A_WORKER = [
    ("read Secrets", "GET", "/api/v1/secrets"),
    ("create a job", "POST", BATCH),
    ("delete a pod", "DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/any"),
    ("change a node", "PATCH", "/api/v1/nodes/any"),
    ("delete a copy", "DELETE", f"{KUEUE}/namespaces/{NAMESPACE}/workloads/any"),
    ("change a copy", "PATCH", f"{KUEUE}/namespaces/{NAMESPACE}/workloads/any"),
    ("change a quota", "PATCH", f"{KUEUE}/clusterqueues/simulation"),
    ("write an Event", "POST", f"/api/v1/namespaces/{NAMESPACE}/events"),
]


@pytest.mark.parametrize(
    ("cluster", "name", "method", "path"),
    [("hub", rbac.DAEMON, method, path) for _, method, path in FORBIDDEN_ON_THE_HUB]
    + [(WORKER, rbac.READER, method, path) for _, method, path in FORBIDDEN_ON_A_WORKER],
    ids=[f"hub: {what}" for what, _, _ in FORBIDDEN_ON_THE_HUB]
    + [f"worker: {what}" for what, _, _ in FORBIDDEN_ON_A_WORKER],
)
def test_our_accounts_cannot(local_fleet: LocalFleet, cluster: str, name: str, method: str, path: str) -> None:
    endpoint = local_fleet.hub if cluster == "hub" else local_fleet.workers[cluster]
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    with account(endpoint, name) as api, pytest.raises(ApiRefusal) as refusal:
        api.request(method, path, None if method == "GET" else {}, kind)
    assert refusal.value.status_code == 403


# --- it needs each of them, and says which one is missing --------------------------------------------------------

ASKED_AT_START = [
    grant
    for grant in grants(HUB_ROLE)
    # Every authenticated account may review itself; a hub without JobSets has none to list.
    if grant.resource not in ("selfsubjectaccessreviews", "jobsets")
]


@pytest.mark.parametrize("taken", ASKED_AT_START, ids=words)
async def test_start_is_refused_with_the_missing_permission_and_the_rule_to_add(
    local_fleet: LocalFleet, taken: Grant
) -> None:
    with without(local_fleet.hub, HUB_ROLE, taken, rbac.user_name(rbac.DAEMON)):
        connected = connect_hub(local_fleet.daemon_kubeconfig_path, SystemClock())
        with pytest.raises(Fatal) as refusal:
            await connected.check_ready()
        await connected.close()
    assert f"does not allow us to {words(taken)}" in str(refusal.value)
    rules = yaml.safe_load(refusal.value.fix.split(": ", 1)[1])
    assert list(grants({"rules": rules})) == [taken]


def test_the_table_above_is_all_that_start_up_asks_for() -> None:
    assert {words(grant) for grant in ASKED_AT_START} == {permission.words for permission in NEEDED}


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_readiness_names_jobsets_that_may_not_be_seen(local_fleet: LocalFleet, verb: str) -> None:
    with without(local_fleet.hub, HUB_ROLE, Grant(verb, "jobset.x-k8s.io", "jobsets"), rbac.user_name(rbac.DAEMON)):
        connected = connect_hub(local_fleet.daemon_kubeconfig_path, SystemClock())
        error = await error_of(connected)
    assert f'cannot {verb} resource "jobsets"' in error


@pytest.mark.parametrize("taken", [g for g in grants(READER_ROLE) if g.resource != "topologies"], ids=words)
async def test_a_worker_that_may_not_be_read_in_full_says_what_is_missing(
    local_fleet: LocalFleet, taken: Grant
) -> None:
    clock = SystemClock()
    with without(local_fleet.workers[WORKER], READER_ROLE, taken, rbac.user_name(rbac.READER)):
        connected = connect_hub(local_fleet.daemon_kubeconfig_path, clock)
        source = SecretSource(connected.get_secret, rbac.NAMESPACE, rbac.secret_name(WORKER), "kubeconfig")
        worker = KubernetesWorker(ClusterName(WORKER), ApiClient(WORKER, source, clock), clock)
        error = await error_of(worker)
        view = worker.view()
        await connected.close()
    assert f'cannot {taken.verb} resource "{taken.resource}"' in error
    assert view.synced is (taken.verb == "watch"), "what was never listed is not taken for empty"


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_worker_whose_topologies_may_not_be_read_is_read_without_them(
    local_fleet: LocalFleet, verb: str
) -> None:
    """As with the role of an earlier release: everything else is there, and no error."""
    clock, taken = SystemClock(), Grant(verb, "kueue.x-k8s.io", "topologies")
    with without(local_fleet.workers[WORKER], READER_ROLE, taken, rbac.user_name(rbac.READER)):
        connected = connect_hub(local_fleet.daemon_kubeconfig_path, clock)
        source = SecretSource(connected.get_secret, rbac.NAMESPACE, rbac.secret_name(WORKER), "kubeconfig")
        worker = KubernetesWorker(ClusterName(WORKER), ApiClient(WORKER, source, clock), clock)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run(lambda: None))
            try:
                assert await until(lambda: worker.view().synced, bool)
                assert worker.view().error is None
            finally:
                running.cancel()
        await connected.close()


async def error_of(port: KubernetesHub | KubernetesWorker) -> str:
    """What a connection says is wrong, as /readyz and `entrepot clusters` show it, once it is known."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(port.run(lambda: None))
        try:
            found = await until(lambda: port.view().error, bool)
            await asyncio.sleep(0.5)  # the other kinds are still being read
        finally:
            running.cancel()
    return found


async def test_fr_rac_10_a_copy_is_stopped_only_where_the_worker_was_told_to_let_us(local_fleet: LocalFleet) -> None:
    """deploy/worker alone: refused. With deploy/worker-stop: spec.active is false, and of no other uid."""
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "rbac-surplus", "namespace": "autonomy"},
        "spec": {"queueName": "nowhere", "podSets": [{"name": "main", "count": 1, "template": POD_TEMPLATE}]},
    }
    connected = connect_hub(local_fleet.daemon_kubeconfig_path, SystemClock())
    source = SecretSource(connected.get_secret, rbac.NAMESPACE, rbac.secret_name(WORKER), "kubeconfig")
    client = ApiClient(WORKER, source, SystemClock())
    worker = KubernetesWorker(ClusterName(WORKER), client, SystemClock())
    with local_fleet.workers[WORKER].api() as api:
        made = await asyncio.to_thread(api.apply, manifest)
        stop = Stop(made["metadata"]["uid"], "autonomy", "rbac-surplus")
        with pytest.raises(Refused, match="cannot patch resource"):
            await worker.stop(stop)
        role = rbac.stopper_manifests()
        await asyncio.to_thread(api.apply_all, role)
        try:
            with pytest.raises(Conflict):
                await worker.stop(replace(stop, uid="uid-of-another"))
            await worker.stop(stop)
            found = await asyncio.to_thread(api.get, api.path_of(manifest))
        finally:
            for item in [*role, manifest]:
                await asyncio.to_thread(api.request, "DELETE", api.path_of(item))
    await client.close()
    await connected.close()
    assert found is not None
    assert found["spec"]["active"] is False


POD_TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "none", "resources": {}}], "restartPolicy": "Never"}}


async def test_a_secret_that_may_not_be_read_is_named(local_fleet: LocalFleet) -> None:
    by_name = {(m["kind"], m["metadata"]["name"]): m for m in rbac.hub_manifests(sorted(local_fleet.workers))}
    role = by_name["Role", rbac.WORKER_ACCESS]
    connected = connect_hub(local_fleet.daemon_kubeconfig_path, SystemClock())
    lesser = copy.deepcopy(role)
    lesser["rules"][0]["resourceNames"].remove(rbac.secret_name(WORKER))

    async def refused() -> str | None:
        try:
            await connected.get_secret(rbac.NAMESPACE, rbac.secret_name(WORKER))
        except Refused as error:
            return str(error)
        return None

    with local_fleet.hub.api() as api:
        api.apply(lesser)
        try:
            found = await until(refused, bool)
        finally:
            api.apply(role)
            await until(refused, lambda text: text is None)
    await connected.close()
    assert f'"{WORKER}-entrepot" is forbidden' in found


async def until(ask: Callable[[], Any], good: Callable[[str | None], bool]) -> str:
    """Ask until the answer is good: an apiserver takes a moment to act on a changed role."""
    async with asyncio.timeout(20):
        while True:
            found = ask()
            if inspect.isawaitable(found):
                found = await found
            if good(found):
                return str(found)
            await asyncio.sleep(0.05)


def test_a_nomination_that_is_refused_while_running_is_counted_and_made_good(
    local_fleet: LocalFleet, hub: Hub, tmp_path: Path
) -> None:
    job = demo_job("sweep-dust", "rbac-refused")
    taken = Grant("patch", "kueue.x-k8s.io", "workloads/status")
    with daemon(local_fleet, tmp_path) as running:
        with without(local_fleet.hub, HUB_ROLE, taken, rbac.user_name(rbac.DAEMON)):
            hub.create(job)
            wait_for(lambda: metric(running, 'entrepot_nominations_total{result="refused"}') > 0, 30, running.log)
            assert not hub.finished(NAMESPACE, ["rbac-refused"])
        wait_for(lambda: hub.finished(NAMESPACE, ["rbac-refused"]), 90, lambda: running.log()[-2000:])
        assert 'cannot patch resource \\"workloads/status\\"' in running.log()
    hub.delete(job)


def test_events_that_are_refused_are_counted_and_delay_nothing(
    local_fleet: LocalFleet, hub: Hub, tmp_path: Path
) -> None:
    job = demo_job("sweep-night", "rbac-silent")
    with (
        daemon(local_fleet, tmp_path) as running,
        without(local_fleet.hub, HUB_ROLE, Grant("create", "", "events"), rbac.user_name(rbac.DAEMON)),
    ):
        hub.create(job)
        wait_for(lambda: hub.finished(NAMESPACE, ["rbac-silent"]), 90, lambda: running.log()[-2000:])
        wait_for(lambda: metric(running, 'entrepot_events_lost_total{cause="refused"}') > 0, 10, running.log)
    hub.delete(job)


def metric(running: Running, sample: str) -> float:
    text = httpx.get(f"{running.server}/metrics", timeout=10.0, trust_env=False).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(sample))


# --- what is installed -------------------------------------------------------------------------------------------


def kubectl(*arguments: str, kubeconfig: Path | None = None, stdin: str = "") -> str:
    command = [str(binaries.ensure(print).paths["kubectl"]), *arguments]
    command += ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
    answer = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("folder", ["hub", "worker", "overlays/single", "overlays/replicas"])
def test_what_kustomize_makes_is_taken_by_a_real_apiserver(local_fleet: LocalFleet, folder: str) -> None:
    rendered = list(yaml.safe_load_all(kubectl("kustomize", str(DEPLOY / folder))))
    assert {m["kind"] for m in rendered} & MONITORING == (MONITORING if folder == "overlays/replicas" else set())
    text = yaml.safe_dump_all([m for m in rendered if m["kind"] not in MONITORING])
    target = local_fleet.workers[WORKER] if folder == "worker" else local_fleet.hub
    options = ["--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-"]
    applied = kubectl("apply", *options, kubeconfig=target.kubeconfig_path, stdin=text)
    assert len(applied.splitlines()) == len([m for m in rendered if m["kind"] not in MONITORING])


def test_components_add_their_roles(tmp_path: Path) -> None:
    base = {"resources": ["../deploy/hub"], "components": ["../deploy/frameworks", "../deploy/any-hub"]}
    (tmp_path / "deploy").symlink_to(DEPLOY)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "kustomization.yaml").write_text(yaml.safe_dump(base))
    rendered = list(yaml.safe_load_all(kubectl("kustomize", str(tmp_path / "own"))))
    roles = {m["metadata"]["name"] for m in rendered if m["kind"] in ("ClusterRole", "Role")}
    assert roles == {"entrepot", "entrepot-frameworks", "entrepot-leader", "entrepot-probe", rbac.WORKER_ACCESS}


def test_the_single_overlay_has_one_pod_with_its_own_volume_and_no_budget() -> None:
    rendered = list(yaml.safe_load_all(kubectl("kustomize", str(DEPLOY / "overlays/single"))))
    assert "PodDisruptionBudget" not in {m["kind"] for m in rendered}
    deployment = next(m for m in rendered if m["kind"] == "Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    container = deployment["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "ENTREPOT_STORE", "value": "/var/lib/entrepot/entrepot.db"}]
    assert {m["name"] for m in container["volumeMounts"]} == {"store", "blueprint", "tmp"}
    assert container["image"] == "entrepot:0.1.0"


@pytest.mark.parametrize("overlay", ["overlays/single", "overlays/replicas"])
def test_the_pod_is_admitted_under_the_restricted_profile_and_a_privileged_one_is_not(
    local_fleet: LocalFleet, overlay: str
) -> None:
    """The namespace enforces the profile, and the real admission plugin judges the real pod (nothing is created)."""
    rendered = list(yaml.safe_load_all(kubectl("kustomize", str(DEPLOY / overlay))))
    template = next(m for m in rendered if m["kind"] == "Deployment")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": template["spec"]}
    path = f"/api/v1/namespaces/{rbac.NAMESPACE}/pods"
    with local_fleet.hub.api() as api:
        api.request("POST", path, pod, dryRun="All")
        worse = copy.deepcopy(pod)
        worse["spec"]["containers"][0]["securityContext"]["capabilities"] = {"add": ["NET_ADMIN"]}
        with pytest.raises(ApiRefusal, match="violates PodSecurity"):
            api.request("POST", path, worse, dryRun="All")


def test_the_script_makes_a_secret_with_which_a_worker_can_be_read(local_fleet: LocalFleet) -> None:
    script, worker = DEPLOY / "worker" / "kubeconfig-secret.sh", local_fleet.workers[WORKER]
    environment = {
        "PATH": "/usr/bin:/bin",
        "KUBECONFIG": str(worker.kubeconfig_path),
        "KUBECTL": str(binaries.ensure(print).paths["kubectl"]),
    }
    answer = subprocess.run([str(script), WORKER, "1h"], capture_output=True, text=True, env=environment, check=False)
    assert answer.returncode == 0, answer.stderr
    secret = yaml.safe_load(answer.stdout)
    assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == (rbac.NAMESPACE, rbac.secret_name(WORKER))
    access = parse(secret["stringData"]["kubeconfig"].encode())
    assert access.server == worker.server_url
    assert access.token is not None
    with KubeApi(access.server, access.token, (access.ca_pem or "").encode()) as api:
        assert api.request("GET", "/api/v1/nodes")["items"]
        with pytest.raises(ApiRefusal):
            api.request("GET", "/api/v1/secrets")


def test_the_patch_of_the_install_page_names_other_workers(tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", (DEPLOY.parent / "docs" / "install.md").read_text(), re.M | re.S)
    patches = next(found for text in blocks if (found := yaml.safe_load(text)).keys() == {"patches"})
    (tmp_path / "deploy").symlink_to(DEPLOY)
    (tmp_path / "own").mkdir()
    content = {"resources": ["../deploy/overlays/single"], **patches}
    (tmp_path / "own" / "kustomization.yaml").write_text(yaml.safe_dump(content))
    rendered = list(yaml.safe_load_all(kubectl("kustomize", str(tmp_path / "own"))))
    role = next(m for m in rendered if m["metadata"]["name"] == rbac.WORKER_ACCESS and m["kind"] == "Role")
    assert {g.name for g in grants(role)} == {"onprem-entrepot", "cloud-a-entrepot"}
