"""The bed itself, without Entrepot: real Kueue takes a nomination written by hand, and nothing is left afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fleet import FleetNode, LocalFleet, sample
from tests.fleet.api import KubeApi, condition_is
from tests.fleet.processes import read_json, wait_until
from tests.fleet.supervisor import process_start_ticks

WORKER = "worker-1"
WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{sample.TEAM_NAMESPACE}/workloads"
FINISH_TIMEOUT_SECONDS = 60.0

pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A hub and one worker of its own: these tests stop apiservers, which a shared fleet would not like."""
    with LocalFleet.start(
        tmp_path_factory.mktemp("fleet"), sample.hub_objects([WORKER]), sample.clusters([WORKER]), log=print
    ) as started:
        yield started


def finished_after_nomination(hub: KubeApi, owner: str) -> dict[str, Any]:
    """Nominate the only worker for the workload of a Job or JobSet, as soon as it has quota; wait for its end."""
    deadline = time.monotonic() + FINISH_TIMEOUT_SECONDS
    nominated = False
    while time.monotonic() < deadline:
        workloads: list[dict[str, Any]] = hub.request("GET", WORKLOADS)["items"]
        for workload in workloads:
            if workload["metadata"]["ownerReferences"][0]["name"] != owner:
                continue
            if condition_is(workload, "Finished"):
                return workload
            if condition_is(workload, "QuotaReserved") and not nominated:
                path = f"{WORKLOADS}/{workload['metadata']['name']}/status"
                hub.merge_patch(path, {"status": {"nominatedClusterNames": [WORKER]}})
                nominated = True
        time.sleep(0.2)
    raise AssertionError(f"{owner} did not finish")


@pytest.mark.parametrize("make", [sample.job, sample.jobset])
def test_a_nominated_workload_runs_on_the_worker_and_finishes_on_the_hub(fleet: LocalFleet, make: Any) -> None:
    manifest = make(f"alone-{make.__name__}", gpus=2)
    with fleet.hub.api() as hub:
        hub.apply(manifest)
        workload = finished_after_nomination(hub, manifest["metadata"]["name"])
    assert workload["status"]["clusterName"] == WORKER
    assert not workload["status"].get("nominatedClusterNames"), "the admission policy clears it on the latch"


def test_a_pod_told_to_fail_fails_its_job(fleet: LocalFleet) -> None:
    manifest = sample.job("alone-failing")
    manifest["spec"]["backoffLimit"] = 0
    manifest["spec"]["template"]["metadata"]["annotations"]["entrepot.dev/simulated-outcome"] = "failed"
    with fleet.hub.api() as hub:
        hub.apply(manifest)
        workload = finished_after_nomination(hub, "alone-failing")
    reasons = {condition["type"]: condition["reason"] for condition in workload["status"]["conditions"]}
    assert reasons["Finished"] == "Failed"


def test_a_stopped_worker_is_inactive_on_the_hub_until_it_is_back(fleet: LocalFleet) -> None:
    path = f"/apis/kueue.x-k8s.io/v1beta2/multikueueclusters/{WORKER}"
    with fleet.hub.api() as hub:
        fleet.stop_worker(WORKER)
        wait_until(lambda: condition_is(hub.get(path), "Active", "False"), 30, "the hub to notice")
        fleet.start_worker(WORKER)
        wait_until(lambda: condition_is(hub.get(path), "Active"), 60, "the hub to reconnect")


def test_nodes_come_with_their_capacity_and_go(fleet: LocalFleet) -> None:
    fleet.add_nodes(WORKER, [FleetNode("slices", capacity={"nvidia.com/mig-1g.10gb": "7"})])
    fleet.cordon(WORKER, "slices")
    with fleet.workers[WORKER].api() as worker:
        node = worker.request("GET", "/api/v1/nodes/slices")
        fleet.remove_nodes(WORKER, ["slices"])
        assert worker.get("/api/v1/nodes/slices") is None
    assert node["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] == "7"
    assert node["spec"]["unschedulable"] is True


def test_stop_leaves_no_process(fleet: LocalFleet) -> None:
    state = read_json(fleet.directory / "supervisor.json")
    assert state is not None
    assert {"etcd", "hub-apiserver", "hub-kueue", f"{WORKER}-kwok"} <= set(state["processes"])
    fleet.stop()
    for process in (state["supervisor"], *state["processes"].values()):
        assert process_start_ticks(process["pid"]) != process["start_ticks"]
