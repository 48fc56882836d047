"""What a blueprint renders to: Kueue objects of hub and workers, and the nodes that a fake fleet is made of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatcher.config import Blueprint, load_blueprint
from dispatcher.config.lint import render_files
from dispatcher.config.render import Rendered, render, to_yaml
from dispatcher.core.ids import ClusterName
from dispatcher.core.resources import Resources, amount
from tests.unit.blueprint_files import EXAMPLE, NOW, edited, load, write

Manifest = dict[str, Any]
HOME, CLOUD = ClusterName("home"), ClusterName("cloud")


def small(tmp_path: Path, files: dict[str, str | bytes] | None = None) -> Blueprint:
    result = load(tmp_path, files)
    assert result.blueprint is not None, [problem.text() for problem in result.errors]
    return result.blueprint


@pytest.fixture(scope="module")
def example() -> Rendered:
    result = load_blueprint(EXAMPLE, NOW)
    assert result.blueprint is not None
    return render(result.blueprint)


def named(objects: Iterable[Manifest], kind: str) -> dict[str, Manifest]:
    return {item["metadata"]["name"]: item for item in objects if item["kind"] == kind}


def quotas(queue: Manifest) -> dict[tuple[str, str], tuple[str, str | None, str | None]]:
    return {
        (flavor["name"], resource["name"]): (
            resource["nominalQuota"],
            resource.get("borrowingLimit"),
            resource.get("lendingLimit"),
        )
        for group in queue["spec"].get("resourceGroups", [])
        for flavor in group["flavors"]
        for resource in flavor["resources"]
    }


# --- workers -----------------------------------------------------------------------------------------------------


def test_a_share_of_gpus_takes_cpu_and_memory_in_proportion_and_cpu_nodes_come_first(tmp_path: Path) -> None:
    queue = named(render(small(tmp_path)).workers[HOME], "ClusterQueue")["training"]
    assert queue["spec"]["cohortName"] == "home"
    assert quotas(queue) == {
        ("cpu", "cpu"): ("64", None, None),
        ("cpu", "memory"): ("262144Mi", None, None),
        ("cpu", "nvidia.com/gpu"): ("0", None, None),
        ("h100", "cpu"): ("288", "96", None),
        ("h100", "memory"): ("3145728Mi", "1048576Mi", None),
        ("h100", "nvidia.com/gpu"): ("12", "4", None),
    }
    assert [flavor["name"] for flavor in queue["spec"]["resourceGroups"][0]["flavors"]] == ["cpu", "h100"]


def test_what_a_queue_lends_is_bounded_in_every_resource(tmp_path: Path) -> None:
    queue = named(render(small(tmp_path)).workers[HOME], "ClusterQueue")["curation"]
    assert quotas(queue) == {
        ("h100", "cpu"): ("96", None, "48"),
        ("h100", "memory"): ("1048576Mi", None, "524288Mi"),
        ("h100", "nvidia.com/gpu"): ("4", None, "2"),
    }


def test_a_queue_without_a_share_on_a_cluster_is_there_and_admits_nothing(tmp_path: Path) -> None:
    worker = render(small(tmp_path)).workers[CLOUD]
    assert "resourceGroups" not in named(worker, "ClusterQueue")["curation"]["spec"]
    assert named(worker, "LocalQueue")["curation"]["metadata"]["namespace"] == "flywheel"


def test_flavors_carry_labels_and_taints_and_nodes_carry_the_same(tmp_path: Path) -> None:
    taint = "        taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]\n"
    rendered = render(
        small(tmp_path, edited("fleet.yaml", "        purchase: on-demand\n", f"        purchase: on-demand\n{taint}"))
    )
    flavor = named(rendered.workers[CLOUD], "ResourceFlavor")["h100"]
    assert flavor["spec"] == {
        "nodeLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        "nodeTaints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
    }
    nodes = rendered.nodes[CLOUD]
    assert [node.name for node in nodes] == [f"cloud-h100-{i}" for i in range(1, 5)]
    assert nodes[0].taints == ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},)
    assert nodes[0].labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert nodes[0].capacity == {"pods": "110", "cpu": "192", "memory": "2Ti", "nvidia.com/gpu": "8"}


def test_preemption_is_written_as_kueue_spells_it(example: Rendered) -> None:
    queue = named(example.workers[ClusterName("onprem-eu")], "ClusterQueue")["autonomy-training"]
    assert queue["spec"]["preemption"] == {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    }


def test_release_gates_borrow_nothing_and_interactive_lends_no_slices(example: Rendered) -> None:
    queues = named(example.workers[ClusterName("onprem-eu")], "ClusterQueue")
    assert {limit for _, limit, _ in quotas(queues["release-gates"]).values()} <= {"0", None}
    assert quotas(queues["release-gates"])[("h100", "nvidia.com/gpu")] == ("8", "0", None)
    assert quotas(queues["interactive"])[("a100-mig", "nvidia.com/mig-1g.10gb")] == ("96", "0", "0")


# --- hub ---------------------------------------------------------------------------------------------------------


def test_the_hub_holds_the_fleet_and_its_pools_as_often_as_the_waiting_factor_says(tmp_path: Path) -> None:
    hub = render(small(tmp_path)).hub
    # 2 + 4 nodes of 8 GPUs, and 2 that may be bought: 64; times 4.
    for queue in named(hub, "ClusterQueue").values():
        assert quotas(queue)[("fleet", "nvidia.com/gpu")] == ("256", None, None)
    assert named(hub, "ResourceFlavor")["fleet"]["spec"] == {}


def test_the_hub_check_hands_everything_to_multikueue_in_the_order_of_the_blueprint(tmp_path: Path) -> None:
    hub = render(small(tmp_path)).hub
    assert named(hub, "MultiKueueConfig")["entrepot"]["spec"] == {"clusters": ["home", "cloud"]}
    assert named(hub, "AdmissionCheck")["entrepot"]["spec"] == {
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "entrepot"},
    }
    assert named(hub, "MultiKueueCluster")["cloud"]["spec"] == {
        "clusterSource": {"kubeConfig": {"location": "cloud-kubeconfig", "locationType": "Secret"}}
    }
    for queue in named(hub, "ClusterQueue").values():
        assert queue["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "entrepot"}]}
        assert "cohortName" not in queue["spec"]


def test_the_hub_quota_is_at_least_what_the_workers_promise_even_when_they_promise_too_much(tmp_path: Path) -> None:
    hub = render(small(tmp_path, edited("queues.yaml", "h100: {gpus: 32}", "h100: {gpus: 500}"))).hub
    assert quotas(named(hub, "ClusterQueue")["curation"])[("fleet", "nvidia.com/gpu")] == ("2064", None, None)


# --- laws over the whole example ---------------------------------------------------------------------------------


def test_hub_and_workers_have_the_same_namespaces_local_queues_and_priorities(example: Rendered) -> None:
    for objects in example.workers.values():
        for kind in ("Namespace", "LocalQueue", "WorkloadPriorityClass"):
            assert named(objects, kind) == named(example.hub, kind)
    assert {name: item["value"] for name, item in named(example.hub, "WorkloadPriorityClass").items()} == {
        "release-gate": 10000,
        "production": 5000,
        "research": 1000,
        "notebook": 100,
    }


def test_every_resource_of_every_worker_is_covered_on_the_hub(example: Rendered) -> None:
    wanted = {
        resource
        for objects in example.workers.values()
        for queue in named(objects, "ClusterQueue").values()
        for _, resource in quotas(queue)
    }
    assert wanted == {"cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"}
    for queue in named(example.hub, "ClusterQueue").values():
        assert {resource for _, resource in quotas(queue)} == wanted


def test_no_worker_promises_more_than_its_nodes_have(example: Rendered) -> None:
    for cluster, objects in example.workers.items():
        flavors = named(objects, "ResourceFlavor")
        for flavor, spec in flavors.items():
            labels = spec["spec"]["nodeLabels"].items()
            have = Resources.total(
                Resources.parse(n.capacity) for n in example.nodes[cluster] if labels <= n.labels.items()
            )
            promised: Counter[str] = Counter()
            for queue in named(objects, "ClusterQueue").values():
                for (name, resource), (nominal, _, _) in quotas(queue).items():
                    promised[resource] += amount(resource, nominal) if name == flavor else 0
            assert all(total <= have.get(resource) for resource, total in promised.items()), (cluster, flavor)


def test_every_node_is_selected_by_exactly_one_flavor(example: Rendered) -> None:
    for cluster, nodes in example.nodes.items():
        selectors = [
            f["spec"]["nodeLabels"].items() for f in named(example.workers[cluster], "ResourceFlavor").values()
        ]
        for node in nodes:
            assert sum(selector <= node.labels.items() for selector in selectors) == 1, node.name


def test_covered_resources_and_quotas_are_in_one_order_as_the_webhook_demands(example: Rendered) -> None:
    for objects in (example.hub, *example.workers.values()):
        for queue in named(objects, "ClusterQueue").values():
            for group in queue["spec"].get("resourceGroups", []):
                for flavor in group["flavors"]:
                    assert [resource["name"] for resource in flavor["resources"]] == group["coveredResources"]


def test_every_name_is_one_that_kubernetes_takes(example: Rendered) -> None:
    dns = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    names = [item["metadata"]["name"] for objs in (example.hub, *example.workers.values()) for item in objs]
    names += [node.name for nodes in example.nodes.values() for node in nodes]
    assert len(names) > 100
    assert [name for name in names if not dns.match(name) or len(name) > 63] == []


def test_objects_come_in_an_order_in_which_they_can_be_applied(example: Rendered) -> None:
    for objects in (example.hub, *example.workers.values()):
        kinds = [item["kind"] for item in objects]
        assert kinds.index("Namespace") < kinds.index("LocalQueue")
        assert kinds.index("ResourceFlavor") < kinds.index("ClusterQueue") < kinds.index("LocalQueue")
        assert len({(i["kind"], i["metadata"].get("namespace"), i["metadata"]["name"]) for i in objects}) == len(
            objects
        )


# --- part of a fleet, and files ----------------------------------------------------------------------------------


def test_a_smaller_fleet_is_rendered_from_some_of_the_clusters(tmp_path: Path) -> None:
    rendered = render(small(tmp_path), only=[CLOUD])
    assert list(rendered.workers) == list(rendered.nodes) == ["cloud"]
    assert named(rendered.hub, "MultiKueueConfig")["entrepot"]["spec"] == {"clusters": ["cloud"]}
    assert list(named(rendered.hub, "MultiKueueCluster")) == ["cloud"]


@pytest.mark.parametrize("only", [["clod"], []], ids=["an unknown cluster", "no cluster"])
def test_a_fleet_of_clusters_that_are_not_there_is_refused(only: list[ClusterName], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cluster"):
        render(small(tmp_path), only=only)


def test_the_yaml_reads_back_as_what_was_rendered_and_is_the_same_every_time(example: Rendered) -> None:
    text = to_yaml(example.hub)
    assert list(yaml.safe_load_all(text)) == list(example.hub)
    result = load_blueprint(EXAMPLE, NOW)
    assert result.blueprint is not None
    assert to_yaml(render(result.blueprint).hub) == text


def test_rendered_files_are_written_one_for_the_hub_and_one_a_worker(tmp_path: Path) -> None:
    folder = write(tmp_path / "b", dict(edited("data.yaml", "size: 12TB", "size: 13TB")))
    done = render_files(folder, tmp_path / "out", None, NOW)
    assert [path.name for path in done.written] == ["hub.yaml", "worker-home.yaml", "worker-cloud.yaml"]
    assert [path.read_text() for path in done.written] == [text for _, text in done.texts]


def test_nothing_is_written_of_a_blueprint_that_is_not_valid(tmp_path: Path) -> None:
    folder = write(tmp_path / "b", dict(edited("data.yaml", "size: 12TB", "size: big")))
    done = render_files(folder, tmp_path / "out", None, NOW)
    assert (done.texts, done.written, done.result.ok) == ((), (), False)
    assert not (tmp_path / "out").exists()
