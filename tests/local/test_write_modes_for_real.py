"""Nomination on any hub, and what befalls copies on workers, with real processes and the daemon as it is installed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.kubernetes.write_modes import POLICY
from dispatcher.core.watchdog import FindingCode
from dispatcher.core.writing import WriteMode
from tests.fleet import LocalFleet
from tests.fleet.api import ApiRefusal, KubeApi
from tests.local.daemon import KUEUE, Hub, Running, condition, daemon, wait_for
from tests.local.fleet_objects import CONFIG
from tests.loops.jobs import B200, H100, gang

pytestmark = pytest.mark.local
NAMESPACE = "autonomy"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
BINDING = f"{POLICY}-binding"
GATE = {"WorkloadRequestUseMergePatch": True}
STUCK_S = 60
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


@pytest.fixture
def hub(local_fleet: LocalFleet) -> Hub:
    return Hub(local_fleet)


@contextlib.contextmanager
def without_policy(fleet: LocalFleet) -> Iterator[None]:
    """Take Kueue's clearing policy off the hub, and put it back. Its effect lags the object by about a second."""
    paths = [
        f"{ADMISSION}/mutatingadmissionpolicybindings/{BINDING}",
        f"{ADMISSION}/mutatingadmissionpolicies/{POLICY}",
    ]
    with fleet.hub.api() as api:
        kept = [api.request("GET", path) for path in paths]
        for path in paths:
            api.request("DELETE", path)
        time.sleep(2)
        try:
            yield
        finally:
            for manifest in reversed(kept):
                api.apply({**manifest, "metadata": {"name": manifest["metadata"]["name"]}})
            time.sleep(2)


@contextlib.contextmanager
def with_gate(fleet: LocalFleet) -> Iterator[None]:
    """No policy, and a Kueue on the hub that writes merge patches."""
    with without_policy(fleet):
        fleet.restart_kueue("hub", GATE)
        try:
            yield
        finally:
            fleet.restart_kueue("hub", {})


HUBS = {
    "with the clearing policy": (lambda fleet: contextlib.nullcontext(), WriteMode.CLEARING_POLICY),
    "without it": (without_policy, WriteMode.FULL_REPLICA),
    "without it, with the merge-patch gate": (with_gate, WriteMode.MERGE_PATCH_GATE),
}


@pytest.mark.parametrize(("hub_as", "mode"), HUBS.values(), ids=HUBS.keys())
def test_start_up_finds_the_mode_and_jobs_latch_and_finish(
    local_fleet: LocalFleet, hub: Hub, tmp_path: Path, hub_as: Any, mode: WriteMode
) -> None:
    job = f"any-{mode.value}"
    with hub_as(local_fleet), daemon(local_fleet, tmp_path) as running:
        assert modes(running) == [mode.value]
        hub.create(gang(job, product=H100, duration="4s"))
        wait_for(lambda: clear_of_nomination(hub, job), 60, lambda: running.log()[-2000:])
        wait_for(lambda: hub.finished(NAMESPACE, [job]), 60, lambda: running.log()[-2000:])
        workload = hub.workloads(NAMESPACE)[job]
        assert workload["status"]["clusterName"]
        evicted_and_back(local_fleet, hub, f"{job}-back")
    assert leftover_probes(local_fleet) == []


def modes(running: Running) -> list[str]:
    """The write modes that a daemon has settled for, in order."""
    lines = [json.loads(line) for line in running.log().splitlines() if '"write_mode"' in line]
    return [line["mode"] for line in lines if line.get("event") == "write_mode"]


def clear_of_nomination(hub: Hub, job: str) -> bool:
    """Latched, and the list is empty: Kueue could clear what we wrote."""
    status = hub.workloads(NAMESPACE).get(job, {}).get("status", {})
    return bool(status.get("clusterName")) and not status.get("nominatedClusterNames")


def evicted_and_back(fleet: LocalFleet, hub: Hub, job: str) -> None:
    """An eviction leaves nothing behind, and the next attempt is nominated and latched anew."""
    hub.create(gang(job, product=H100, duration="600s"))
    wait_for(lambda: runs(fleet, hub, job) is not None, 60)
    retry_on_hub(fleet, hub, job)
    wait_for(lambda: attempts(hub, job) >= 2 and clear_of_nomination(hub, job), 60)
    hub.delete(gang(job))
    wait_for(lambda: job not in hub.workloads(NAMESPACE), 60)


