"""A required topology on the whole path: from the annotation on a pod template to pods in one rack (FR-SCO-02)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from connectors.embedded import NodeSpec
from connectors.embedded.nodes import Node
from dispatcher.core.decision import DomainDetail, Reason
from dispatcher.core.ids import ClusterName
from dispatcher.core.waiting import Phase
from tests.builders import Manifest, topology
from tests.builders import laid_out as laid_out_by
from tests.loops.bench import Bench, example_plan
from tests.loops.jobs import H100, gang

RACK, HOST = "example.org/rack", "kubernetes.io/hostname"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"


def lay_out(bench: Bench, racks: Mapping[str, str]) -> None:
    """Give clusters the topology for their H100 nodes, which stand in these racks, a letter for each node in turn."""
    plan = example_plan()
    for cluster, objects in ((None, plan.hub), *((name, plan.workers[ClusterName(name)]) for name in racks)):
        bench.fleet.apply(topology("racks", RACK, HOST), cluster)
        for manifest in objects:
            if manifest["kind"] == "ResourceFlavor" and manifest["metadata"]["name"] in ("fleet", "h100"):
                bench.fleet.apply(laid_out_by(manifest, "racks"), cluster)
    for cluster, letters in racks.items():
        nodes = [n for n in plan.nodes[ClusterName(cluster)] if n.labels.get("nvidia.com/gpu.product") == H100]
        for node, letter in zip(nodes, letters, strict=True):
            bench.fleet.remove_node(cluster, node.name)
            labels = {**node.labels, RACK: f"rack-{letter}"}
            bench.fleet.add_node(cluster, NodeSpec(node.name, labels, node.taints, node.capacity))


def together(name: str, pods: int, key: str = REQUIRED, **more: Any) -> Manifest:
    made = gang(name, pods, **more)
    made["spec"]["template"]["metadata"]["annotations"][key] = RACK
    return made


def laid_out(bench: Bench) -> list[Node]:
    """The nodes of onprem-eu that stand in racks, by name."""
    return [n for n in bench.fleet.worker_clusters[ClusterName("onprem-eu")].pool.nodes.values() if RACK in n.labels]


def racks_of(bench: Bench, job: str, cluster: str) -> list[str]:
    """The racks on whose nodes pods of a job lie."""
    pool = bench.fleet.worker_clusters[ClusterName(cluster)].pool
    return sorted(
        {
            node.labels.get(RACK, "none")
            for node in pool.nodes.values()
            for pod in node.pods.values()
            if pod.owner.run.spec.name == job  # type: ignore[attr-defined]
        }
    )


async def test_fr_sco_02_a_gang_starts_in_the_cluster_that_has_a_rack_for_it(bench: Bench) -> None:
    """Where the four nodes stand in four racks it would never start, and where there is no topology neither."""
    lay_out(bench, {"onprem-eu": "abcd", "cloud-a-fi": "aaaa"})
    bench.fleet.submit(together("train-a", 4))
    await bench.until(lambda: bool(racks_of(bench, "train-a", "cloud-a-fi")), 30)
    assert racks_of(bench, "train-a", "cloud-a-fi") == ["rack-a"]
    decision = bench.decision("train-a")
    told = {c.cluster: {r.reason for r in c.rejections} for c in decision.candidates}
    assert told["onprem-eu"] == {Reason.NEVER_FITS}
    assert told["cloud-b-fr"] >= {Reason.TOPOLOGY_MISMATCH}
    onprem = decision.candidate(ClusterName("onprem-eu"))
    assert onprem is not None
    assert onprem.rejections[0].detail.domain == DomainDetail(RACK, 4, 1, ("rack-a",))
    await bench.until(bench.finished("train-a"), 60)


async def test_a_preferred_rack_excludes_no_cluster_that_has_racks(bench: Bench) -> None:
    lay_out(bench, {"onprem-eu": "abcd"})
    bench.fleet.submit(together("train-a", 4, PREFERRED))
    await bench.until(bench.finished("train-a"), 60)
    assert bench.decision("train-a").chosen == "onprem-eu"


async def test_two_gangs_share_a_cluster_rack_by_rack_and_a_third_starts_when_one_ends(bench: Bench) -> None:
    """The racks' nodes alternate by name, and both gangs are decided before any pod is on a node."""
    lay_out(bench, {"onprem-eu": "abab"})
    for name in ("train-a", "train-b"):
        bench.fleet.submit(together(name, 2, duration="60s", says={"clusters": "onprem-eu"}))
    await bench.until(lambda: all(bench.phase(name) is Phase.PLACED for name in ("train-a", "train-b")), 30)
    await bench.step()
    placed = [racks_of(bench, name, "onprem-eu") for name in ("train-a", "train-b")]
    assert sorted(placed) == [["rack-a"], ["rack-b"]]
    bench.fleet.submit(together("train-c", 2, says={"clusters": "onprem-eu"}))
    for _ in range(5):
        await bench.step()
    assert bench.phase("train-c") is Phase.WAITING
    await bench.until(bench.finished("train-a", "train-b", "train-c"), 200)


