"""What a cluster has against what the blueprint renders: what counts as a difference, and what does not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.credentials import FileSource, NoSource
from connectors.kubernetes.objects import SeenObjects, list_objects
from dispatcher.cli.main import run
from dispatcher.config import load_blueprint
from dispatcher.config.diff import FieldChange, ObjectDifference, Standing, diff
from dispatcher.config.render import render
from dispatcher.core.errors import Refused, Transient
from dispatcher.runtime import SystemClock
from tests.connectors.apiserver import ApiServer, problem
from tests.unit.records import NOW

CONFIG = Path(__file__).resolve().parents[2] / "config"
_LOADED = load_blueprint(CONFIG, NOW)
assert _LOADED.blueprint is not None
RENDERED = render(_LOADED.blueprint)
WORKER = RENDERED.workers["onprem-eu"]  # type: ignore[index]
QUEUE = "autonomy-training"
Manifest = dict[str, Any]


def live(*edits: Callable[[list[Manifest]], None], objects: Any = WORKER) -> list[Manifest]:
    """What stands on the cluster: the rendered objects as an apiserver gives them back, then edited."""
    found = [_as_served(copy.deepcopy(manifest)) for manifest in objects]
    for edit in edits:
        edit(found)
    return found


def _as_served(manifest: Manifest) -> Manifest:
    """Defaults filled in, bookkeeping added, quantities in the API's own spelling."""
    manifest["metadata"] |= {"uid": "u", "resourceVersion": "7", "generation": 3, "finalizers": ["kueue.x-k8s.io/x"]}
    manifest["status"] = {"conditions": [{"type": "Active", "status": "True"}]}
    spec = manifest.get("spec", {})
    if manifest["kind"] in ("ClusterQueue", "LocalQueue"):
        spec["stopPolicy"] = "None"
    if manifest["kind"] == "ClusterQueue":
        spec.setdefault("flavorFungibility", {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"})
        spec["preemption"].setdefault("borrowWithinCohort", {"policy": "Never"})
        spec["fairSharing"] = {"weight": "1"}
    if manifest["kind"] == "ResourceFlavor" and not spec:
        del manifest["spec"]
    return manifest


def queue_spec(objects: list[Manifest], name: str = QUEUE) -> Manifest:
    found: Manifest = next(m for m in objects if m["kind"] == "ClusterQueue" and m["metadata"]["name"] == name)["spec"]
    return found


def shared_flavor(objects: list[Manifest]) -> Manifest:
    """The first flavor of which the queue has a share."""
    flavors = queue_spec(objects)["resourceGroups"][0]["flavors"]
    return next(f for f in flavors if all(r["nominalQuota"] != "0" for r in f["resources"]))  # type: ignore[no-any-return]


def first_quota(objects: list[Manifest], resource: str = "cpu") -> Manifest:
    found: Manifest = next(r for r in shared_flavor(objects)["resources"] if r["name"] == resource)
    return found


@pytest.mark.parametrize("objects", [RENDERED.hub, *RENDERED.workers.values()], ids=["hub", *RENDERED.workers])
def test_what_an_apiserver_makes_of_the_blueprint_is_no_difference(objects: Any) -> None:
    assert diff(objects, live(objects=objects)) == ()


def thousandfold(objects: list[Manifest]) -> None:
    quota = first_quota(objects)
    assert quota["nominalQuota"].isdigit()
    quota["nominalQuota"] += "000m"


def in_bytes(objects: list[Manifest]) -> None:
    quota = first_quota(objects, "memory")
    assert quota["nominalQuota"].endswith("Mi")
    quota["nominalQuota"] = str(int(quota["nominalQuota"][:-2]) * 2**20)


def a_pre_existing_namespace(objects: list[Manifest]) -> None:
    next(m for m in objects if m["kind"] == "Namespace")["metadata"]["labels"] = {"team": "theirs"}


def foreign_objects(objects: list[Manifest]) -> None:
    objects.append({"kind": "ClusterQueue", "metadata": {"name": "local-only"}, "spec": {}})
    objects.append({"kind": "Namespace", "metadata": {"name": "kube-system"}})


def a_namespace_with_our_label(objects: list[Manifest]) -> None:
    labels = {"app.kubernetes.io/managed-by": "entrepot"}
    objects.append({"kind": "Namespace", "metadata": {"name": "left-over", "labels": labels}})


def empty_parts(objects: list[Manifest]) -> None:
    queue_spec(objects)["admissionChecksStrategy"] = {"admissionChecks": []}


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(thousandfold, id="whole cores written as millicores"),
        pytest.param(in_bytes, id="memory written in bytes"),
        pytest.param(a_pre_existing_namespace, id="a namespace that somebody else made and labelled"),
        pytest.param(foreign_objects, id="objects of others"),
        pytest.param(a_namespace_with_our_label, id="a namespace is never too many: it holds other people's things"),
        pytest.param(empty_parts, id="an empty object where the blueprint says nothing"),
    ],
)
def test_no_difference(edit: Callable[[list[Manifest]], None]) -> None:
    assert diff(WORKER, live(edit)) == ()