def attempts(hub: Hub, job: str) -> int:
    """How often the fleet check of a job was sent back, plus one."""
    checks = hub.workloads(NAMESPACE)[job]["status"].get("admissionChecks", [{}])
    return int(checks[0].get("retryCount", 0)) + 1


def retry_on_hub(fleet: LocalFleet, hub: Hub, job: str) -> None:
    """The migration primitive: state Retry for the fleet check, under a manager of its own."""
    workload = hub.workloads(NAMESPACE)[job]
    check = workload["status"]["admissionChecks"][0]["name"]
    entry = {"name": check, "state": "Retry", "message": "by the test", "lastTransitionTime": stamp()}
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": workload["metadata"]["name"], "namespace": NAMESPACE},
        "status": {"admissionChecks": [entry]},
    }
    with fleet.hub.api() as api:
        api.request("PATCH", f"{path_of(workload)}/status", body, APPLY, fieldManager="any-hub-test", force="true")


def stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def path_of(workload: dict[str, Any]) -> str:
    return f"{KUEUE}/namespaces/{NAMESPACE}/workloads/{workload['metadata']['name']}"


def leftover_probes(fleet: LocalFleet) -> list[str]:
    with fleet.hub.api() as api:
        items = api.request("GET", f"{KUEUE}/namespaces/entrepot-system/workloads")["items"]
    return [item["metadata"]["name"] for item in items]


REFUSED = {
    "the policy on a hub without it": ("policy", "workload-map.yaml"),
    "the merge patch on a hub without the gate": ("merge-patch", "WorkloadRequestUseMergePatch=true"),
}


@pytest.mark.parametrize(("mode", "fix"), REFUSED.values(), ids=REFUSED.keys())
def test_a_mode_in_which_kueue_would_get_stuck_is_refused_with_the_fix(
    local_fleet: LocalFleet, tmp_path: Path, mode: str, fix: str
) -> None:
    command = [sys.executable, "-m", "dispatcher.cli.main", "serve", "--blueprint", str(CONFIG)]
    command += ["--store", str(tmp_path / "x.db"), "--listen", "127.0.0.1:0", "--write-mode", mode]
    command += ["--kubeconfig", str(local_fleet.daemon_kubeconfig_path)]
    with without_policy(local_fleet):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    said = " ".join((ended.stdout + ended.stderr).split())
    assert f"write mode {mode} is not safe on this hub" in said
    assert fix in said


def test_fr_nom_01_a_policy_that_goes_while_we_run_is_an_alarm_and_later_jobs_latch(
    local_fleet: LocalFleet, hub: Hub, tmp_path: Path
) -> None:
    """The job that was nominated before runs unseen; after the alarm nominations are written as the hub allows now."""
    with daemon(local_fleet, tmp_path) as running, without_policy(local_fleet):
        hub.create(gang("any-stuck", product=H100, duration="100s"))
        wait_for(lambda: "NotLatched" in reasons(hub, "any-stuck"), 100, lambda: running.log()[-2000:])
        assert not hub.workloads(NAMESPACE)["any-stuck"]["status"].get("clusterName")
        assert opened(running, FindingCode.NOT_LATCHED) == 1
        wait_for(lambda: modes(running) == ["policy", "replica"], 20, lambda: running.log()[-2000:])
        hub.create(gang("any-after", product=H100, duration="4s"))
        wait_for(lambda: hub.finished(NAMESPACE, ["any-after"]), 60, lambda: running.log()[-2000:])
        wait_for(lambda: hub.finished(NAMESPACE, ["any-stuck"]), 90, lambda: running.log()[-2000:])


def test_a_nomination_that_an_eviction_left_behind_is_cleared(
    local_fleet: LocalFleet, hub: Hub, tmp_path: Path
) -> None:
    """On a hub without the policy, by a manager of its own: what an older daemon would have left."""
    with without_policy(local_fleet), daemon(local_fleet, tmp_path) as running:
        hub.create(gang("any-left", product=B200, says={"clusters": "onprem-eu"}))  # fits nowhere, so it waits
        wait_for(lambda: reserved(hub, "any-left"), 30)
        workload = hub.workloads(NAMESPACE)["any-left"]
        body = {"status": {"nominatedClusterNames": ["cloud-a-fi"]}}  # has no such GPU: the copy there waits
        with local_fleet.hub.api() as api:
            api.request("PATCH", f"{path_of(workload)}/status", body, MERGE, fieldManager="older-daemon")
        retry_on_hub(local_fleet, hub, "any-left")
        wait_for(lambda: "NominationCleared" in reasons(hub, "any-left"), 30, lambda: running.log()[-2000:])
        wait_for(lambda: not hub.workloads(NAMESPACE)["any-left"]["status"].get("nominatedClusterNames"), 10)
        hub.delete(gang("any-left"))


