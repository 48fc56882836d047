"""MIG slices from the job to the node: which flavor, how many on a node, whose quota, at which price; example fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dispatcher.core.decision import Decision, Reason, TermKind
from dispatcher.core.ids import ClusterName
from dispatcher.core.waiting import Phase
from tests.builders import job, pod_template
from tests.loops.bench import Bench, start
from tests.loops.jobs import SLICE, notebook


def server(name: str, requests: dict[str, object], **selector: str) -> dict[str, Any]:
    """An inference server in the assistants' queue."""
    template = pod_template(requests, "1000h", **({"nodeSelector": selector} if selector else {}))
    return job(name, queue="assistants", in_namespace="enterprise", template=template)


async def decided(path: Path, manifest: dict[str, Any]) -> tuple[Bench, Decision]:
    bench = await start(path)
    bench.fleet.submit(manifest)
    name = manifest["metadata"]["name"]
    for _ in range(5):
        await bench.step()
    return bench, bench.decision(name)


def flavors(decision: Decision) -> list[str]:
    found = decision.candidate(decision.chosen) if decision.chosen is not None else None
    return [str(p.flavor) for p in found.placements] if found is not None else []


def amount(decision: Decision, kind: TermKind) -> int | None:
    found = decision.candidate(ClusterName("onprem-eu"))
    assert found is not None
    return next(t.amount_usd_micro for t in found.terms if t.kind is kind)


@pytest.mark.parametrize(
    "manifest",
    [notebook("nb"), server("small-model", {SLICE: 1, "cpu": 1, "memory": "4Gi"})],
    ids=["a notebook", "an inference server"],
)
async def test_a_slice_is_found_taken_and_paid_by_the_slice(tmp_path: Path, manifest: dict[str, Any]) -> None:
    bench, decision = await decided(tmp_path, manifest)
    try:
        name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        assert (decision.chosen, flavors(decision)) == ("onprem-eu", ["a100-mig"])
        hours = decision.estimate.duration_s // 3600
        assert amount(decision, TermKind.RUN) == hours * 140_000
        assert amount(decision, TermKind.STRANDED) == 0, "what is left of a cut card is as good as it was"
        await bench.until(lambda: bench.phase(name) is Phase.PLACED)
        await bench.step()
        view = bench.fleet.worker_view("onprem-eu")
        (copy,) = [c for (ns, _), c in view.copies.items() if ns == namespace]
        assert copy.pod_sets[0][3] == "a100-mig"
        used = [node.requested.get(SLICE) for node in view.nodes if node.allocatable.get(SLICE)]
        assert sorted(used) == [0, 1]
    finally:
        await bench.store.close()


async def test_slices_of_one_pod_lie_on_one_node(tmp_path: Path) -> None:
    """The queue has 96 slices and each node 56: a pod of 57 fits in quota and on no node."""
    bench, decision = await decided(tmp_path, notebook("too-wide", slices=57))
    try:
        found = decision.candidate(ClusterName("onprem-eu"))
        assert found is not None
        (rejection,) = found.rejections
        assert (rejection.reason, rejection.detail.largest_node_free) == (Reason.NEVER_FITS, 56)
    finally:
        await bench.store.close()


async def test_a_slice_of_a_card_that_nobody_cuts_is_told(tmp_path: Path) -> None:
    h100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    bench, decision = await decided(tmp_path, server("other", {SLICE: 1, "cpu": 1, "memory": "4Gi"}, **h100))
    try:
        assert decision.chosen is None
        found = decision.candidate(ClusterName("onprem-eu"))
        assert found is not None
        assert Reason.NO_SUCH_PRODUCT in [r.reason for r in found.rejections]
    finally:
        await bench.store.close()


async def test_a_profile_that_nobody_cuts_gets_no_quota_on_the_hub(tmp_path: Path) -> None:
    bench = await start(tmp_path)
    try:
        bench.fleet.submit(server("other", {"nvidia.com/mig-2g.20gb": 1, "cpu": 1, "memory": "4Gi"}))
        for _ in range(5):
            await bench.step()
        assert bench.phase("other") is Phase.NO_QUOTA
    finally:
        await bench.store.close()


async def test_a_whole_card_is_never_looked_for_among_slices(tmp_path: Path) -> None:
    bench, decision = await decided(tmp_path, server("whole", {"nvidia.com/gpu": 1, "cpu": 8, "memory": "16Gi"}))
    try:
        assert flavors(decision) in (["rtx-pro-6000"], ["l40s"])
    finally:
        await bench.store.close()


async def test_the_last_slice_of_a_queue_is_the_last(tmp_path: Path) -> None:
    """The assistants have 16 slices of their own and may borrow none: 17 servers do not all run."""
    bench = await start(tmp_path)
    try:
        names = [f"model-{n:02d}" for n in range(17)]
        for name in names:
            bench.fleet.submit(server(name, {SLICE: 1, "cpu": 1, "memory": "4Gi"}))
        await bench.until(lambda: sum(bench.phase(n) is Phase.PLACED for n in names) == 16)
        for _ in range(5):
            await bench.step()
        waits = [n for n in names if bench.phase(n) is not Phase.PLACED]
        assert len(waits) == 1
        found = bench.decision(waits[0]).candidate(ClusterName("onprem-eu"))
        assert found is not None
        assert Reason.QUOTA in [r.reason for r in found.rejections]
    finally:
        await bench.store.close()
