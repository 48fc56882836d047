"""Per-node free capacity and where a gang's pods lie."""

from __future__ import annotations

import time
from dataclasses import replace

from dispatcher.core.index import ViewIndex, index_view
from dispatcher.core.nodes import Demand, NodeTable, free_total, largest_free, node_table
from dispatcher.core.nodeset import NO_NODES, members
from dispatcher.core.packing import pack, pod_group
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import NodeView, Taint
from dispatcher.core.workload import Requirement, Toleration
from tests.core_builders import GPU, copy, node, nodes, res, seen, worker

ANY = Demand()
SECOND = 0b10


def placed(views: tuple[NodeView, ...], *wanted: tuple[str, int, int]) -> dict[str, dict[str, int]] | None:
    """Group to node to pods; None when some group has no place. `wanted` is (group, pods, GPUs of one)."""
    table = node_table(views)
    packing = pack(
        table, [pod_group(table, name, count, res(gpu, cpu=1, memory=1), ANY) for name, count, gpu in wanted]
    )
    if packing.failed:
        return None
    found: dict[str, dict[str, int]] = {}
    for spot in packing.placed:
        for at in members(spot.nodes):
            found.setdefault(spot.group, {})[table.frame.marks.names[at]] = spot.pods
    return found


def free_of(table: NodeTable, resource: str = GPU) -> dict[str, int]:
    names = table.frame.marks.names
    found = {names[at]: table.amounts(1 << at, resource) for at in range(len(names))}
    return {name: amount for name, ((amount, _),) in found.items()}


def test_whole_node_pods_take_whole_nodes() -> None:
    assert placed(nodes(3), ("main", 2, 8)) == {"main": {"n000": 1, "n001": 1}}
    assert placed(nodes(3), ("main", 4, 8)) is None


def test_small_pods_fill_broken_nodes_before_whole_ones() -> None:
    views = (node("whole"), node("half", used=4), node("rest", used=6))
    assert placed(views, ("main", 3, 2)) == {"main": {"half": 2, "rest": 1}}


def test_the_last_pods_go_where_they_leave_least() -> None:
    views = (node("a"), node("b", used=5), node("c", used=2))
    assert placed(views, ("main", 1, 3)) == {"main": {"b": 1}}
    assert placed(views, ("main", 1, 5)) == {"main": {"c": 1}}
    assert placed((node("a"), node("b", used=5)), ("main", 1, 2)) == {"main": {"b": 1}}


def test_pods_without_gpus_keep_off_gpu_nodes_while_others_have_room() -> None:
    views = (node("gpu"), node("plain", gpu=0))
    assert placed(views, ("driver", 1, 0)) == {"driver": {"plain": 1}}


def test_the_largest_pods_are_placed_first() -> None:
    views = (node("a"), node("b", used=4))
    assert placed(views, ("small", 2, 2), ("large", 1, 8)) == {"large": {"a": 1}, "small": {"b": 2}}


def test_a_resource_that_no_node_has_fits_nowhere() -> None:
    table = node_table(nodes(2))
    group = pod_group(table, "main", 1, Resources.of({"example.com/fpga": 1}), ANY)
    assert (group.missing, pack(table, [group]).failed) == ("example.com/fpga", ("main",))