async def test_small_work_passes_a_gang_that_waits_for_a_rack_and_the_gang_starts(bench: Bench) -> None:
    """One node of each rack is in use: enough is free, in two pieces. It is known which of them ends first and on which
    node, so the gang holds the start that rack a gives it: what ends by then may pass, what would run on may not."""
    lay_out(bench, {"onprem-eu": "aabb"})
    here = {"clusters": "onprem-eu"}
    late = {**here, "expected-duration": "PT400S"}
    names = [n.view.name for n in laid_out(bench)]
    for name, node, lasts in (("train-a", names[0], "40"), ("train-b", names[2], "400")):
        says = {**here, "expected-duration": f"PT{lasts}S"}
        pinned = together(name, 1, duration=f"{lasts}s", says=says)
        pinned["spec"]["template"]["spec"]["nodeSelector"][HOST] = node
        bench.fleet.submit(pinned)
    await bench.until(lambda: all(bench.phase(name) is Phase.PLACED for name in ("train-a", "train-b")), 30)
    first = {**here, "expected-duration": "PT5S"}
    bench.fleet.submit(together("train-c", 2, duration="5s", says=first))
    await bench.until(lambda: bench.find("train-c") is not None and bench.phase("train-c") is Phase.WAITING, 5)
    await bench.step()
    onprem = bench.decision("train-c").candidate(ClusterName("onprem-eu"))
    assert onprem is not None
    assert [(r.reason, r.detail.domain) for r in onprem.rejections] == [
        (Reason.TOPOLOGY, DomainDetail(RACK, 2, 1, ("rack-a",)))
    ]
    soon = {**here, "expected-duration": "PT20S"}
    short = together("train-d", 1, duration="5s", says=soon)
    short["spec"]["template"]["spec"]["nodeSelector"][HOST] = names[3]
    bench.fleet.submit(short)
    bench.fleet.submit(together("train-e", 1, PREFERRED, duration="400s", says=late))
    await bench.until(bench.finished("train-d"), 20)
    assert bench.phase("train-c") is Phase.WAITING
    assert bench.phase("train-e") is Phase.WAITING
    kept_back = bench.decision("train-e").candidate(ClusterName("onprem-eu"))
    assert kept_back is not None
    assert [(r.reason, r.detail.holder) for r in kept_back.rejections] == [
        (Reason.RESERVED, bench.workload("train-c").key)
    ]
    await bench.until(lambda: racks_of(bench, "train-c", "onprem-eu") == ["rack-a"], 60)
    await bench.until(bench.finished("train-c"), 60)
    await bench.until(lambda: bench.phase("train-e") is Phase.PLACED, 60)


async def test_a_topology_that_is_installed_as_the_page_says_starts_a_gang(bench: Bench) -> None:
    page = (Path(__file__).parents[2] / "docs" / "topology.md").read_text(encoding="utf-8")
    (made,) = [
        each for block in re.findall(r"```yaml\n(.*?)```", page, re.S) if (each := yaml.safe_load(block)).get("kind")
    ]
    patches = re.findall(r"kubectl --context (\w+) patch resourceflavor (\S+) --type merge -p '(.*)'", page)
    assert [who for who, _, _ in patches] == ["WORKER", "HUB"]
    plan, here = example_plan(), ClusterName("onprem-eu")
    for who, flavor, patch in patches:
        cluster, objects = (None, plan.hub) if who == "HUB" else (here, plan.workers[here])
        bench.fleet.apply(made, cluster)
        (before,) = [m for m in objects if m["kind"] == "ResourceFlavor" and m["metadata"]["name"] == flavor]
        bench.fleet.apply({**before, "spec": {**before["spec"], **json.loads(patch)["spec"]}}, cluster)
    block, rack, host = (level["nodeLabel"] for level in made["spec"]["levels"])
    for node in [n for n in plan.nodes[here] if n.labels.get("nvidia.com/gpu.product") == H100]:
        bench.fleet.remove_node(here, node.name)
        labels = {**node.labels, block: "b", rack: "r", host: node.name}
        bench.fleet.add_node(here, NodeSpec(node.name, labels, node.taints, node.capacity))
    asked = gang("train-a", 2)
    asked["spec"]["template"]["metadata"]["annotations"][REQUIRED] = rack
    bench.fleet.submit(asked)
    await bench.until(bench.finished("train-a"), 60)
    assert bench.decision("train-a").chosen == here


async def test_the_worker_says_how_many_pods_its_largest_rack_takes(bench: Bench) -> None:
    """A copy that goes there all the same (the view was older than the cordon) is turned away, as Kueue does."""
    lay_out(bench, {"onprem-eu": "aabb"})
    bench.fleet.lag(30.0, "onprem-eu")
    for node in laid_out(bench)[::2]:
        bench.fleet.cordon("onprem-eu", node.view.name)
    bench.fleet.submit(together("train-a", 2, says={"clusters": "onprem-eu"}))
    await bench.until(
        lambda: bench.workload("train-a").nominated == ("onprem-eu",) if bench.find("train-a") else False, 20
    )
    worker = bench.fleet.worker_clusters[ClusterName("onprem-eu")]
    await bench.until(lambda: bool(worker.copies), 20)
    await bench.step()
    (copy,) = worker.copies.values()
    assert 'topology "racks" allows to fit only 1 out of 2 pod(s)' in copy.quota_message
