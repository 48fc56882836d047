"""The pure parts of the test fleets: what they write, and how they name what they compile."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fleet import FleetCluster, FleetNode, binaries, cli, kueue, kwok, manifests, sample
from tests.fleet.api import condition_is
from tests.fleet.kind import render
from tests.fleet.processes import FleetError

CA = b"-----BEGIN CERTIFICATE-----"


def webhook(name: str, group: str, resource: str) -> dict[str, Any]:
    return {
        "name": name,
        "clientConfig": {"service": {"name": "webhook-service", "namespace": "system", "path": f"/mutate-{resource}"}},
        "rules": [{"apiGroups": [group], "resources": [resource]}],
    }


def configuration(*webhooks: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "mutating-webhook-configuration"},
        "webhooks": list(webhooks),
    }


def test_a_webhook_is_pointed_to_loopback_with_the_fleet_ca() -> None:
    original = configuration(webhook("mjob.kb.io", "batch", "jobs"))
    (localized,) = manifests.localize_webhooks([original], "kueue", 19443, CA)
    assert localized["metadata"]["name"] == "kueue-mutating-webhook-configuration"
    assert localized["webhooks"][0]["clientConfig"] == {
        "url": "https://127.0.0.1:19443/mutate-jobs",
        "caBundle": base64.b64encode(CA).decode(),
    }
    assert "service" in original["webhooks"][0]["clientConfig"], "the input is not changed"


def test_webhooks_for_pods_and_for_kinds_that_the_fleet_does_not_serve_are_dropped() -> None:
    original = configuration(
        webhook("mpod.kb.io", "", "pods"),
        webhook("mdeployment.kb.io", "apps", "deployments"),
        webhook("mworkload.kb.io", "kueue.x-k8s.io", "workloads"),
    )
    (localized,) = manifests.localize_webhooks([original], "kueue", 1, CA)
    assert [item["name"] for item in localized["webhooks"]] == ["mworkload.kb.io"]


def test_a_configuration_without_any_webhook_left_is_not_applied() -> None:
    assert manifests.localize_webhooks([configuration(webhook("mpod.kb.io", "", "pods"))], "jobset", 1, CA) == []


def test_job_webhooks_leave_the_system_namespaces_alone() -> None:
    (localized,) = manifests.localize_webhooks([configuration(webhook("mjob.kb.io", "batch", "jobs"))], "kueue", 1, CA)
    (expression,) = localized["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("NotIn", ["kube-system", "kueue-system"])


@pytest.mark.parametrize(("plural", "converted"), [("workloads", True), ("resourceflavors", False)])
def test_only_the_kinds_with_a_conversion_get_its_webhook(plural: str, converted: bool) -> None:
    definition = {"spec": {"names": {"plural": plural}}}
    assert ("conversion" in manifests.with_conversion(definition, 1, CA)["spec"]) is converted


def test_a_kubeconfig_secret_carries_the_ca_as_data_and_the_key_that_kueue_reads() -> None:
    content = manifests.kubeconfig("worker-1", "https://127.0.0.1:6443", "token", CA)
    secret = manifests.kubeconfig_secret("worker-1", content)
    assert secret["metadata"] == {"name": "worker-1-kubeconfig", "namespace": "kueue-system"}
    decoded = yaml.safe_load(base64.b64decode(secret["data"]["kubeconfig"]))
    assert base64.b64decode(decoded["clusters"][0]["cluster"]["certificate-authority-data"]) == CA


def test_a_node_registers_with_its_capacity_like_a_kubelet() -> None:
    node = manifests.node_manifest(FleetNode("n", capacity={"nvidia.com/mig-1g.10gb": "7"}))
    assert node["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] == "7"
    assert node["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}


def test_only_the_hub_names_the_dispatcher() -> None:
    ports = kueue.KueuePorts(1, 2)
    hub = kueue.configuration(Path("c"), ports, worker_lost_timeout_seconds=7)
    assert hub["multiKueue"]["dispatcherName"] == "entrepot.dev/dispatcher"
    assert hub["multiKueue"]["workerLostTimeout"] == "7s"
    assert "multiKueue" not in kueue.configuration(Path("c"), ports)


def test_a_pod_chooses_its_duration_and_two_seconds_is_the_default() -> None:
    stages = {stage["metadata"]["name"]: stage["spec"] for stage in kwok.stages()}
    delay = stages["pod-succeed"]["delay"]
    assert delay["durationMilliseconds"] == 2000
    assert "entrepot.dev/simulated-duration" in delay["durationFrom"]["expressionFrom"]
    assert stages["pod-delete"]["next"] == {"delete": True}


def copy_modules(folder: Path) -> Path:
    shutil.copytree(binaries.MODULES_FOLDER, folder)
    return folder


def test_the_cache_key_changes_with_a_sum_and_with_a_linker_flag(tmp_path: Path) -> None:
    modules = copy_modules(tmp_path / "modules")
    program = binaries.PROGRAMS[0]
    before = binaries.recipe_hash(program, modules)
    other_flags = binaries.Program(program.name, program.packages, "-s")
    assert binaries.recipe_hash(other_flags, modules) != before
    with open(modules / program.name / "go.sum", "a") as stream:
        stream.write("example.org/x v1.0.0 h1:abc=\n")
    assert binaries.recipe_hash(program, modules) != before


def test_a_finished_entry_is_found_whichever_go_compiled_it_and_an_unfinished_one_is_not(tmp_path: Path) -> None:
    program = binaries.PROGRAMS[0]
    name = f"{program.name}-{binaries.recipe_hash(program)}-go1.99.0"
    (tmp_path / f".{name}.part").mkdir()
    assert binaries.find_entry(program, tmp_path) is None
    (tmp_path / name).mkdir()
    assert binaries.find_entry(program, tmp_path) == tmp_path / name


def test_the_cache_folder_follows_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(binaries.CACHE_VARIABLE, str(tmp_path))
    assert binaries.cache_folder() == tmp_path / "bin"


def test_the_go_version_comes_from_the_module_file() -> None:
    assert binaries.oldest_go("module x\n\ngo 1.26.8\n") == "1.26.8"


@pytest.mark.parametrize(("seconds", "text"), [(9.7, "9s"), (80, "1m 20s"), (600, "10m 00s")])
def test_durations_read_like_a_clock(seconds: float, text: str) -> None:
    assert binaries.duration(seconds) == text


def test_conditions_are_read_from_objects_with_and_without_a_status() -> None:
    assert condition_is({"status": {"conditions": [{"type": "Active", "status": "True"}]}}, "Active")
    assert not condition_is({"status": {}}, "Active")
    assert not condition_is(None, "Active")


def test_rendered_objects_are_read_from_a_folder_and_nodes_become_fake_nodes(tmp_path: Path) -> None:
    worker = [manifests.namespace("team-a"), manifests.node_manifest(FleetNode("n", capacity={"nvidia.com/gpu": "8"}))]
    (tmp_path / "hub.yaml").write_text(yaml.safe_dump(manifests.namespace("team-a")))
    (tmp_path / "berlin.yaml").write_text(yaml.safe_dump_all(worker))
    hub_objects, clusters = cli.read_objects(tmp_path)
    assert [item["kind"] for item in hub_objects] == ["Namespace"]
    assert [cluster.name for cluster in clusters] == ["berlin"]
    assert [item["kind"] for item in clusters[0].objects] == ["Namespace"]
    assert clusters[0].nodes[0].capacity["nvidia.com/gpu"] == "8"


def test_a_folder_without_a_hub_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match=r"has no hub\.yaml"):
        cli.read_objects(tmp_path)


def kind_steps(tmp_path: Path) -> list[render.Step]:
    names = sample.worker_names(2)
    return render.up_steps(tmp_path, sample.hub_objects(names), sample.clusters(names))


def test_kind_creates_every_cluster_under_the_projects_prefix(tmp_path: Path) -> None:
    created = [
        yaml.safe_load(step.stdin)["name"] for step in kind_steps(tmp_path) if step.argv[:2] == ["kind", "create"]
    ]
    assert created == ["entrepot-hub", "entrepot-worker-1", "entrepot-worker-2"]


def test_kind_applies_the_admission_policy_on_the_hub_only(tmp_path: Path) -> None:
    policies = [step for step in kind_steps(tmp_path) if step.argv[-1].endswith("workload-map.yaml")]
    assert [step.title for step in policies] == ["hub: admission policy"]


def test_kind_applies_the_hubs_objects_after_the_workers_secrets_and_fake_nodes_after_controllers(
    tmp_path: Path,
) -> None:
    titles = [step.title for step in kind_steps(tmp_path)]
    assert titles.index("hub: kubeconfig of worker-2") < titles.index("hub: its rendered objects")
    assert titles.index("worker-1: wait for kueue-controller-manager") < titles.index("worker-1: 2 fake nodes")


def test_kind_configures_kueue_like_the_loopback_fleet() -> None:
    text = render.kueue_config_map(30)["data"]["controller_manager_config.yaml"]
    assert yaml.safe_load(text)["multiKueue"] == kueue.multikueue_configuration(30)


def test_kind_deletes_only_its_own_clusters() -> None:
    assert render.down_command(["someone", "entrepot-hub"]) == ["kind", "delete", "clusters", "entrepot-hub"]
    assert render.down_command(["someone"]) is None


def test_the_sample_asks_multikueue_for_exactly_the_clusters_that_it_starts() -> None:
    names = sample.worker_names(3)
    config = next(item for item in sample.hub_objects(names) if item["kind"] == "MultiKueueConfig")
    assert config["spec"]["clusters"] == [cluster.name for cluster in sample.clusters(names)]
    assert isinstance(sample.clusters(names)[0], FleetCluster)