def test_an_affinity_term_and_a_taint_narrow_the_nodes() -> None:
    taint = Taint("gpu", "yes", "NoSchedule")
    table = node_table((node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"}, taints=(taint,))))
    zone_b = (Requirement("zone", "In", ("b",)),)
    assert table.eligible(Demand(terms=(zone_b,))) == NO_NODES
    assert table.eligible(Demand(terms=(zone_b,), tolerations=(Toleration("gpu", "Exists"),))) == SECOND
    assert table.eligible(Demand(terms=(zone_b,), any_taint=True)) == SECOND


def test_fr_sco_05_nodes_that_are_away_add_nothing() -> None:
    away = (
        node("n5", ready=False),
        node("n6", schedulable=False),
        node("n7", deleting=True),
        node("n8", taints=(Taint("node.kubernetes.io/unreachable", "", "NoExecute"),)),
    )
    table = node_table((*nodes(5), *away))
    usable = table.eligible(Demand(tolerations=(Toleration("", "Exists"),)))
    assert free_total(table, usable, GPU) == 40


def test_fr_sco_06_pods_that_yield_leave_room() -> None:
    burn_in = node("n1", used=8, yielding=Resources.of({GPU: 8}))
    assert placed((burn_in,), ("main", 1, 8)) == {"main": {"n1": 1}}


def test_fr_sco_07_whole_cards_and_slices_are_counted_apart() -> None:
    mixed = Resources.of({GPU: 4, "nvidia.com/mig-1g.10gb": 28})
    table = node_table((node("n1", gpu=0, allocatable=mixed),))
    assert (free_of(table), free_of(table, "nvidia.com/mig-1g.10gb")) == ({"n1": 4}, {"n1": 28})


def test_fr_sco_08_the_largest_of_no_nodes_is_unknown() -> None:
    table = node_table(nodes(3, used=2))
    assert largest_free(table, NO_NODES, GPU) is None
    assert largest_free(table, 0b111, GPU) == 6
    assert largest_free(node_table((node("n", used=9),)), 0b1, GPU) == 0, "over-use is nothing, not a debt"


def test_fr_sco_09_the_pod_limit_of_a_node_is_a_limit() -> None:
    full = node("n1", requested=Resources.of({"pods": 110, GPU: 4}))
    assert placed((full,), ("main", 1, 1)) is None


def test_fr_sco_12_real_pods_count_where_they_are() -> None:
    """All pods of the copy are bound, so only the nodes' own requests count, whatever was assigned."""
    view = worker(node_views=(node("n1"), node("n4", used=8)), copies=[copy("old", 8, bound=1)])
    assert free_of(index_view(view).base.nodes) == {"n1": 8, "n4": 0}


def test_pods_with_quota_that_are_not_bound_yet_are_packed_in() -> None:
    half_bound = copy("g", 8, count=3, bound=1)
    view = worker(node_views=(*nodes(3), node("n003", used=8)), copies=[half_bound])
    assert sorted(free_of(index_view(view).base.nodes).values()) == [0, 0, 0, 8]


def test_finished_or_waiting_copies_take_no_room() -> None:
    gone = copy("g", 8, bound=0, finished=True)
    waiting = copy("h", 8, reserved=False)
    assert sum(free_of(index_view(worker(copies=[gone, waiting])).base.nodes).values()) == 16


def test_an_index_is_made_once_per_view_and_again_for_another() -> None:
    views, view = ViewIndex(), worker()
    assert views.of(seen(view)) is views.of(seen(replace(view, generation=7)))
    assert views.of(seen(worker(node_views=nodes(1)))) is not views.of(seen(view))


def test_a_view_that_follows_another_has_the_index_that_it_would_have_alone() -> None:
    """Amounts move, a node comes, one goes, one changes its label: what is taken over from before changes nothing."""
    first = nodes(5, used=2)
    steps = (
        first,
        (*first[:2], replace(first[2], requested=Resources.of({GPU: 7})), *first[3:]),
        (*first, node("n100", used=1)),
        first[1:],
        (replace(first[0], ready=False), *first[1:]),
        (replace(first[0], labels=(("pool", "other"),)), *first[1:]),
        (replace(first[0], allocatable=res(4, cpu=64, memory=512, pods=110)), *first[1:]),
    )
    known = None
    for views in (*steps, *reversed(steps)):
        view = worker(node_views=views, copies=[copy("g", 1, count=2, bound=0)])
        known, alone = index_view(view, known), index_view(view)
        assert known.base.nodes.free == alone.base.nodes.free
        assert known.base.nodes.frame == alone.base.nodes.frame
        assert known.digest == alone.digest


def test_a_gang_of_64_pods_on_200_nodes_is_placed_quickly() -> None:
    table = node_table(tuple(node(f"n{i:03d}", used=i % 8, labels={"host": f"h{i}"}) for i in range(200)))
    groups = [pod_group(table, "main", 64, res(1), ANY)]
    assert not pack(table, groups).failed
    best = min(_timed(lambda: pack(table, groups)) for _ in range(20))
    assert best < 0.005, f"{best * 1000:.2f} ms"


def _timed(work: object) -> float:
    start = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - start
