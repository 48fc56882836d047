"""The doctor on a real fleet: a healthy one has no error; what is broken by hand is found, and nothing beside it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatcher.app.doctor import DoctorOptions, Examination, examine
from dispatcher.cli.main import run
from dispatcher.core.doctor import Code, Severity
from dispatcher.runtime import SystemClock
from tests.fleet import LocalFleet
from tests.fleet.api import KubeApi, condition_is
from tests.local.daemon import KUEUE, wait_for
from tests.local.fleet_objects import CONFIG

pytestmark = pytest.mark.local

WORKER = "cloud-a-fi"
SPARE = "doctor-spare"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
Found = set[tuple[Code, str]]


def look(fleet: LocalFleet, kubeconfig: Path | None = None) -> Examination:
    options = DoctorOptions(kubeconfig or fleet.hub.kubeconfig_path, CONFIG)
    return asyncio.run(examine(options, SystemClock(), lambda _: None))


def found(fleet: LocalFleet) -> Found:
    return {(finding.code, finding.where.text()) for finding in look(fleet).findings}


def errors(examination: Examination) -> list[str]:
    return [f"{f.code} {f.where.text()}: {f.seen}" for f in examination.findings if f.severity is Severity.ERROR]


@pytest.fixture(scope="module")
def before(local_fleet: LocalFleet) -> Found:
    """What is found of the fleet as it is: notes, and warnings that its tokens end within seven days."""
    return found(local_fleet)


@contextlib.contextmanager
def without(api: KubeApi, path: str) -> Iterator[None]:
    """The object is gone while the block runs, and back as it was afterwards."""
    kept = api.request("GET", path)
    api.request("DELETE", path)
    wait_for(lambda: api.get(path) is None, 30)
    try:
        yield
    finally:
        for key in ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation", "finalizers"):
            kept["metadata"].pop(key, None)
        kept.pop("status", None)
        api.request("POST", path.rpartition("/")[0], kept)


@contextlib.contextmanager
def having(api: KubeApi, collection: str, manifest: dict[str, Any]) -> Iterator[None]:
    """The object is there while the block runs."""
    api.request("POST", collection, manifest)
    try:
        yield
    finally:
        path = f"{collection}/{manifest['metadata']['name']}"
        api.request("DELETE", path, {"propagationPolicy": "Background"})
        wait_for(lambda: api.get(path) is None, 60)


def local_queue_of(api: KubeApi) -> tuple[str, str, str]:
    """(namespace, name, ClusterQueue) of the first LocalQueue."""
    item = min(api.request("GET", f"{KUEUE}/localqueues")["items"], key=lambda each: each["metadata"]["namespace"])
    return item["metadata"]["namespace"], item["metadata"]["name"], item["spec"]["clusterQueue"]


# --- healthy -----------------------------------------------------------------------------------------------------


def test_a_healthy_fleet_has_no_error(local_fleet: LocalFleet) -> None:
    examination = look(local_fleet)
    assert errors(examination) == []
    assert {worker.cluster.name for worker in examination.facts.workers if worker.cluster.reachable} == set(
        local_fleet.workers
    )
    assert examination.facts.hub.cluster.kueue.floor == (0, 19, 0)
    assert all(abs((w.cluster.skew or pytest.fail("no skew")).low_ms) < 5000 for w in examination.facts.workers)


def test_the_daemons_own_account_lacks_nothing_and_is_enough_to_find_no_error(local_fleet: LocalFleet) -> None:
    examination = look(local_fleet, local_fleet.daemon_kubeconfig_path)
    assert errors(examination) == []
    assert examination.facts.hub.cluster.denied == ()
    assert all(worker.cluster.denied == () for worker in examination.facts.workers)
    assert examination.facts.hub.cluster.account == "system:serviceaccount:entrepot-system:entrepot"


def test_a_configuration_in_the_cluster_is_read_and_is_good(local_fleet: LocalFleet, before: Found) -> None:
    with kueue_installed(local_fleet):
        examination = look(local_fleet)
    config = examination.facts.hub.cluster.config
    assert config is not None
    assert config.dispatcher == "entrepot.dev/dispatcher"
    assert config.frameworks == ("batch/job", "jobset.x-k8s.io/jobset")
    assert examination.facts.hub.cluster.kueue.exact == (0, 19, 2)
    assert errors(examination) == []
    # The fleet gives up on a worker after 30 s, so that tests need not wait for long; the blueprint's limit is 60 s.
    where = "hub: ConfigMap kueue-system/kueue-manager-config"
    beside = {(f.code, f.where.text()) for f in examination.findings} - before
    assert beside == {(Code.LOST_TIMEOUT_SHORT, where)}


# --- broken by hand ----------------------------------------------------------------------------------------------


def test_a_local_queue_that_a_worker_lacks(local_fleet: LocalFleet, before: Found) -> None:
    with local_fleet.workers[WORKER].api() as api:
        namespace, name, _ = local_queue_of(api)
        with without(api, f"{KUEUE}/namespaces/{namespace}/localqueues/{name}"):
            broken = found(local_fleet)
    assert broken - before == {(Code.LOCAL_QUEUE_MISSING, f"{WORKER}: LocalQueue {namespace}/{name}")}


@pytest.mark.parametrize("on_hub", [False, True], ids=["a worker's", "the hub's"])
def test_a_queue_that_selects_no_namespace(local_fleet: LocalFleet, before: Found, on_hub: bool) -> None:
    """A merge patch of null takes the selector away; Kueue still calls queue and LocalQueue active."""
    endpoint = local_fleet.hub if on_hub else local_fleet.workers[WORKER]
    with endpoint.api() as api:
        _, _, queue = local_queue_of(api)
        path = f"{KUEUE}/clusterqueues/{queue}"
        kept = api.request("GET", path)["spec"]["namespaceSelector"]
        api.merge_patch(path, {"spec": {"namespaceSelector": None}})
        try:
            broken = found(local_fleet)
            assert condition_is(api.request("GET", path), "Active")
        finally:
            api.merge_patch(path, {"spec": {"namespaceSelector": kept}})
    where = f"{'hub' if on_hub else WORKER}: ClusterQueue {queue}"
    assert broken - before == {(Code.NAMESPACE_NOT_SELECTED, where)}


def test_a_hub_quota_below_the_workers_sum(local_fleet: LocalFleet, before: Found) -> None:
    with local_fleet.hub.api() as api:
        _, _, queue = local_queue_of(api)
        path = f"{KUEUE}/clusterqueues/{queue}"
        kept = api.request("GET", path)["spec"]["resourceGroups"]
        small = json.loads(json.dumps(kept))
        for resource in small[0]["flavors"][0]["resources"]:
            if resource["name"] == "memory":
                resource["nominalQuota"] = "1Gi"
        api.merge_patch(path, {"spec": {"resourceGroups": small}})
        try:
            broken = found(local_fleet)
        finally:
            api.merge_patch(path, {"spec": {"resourceGroups": kept}})
    assert broken - before == {(Code.HUB_QUOTA_SMALL, f"hub: ClusterQueue {queue}")}


def test_a_policy_that_nothing_binds(local_fleet: LocalFleet, before: Found) -> None:
    with local_fleet.hub.api() as api:
        bindings = api.request("GET", f"{POLICIES}/mutatingadmissionpolicybindings")["items"]
        (name,) = [binding["metadata"]["name"] for binding in bindings]
        with without(api, f"{POLICIES}/mutatingadmissionpolicybindings/{name}"):
            broken = found(local_fleet)
    policy = "hub: MutatingAdmissionPolicy clear-nominated-cluster-names"
    assert broken - before == {(Code.POLICY_NOT_BOUND, policy)}


def test_an_insecure_kubeconfig(local_fleet: LocalFleet, before: Found) -> None:
    content = kubeconfig_of(local_fleet)
    del content["clusters"][0]["cluster"]["certificate-authority-data"]
    content["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    broken = with_spare_cluster(local_fleet, content)
    assert (Code.KUBECONFIG_INSECURE, f"hub: Secret kueue-system/{SPARE}-kubeconfig") in broken
    assert broken - before - spare_company() == {
        (Code.KUBECONFIG_INSECURE, f"hub: Secret kueue-system/{SPARE}-kubeconfig")
    }


def test_a_token_that_has_expired(local_fleet: LocalFleet, before: Found) -> None:
    content = kubeconfig_of(local_fleet)
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1_700_000_000}).encode()).decode().rstrip("=")
    content["users"][0]["user"] = {"token": f"e30.{claims}.c2ln"}
    broken = with_spare_cluster(local_fleet, content)
    assert broken - before - spare_company() == {
        (Code.KUBECONFIG_EXPIRED, f"hub: Secret kueue-system/{SPARE}-kubeconfig")
    }


def test_a_job_whose_ttl_is_zero(local_fleet: LocalFleet, before: Found) -> None:
    with local_fleet.hub.api() as api:
        namespace, queue, _ = local_queue_of(api)
        with having(api, f"/apis/batch/v1/namespaces/{namespace}/jobs", job("ttl-zero", namespace, queue, ttl=0)):
            broken = found(local_fleet)
    assert broken - before == {(Code.TTL_SHORT, f"hub: Job {namespace}/ttl-zero")}


def test_a_name_that_a_worker_has_taken(local_fleet: LocalFleet, before: Found) -> None:
    with local_fleet.hub.api() as hub, local_fleet.workers[WORKER].api() as worker:
        namespace, queue, _ = local_queue_of(hub)
        jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        with (
            having(worker, jobs, job("taken", namespace, queue)),
            having(hub, jobs, job("taken", namespace, queue)),
        ):
            # The daemon's account sees a job of the worker by its Workload, which Kueue makes a moment later.
            wanted = {(Code.NAME_TAKEN, f"{WORKER}: Job {namespace}/taken")}
            wait_for(lambda: found(local_fleet) - before == wanted, 30, lambda: found(local_fleet) - before)


def test_a_hub_with_a_built_in_dispatcher_and_a_framework_that_workers_lack(
    local_fleet: LocalFleet, before: Found
) -> None:
    with kueue_installed(
        local_fleet,
        multiKueue={"dispatcherName": "kueue.x-k8s.io/multikueue-dispatcher-incremental", "gcInterval": "0s"},
        integrations={"frameworks": ["batch/job", "ray.io/rayjob"]},
    ):
        broken = found(local_fleet)
    where = "hub: ConfigMap kueue-system/kueue-manager-config"
    assert broken - before == {
        (Code.DISPATCHER_BUILT_IN, where),
        (Code.GC_OFF, where),
        *((Code.FRAMEWORK_NOT_ON_WORKER, f"{name}: framework ray.io/rayjob") for name in local_fleet.workers),
    }


def test_a_worker_that_is_away(local_fleet: LocalFleet, before: Found) -> None:
    local_fleet.stop_worker(WORKER)
    try:
        broken = found(local_fleet)
    finally:
        local_fleet.start_worker(WORKER)
        with local_fleet.hub.api() as api:
            path = f"{KUEUE}/multikueueclusters/{WORKER}"
            wait_for(lambda: condition_is(api.get(path), "Active"), 60)
    assert (Code.UNREACHABLE, f"{WORKER}: cluster") in broken
    assert broken - before <= {
        (Code.UNREACHABLE, f"{WORKER}: cluster"),
        (Code.CLUSTER_INACTIVE, f"hub: MultiKueueCluster {WORKER}"),
    }


def test_the_command_on_a_real_fleet(local_fleet: LocalFleet, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["doctor", "--kubeconfig", str(local_fleet.hub.kubeconfig_path), "--blueprint", str(CONFIG)]
    assert run([*arguments, "-o", "json"]) == 6  # the fleet's tokens end within seven days
    data = json.loads(capsys.readouterr().out)
    assert {cluster["name"] for cluster in data["clusters"]} == {"hub", *local_fleet.workers}
    assert "error" not in {finding["severity"] for finding in data["findings"]}


# --- helpers -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def kueue_installed(fleet: LocalFleet, **changes: Any) -> Iterator[None]:
    """The hub's Kueue as an installation in the cluster shows it: its ConfigMap, and a Deployment that nobody runs."""
    config = yaml.safe_load((fleet.directory / "clusters" / "hub" / "kueue.yaml").read_text()) | changes
    meta = {"namespace": "kueue-system"}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**meta, "name": "kueue-manager-config"},
        "data": {"controller_manager_config.yaml": yaml.safe_dump(config)},
    }
    labels = {"control-plane": "controller-manager"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "kueue:v0.19.2"}]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**meta, "name": "kueue-controller-manager"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod},
    }
    with (
        fleet.hub.api() as api,
        having(api, "/api/v1/namespaces/kueue-system/configmaps", config_map),
        having(api, "/apis/apps/v1/namespaces/kueue-system/deployments", deployment),
    ):
        yield


