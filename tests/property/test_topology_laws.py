"""Laws of pods that must lie together, on random small fleets whose nodes stand in racks and blocks."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from dispatcher.core.decide import decide
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.nodes import Demand, node_table
from dispatcher.core.packing import pack, pod_group
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import NodeView, Snapshot, WorkerView
from dispatcher.core.topology import Slice, Topology, TopologyWish
from dispatcher.core.workload import PodSet, Request
from dispatcher.loops.told import Told
from dispatcher.sim.contenders_memo import PatientMemo
from tests.core_builders import GPU, NOW, flavor, node, pods, policy, request, res, seen, site, worker
from tests.examples import examples
from tests.property.worlds import World

BLOCK, RACK = "example.org/block", "example.org/rack"
NAMES = ("cloud", "onprem")
few = examples(60)
levels = st.sampled_from((None, BLOCK, RACK))


@st.composite
def racked(draw: st.DrawFn, most: int = 6) -> tuple[NodeView, ...]:
    """Nodes in up to two blocks of up to two racks, some of them without a rack, some partly in use."""
    found = []
    for at in range(draw(st.integers(1, most))):
        labels = {BLOCK: draw(st.sampled_from(("b1", "b2"))), RACK: draw(st.sampled_from(("r1", "r2", "")))}
        given = {key: value for key, value in labels.items() if value}
        found.append(node(f"n{at}", used=draw(st.sampled_from((0, 0, 4, 8))), labels=given))
    return tuple(found)


@st.composite
def clusters(draw: st.DrawFn, name: str) -> WorkerView:
    topology = Topology("racks", draw(st.sampled_from(((BLOCK, RACK), ()))))
    return worker(name, draw(racked()), flavors=[replace(flavor(), topology=topology)])


@st.composite
def gangs(draw: st.DrawFn) -> tuple[PodSet, ...]:
    shapes = draw(st.lists(st.tuples(st.integers(1, 3), st.sampled_from((4, 8))), min_size=1, max_size=2))
    return tuple(pods(count, gpu, name=f"p{i}") for i, (count, gpu) in enumerate(shapes))


@st.composite
def fleets(draw: st.DrawFn) -> World:
    views = tuple(seen(draw(clusters(name))) for name in NAMES)
    return World(request("g", *draw(gangs())), Snapshot(views), policy([site(name) for name in NAMES]))


def wishing(asked: Request, level: str | None) -> Request:
    return replace(asked, pod_sets=tuple(replace(p, topology=TopologyWish(level)) for p in asked.pod_sets))


def eligible(world: World, level: str | None) -> set[str]:
    return {c.cluster for c in replace(world, request=wishing(world.request, level)).decide().candidates if c.eligible}


@few
@given(fleets())
def test_the_narrower_the_level_the_fewer_the_clusters(world: World) -> None:
    """For one pod set alone: several are packed greedily, which may find for a narrow level what it misses without."""
    single = replace(world, request=replace(world.request, pod_sets=world.request.pod_sets[:1]))
    anywhere, block, rack = (eligible(single, level) for level in (None, BLOCK, RACK))
    assert block <= anywhere
    assert rack <= anywhere
    with_levels = {
        c.name
        for c in single.snapshot.clusters
        if c.worker is not None and all(f.topology is not None and f.topology.levels for f in c.worker.flavors.values())
    }
    assert rack & with_levels <= block, "where levels are known, a rack is a part of a block"


@few
@given(fleets(), levels, st.data())
def test_the_order_of_nodes_changes_no_answer(world: World, level: str | None, data_: st.DataObject) -> None:
    asked = replace(world, request=wishing(world.request, level))
    shuffled = tuple(
        replace(c, worker=replace(c.worker, nodes=tuple(data_.draw(st.permutations(c.worker.nodes)))))
        for c in world.snapshot.clusters
        if c.worker is not None
    )
    other = replace(asked, snapshot=Snapshot(shuffled))
    one, two = asked.decide(), other.decide()
    assert one.chosen == two.chosen
    assert [(c.fit, c.rejections, c.placements) for c in one.candidates] == [
        (c.fit, c.rejections, c.placements) for c in two.candidates
    ]


@few
@given(fleets(), levels)
def test_a_memo_changes_no_answer(world: World, level: str | None) -> None:
    memo = CandidateMemo()
    for wanted in (world.request, wishing(world.request, level), world.request):
        told = decide(wanted, world.snapshot, world.policy, NOW, memo)
        assert repr(told) == repr(decide(wanted, world.snapshot, world.policy, NOW))


@few
@given(fleets(), levels, st.data())
def test_the_bound_of_simulations_never_says_wait_of_what_would_start(
    world: World, level: str | None, data_: st.DataObject
) -> None:
    """It ignores domains, so it may ask once too often, and not once too seldom: what it leaves out would be told in
    the same words."""
    wanted = wishing(replace(world.request, pod_sets=world.request.pod_sets[:1]), level)
    memo = PatientMemo()
    first = decide(wanted, world.snapshot, world.policy, NOW, memo)
    assume(first.chosen is None)
    moved = Snapshot(
        tuple(replace(c, worker=_moved(c.worker, data_)) for c in world.snapshot.clusters if c.worker is not None)
    )
    memo.look(moved, world.policy, NOW)
    if memo.unchanged(wanted):
        assert Told().of(decide(wanted, moved, world.policy, NOW)) == Told().of(first)


def _moved(view: WorkerView, data_: st.DataObject) -> WorkerView:
    """The same nodes with other pods on them."""
    used = data_.draw(st.lists(st.sampled_from((0, 4, 8)), min_size=len(view.nodes), max_size=len(view.nodes)))
    pairs = zip(view.nodes, used, strict=True)
    return replace(view, nodes=tuple(replace(each, requested=Resources.of({GPU: gpus})) for each, gpus in pairs))


@few
@given(racked(8), st.integers(1, 6), st.sampled_from((2, 4, 8)), st.sampled_from((BLOCK, RACK)))
def test_pods_that_must_lie_together_lie_in_one_domain_and_find_it_where_there_is_one(
    views: tuple[NodeView, ...], count: int, gpu: int, level: str
) -> None:
    table, domain = node_table(views), Topology("t", (BLOCK, RACK)).domain(level)
    keys = (*domain.keys, *domain.beside)
    packing = pack(table, [pod_group(table, "g", count, res(gpu), Demand(domain=domain))])
    rooms: dict[tuple[str, ...], int] = {}
    for each in views:
        labels = dict(each.labels)
        if all(key in labels for key in keys):
            place = tuple(labels[key] for key in domain.keys)
            rooms[place] = rooms.get(place, 0) + (8 - each.requested.get("nvidia.com/gpu")) // gpu
    assert bool(packing.failed) is (max(rooms.values(), default=0) < count)
    names = table.frame.marks.names
    taken = {
        tuple(dict(view.labels)[key] for key in domain.keys)
        for spot in packing.placed
        for view in views
        if spot.nodes >> names.index(view.name) & 1
    }
    assert len(taken) <= 1


def rooms_of(views: tuple[NodeView, ...], level: str, gpu: int) -> dict[tuple[str, ...], list[int]]:
    """For how many pods each node of each domain has room, by hand."""
    domain = Topology("t", (BLOCK, RACK)).domain(level)
    found: dict[tuple[str, ...], list[int]] = {}
    for each in views:
        labels = dict(each.labels)
        if {BLOCK, RACK} <= labels.keys():
            place = tuple(labels[key] for key in domain.keys)
            found.setdefault(place, []).append((8 - each.requested.get(GPU)) // gpu)
    return found


@few
@given(racked(8), st.integers(1, 8), st.sampled_from((2, 4, 8)), st.integers(1, 4), st.booleans())
def test_slices_find_room_where_there_is_room_for_whole_ones(
    views: tuple[NodeView, ...], count: int, gpu: int, size: int, in_one_block: bool
) -> None:
    count = count // size * size or size
    table, topology = node_table(views), Topology("t", (BLOCK, RACK))
    wish = TopologyWish(BLOCK if in_one_block else None, slices=(Slice(RACK, size),))
    whole = topology.domain(BLOCK) if in_one_block else None
    demand = Demand(domain=whole, slices=topology.sliced(wish))
    packing = pack(table, [pod_group(table, "g", count, res(gpu), demand)])
    by_block: dict[str, int] = {}
    for (block, _), rooms in rooms_of(views, RACK, gpu).items():
        by_block[block] = by_block.get(block, 0) + sum(rooms) // size * size
    most = max(by_block.values(), default=0) if in_one_block else sum(by_block.values())
    assert bool(packing.failed) is (most < count)
    names, taken = table.frame.marks.names, dict[str, int]()
    for spot in packing.placed:
        for view in views:
            if spot.nodes >> names.index(view.name) & 1:
                place = "/".join(dict(view.labels)[key] for key in (BLOCK, RACK))
                taken[place] = taken.get(place, 0) + spot.pods
    assert all(pods % size == 0 for pods in taken.values())
    assert sum(taken.values()) == (0 if packing.failed else count)


@few
@given(racked(8), st.integers(1, 5), st.sampled_from((2, 4, 8)), st.sampled_from((2, 4, 8)))
def test_a_leader_and_its_workers_find_a_domain_where_there_is_one(
    views: tuple[NodeView, ...], count: int, gpu: int, leader: int
) -> None:
    table = node_table(views)
    demand = Demand(domain=Topology("t", (BLOCK, RACK)).domain(RACK), group="g")
    groups = [pod_group(table, "a", 1, res(leader), demand), pod_group(table, "b", count, res(gpu), demand)]
    free: dict[tuple[str, ...], list[int]] = {}
    for each in views:
        labels = dict(each.labels)
        if {BLOCK, RACK} <= labels.keys():
            free.setdefault((labels[BLOCK], labels[RACK]), []).append(8 - each.requested.get(GPU))
    fits = any(
        have >= leader
        and sum((left - (leader if other == at else 0)) // gpu for other, left in enumerate(domain)) >= count
        for domain in free.values()
        for at, have in enumerate(domain)
    )
    packing = pack(table, groups)
    assert bool(packing.failed) is not fits
    assert set(packing.failed) in (set(), {"a", "b"})
