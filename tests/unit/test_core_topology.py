"""Pods that must lie together: a level that they require is asked of every cluster, domain by domain (FR-SCO-02)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dispatcher.core.decide import hold_of
from dispatcher.core.decision import Decision, DomainDetail, Fit, Outcome, Reason, Resolver
from dispatcher.core.explain import rejection_text, sentence, why_not_text
from dispatcher.core.ids import ClusterName, FlavorName
from dispatcher.core.policy import NodeShape
from dispatcher.core.snapshot import NodeView, WorkerView
from dispatcher.core.topology import Domain, Topology, TopologyWish
from dispatcher.core.workload import PodSet
from tests.core_builders import (
    NOW,
    USD,
    compute,
    copy,
    decided,
    detail_of,
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

BLOCK, RACK, HOST = "example.org/block", "example.org/rack", "kubernetes.io/hostname"
RACKS = Topology("racks", (BLOCK, RACK, HOST))
SPREAD = TopologyWish()


def asking(count: int, level: str | None = RACK, gpu: int = 8, name: str = "main") -> PodSet:
    return replace(pods(count, gpu, name=name), topology=TopologyWish(level))


def racked(*racks: str, used: Sequence[int] = (), **over: object) -> tuple[NodeView, ...]:
    """A node of 8 GPUs in each rack that is named, "block/rack", of which `used` are in use."""
    taken = (*used, *([0] * (len(racks) - len(used))))
    found = []
    for at, (place, in_use) in enumerate(zip(racks, taken, strict=True)):
        block, _, rack = place.rpartition("/")
        labels = {BLOCK: block or "b1", RACK: rack, HOST: f"n{at}"}
        found.append(node(f"n{at}", used=in_use, labels=labels, **over))
    return tuple(found)


def site_of(name: str, *racks: str, used: Sequence[int] = (), topology: Topology | None = RACKS) -> WorkerView:
    return worker(name, racked(*racks, used=used), flavors=[replace(flavor(), topology=topology)])


def fit(view: WorkerView, *wanted: PodSet) -> Fit:
    return on(decided(request("g", *wanted), view), "onprem").fit


def test_fr_sco_02_a_gang_that_must_share_a_rack_goes_where_one_rack_takes_it() -> None:
    """x has the four nodes in four racks and costs less; a gang of 4x8 in one rack would never start there."""
    x, y = site_of("x", "r1", "r2", "r3", "r4"), site_of("y", "r1", "r1", "r1", "r1")
    rules = policy([site("x"), site("y")], [compute("x", 2 * USD), compute("y", 3 * USD)])
    assert decided(request("g", asking(4, None)), x, y, rules=rules).chosen == "x"
    decision = decided(request("g", asking(4)), x, y, rules=rules)
    assert decision.chosen == "y"
    (rejection,) = on(decision, "x").rejections
    assert (rejection.reason, rejection.resolver, on(decision, "x").fit) == (
        Reason.NEVER_FITS,
        Resolver.OPERATOR,
        Fit.NEVER,
    )
    assert rejection.detail.domain == DomainDetail(RACK, 4, 1, ("b1", "r1"))


def test_fr_sco_02_room_in_pieces_of_racks_waits_and_says_what_the_largest_takes() -> None:
    """One rack of four nodes, half of it in use, and two free nodes elsewhere: enough in sum, and in no rack."""
    view = site_of("onprem", "r1", "r1", "r1", "r1", "r2", "r2", used=(8, 8))
    decision = decided(request("g", asking(4)), view)
    (rejection,) = on(decision, "onprem").rejections
    assert (rejection.reason, rejection.resolver) == (Reason.TOPOLOGY, Resolver.WAIT)
    assert on(decision, "onprem").fit is Fit.WHEN_OTHERS_LEAVE
    assert rejection.detail.domain == DomainDetail(RACK, 4, 2, ("b1", "r1"))
    text = "onprem has no one domain of example.org/rack for main (the largest, b1/r1, fits 2 of 4 pods)"
    assert rejection_text(rejection, ClusterName("onprem")) == text
    assert "fits 2 of 4 pods" in why_not_text(decision, ClusterName("onprem"))
    assert "fits 2 of 4 pods" in sentence(decision)


def test_what_is_lacking_in_sum_is_told_as_that() -> None:
    view = site_of("onprem", "r1", "r1", "r1", "r1", used=(8, 8))
    decision = decided(request("g", asking(4)), view)
    assert reasons(decision, "onprem") == [Reason.NODES]
    assert detail_of(decision, "onprem", Reason.NODES).domain is None


def test_a_rack_is_told_from_one_of_the_same_name_in_another_block() -> None:
    view = site_of("onprem", "b1/r1", "b1/r1", "b2/r1", "b2/r1")
    assert fit(view, asking(2)) is Fit.NOW
    assert fit(view, asking(3)) is Fit.NEVER
    unknown = site_of("onprem", "b1/r1", "b1/r1", "b2/r1", "b2/r1", topology=Topology("racks"))
    assert fit(unknown, asking(4)) is Fit.NOW, "levels that may not be read: the named label has to do"


@pytest.mark.parametrize(
    ("level", "racks", "count", "expected"),
    [
        (BLOCK, ("b1/r1", "b1/r2", "b2/r3"), 2, Fit.NOW),
        (BLOCK, ("b1/r1", "b1/r2", "b2/r3"), 3, Fit.NEVER),
        (RACK, ("r1", "r1", "r2"), 2, Fit.NOW),
        (HOST, ("r1", "r1"), 1, Fit.NOW),
        (HOST, ("r1", "r1"), 2, Fit.NEVER),
        (None, ("r1", "r2", "r3"), 3, Fit.NOW),
    ],
)
def test_a_level_binds_as_far_as_it_reaches(
    level: str | None, racks: tuple[str, ...], count: int, expected: Fit
) -> None:
    assert fit(site_of("onprem", *racks), asking(count, level)) is expected


def test_each_pod_set_has_a_domain_of_its_own() -> None:
    view = site_of("onprem", "r1", "r1", "r2", "r2")
    assert fit(view, asking(2, name="a"), asking(2, name="b")) is Fit.NOW
    assert fit(view, asking(2, name="a"), asking(1, name="b"), asking(1, name="c")) is Fit.NOW
    assert fit(view, asking(1, name="a"), asking(3, name="b")) is Fit.NEVER


def test_the_smallest_rack_with_room_is_taken_so_that_large_ones_stay_whole() -> None:
    view = site_of("onprem", "r1", "r1", "r1", "r1", "r2", "r2")
    assert fit(view, asking(2, name="a"), asking(4, name="b")) is Fit.NOW


# --- what Kueue takes at all -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "topology", "rejected"),
    [
        (TopologyWish(RACK), None, True),
        (SPREAD, None, True),
        (TopologyWish("example.org/row"), RACKS, True),
        (TopologyWish("example.org/row"), Topology("racks"), False),
        (TopologyWish(RACK), RACKS, False),
        (SPREAD, RACKS, False),
        (None, RACKS, False),
        (None, None, False),
    ],
)
def test_a_flavor_without_the_level_is_none_for_pods_that_ask(
    wish: TopologyWish | None, topology: Topology | None, rejected: bool
) -> None:
    view = worker(
        node_views=tuple(_in_row(n) for n in racked("r1", "r1")), flavors=[replace(flavor(), topology=topology)]
    )
    decision = decided(request("g", replace(pods(2), topology=wish)), view)
    assert (Reason.TOPOLOGY_MISMATCH in reasons(decision, "onprem")) is rejected
    assert on(decision, "onprem").fit is (Fit.NEVER if rejected else Fit.NOW)


def _in_row(one: NodeView) -> NodeView:
    return replace(one, labels=(*one.labels, ("example.org/row", "row-1")))


def test_plain_pods_take_the_flavor_without_topology_where_a_queue_has_both() -> None:
    laid, plain = replace(flavor("laid"), topology=RACKS), flavor("plain")
    queues = [queue(quotas=(*quota(16, flavor="laid"), *quota(16, flavor="plain")))]
    view = worker(node_views=racked("r1", "r1"), queues=queues, flavors=[laid, plain])
    sites = [site("onprem", flavors=[flavor_policy("laid"), flavor_policy("plain")])]
    plainly = decided(request("g", pods(1)), view, rules=policy(sites))
    asked = decided(request("g", asking(1)), view, rules=policy(sites))
    assert [p.flavor for p in on(plainly, "onprem").placements] == [FlavorName("plain")]
    assert [p.flavor for p in on(asked, "onprem").placements] == [FlavorName("laid")]


def test_nodes_that_carry_no_label_of_the_level_are_told_as_that() -> None:
    view = worker(flavors=[replace(flavor(), topology=RACKS)])
    decision = decided(request("g", asking(1)), view)
    (rejection,) = on(decision, "onprem").rejections
    assert (rejection.reason, rejection.detail.domain) == (Reason.NEVER_FITS, DomainDetail(RACK, 1, 0))
    text = "onprem has no node of h100 in a domain of example.org/rack, which main requires"
    assert rejection_text(rejection, ClusterName("onprem")) == text


@pytest.mark.parametrize(
    ("wish", "topology", "text"),
    [
        (
            TopologyWish(RACK),
            None,
            "onprem cannot lay main out by topology (asked example.org/rack, h100 has no topology)",
        ),
        (
            SPREAD,
            None,
            "onprem cannot lay main out by topology (asked topology-aware scheduling, h100 has no topology)",
        ),
        (
            TopologyWish("example.org/row"),
            Topology("racks", (RACK, HOST)),
            "onprem cannot lay main out by topology (asked example.org/row, h100 has the levels example.org/rack, "
            "kubernetes.io/hostname)",
        ),
    ],
)
def test_a_mismatch_is_told_with_both_values(wish: TopologyWish, topology: Topology | None, text: str) -> None:
    view = worker(node_views=racked("r1"), flavors=[replace(flavor(), topology=topology)])
    decision = decided(request("g", replace(pods(1), topology=wish)), view)
    assert rejection_text(on(decision, "onprem").rejections[0], ClusterName("onprem")) == text


def test_the_flavor_that_has_the_gpus_is_told_and_not_one_before_it_that_has_none() -> None:
    """Kueue accepts the labels of a CPU flavor first; a topology on it would start no pod that asks for GPUs."""
    queues = [queue(quotas=(*quota(0, flavor="cpu"), *quota(16)))]
    view = worker(node_views=racked("r1", "r1"), queues=queues, flavors=[flavor("cpu", {"pool": "cpu"}), flavor()])
    sites = [site("onprem", flavors=[flavor_policy("cpu"), flavor_policy("h100")])]
    (rejection,) = on(decided(request("g", asking(1)), view, rules=policy(sites)), "onprem").rejections
    assert (rejection.reason, rejection.detail.flavor) == (Reason.TOPOLOGY_MISMATCH, "h100")


# --- what may still come -----------------------------------------------------------------------------------------


def test_a_rack_whose_nodes_are_away_is_waited_for() -> None:
    view = worker(node_views=racked("r1", "r1", schedulable=False), flavors=[replace(flavor(), topology=RACKS)])
    decision = decided(request("g", asking(2)), view)
    assert reasons(decision, "onprem") == [Reason.NODES_UNAVAILABLE]


def test_nodes_that_are_declared_and_not_seen_may_stand_in_the_same_rack() -> None:
    shape = NodeShape(4, res(8, cpu=64, memory=512, pods=110))
    rules = policy([site("onprem", flavors=[flavor_policy(shape=shape)])])
    view = worker(
        node_views=racked("r1", "r2"),
        queues=[queue(quotas=quota(32))],
        flavors=[replace(flavor(), topology=RACKS)],
    )
    decision = decided(request("g", asking(2)), view, rules=rules)
    assert reasons(decision, "onprem") == [Reason.NODES_UNAVAILABLE]
    assert on(decision, "onprem").fit is Fit.WHEN_OTHERS_LEAVE
    complete = replace(view, nodes=racked("r1", "r2", "r3", "r4"))
    assert fit_by(rules, complete) is Fit.NEVER


def fit_by(rules: object, view: WorkerView) -> Fit:
    return on(decided(request("g", asking(2)), view, rules=rules), "onprem").fit  # type: ignore[arg-type]


# --- promised and reserved ---------------------------------------------------------------------------------------


def nominated(name: str, view: WorkerView, *holds: object) -> Decision:
    return decided(request(name, asking(2)), view, holds=holds)  # type: ignore[arg-type]


def test_a_promise_keeps_a_whole_rack_and_leaves_the_other_whole() -> None:
    """Two racks whose nodes alternate by name: without its domain the first gang's promise would break both."""
    view = site_of("onprem", "r1", "r2", "r1", "r2")
    first = nominated("g1", view)
    hold = hold_of(first, request("g1", asking(2)), policy(), NOW)
    assert hold is not None
    second = nominated("g2", view, hold)
    assert second.outcome is Outcome.NOMINATE
    other = hold_of(second, request("g2", asking(2)), policy(), NOW)
    third = nominated("g3", view, hold, other)
    assert set(reasons(third, "onprem")) == {Reason.HELD}


