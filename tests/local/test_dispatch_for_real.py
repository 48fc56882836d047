"""Issue 3's promises on real clusters: etcd, kube-apiserver, Kueue, JobSet and KWOK, and the daemon as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.fleet import FleetNode, LocalFleet
from tests.fleet.binaries import ensure
from tests.local.daemon import Hub, Running, daemon, decided, run, wait_for
from tests.loops.jobs import B200, H100, H200, RTX, gang, rollouts_and_learner

pytestmark = pytest.mark.local
MIXED = 60


@pytest.fixture(scope="module")
def running(local_fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with daemon(local_fleet, tmp_path_factory.mktemp("daemon")) as found:
        yield found


@pytest.fixture
def hub(local_fleet: LocalFleet) -> Hub:
    return Hub(local_fleet)


def test_a_job_runs_where_its_decision_says_and_finishes_on_the_hub(hub: Hub, running: Running) -> None:
    seen = run(hub, running, [gang("real-a", pods=2, product=H100)], 60)
    decision = decided(running, "autonomy", "real-a")["decision"]
    assert seen == {decision["name"]: [decision["chosen"]]}


def test_a_jobset_with_two_pod_sets_on_different_flavors_finishes_on_one_cluster(hub: Hub, running: Running) -> None:
    seen = run(hub, running, [rollouts_and_learner("real-rl")], 60)
    decision = decided(running, "simulation", "real-rl")["decision"]
    assert seen == {decision["name"]: [decision["chosen"]]}
    chosen = next(c for c in decision["candidates"] if c["chosen"])
    assert {p["pod_set"]: p["flavor"] for p in chosen["placements"]} == {"learner": "h100", "rollout": "rtx-pro-6000"}


def test_the_event_on_the_workload_says_the_same_in_a_sentence(
    hub: Hub, running: Running, local_fleet: LocalFleet
) -> None:
    run(hub, running, [gang("real-event")], 60)
    workload = hub.workloads("autonomy")["real-event"]
    why = decided(running, "autonomy", "real-event")
    wait_for(lambda: bool(hub.events(workload)), 10)
    described = subprocess.run(
        [
            *(kubectl(), "--kubeconfig", str(local_fleet.hub.kubeconfig_path)),
            *("-n", "autonomy", "describe", "workload", workload["metadata"]["name"]),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    ).stdout
    assert why["decision"]["text"] in described
    assert "Nominated" in described


def changed_at(workload: dict[str, Any], kind: str) -> datetime:
    found = next(c for c in workload["status"]["conditions"] if c["type"] == kind)
    return datetime.fromisoformat(found["lastTransitionTime"])


def kubectl() -> str:
    """The fleet's own kubectl."""
    return str(ensure(lambda line: None).paths["kubectl"])


def test_sixty_mixed_jobs_finish_where_decided_with_exactly_one_copy_each(hub: Hub, running: Running) -> None:
    products = (H100, H200, RTX, B200)
    manifests = []
    for number in range(MIXED):
        product = products[number % len(products)]
        namespace = "simulation" if product == RTX else "autonomy"
        name = f"real-mixed-{number:02d}"
        manifests.append(gang(name, pods=1 + number % 2, gpus=2, product=product, namespace=namespace))
    seen = run(hub, running, manifests, 300)
    assert len(seen) >= MIXED - 2, "copies come and go; nearly all of them must have been seen"
    assert {name: clusters for name, clusters in seen.items() if len(clusters) != 1} == {}
    for manifest in manifests:
        found = decided(running, manifest["metadata"]["namespace"], manifest["metadata"]["name"])["decision"]
        assert seen.get(found["name"], [found["chosen"]]) == [found["chosen"]]
        assert found["attempt"] == 1


def test_a_job_that_fits_nowhere_says_so_within_5_s_and_starts_when_capacity_appears(
    hub: Hub, running: Running, local_fleet: LocalFleet
) -> None:
    nodes = [f"cloud-c-us-b200-{n}" for n in (1, 2, 3)]
    for node in nodes:
        local_fleet.cordon("cloud-c-us", node)
    try:
        manifest = gang("real-late", product=B200)
        hub.create(manifest)
        wait_for(lambda: "real-late" in hub.workloads("autonomy"), 10)
        wait_for(lambda: bool(hub.events(hub.workloads("autonomy")["real-late"])), 15)
        event = hub.events(hub.workloads("autonomy")["real-late"])[0]
        reserved = changed_at(hub.workloads("autonomy")["real-late"], "QuotaReserved")
        assert (datetime.fromisoformat(event["firstTimestamp"]) - reserved).total_seconds() <= 5
        assert event["reason"] == "Waiting"
        assert "cloud-c-us" in event["message"]
    finally:
        for node in nodes:
            local_fleet.cordon("cloud-c-us", node, cordoned=False)
    wait_for(lambda: hub.finished("autonomy", ["real-late"]), 60, lambda: running.log()[-2000:])


