"""Topology-aware scheduling, as far as a choice between clusters leans on it: which worker takes pods that must lie in
one rack, and which flavors Kueue gives to whom."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.core.ids import ClusterName, FlavorName
from dispatcher.core.topology import Slice, Topology, TopologyWish
from tests import builders as b
from tests.contract.harness import CLUSTERS, HOST_LABEL, QUEUE, RACK_LABEL, Bed, Opener, Scene

SPLIT, WHOLE, PLAIN = CLUSTERS
"""Two nodes in two racks; two nodes in one rack; a flavor without a topology."""
RACKS = ((SPLIT, "ab"), (WHOLE, "aa"))
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
SLICES = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
GROUP = "kueue.x-k8s.io/podset-group-name"
LASTING = "60s"
"""Of a job that is looked at while it runs: the hub latches seconds after its pods have begun."""


def asking(bed: Bed, name: str, pods: int, annotations: dict[str, str], **more: Any) -> b.Manifest:
    made = bed.job(name, gpus=8, pods=pods, **more)
    made["spec"]["template"]["metadata"]["annotations"] |= annotations
    return made


async def test_fr_sco_02_a_gang_that_must_share_a_rack_starts_only_where_one_takes_it(open_fleet: Opener) -> None:
    async with open_fleet(quota=16, racks=RACKS) as fleet:
        scene, bed = Scene(fleet), fleet.bed
        big = FlavorName(bed.flavor("big"))
        racks = Topology(bed.name, (RACK_LABEL, HOST_LABEL))
        await scene.until_true(lambda: scene.worker(SPLIT).flavors[big].topology == racks, "the levels are seen")
        assert scene.worker(PLAIN).flavors[big].topology is None
        waiting = await scene.submitted(asking(bed, "train", 2, {REQUIRED: RACK_LABEL}, duration="10s"))
        assert waiting.pod_sets[0].topology == TopologyWish(RACK_LABEL)
        await scene.nominate("train", SPLIT)
        stuck = await scene.until_copy("train", SPLIT, lambda c: "topology" in c.quota_message, "says what it lacks")
        assert stuck.quota_reserved_at is None
        assert "allows to fit only 1 out of 2 pod(s)" in stuck.quota_message
        assert stuck.required == (("main", RACK_LABEL),)
        await scene.nominate("train", SPLIT, WHOLE)
        await scene.until_copy("train", WHOLE, lambda c: c.bound_pods == 2, "both pods are on nodes")
        await scene.latched("train", WHOLE)
        assert (await scene.finished("train")).finished_reason == "Succeeded"


@pytest.mark.parametrize(
    "annotations",
    [{REQUIRED: RACK_LABEL}, {PREFERRED: RACK_LABEL}, {UNCONSTRAINED: "true"}],
    ids=["required", "preferred", "unconstrained"],
)
async def test_pods_that_ask_for_a_topology_take_no_flavor_without_one(
    open_fleet: Opener, annotations: dict[str, str]
) -> None:
    async with open_fleet(quota=16, racks=RACKS) as fleet:
        scene = Scene(fleet)
        await scene.submitted(asking(fleet.bed, "train", 1, annotations, duration="5s"))
        await scene.nominate("train", PLAIN)
        stuck = await scene.until_copy("train", PLAIN, lambda c: bool(c.quota_message), "says what it lacks")
        assert stuck.quota_reserved_at is None
        assert "does not support TopologyAwareScheduling" in stuck.quota_message


@pytest.mark.parametrize("annotations", [{PREFERRED: RACK_LABEL}, {UNCONSTRAINED: "true"}], ids=["preferred", "free"])
async def test_pods_that_only_prefer_a_rack_are_spread(open_fleet: Opener, annotations: dict[str, str]) -> None:
    async with open_fleet(quota=16, racks=RACKS) as fleet:
        scene = Scene(fleet)
        waiting = await scene.submitted(asking(fleet.bed, "train", 2, annotations, duration=LASTING))
        assert waiting.pod_sets[0].topology == TopologyWish(preferred=annotations.get(PREFERRED))
        await scene.nominate("train", SPLIT)
        await scene.until_copy("train", SPLIT, lambda c: c.bound_pods == 2, "both pods are on nodes")


@pytest.mark.parametrize(("size", "starts"), [("1", True), ("2", False)], ids=["of one pod", "of two pods"])
async def test_slices_start_where_whole_ones_have_room(open_fleet: Opener, size: str, starts: bool) -> None:
    """Two nodes in two racks: each takes a slice of one pod, and no rack one of two."""
    async with open_fleet(quota=16, racks=RACKS) as fleet:
        scene = Scene(fleet)
        in_slices = {SLICES: RACK_LABEL, SLICE_SIZE: size}
        waiting = await scene.submitted(asking(fleet.bed, "train", 2, in_slices, duration=LASTING))
        assert waiting.pod_sets[0].topology == TopologyWish(slices=(Slice(RACK_LABEL, int(size)),))
        await scene.nominate("train", SPLIT)
        if not starts:
            stuck = await scene.until_copy(
                "train", SPLIT, lambda c: "topology" in c.quota_message, "says what it lacks"
            )
            assert stuck.quota_reserved_at is None
            assert "doesn't allow to fit any of 1 slice(s)" in stuck.quota_message
            await scene.nominate("train", SPLIT, WHOLE)
        winner = SPLIT if starts else WHOLE
        await scene.latched("train", winner)
        await scene.until_copy("train", winner, lambda c: c.bound_pods == 2, "both pods are on nodes")


async def test_slices_above_the_level_that_holds_them_never_start(open_fleet: Opener) -> None:
    async with open_fleet(quota=16, racks=RACKS) as fleet:
        scene = Scene(fleet)
        above = {REQUIRED: HOST_LABEL, SLICES: RACK_LABEL, SLICE_SIZE: "1"}
        await scene.submitted(asking(fleet.bed, "train", 1, above))
        await scene.nominate("train", WHOLE)
        stuck = await scene.until_copy("train", WHOLE, lambda c: bool(c.quota_message), "says what it lacks")
        assert stuck.quota_reserved_at is None


async def test_a_group_of_pod_sets_starts_only_where_one_rack_takes_both(open_fleet: Opener) -> None:
    """A leader and a worker of eight GPUs each: two nodes in two racks would take them apart."""
    async with open_fleet(quota=16, racks=RACKS) as fleet:
        scene, bed = Scene(fleet), fleet.bed
        parts = {}
        for part in ("leader", "workers"):
            template = bed.template(gpus=8, duration=LASTING)
            template["metadata"]["annotations"] |= {REQUIRED: RACK_LABEL, GROUP: "both"}
            parts[part] = (1, 1, template)
        waiting = await scene.submitted(b.job_set("train", parts, QUEUE, bed.name))
        assert [p.topology for p in waiting.pod_sets] == [TopologyWish(RACK_LABEL, group="both")] * 2
        await scene.nominate("train", SPLIT)
        stuck = await scene.until_copy("train", SPLIT, lambda c: "topology" in c.quota_message, "says what it lacks")
        assert stuck.quota_reserved_at is None
        await scene.nominate("train", SPLIT, WHOLE)
        await scene.latched("train", WHOLE)
        await scene.until_copy("train", WHOLE, lambda c: c.bound_pods == 2, "both pods are on nodes")


async def test_plain_pods_take_no_flavor_with_a_topology_where_the_queue_has_another(open_fleet: Opener) -> None:
    """They select the nodes of the flavor with a topology, so none is left for them."""
    async with open_fleet(quota=16, racks=((SPLIT, "ab"),)) as fleet:
        scene = Scene(fleet)
        await fleet.submit(fleet.bed.job("plain", gpus=8), ClusterName(SPLIT))
        await scene.until_true(lambda: bool(_said(scene, fleet.bed)), "says what it lacks")
        assert "supports only TopologyAwareScheduling" in _said(scene, fleet.bed)


def _said(scene: Scene, bed: Bed) -> str:
    copies = scene.worker(SPLIT).copies.values()
    return next((copy.quota_message for copy in copies if copy.namespace == bed.name), "")
