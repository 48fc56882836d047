"""Laws of a decision on random small fleets."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from dispatcher.core.decide import decide, hold_of
from dispatcher.core.decision import Decision, Fit, Reason
from dispatcher.core.ids import DataLabel
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.nodes import Demand, node_table
from dispatcher.core.packing import pack, pod_group
from dispatcher.core.policy import PriceUnit
from dispatcher.core.snapshot import Hold, Snapshot, WorkerView
from dispatcher.core.workload import PodSet, Request
from tests.core_builders import (
    GB,
    GPU,
    NOW,
    USD,
    LabelRule,
    compute,
    copy,
    data,
    egress,
    hold,
    law,
    node,
    pods,
    policy,
    queue,
    quota,
    request,
    res,
    rule,
    seen,
    site,
    uses,
    worker,
)
from tests.examples import examples
from tests.property.worlds import World

NAMES = ("cloud", "onprem", "x", "y")
COUNTRIES = ("DE", "FI", "US")
few = examples(60)
prices = st.integers(1, 9)


@st.composite
def workers(draw: st.DrawFn, name: str) -> WorkerView:
    used = draw(st.lists(st.integers(0, 8), min_size=1, max_size=3))
    views = tuple(node(f"n{i}", used=u, ready=draw(st.booleans()) or i == 0) for i, u in enumerate(used))
    reserved = draw(st.integers(0, 8 * len(used)))
    copies = [copy("old", 1, reserved, priority=draw(st.integers(0, 2)))] if reserved else []
    preempts = draw(st.booleans())
    queues = [queue(quotas=quota(8 * len(used), used=reserved), preempts_lower_priority=preempts)]
    return worker(name, views, queues, copies=copies)


@st.composite
def gangs(draw: st.DrawFn, name: str = "g", single: bool = False) -> Request:
    sizes = st.tuples(st.integers(1, 3), st.sampled_from((0, 1, 2, 4, 8)))
    shapes = draw(st.lists(sizes, min_size=1, max_size=1 if single else 2))
    pod_sets: list[PodSet] = [pods(count, gpu, name=f"p{i}") for i, (count, gpu) in enumerate(shapes)]
    return request(name, *pod_sets, priority=draw(st.integers(0, 2)), data=uses(("d", draw(st.integers(1, 2)))))


@st.composite
def worlds(draw: st.DrawFn, single: bool = False) -> World:
    names = NAMES[: draw(st.integers(1, 4))]
    sites = [site(n, draw(st.sampled_from(COUNTRIES))) for n in names]
    compute_prices = [compute(n, draw(prices) * USD) for n in names]
    compute_prices += [compute(n, USD // 100, "cpu", PriceUnit.VCPU_HOUR) for n in names]
    labelled = draw(st.sampled_from(((), ("a",), ("a", "b"))))
    rules = [_rule(draw, "a"), _rule(draw, "b")]
    book = policy(
        sites,
        compute_prices,
        [egress(f"r-{a}", f"r-{b}", draw(st.integers(0, 50_000))) for a in names for b in names if a != b],
        [data("d", 100 * GB, labelled, [draw(st.sampled_from(names))])],
        rules,
    )
    views = [seen(draw(workers(n))) for n in names]
    holds = [
        hold(f"h{i}", draw(st.sampled_from(names)), draw(st.integers(1, 4))) for i in range(draw(st.integers(0, 2)))
    ]
    return World(draw(gangs(single=single)), Snapshot(tuple(views), tuple(holds)), book)


def _rule(draw: st.DrawFn, label: str) -> LabelRule:
    allowed = draw(st.none() | st.sets(st.sampled_from(COUNTRIES)))
    return rule(label, anywhere=True) if allowed is None else rule(label, *sorted(allowed))


def eligible(decision: Decision) -> set[str]:
    return {c.cluster for c in decision.candidates if c.eligible}


def without(decision: Decision) -> str:
    """The record without what names its inputs, for comparisons of the answer."""
    candidates = tuple(replace(c, view_digest="") for c in decision.candidates)
    return repr(replace(decision, id="", candidates=candidates, snapshot_digest="", policy_digest=""))  # type: ignore[arg-type]


@few
@given(worlds(), st.data())
def test_removing_a_loser_never_changes_the_winner(world: World, data_: st.DataObject) -> None:
    decision = world.decide()
    losers = [c.name for c in world.snapshot.clusters if c.name != decision.chosen]
    assume(losers)
    gone = data_.draw(st.sampled_from(losers))
    rest = tuple(c for c in world.snapshot.clusters if c.name != gone)
    assert replace(world, snapshot=replace(world.snapshot, clusters=rest)).decide().chosen == decision.chosen


@few
@given(worlds(), st.data())
def test_the_order_of_the_input_changes_nothing(world: World, data_: st.DataObject) -> None:
    clusters = tuple(data_.draw(st.permutations(world.snapshot.clusters)))
    holds = tuple(data_.draw(st.permutations(world.snapshot.holds)))
    shuffled = replace(world, snapshot=Snapshot(clusters, holds))
    assert repr(shuffled.decide()) == repr(world.decide())


@few
@given(worlds(), st.data())
def test_the_order_of_nodes_changes_no_answer(world: World, data_: st.DataObject) -> None:
    clusters = tuple(
        replace(c, worker=replace(c.worker, nodes=tuple(data_.draw(st.permutations(c.worker.nodes)))))
        for c in world.snapshot.clusters
        if c.worker is not None
    )
    shuffled = replace(world, snapshot=replace(world.snapshot, clusters=clusters))
    assert without(shuffled.decide()) == without(world.decide())


@few
@given(worlds(), st.integers(1, 9))
def test_a_winner_that_gets_cheaper_stays_the_winner(world: World, percent: int) -> None:
    decision = world.decide()
    assume(decision.chosen is not None)
    cheaper = {
        key: replace(price, usd_micro_per_hour=price.usd_micro_per_hour * percent // 10)
        if key[0] == f"p-{decision.chosen}"
        else price
        for key, price in world.policy.prices.compute.items()
    }
    changed = replace(world.policy, prices=replace(world.policy.prices, compute=cheaper))
    assert replace(world, policy=changed).decide().chosen == decision.chosen


@few
@given(worlds(), st.sampled_from("ab"), st.sampled_from(COUNTRIES))
def test_a_stricter_rule_never_admits_more(world: World, label: str, country: str) -> None:
    old = law_of(world, label)
    kept = tuple(c for c in (COUNTRIES if old.countries is None else old.countries) if c != country)
    others = [law_of(world, other) for other in ("a", "b", "unlabelled") if other != label]
    changed = replace(world.policy, residency=law([LabelRule(old.label, kept), *others]))
    assert eligible(replace(world, policy=changed).decide()) <= eligible(world.decide())


def law_of(world: World, label: str) -> LabelRule:
    """The countries of a label, read back from its rule."""
    found = next(one for one in world.policy.residency.rules if one.id == f"only-{label}")
    return LabelRule(DataLabel(label), found.when[0].clauses[0].values if found.when else None)


@few
@given(worlds(), st.sampled_from(NAMES))
def test_a_site_fact_that_is_lost_never_admits_more(world: World, name: str) -> None:
    assume(name in world.policy.clusters)
    known = world.policy.clusters[name]  # type: ignore[index]
    unknown = replace(known, site=replace(known.site, country=None, attested=None))
    changed = replace(world.policy, clusters={**world.policy.clusters, known.name: unknown})
    after = replace(world, policy=changed).decide()
    labelled = world.policy.data_sets["d"].labels  # type: ignore[index]
    if labelled:
        assert eligible(after) <= eligible(world.decide())
    assert name not in eligible(after) or all(law_of(world, x).countries is None for x in labelled)


@few
@given(worlds(), st.sampled_from(NAMES))
def test_what_is_not_known_never_outranks_a_fit(world: World, name: str) -> None:
    kept = {key: price for key, price in world.policy.prices.compute.items() if key[0] != f"p-{name}"}
    changed = replace(world.policy, prices=replace(world.policy.prices, compute=kept))
    decision = replace(world, policy=changed).decide()
    assert decision.chosen != name
    for candidate in decision.candidates:
        assert not candidate.eligible or candidate.fit in (Fit.NOW, Fit.BY_PREEMPTION)
        assert (candidate.total_usd_micro is None) == any(t.amount_usd_micro is None for t in candidate.terms)
        assert candidate.eligible or candidate.rejections, "a rejected candidate says why"
    before = world.decide()
    assert eligible(decision) == eligible(before) - {name}


@few
@given(worlds())
def test_the_same_input_gives_the_same_bytes(world: World) -> None:
    assert repr(world.decide()) == repr(world.decide())


@few
@given(worlds())
def test_the_winner_is_the_least_of_the_best_fit(world: World) -> None:
    decision = world.decide()
    fitting = [c for c in decision.candidates if c.eligible]
    assert (decision.chosen is None) == (not fitting)
    if decision.chosen is not None:
        best = decision.candidate(decision.chosen)
        assert best is not None
        now = [c for c in fitting if c.fit is Fit.NOW]
        assert best in (now or fitting)
        assert all((best.total_usd_micro or 0) <= (c.total_usd_micro or 0) for c in now or fitting)


@few
@given(worlds(single=True), st.sampled_from(NAMES), st.integers(1, 8), st.integers(1, 3))
def test_a_promise_never_adds_room(world: World, name: str, gpu: int, count: int) -> None:
    """For gangs of one shape, where packing is exact."""
    promised = hold("more", name, gpu, count)
    more = replace(world, snapshot=world.snapshot.with_hold(promised))
    now = {c.cluster for c in world.decide().candidates if c.fit is Fit.NOW}
    after = {c.cluster for c in more.decide().candidates if c.fit is Fit.NOW}
    assert after <= now


@few
@given(worlds(), st.lists(gangs(single=True), min_size=1, max_size=6))
def test_gangs_decided_in_one_second_never_share_a_gpu(world: World, wanted: list[Request]) -> None:
    """Whatever the order: promises on a cluster never exceed what its queue and its nodes have free."""
    holds: list[Hold] = []
    memo = CandidateMemo()
    for number, gang in enumerate(wanted):
        named = replace(gang, uid=f"uid-{number}", name=f"g{number}", priority=0)  # type: ignore[arg-type]
        decision = decide(named, Snapshot(world.snapshot.clusters, tuple(holds)), world.policy, NOW, memo)
        made = hold_of(decision, named, world.policy, NOW)
        holds += [made] if made is not None else []
    for cluster in world.snapshot.clusters:
        view = cluster.worker
        assert view is not None
        promised = sum(c * r.gpus() for h in holds if h.cluster == cluster.name for _, c, r, _ in h.usage)
        (gpu_quota,) = [q for q in view.queues[holds[0].queue].quotas if q.resource == GPU] if holds else [None]
        free = sum(max(0, 8 - n.requested.get(GPU)) for n in view.nodes if n.ready)
        assert promised <= free
        assert gpu_quota is None or promised <= max(0, gpu_quota.nominal - gpu_quota.reserved)


@few
@given(worlds())
def test_rejections_are_told_once_and_held_capacity_needs_a_holder(world: World) -> None:
    for candidate in world.decide().candidates:
        assert len(set(candidate.rejections)) == len(candidate.rejections)
        for rejection in candidate.rejections:
            assert rejection.reason is not Reason.HELD or rejection.detail.holder is not None


@given(st.lists(st.integers(0, 8), min_size=0, max_size=6), st.integers(1, 8), st.integers(1, 12))
def test_a_gang_of_one_shape_fits_exactly_when_there_is_room(used: list[int], gpu: int, count: int) -> None:
    table = node_table(tuple(node(f"n{i}", used=u) for i, u in enumerate(used)))
    packing = pack(table, [pod_group(table, "g", count, res(gpu, cpu=1, memory=1), Demand())])
    room = sum((8 - u) // gpu for u in used)
    assert (not packing.failed) == (room >= count)
    assert sum(s.pods * s.nodes.bit_count() for s in packing.placed) == (count if room >= count else 0)
    place = table.frame.place_of(GPU)
    assert place is None or all(vector[place] >= 0 for vector in packing.free)