def reserved(hub: Hub, job: str) -> bool:
    found = hub.workloads(NAMESPACE).get(job)
    return found is not None and condition(found, "QuotaReserved") and not condition(found, "Evicted")


# --- what befalls copies -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(local_fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with daemon(local_fleet, tmp_path_factory.mktemp("any-hub")) as found:
        yield found


def runs(fleet: LocalFleet, hub: Hub, job: str) -> str | None:
    """The cluster where pods of a job are, once the hub knows it."""
    workload = hub.workloads(NAMESPACE).get(job, {})
    cluster: str | None = workload.get("status", {}).get("clusterName")
    if not cluster:
        return None
    with fleet.workers[cluster].api() as api:
        found = api.get(f"{JOBS}/{job}")
        active = (found or {}).get("status", {}).get("active", 0)
    with fleet.hub.api() as api:
        known = (api.get(f"{JOBS}/{job}") or {}).get("status", {}).get("active", 0)
    return cluster if active and known else None


def reasons(hub: Hub, job: str) -> list[str]:
    workload = hub.workloads(NAMESPACE).get(job)
    return [] if workload is None else [e["reason"] for e in hub.events(workload)]


def message(hub: Hub, job: str, reason: str) -> str:
    return next(e["message"] for e in hub.events(hub.workloads(NAMESPACE)[job]) if e["reason"] == reason)


def opened(running: Running, code: FindingCode) -> float:
    text = httpx.get(f"{running.server}/metrics", timeout=10.0, trust_env=False).text
    sample = f'entrepot_findings_open{{code="{code.value}"}}'
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(sample))


def start(fleet: LocalFleet, hub: Hub, job: str, **more: Any) -> str:
    """Submit a long job and wait until it runs; returns its cluster."""
    hub.create(gang(job, product=H100, duration="900s", **more))
    wait_for(lambda: runs(fleet, hub, job) is not None, 60)
    cluster = runs(fleet, hub, job)
    assert cluster is not None
    return cluster


def bring_up_to_date(api: KubeApi, job: str) -> None:
    """What the Event of a stuck eviction tells a person to do."""
    api.request("PATCH", f"{JOBS}/{job}/status", {"status": {"active": 0, "ready": 0}}, MERGE)


def unstick(fleet: LocalFleet, hub: Hub, job: str) -> None:
    wait_for(lambda: "EvictionStuck" in reasons(hub, job), STUCK_S)
    assert f"kubectl -n {NAMESPACE} patch job {job} --subresource=status" in message(hub, job, "EvictionStuck")
    with fleet.hub.api() as api:
        bring_up_to_date(api, job)


def remove(hub: Hub, *jobs: str) -> None:
    for job in jobs:
        with contextlib.suppress(ApiRefusal):
            hub.delete(gang(job))
    wait_for(lambda: not set(jobs) & set(hub.workloads(NAMESPACE)), 60)