def kubeconfig_of(fleet: LocalFleet) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(fleet.workers[WORKER].kubeconfig_path.read_text())
    return content


def with_spare_cluster(fleet: LocalFleet, kubeconfig: dict[str, Any]) -> Found:
    """What is found while the hub has one more cluster, in no config, with this kubeconfig; Kueue has looked at it."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": "kueue-system", "name": f"{SPARE}-kubeconfig"},
        "stringData": {"kubeconfig": yaml.safe_dump(kubeconfig)},
    }
    cluster = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "MultiKueueCluster",
        "metadata": {"name": SPARE},
        "spec": {"clusterSource": {"kubeConfig": {"location": f"{SPARE}-kubeconfig", "locationType": "Secret"}}},
    }
    with (
        fleet.hub.api() as api,
        having(api, "/api/v1/namespaces/kueue-system/secrets", secret),
        having(api, f"{KUEUE}/multikueueclusters", cluster),
    ):
        path = f"{KUEUE}/multikueueclusters/{SPARE}"
        wait_for(lambda: condition_is(api.get(path), "Active", "False"), 60, lambda: api.get(path))
        return found(fleet)


def spare_company() -> Found:
    """What goes with a spare cluster that cannot be connected."""
    at = f"hub: MultiKueueCluster {SPARE}"
    alone = {(code, at) for code in (Code.CLUSTER_INACTIVE, Code.CLUSTER_UNUSED, Code.CLUSTER_NOT_IN_BLUEPRINT)}
    return {*alone, (Code.UNREACHABLE, f"{SPARE}: cluster")}


def job(name: str, namespace: str, queue: str, ttl: int | None = None) -> dict[str, Any]:
    """A suspended Job; where nobody dispatches, it waits."""
    container = {"name": "c", "image": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    spec: dict[str, Any] = {
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    if ttl is not None:
        spec["ttlSecondsAfterFinished"] = ttl
    meta = {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