def test_a_copy_with_quota_whose_pods_are_on_their_way_has_a_rack_too() -> None:
    waiting = copy("old", count=2, bound=0, required=(("main", RACK),))
    view = replace(site_of("onprem", "r1", "r2", "r1", "r2"), copies={("team", "old"): waiting})
    assert nominated("g", view).outcome is Outcome.NOMINATE
    scattered = replace(view, copies={("team", "old"): replace(waiting, required=())})
    assert reasons(nominated("g", scattered), "onprem") == [Reason.TOPOLOGY]


# --- the vocabulary ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("levels", "level", "expected"),
    [
        ((BLOCK, RACK, HOST), BLOCK, Domain((BLOCK,), (RACK, HOST))),
        ((BLOCK, RACK, HOST), RACK, Domain((BLOCK, RACK), (HOST,))),
        ((BLOCK, RACK, HOST), HOST, Domain((BLOCK, RACK, HOST))),
        ((), RACK, Domain((RACK,))),
    ],
)
def test_a_domain_shares_all_levels_down_to_its_own(levels: tuple[str, ...], level: str, expected: Domain) -> None:
    assert Topology("t", levels).domain(level) == expected


def test_a_node_that_lacks_a_lower_level_does_not_count() -> None:
    lacking = tuple(replace(n, labels=tuple(pair for pair in n.labels if pair[0] != HOST)) for n in racked("r1", "r1"))
    view = worker(node_views=(*lacking, *racked("r2")), flavors=[replace(flavor(), topology=RACKS)])
    assert (
        fit(replace(view, nodes=tuple(replace(n, name=f"m{i}") for i, n in enumerate(view.nodes))), asking(2))
        is Fit.NEVER
    )