def test_fr_nom_03_a_copy_that_was_evicted_on_its_worker_is_weighed_anew(
    local_fleet: LocalFleet, hub: Hub, running: Running
) -> None:
    first = start(local_fleet, hub, "any-drain")
    with local_fleet.workers[first].api() as api:
        copy = api.request("GET", path_of(hub.workloads(NAMESPACE)["any-drain"]))
        queue = f"{KUEUE}/clusterqueues/{copy['status']['admission']['clusterQueue']}"
        api.merge_patch(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
        try:
            wait_for(
                lambda: runs(local_fleet, hub, "any-drain") not in (None, first), 60, lambda: running.log()[-3000:]
            )
        finally:
            api.merge_patch(queue, {"spec": {"stopPolicy": "None"}})
    assert "(ClusterQueueStopped)" in message(hub, "any-drain", "EvictedOnWorker")
    decision = running.get(f"/v1/why/{NAMESPACE}/any-drain")["decision"]
    assert decision["attempt"] == 2
    remove(hub, "any-drain")


def test_a_copy_that_is_deleted_on_its_worker_is_told_and_the_job_goes_on(
    local_fleet: LocalFleet, hub: Hub, running: Running
) -> None:
    first = start(local_fleet, hub, "any-lost")
    with local_fleet.workers[first].api() as api:
        api.request("DELETE", path_of(hub.workloads(NAMESPACE)["any-lost"]))
    wait_for(lambda: {"LostOnWorker", "OutcomeUnknown"} & set(reasons(hub, "any-lost")), 30, running.log)
    unstick(local_fleet, hub, "any-lost")
    if "LostOnWorker" in reasons(hub, "any-lost"):
        wait_for(lambda: runs(local_fleet, hub, "any-lost") is not None, 60, lambda: running.log()[-3000:])
    remove(hub, "any-lost")


def test_a_copy_that_is_deactivated_on_its_worker_goes_elsewhere(
    local_fleet: LocalFleet, hub: Hub, running: Running
) -> None:
    first = start(local_fleet, hub, "any-off")
    with local_fleet.workers[first].api() as api:
        api.merge_patch(path_of(hub.workloads(NAMESPACE)["any-off"]), {"spec": {"active": False}})
    wait_for(lambda: "DeactivatedOnWorker" in reasons(hub, "any-off"), 30, lambda: running.log()[-3000:])
    unstick(local_fleet, hub, "any-off")
    wait_for(lambda: runs(local_fleet, hub, "any-off") is not None, 60, lambda: running.log()[-3000:])
    assert runs(local_fleet, hub, "any-off") != first
    why_not = running.get(f"/v1/why/{NAMESPACE}/any-off")["decision"]
    refused = next(c for c in why_not["candidates"] if c["cluster"] == first)
    assert "failed-here" in {r["reason"] for r in refused["rejections"]}
    remove(hub, "any-off")


def test_fr_rac_07_a_local_job_of_the_same_name_is_left_alone(
    local_fleet: LocalFleet, hub: Hub, running: Running
) -> None:
    local = gang("any-name", product=H100, duration="900s")
    with local_fleet.workers["onprem-eu"].api() as api:
        api.request("POST", JOBS, local)
        try:
            wait_for(lambda: bool(api.request("GET", f"{JOBS}/any-name").get("status", {}).get("active")), 30)
            uid = api.request("GET", f"{JOBS}/any-name")["metadata"]["uid"]
            cluster = start(local_fleet, hub, "any-name")
            assert cluster != "onprem-eu"
            decision = running.get(f"/v1/why/{NAMESPACE}/any-name")["decision"]
            refused = next(c for c in decision["candidates"] if c["cluster"] == "onprem-eu")
            assert "name-taken" in {r["reason"] for r in refused["rejections"]}
            remove(hub, "any-name")
            assert api.request("GET", f"{JOBS}/any-name")["metadata"]["uid"] == uid
        finally:
            api.request("DELETE", f"{JOBS}/any-name", {"propagationPolicy": "Background"})


def test_fr_rac_03_a_ttl_of_nothing_does_not_run_the_job_twice(
    local_fleet: LocalFleet, hub: Hub, running: Running
) -> None:
    manifest = gang("any-ttl", product=H100, duration="5s", ttlSecondsAfterFinished=0)
    hub.create(manifest)
    wait_for(lambda: "any-ttl" in hub.workloads(NAMESPACE), 30)
    seen: set[str] = set()

    def over() -> bool:
        """Finished in time after all (and gone with its job), or found to have vanished after its pods had ended."""
        workload = hub.workloads(NAMESPACE).get("any-ttl")
        if workload is not None:
            seen.update(hub.copies(NAMESPACE).get(workload["metadata"]["name"], []))
        return workload is None or condition(workload, "Finished") or "OutcomeUnknown" in reasons(hub, "any-ttl")

    wait_for(over, 90, lambda: running.log()[-3000:])
    if "OutcomeUnknown" in reasons(hub, "any-ttl"):
        unstick(local_fleet, hub, "any-ttl")
        wait_for(lambda: reserved(hub, "any-ttl"), 30)
        time.sleep(8)
        status = hub.workloads(NAMESPACE)["any-ttl"]["status"]
        assert not status.get("nominatedClusterNames")
        assert not status.get("clusterName")
    assert len(seen) == 1, "it ran once"
    remove(hub, "any-ttl")