def change_quota(objects: list[Manifest]) -> None:
    first_quota(objects)["nominalQuota"] = "7"


def hold(objects: list[Manifest]) -> None:
    queue_spec(objects)["stopPolicy"] = "Hold"


def weight(objects: list[Manifest]) -> None:
    queue_spec(objects)["fairSharing"] = {"weight": "3"}


def select_everything(objects: list[Manifest]) -> None:
    queue_spec(objects)["namespaceSelector"] = {}


def reorder(objects: list[Manifest]) -> None:
    queue_spec(objects)["resourceGroups"][0]["flavors"].reverse()


def one_flavor_less(objects: list[Manifest]) -> None:
    queue_spec(objects)["resourceGroups"][0]["flavors"].pop(0)


def not_ours(objects: list[Manifest]) -> None:
    next(m for m in objects if m["kind"] == "Cohort")["metadata"]["labels"] = {}


def cut_preemption(objects: list[Manifest]) -> None:
    del queue_spec(objects)["preemption"]


FIRST_FLAVOR = queue_spec(list(WORKER))["resourceGroups"][0]["flavors"][0]["name"]
SHARED_FLAVOR = shared_flavor(list(WORKER))["name"]
FIRST_CPU = int(first_quota(list(WORKER))["nominalQuota"]) * 1000
ORDER = [flavor["name"] for flavor in queue_spec(list(WORKER))["resourceGroups"][0]["flavors"]]
PREEMPTION = queue_spec(list(WORKER))["preemption"]


@pytest.mark.parametrize(
    ("edit", "kind", "changes"),
    [
        pytest.param(
            change_quota,
            "ClusterQueue",
            [
                (
                    f"spec.resourceGroups[0].flavors[{SHARED_FLAVOR}].resources[cpu].nominalQuota",
                    7000,
                    FIRST_CPU,
                )
            ],
            id="another quota, in millicores",
        ),
        pytest.param(hold, "ClusterQueue", [("spec.stopPolicy", "Hold", None)], id="somebody stopped a queue by hand"),
        pytest.param(
            weight, "ClusterQueue", [("spec.fairSharing", '{"weight":"3"}', None)], id="a field that we never set"
        ),
        pytest.param(
            select_everything,
            "ClusterQueue",
            [("spec.namespaceSelector.matchLabels", None, '{"kubernetes.io/metadata.name":"autonomy"}')],
            id="a selector that takes every namespace is not the same as no selector",
        ),
        pytest.param(
            reorder,
            "ClusterQueue",
            [("spec.resourceGroups[0].flavors.order", " ".join(reversed(ORDER)), " ".join(ORDER))],
            id="flavors are tried in their order",
        ),
        pytest.param(
            not_ours,
            "Cohort",
            [("metadata.labels[app.kubernetes.io/managed-by]", None, "entrepot")],
            id="the same object of somebody else",
        ),
        pytest.param(
            cut_preemption,
            "ClusterQueue",
            [("spec.preemption", None, json.dumps(PREEMPTION, sort_keys=True, separators=(",", ":")))],
            id="a part that is gone",
        ),
    ],
)
def test_a_changed_field_is_told_with_both_values(
    edit: Callable[[list[Manifest]], None], kind: str, changes: list[tuple[str, Any, Any]]
) -> None:
    (found,) = diff(WORKER, live(edit))
    assert (found.kind, found.standing) == (kind, Standing.CHANGED)
    told = [(field.path, field.live, field.blueprint) for field in found.fields]
    assert [path for path, _, _ in told] == [path for path, _, _ in changes]
    for (path, was, says), (_, live_value, wanted) in zip(told, changes, strict=True):
        assert was == live_value, path
        assert says == wanted or path == "spec.preemption", path


def test_a_flavor_less_is_one_difference_and_not_a_shift_of_all_others() -> None:
    (found,) = diff(WORKER, live(one_flavor_less))
    (field,) = found.fields
    assert field.path == f"spec.resourceGroups[0].flavors[{FIRST_FLAVOR}]"
    assert field.live is None


def test_missing_and_extra_objects_are_told_by_name() -> None:
    found = live()
    missing = next(m for m in found if m["kind"] == "LocalQueue")
    found.remove(missing)
    labels = {"app.kubernetes.io/managed-by": "entrepot"}
    found.append({"kind": "ClusterQueue", "metadata": {"name": "retired", "labels": labels}, "spec": {}})
    meta = missing["metadata"]
    assert diff(WORKER, found) == (
        ObjectDifference("LocalQueue", meta["namespace"], meta["name"], Standing.MISSING),
        ObjectDifference("ClusterQueue", "", "retired", Standing.EXTRA),
    )


def test_of_a_kind_that_was_not_read_nothing_is_said() -> None:
    found = [m for m in live() if m["kind"] != "WorkloadPriorityClass"]
    assert {d.kind for d in diff(WORKER, found)} == {"WorkloadPriorityClass"}
    assert diff(WORKER, found, frozenset({"WorkloadPriorityClass"})) == ()


