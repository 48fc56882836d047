"""A check of a worker's own (a provisioning request, say) refuses a copy: the job goes elsewhere, and that is told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from dispatcher.core.watchdog import FindingCode
from tests.fleet import LocalFleet
from tests.fleet.api import KubeApi, condition_is
from tests.local.daemon import KUEUE, Hub, Running, condition, daemon, wait_for
from tests.loops.jobs import H100, gang

pytestmark = pytest.mark.local
NAMESPACE, QUEUE = "autonomy", "training"
CHECK = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "AdmissionCheck",
    "metadata": {"name": "test-provisioning"},
    "spec": {"controllerName": "entrepot.dev/test-provisioning"},
}
NAME = "test-provisioning"
CHECK_PATH = f"{KUEUE}/admissionchecks/{NAME}"


@pytest.fixture
def hub(local_fleet: LocalFleet) -> Hub:
    return Hub(local_fleet)


@pytest.fixture(scope="module")
def checked(local_fleet: LocalFleet) -> Iterator[None]:
    """Every worker's queue has the check, of which the test is the controller; afterwards none has."""
    with contextlib.ExitStack() as stack:
        for worker in local_fleet.workers.values():
            stack.enter_context(with_check(worker.api()))
        yield


@contextlib.contextmanager
def with_check(api: KubeApi) -> Iterator[None]:
    with api:
        local = api.get(f"{KUEUE}/namespaces/{NAMESPACE}/localqueues/{QUEUE}")
        if local is None:
            yield
            return
        queue = f"{KUEUE}/clusterqueues/{local['spec']['clusterQueue']}"
        before = api.request("GET", queue)["spec"].get("admissionChecksStrategy")
        api.apply(CHECK)
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": stamp()}
        try:
            api.merge_patch(f"{CHECK_PATH}/status", {"status": {"conditions": [active]}})
            api.merge_patch(queue, {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": NAME}]}}})
            wait_for(lambda: condition_is(api.get(queue), "Active"), 30)
            yield
        finally:
            api.merge_patch(queue, {"spec": {"admissionChecksStrategy": before}})
            api.request("DELETE", CHECK_PATH)
            wait_for(lambda: api.get(CHECK_PATH) is None, 30)


@pytest.fixture(scope="module")
def running(local_fleet: LocalFleet, checked: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with daemon(local_fleet, tmp_path_factory.mktemp("worker-checks")) as found:
        yield found


def stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def copy_of(fleet: LocalFleet, hub: Hub, job: str, cluster: str) -> dict[str, Any] | None:
    workload = hub.workloads(NAMESPACE).get(job)
    if workload is None:
        return None
    with fleet.workers[cluster].api() as api:
        return api.get(path_of(workload))


def path_of(workload: dict[str, Any]) -> str:
    return f"{KUEUE}/namespaces/{NAMESPACE}/workloads/{workload['metadata']['name']}"


def asking(fleet: LocalFleet, hub: Hub, job: str) -> list[str]:
    """The clusters where a copy has its quota and waits for the check."""
    found = []
    for cluster in sorted(fleet.workers):
        copy = copy_of(fleet, hub, job, cluster)
        if copy is not None and condition(copy, "QuotaReserved") and state_of(copy) == "Pending":
            found.append(cluster)
    return found


def state_of(copy: dict[str, Any]) -> str:
    checks = copy.get("status", {}).get("admissionChecks", [])
    return next((str(check["state"]) for check in checks if check["name"] == NAME), "")


def answer(fleet: LocalFleet, hub: Hub, job: str, cluster: str, state: str) -> None:
    """What the check's controller says of the copy."""
    said = {"name": NAME, "state": state, "message": "no capacity", "lastTransitionTime": stamp()}
    with fleet.workers[cluster].api() as api:
        workload = hub.workloads(NAMESPACE)[job]
        api.merge_patch(f"{path_of(workload)}/status", {"status": {"admissionChecks": [said]}})


def counted(running: Running, code: FindingCode) -> float:
    text = httpx.get(f"{running.server}/metrics", timeout=10.0, trust_env=False).text
    sample = f'entrepot_findings_total{{code="{code.value}"}}'
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(sample))


REFUSALS = {
    "rejected": ("Rejected", FindingCode.COPY_REJECTED, "RejectedOnWorker"),
    "provisioning failed": ("Retry", FindingCode.PROVISIONING_FAILED, "ProvisioningFailed"),
}


@pytest.mark.parametrize(("state", "code", "event"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_worker_whose_check_refuses_the_copy_is_left_out_and_another_takes_the_job(
    local_fleet: LocalFleet, hub: Hub, running: Running, state: str, code: FindingCode, event: str
) -> None:
    job = f"checked-{state.lower()}"
    manifest = gang(job, product=H100, duration="4s")

    def told() -> str:
        return f"{asking(local_fleet, hub, job)} {hub.workloads(NAMESPACE).get(job)} {running.log()[-3000:]}"

    hub.create(manifest)
    try:
        wait_for(lambda: asking(local_fleet, hub, job) != [], 60, told)
        (first,) = asking(local_fleet, hub, job)
        answer(local_fleet, hub, job, first, state)
        wait_for(lambda: set(asking(local_fleet, hub, job)) - {first} != set(), 60, told)
        decision = running.get(f"/v1/why/{NAMESPACE}/{job}")["decision"]
        refused = next(c for c in decision["candidates"] if c["cluster"] == first)
        assert "failed-here" in {r["reason"] for r in refused["rejections"]}
        (second,) = set(asking(local_fleet, hub, job)) - {first}
        assert decision["chosen"] == second
        answer(local_fleet, hub, job, second, "Ready")
        wait_for(lambda: hub.finished(NAMESPACE, [job]), 60, told)
        assert hub.workloads(NAMESPACE)[job]["status"]["clusterName"] == second
        events = {found["reason"]: found["message"] for found in hub.events(hub.workloads(NAMESPACE)[job])}
        assert first in events[event]
        assert counted(running, code) >= 1
    finally:
        hub.delete(manifest)
        wait_for(lambda: job not in hub.workloads(NAMESPACE), 60)
