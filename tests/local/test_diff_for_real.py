"""`entrepot blueprint diff` on real apiservers with Kueue's own CRDs and webhooks: their defaults are no difference."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from dispatcher.cli.main import run
from tests.fleet import Endpoint, LocalFleet
from tests.local.fleet_objects import CONFIG, WORKERS

pytestmark = pytest.mark.local
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
QUEUE = f"{KUEUE}/clusterqueues/autonomy-training"
MERGE = "application/merge-patch+json"


@pytest.fixture
def ask(local_fleet: LocalFleet, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command as an operator would: with a kubeconfig of the hub, workers by the blueprint's credentials."""

    def asked(*more: str, code: int) -> dict[str, Any]:
        arguments = ["blueprint", "diff", "--kubeconfig", str(local_fleet.hub.kubeconfig_path)]
        found = run([*arguments, "--blueprint", str(CONFIG), "-o", "json", *more])
        out, err = capsys.readouterr()
        assert found == code, out + err
        answer: dict[str, Any] = json.loads(out)
        return answer

    return asked


ONLY = tuple(argument for name in WORKERS for argument in ("--only", name))


def by_name(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {cluster["name"]: cluster for cluster in answer["clusters"]}


@contextlib.contextmanager
def patched(endpoint: Endpoint, path: str, body: dict[str, Any], back: dict[str, Any]) -> Iterator[None]:
    with endpoint.api() as api:
        api.request("PATCH", path, body, content_type=MERGE)
        try:
            yield
        finally:
            api.request("PATCH", path, back, content_type=MERGE)


def test_a_fleet_as_rendered_has_no_difference(ask: Any) -> None:
    answer = ask(*ONLY, code=0)
    assert answer["same"] is True
    clusters = by_name(answer)
    assert list(clusters) == ["hub", *WORKERS]
    assert all(cluster["error"] is None for cluster in clusters.values())
    assert clusters["hub"]["unread"] == []
    for name in WORKERS:
        # The daemon's account on a worker sees no priority classes: it needs none. That is said, not passed over.
        assert [kind["kind"] for kind in clusters[name]["unread"]] == ["WorkloadPriorityClass"]


def test_a_cluster_of_the_blueprint_that_is_not_there_is_named_and_the_hub_differs(ask: Any) -> None:
    answer = ask(code=8)
    clusters = by_name(answer)
    (absent,) = set(clusters) - {"hub", *WORKERS}
    assert absent in clusters[absent]["error"] or "Secret" in clusters[absent]["error"]
    told = {(d["kind"], d["name"], d["standing"]) for d in clusters["hub"]["differences"]}
    assert ("MultiKueueCluster", absent, "missing") in told
    assert any(kind == "MultiKueueConfig" and standing == "changed" for kind, _, standing in told)
    for name in WORKERS:
        assert clusters[name]["differences"] == []


def test_what_somebody_changed_by_hand_is_told_with_both_values(ask: Any, local_fleet: LocalFleet) -> None:
    worker = local_fleet.workers[WORKERS[0]]
    with patched(worker, QUEUE, {"spec": {"stopPolicy": "Hold"}}, {"spec": {"stopPolicy": "None"}}):
        clusters = by_name(ask(*ONLY, code=8))
    assert clusters["hub"]["differences"] == []
    (found,) = clusters[WORKERS[0]]["differences"]
    assert (found["kind"], found["name"], found["standing"]) == ("ClusterQueue", "autonomy-training", "changed")
    assert found["fields"] == [{"path": "spec.stopPolicy", "live": "Hold", "blueprint": None}]


def test_a_left_over_of_ours_is_too_many_and_somebody_elses_is_not(ask: Any, local_fleet: LocalFleet) -> None:
    def flavor(name: str, labels: dict[str, str]) -> dict[str, Any]:
        kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
        return {**kind, "metadata": {"name": name, "labels": labels}, "spec": {}}

    path = f"{KUEUE}/resourceflavors"
    with local_fleet.workers[WORKERS[0]].api() as api:
        api.request("POST", path, flavor("diff-left-over", {"app.kubernetes.io/managed-by": "entrepot"}))
        api.request("POST", path, flavor("diff-of-others", {}))
        try:
            clusters = by_name(ask(*ONLY, code=8))
        finally:
            for name in ("diff-left-over", "diff-of-others"):
                api.request("DELETE", f"{path}/{name}")
    (found,) = clusters[WORKERS[0]]["differences"]
    assert (found["kind"], found["name"], found["standing"]) == ("ResourceFlavor", "diff-left-over", "extra")