def test_capacity_may_also_come_as_a_new_node(hub: Hub, running: Running, local_fleet: LocalFleet) -> None:
    nodes = [f"cloud-c-us-b200-{n}" for n in (1, 2, 3)]
    for node in nodes:
        local_fleet.cordon("cloud-c-us", node)
    fresh = FleetNode(
        "cloud-c-us-b200-new",
        {"nvidia.com/gpu.product": B200},
        (),
        {"cpu": "224", "memory": "2Ti", "nvidia.com/gpu": "8"},
    )
    try:
        hub.create(gang("real-node", product=B200))
        wait_for(lambda: "real-node" in hub.workloads("autonomy"), 10)
        wait_for(lambda: bool(hub.events(hub.workloads("autonomy")["real-node"])), 10)
        local_fleet.add_nodes("cloud-c-us", [fresh])
        wait_for(lambda: hub.finished("autonomy", ["real-node"]), 60, lambda: running.log()[-2000:])
    finally:
        for node in nodes:
            local_fleet.cordon("cloud-c-us", node, cordoned=False)
        local_fleet.remove_nodes("cloud-c-us", ["cloud-c-us-b200-new"])


def test_two_gangs_in_the_same_second_never_get_the_same_gpus(hub: Hub, running: Running) -> None:
    """Three B200 nodes exist; each gang needs two of them."""
    pair = [gang(f"real-gang-{n}", pods=2, product=B200, duration="6s") for n in (1, 2)]
    for manifest in pair:
        hub.create(manifest)
    together = 0

    def done() -> bool:
        nonlocal together
        admitted = [n for n in hub.copies("autonomy") if "real-gang" in n]
        together = max(together, len(admitted))
        return hub.finished("autonomy", ["real-gang-1", "real-gang-2"])

    wait_for(done, 90, lambda: running.log()[-2000:])
    assert together == 1
    attempts = [decided(running, "autonomy", f"real-gang-{n}")["decision"]["attempt"] for n in (1, 2)]
    assert attempts == [1, 1]


BAD = {
    "unparsable duration": ({"expected-duration": "3 hours"}, "expected-duration"),
    "unknown data set": ({"datasets": "radar-2062"}, "radar-2062"),
    "negative reads": ({"datasets": "radar-2026:-1"}, "radar-2026"),
    "unlisted cluster": ({"clusters": "cloud-z"}, "cloud-z"),
}


def test_bad_input_is_told_by_an_event_and_the_rest_goes_on(hub: Hub, running: Running) -> None:
    wrong = [gang(f"real-bad-{n}", says=says) for n, (says, _) in enumerate(BAD.values())]
    for manifest in wrong:
        hub.create(manifest)
    run(hub, running, [gang("real-good")], 60)
    for number, (_, named) in enumerate(BAD.values()):
        workload = hub.workloads("autonomy")[f"real-bad-{number}"]
        events = hub.events(workload)
        assert [e["reason"] for e in events] == ["InputProblem"]
        assert named in events[0]["message"]
        assert "nominatedClusterNames" not in workload["status"]
    for manifest in wrong:
        hub.delete(manifest)


def test_a_workload_without_an_owner_is_told(hub: Hub, running: Running, local_fleet: LocalFleet) -> None:
    bare = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "real-bare", "namespace": "autonomy"},
        "spec": {
            "queueName": "training",
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "template": {
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                        }
                    },
                }
            ],
        },
    }
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/autonomy/workloads"
    with local_fleet.hub.api() as api:
        api.request("POST", path, bare)
        try:

            def told() -> bool:
                found = api.request("GET", f"{path}/real-bare")
                return any(e["reason"] == "InputProblem" for e in hub.events(found))

            wait_for(told, 15, lambda: api.request("GET", f"{path}/real-bare"))
        finally:
            api.request("DELETE", f"{path}/real-bare")


def test_the_command_line_answers_from_the_running_daemon(hub: Hub, running: Running) -> None:
    run(hub, running, [gang("real-ask", says={"datasets": "radar-2026"})], 60)
    asked = subprocess.run(
        [sys.executable, "-m", "dispatcher.cli.main", "why", "real-ask", "-o", "json", "--server", running.server],
        check=True,
        capture_output=True,
        timeout=30,
    )
    assert json.loads(asked.stdout)["decision"]["chosen"] is not None
