"""Slices and groups of pod sets: so many pods at a time in one domain, and a leader beside its workers (FR-SCO-02)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dispatcher.core.decide import hold_of
from dispatcher.core.decision import DomainDetail, Fit, Outcome, Reason
from dispatcher.core.explain import rejection_text
from dispatcher.core.ids import ClusterName, FlavorName
from dispatcher.core.topology import Slice, Topology, TopologyWish
from dispatcher.core.workload import PodSet
from tests.core_builders import (
    NOW,
    decided,
    flavor,
    flavor_policy,
    node,
    on,
    pods,
    policy,
    queue,
    quota,
    reasons,
    request,
    res,
    site,
    worker,
)
from tests.unit.test_core_topology import BLOCK, HOST, RACK, RACKS, fit, racked, site_of

TWO, FOUR = 2, 4


def sliced(count: int, size: int, level: str = RACK, whole: str | None = None, gpu: int = 8) -> PodSet:
    return replace(pods(count, gpu), topology=TopologyWish(whole, slices=(Slice(level, size),)))


def pair(workers: int, level: str | None = RACK, leader_gpu: int = 8, group: str = "g") -> tuple[PodSet, PodSet]:
    """A leader of one pod and its workers, in one group."""
    wish = TopologyWish(level, None if level else RACK, group=group)
    return (
        replace(pods(1, leader_gpu, name="leader"), topology=wish),
        replace(pods(workers, 8, name="workers"), topology=wish),
    )


@pytest.mark.parametrize(
    ("wanted", "racks", "used", "expected"),
    [
        pytest.param(sliced(4, 2), ("r1", "r1", "r2", "r2"), (), Fit.NOW, id="two racks take two slices of two"),
        pytest.param(
            sliced(4, 2), ("r1", "r1", "r1", "r2"), (), Fit.NEVER, id="three and one are one slice and two odd"
        ),
        pytest.param(sliced(4, 1), ("r1", "r1", "r1", "r2"), (), Fit.NOW, id="slices of one pod go anywhere"),
        pytest.param(sliced(4, 4), ("r1", "r1", "r2", "r2"), (), Fit.NEVER, id="one slice of all is one rack for all"),
        pytest.param(
            sliced(4, 2), ("r1", "r1", "r2", "r2"), (8,), Fit.WHEN_OTHERS_LEAVE, id="half a rack in use breaks a slice"
        ),
        pytest.param(sliced(4, 2, HOST, gpu=4), ("r1", "r2"), (), Fit.NOW, id="a host takes a slice of two halves"),
        pytest.param(sliced(4, 2, HOST), ("r1", "r2"), (), Fit.NEVER, id="and none of two whole ones"),
        pytest.param(
            sliced(4, 2, RACK, BLOCK), ("b1/r1", "b1/r1", "b2/r1", "b2/r1"), (), Fit.NEVER, id="all slices in one block"
        ),
        pytest.param(
            sliced(4, 2, RACK, BLOCK), ("b1/r1", "b1/r1", "b1/r2", "b1/r2"), (), Fit.NOW, id="one block has two racks"
        ),
        pytest.param(
            sliced(4, 2, RACK, BLOCK), ("b1/r1", "b1/r2", "b1/r3", "b1/r4"), (), Fit.NEVER, id="four racks of one node"
        ),
    ],
)
def test_slices_need_whole_domains(wanted: PodSet, racks: tuple[str, ...], used: Sequence[int], expected: Fit) -> None:
    assert fit(site_of("onprem", *racks, used=used), wanted) is expected


def test_slices_within_slices_are_whole_too() -> None:
    """Blocks in fours, racks in twos: a block of racks with one node each makes no slice of four."""
    wish = TopologyWish(slices=(Slice(BLOCK, 4), Slice(RACK, 2)))
    wanted = replace(pods(4, 8), topology=wish)
    assert fit(site_of("onprem", "b1/r1", "b1/r1", "b1/r2", "b1/r2"), wanted) is Fit.NOW
    assert fit(site_of("onprem", "b1/r1", "b1/r1", "b1/r2", "b1/r3"), wanted) is Fit.NEVER
    assert fit(site_of("onprem", "b1/r1", "b1/r1", "b2/r2", "b2/r2"), wanted) is Fit.NEVER


def test_what_makes_no_whole_slice_is_not_asked_of_a_domain() -> None:
    """Kueue rounds down to whole slices: nobody can say that five pods in twos never start."""
    assert fit(site_of("onprem", "r1", "r1", "r2", "r2", "r3"), sliced(5, 2)) is Fit.NOW
    assert fit(site_of("onprem", "r1", "r1", "r2", "r3", "r4"), sliced(5, 2)) is Fit.NEVER


def test_where_the_levels_are_not_known_the_labels_of_the_slices_have_to_do() -> None:
    unknown = site_of("onprem", "b1/r1", "b2/r1", topology=Topology("racks"))
    assert fit(unknown, sliced(2, 2)) is Fit.NOW
    assert fit(unknown, sliced(2, 2, RACK, BLOCK)) is Fit.NEVER


@pytest.mark.parametrize(
    ("wish", "rejected"),
    [
        pytest.param(TopologyWish(preferred=RACK), False, id="a preferred level that there is"),
        pytest.param(TopologyWish(preferred="example.org/row"), True, id="a preferred level that there is not"),
        pytest.param(
            TopologyWish(slices=(Slice("example.org/row", 1),)), True, id="slices of a level that is not there"
        ),
        pytest.param(TopologyWish(RACK, slices=(Slice(HOST, 1),)), False, id="slices below the whole"),
        pytest.param(TopologyWish(RACK, slices=(Slice(RACK, 2),)), False, id="slices of the same level"),
        pytest.param(TopologyWish(HOST, slices=(Slice(RACK, 1),)), True, id="slices above the whole"),
        pytest.param(
            TopologyWish(slices=(Slice(RACK, 2), Slice(BLOCK, 1))), True, id="narrow slices before broad ones"
        ),
    ],
)
def test_a_flavor_must_have_all_levels_in_their_order(wish: TopologyWish, rejected: bool) -> None:
    view = site_of("onprem", "r1", "r1")
    decision = decided(request("g", replace(pods(2, 4), topology=wish)), view)
    assert (Reason.TOPOLOGY_MISMATCH in reasons(decision, "onprem")) is rejected


@pytest.mark.parametrize(
    ("wanted", "racks", "used", "expected"),
    [
        pytest.param(pair(2), ("r1", "r1", "r1"), (), Fit.NOW, id="leader and workers share a rack"),
        pytest.param(pair(2), ("r1", "r1", "r2"), (), Fit.NEVER, id="a rack for the workers and one for the leader"),
        pytest.param(pair(2, None), ("r1", "r1", "r2"), (), Fit.NOW, id="who only prefer a rack may be apart"),
        pytest.param(
            pair(2, group=""), ("r1", "r1", "r2"), (), Fit.NOW, id="without a group each has a rack of its own"
        ),
        pytest.param(pair(2), ("r1", "r1", "r1"), (8,), Fit.WHEN_OTHERS_LEAVE, id="one of its three nodes is in use"),
        pytest.param(pair(2, leader_gpu=4), ("r1", "r1", "r1"), (4,), Fit.NOW, id="the leader takes the broken node"),
        pytest.param(pair(2, leader_gpu=4), ("r1", "r1", "r1"), (0, 4), Fit.NOW, id="wherever that stands"),
        pytest.param(pair(1, leader_gpu=0), ("r1", "r1"), (8,), Fit.NOW, id="a leader without GPUs fits beside others"),
    ],
)
def test_a_group_lies_in_one_domain(
    wanted: tuple[PodSet, PodSet], racks: tuple[str, ...], used: Sequence[int], expected: Fit
) -> None:
    assert fit(site_of("onprem", *racks, used=used), *wanted) is expected


def test_a_group_takes_one_flavor_for_what_both_ask() -> None:
    """Each would fit the first flavor alone, and both together only the second: Kueue gives one flavor to both."""
    first, second = replace(flavor("a"), topology=RACKS), replace(flavor("b"), topology=RACKS)
    queues = [queue(quotas=(*quota(16, flavor="a"), *quota(24, flavor="b")))]
    view = worker(node_views=racked("r1", "r1", "r1"), queues=queues, flavors=[first, second])
    rules = policy([site("onprem", flavors=[flavor_policy("a"), flavor_policy("b")])])
    together = on(decided(request("g", *pair(2)), view, rules=rules), "onprem").placements
    apart = on(decided(request("g", *pair(2, group="")), view, rules=rules), "onprem").placements
    assert [p.flavor for p in together] == [FlavorName("b"), FlavorName("b")]
    assert {p.flavor for p in apart} == {FlavorName("a"), FlavorName("b")}


@pytest.mark.parametrize(
    ("wanted", "racks", "used", "detail", "text"),
    [
        (
            (sliced(4, 2),),
            ("r1", "r1", "r2", "r2", "r3"),
            (8,),
            DomainDetail("", 4, 2, slice_level=RACK, slice_size=2),
            "onprem has too few whole domains for main in slices of 2 that share a domain of example.org/rack "
            "(fits 2 of 4 pods)",
        ),
        (
            (sliced(4, 2, RACK, BLOCK),),
            ("b1/r1", "b1/r1", "b1/r2", "b1/r2", "b2/r1"),
            (8,),
            DomainDetail(BLOCK, 4, 2, ("b1",), RACK, 2),
            "onprem has no one domain of example.org/block for main in slices of 2 that share a domain of "
            "example.org/rack (the largest, b1, fits 2 of 4 pods)",
        ),
        (
            pair(2),
            ("r1", "r1", "r1", "r2"),
            (8,),
            DomainDetail(RACK, 3, 2, ("b1", "r1"), beside="leader"),
            "onprem has no one domain of example.org/rack for workers with leader "
            "(the largest, b1/r1, fits 2 of 3 pods)",
        ),
    ],
    ids=["slices", "slices in one block", "a group"],
)
def test_what_is_lacking_is_told_once_with_what_there_is(
    wanted: tuple[PodSet, ...], racks: tuple[str, ...], used: Sequence[int], detail: DomainDetail, text: str
) -> None:
    decision = decided(request("g", *wanted), site_of("onprem", *racks, used=used))
    (rejection,) = on(decision, "onprem").rejections
    assert (rejection.reason, rejection.detail.domain) == (Reason.TOPOLOGY, detail)
    assert rejection_text(rejection, ClusterName("onprem")) == text


def test_of_a_group_that_lacks_room_in_sum_each_is_told_what_it_lacks() -> None:
    view = site_of("onprem", "r1", "r1", "r1", used=(8, 8))
    decision = decided(request("g", *pair(2)), view)
    assert set(reasons(decision, "onprem")) == {Reason.NODES}


def test_a_promise_to_a_group_takes_room_of_one_rack() -> None:
    view = site_of("onprem", "r1", "r2", "r1", "r2")
    first = decided(request("g1", *pair(1)), view)
    hold = hold_of(first, request("g1", *pair(1)), policy(), NOW)
    assert hold is not None
    assert decided(request("g2", *pair(1)), view, holds=(hold,)).outcome is Outcome.NOMINATE


def test_pods_of_a_group_may_lie_on_nodes_that_the_other_may_not_use() -> None:
    """The leader needs no GPUs and selects the CPU nodes of the rack."""
    leader, workers = pair(2, leader_gpu=0)
    cpu = node("c", labels={BLOCK: "b1", RACK: "r1", HOST: "c"}, allocatable=res(0, cpu=64, memory=512, pods=110))
    view = replace(site_of("onprem", "r1", "r1"), nodes=(*racked("r1", "r1"), cpu))
    assert fit(view, leader, workers) is Fit.NOW