def test_a_top_level_field_of_a_priority_class_counts() -> None:
    def edit(objects: list[Manifest]) -> None:
        next(m for m in objects if m["kind"] == "WorkloadPriorityClass")["value"] = -5

    (found,) = diff(WORKER, live(edit))
    (field,) = found.fields
    assert isinstance(field, FieldChange)
    assert (field.path, field.live) == ("value", -5)


# --- reading a cluster -------------------------------------------------------------------------------------------

PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ResourceFlavor": "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
    "ClusterQueue": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
}


async def listed(folder: Path, api: ApiServer, *kinds: str) -> SeenObjects:
    file = folder / "kubeconfig"
    file.write_bytes(api.kubeconfig())
    client = ApiClient("one", FileSource(file), SystemClock())
    try:
        return await list_objects(client, kinds)
    finally:
        await client.close()


async def test_objects_are_listed_page_by_page_with_their_kind(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.serve(*PATHS.values())
        for number in range(1100):
            api.put(PATHS["ResourceFlavor"], {"metadata": {"name": f"f{number}"}, "spec": {}})
        seen = await listed(tmp_path, api, "Namespace", "ResourceFlavor")
        assert len(api.requests("LIST", PATHS["ResourceFlavor"])) == 3
    assert seen.unread == ()
    assert [o["metadata"]["name"] for o in seen.objects if o["kind"] == "Namespace"] == ["kube-system"]
    assert len([o for o in seen.objects if o["kind"] == "ResourceFlavor"]) == 1100


async def test_a_kind_that_may_not_be_listed_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.serve(*PATHS.values())
        api.put(PATHS["ClusterQueue"], {"metadata": {"name": "q"}, "spec": {}})

        async def forbid(_: object) -> Any:
            return problem(403, "may not list resourceflavors")

        api.faults["LIST", PATHS["ResourceFlavor"]] = forbid
        seen = await listed(tmp_path, api, "ResourceFlavor", "Cohort", "ClusterQueue")
    assert [o["metadata"]["name"] for o in seen.objects] == ["q"]
    assert [kind for kind, _ in seen.unread] == ["ResourceFlavor", "Cohort"]
    assert seen.unread[0][1].startswith("may not be listed")
    assert seen.unread[1][1] == "not served: is Kueue installed?"


async def test_a_cluster_that_cannot_be_reached_or_entered_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServer())
        api.serve(*PATHS.values())
        api.tokens = {"another"}
        with pytest.raises(Refused):
            await listed(tmp_path, api, "ClusterQueue")
        await api.stop_listening()
        with pytest.raises(Transient):
            await listed(tmp_path, api, "ClusterQueue")
    with pytest.raises(Refused, match="names no credentials"):
        await list_objects(ApiClient("one", NoSource("names no credentials"), SystemClock()), ["ClusterQueue"])


# --- the command -------------------------------------------------------------------------------------------------


def test_a_fleet_that_cannot_be_reached_is_named_cluster_by_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    no_fleet = tmp_path / "absent.kubeconfig"
    assert run(["blueprint", "diff", "--kubeconfig", str(no_fleet), "--blueprint", str(CONFIG), "-o", "json"]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert [cluster["name"] for cluster in answer["clusters"]] == ["hub", *RENDERED.workers]
    assert all(cluster["error"] for cluster in answer["clusters"])
    assert answer["same"] is False


def test_a_hub_that_cannot_be_read_is_one_error_in_the_doctors_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    no_fleet = str(tmp_path / "absent.kubeconfig")
    assert run(["blueprint", "diff", "--kubeconfig", no_fleet, "--blueprint", str(CONFIG)]) == 4
    told = capsys.readouterr()
    assert (told.out, told.err.count("does not exist")) == ("", 1)
    assert run(["doctor", "--kubeconfig", no_fleet]) == 4
    assert capsys.readouterr().err == told.err.removeprefix("note: reading the hub\n")


def test_without_a_kubeconfig_the_hub_is_looked_for_as_the_doctor_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["blueprint", "diff", "--blueprint", str(CONFIG)]) == 4
    assert f"where: {tmp_path}/.kube/config" in capsys.readouterr().err
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/one:{tmp_path}/two")
    assert run(["blueprint", "diff", "--blueprint", str(CONFIG)]) == 4
    assert f"where: {tmp_path}/one\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        pytest.param(["--blueprint", "nowhere"], 2, "nowhere is not a folder", id="no folder"),
        pytest.param(["--only", "x", "--blueprint", str(CONFIG)], 2, "not clusters of the blueprint: x", id="a typo"),
    ],
)
def test_a_wrong_command_line(arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["blueprint", "diff", *arguments]) == code
    assert told in capsys.readouterr().err


def test_an_invalid_blueprint_is_refused_with_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["blueprint", "diff", "--blueprint", str(tmp_path)]) == 5
    assert "fleet.yaml" in capsys.readouterr().err
