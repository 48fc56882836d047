"""Laws of the scorer, with every term counting: what is not known never wins, what is worse never gains."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from dispatcher.core import terms
from dispatcher.core.context import Context
from dispatcher.core.decide import rank
from dispatcher.core.decision import Decision, Detail, Reason, Rejection, Resolver, Term, TermKind
from dispatcher.core.policy import CarbonPrice, EgressPrice, EgressTier, Limits, Policy, Purchase, RoundTrip
from dispatcher.core.prices import best_interval_s, div_half_up, transfer_amount
from dispatcher.core.snapshot import Cached, Snapshot
from dispatcher.core.workload import Destination, WorkloadClass
from tests.core_builders import (
    GB,
    NOW,
    TODAY,
    USD,
    compute,
    data,
    egress,
    flavor_policy,
    hold,
    nodes,
    plan,
    pods,
    policy,
    queue,
    quota,
    request,
    seen,
    site,
    store,
    uses,
    worker,
)
from tests.examples import examples
from tests.property.worlds import World

NAMES = ("cloud", "onprem", "x", "y")
PLACES = (*NAMES, "s")
few = examples(80)
micro = st.integers(0, 90_000)
trip = st.integers(1, 100)


@st.composite
def near_or_far(draw: st.DrawFn, book: Policy, names: tuple[str, ...]) -> Policy:
    """The same where people may wait for the work: its round trips, some of them not known, its bound and price."""
    pairs = {name: tuple(sorted((f"r-{name}", "r-s"))) for name in names if draw(st.integers(0, 5))}
    trips = {(one, other): RoundTrip(draw(trip), "measured", TODAY) for one, other in pairs.values()}
    near = plan(
        WorkloadClass.TRAINING,
        users=draw(st.sampled_from(((), ("r-s",)))),
        max_round_trip_ms=draw(st.sampled_from((None, 50))),
        round_trip_price_usd_micro=draw(st.sampled_from((None, 0, 2000))),
    )
    return replace(book, classes={**book.classes, WorkloadClass.TRAINING: near}, round_trips=trips)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Clusters that all have room, so that money alone decides; every fact may be missing."""
    names = NAMES[: draw(st.integers(2, 4))]
    sites = []
    prices = []
    for name in names:
        purchase = draw(st.sampled_from((Purchase.ON_DEMAND, Purchase.SPOT)))
        flavor = replace(
            flavor_policy(purchase=purchase, speed=draw(st.sampled_from((500, 1000, 2000)))),
            failure_s=draw(st.sampled_from((None, 86_400))),
            watts=draw(st.sampled_from((700, 700, None))),
        )
        sites.append(
            replace(
                site(name, flavors=[flavor]),
                cache_bytes=draw(st.sampled_from((0, 500 * GB))),
                energy_permille=1200,
                grid_g_per_kwh=draw(st.sampled_from((20, 400))),
            )
        )
        lasts = draw(st.sampled_from((3600, 36_000, 36_000, None)))
        price = compute(name, draw(st.integers(1, 9)) * USD, purchase=purchase)
        prices.append(replace(price, interruption_s=lasts, minimum_billing_s=draw(st.sampled_from((0, 3600)))))
    routes = [
        egress(f"r-{a}", f"r-{b}", draw(micro), draw(st.sampled_from((None, 100, 1000))))
        for a in PLACES
        for b in PLACES
        if a != b and draw(st.integers(0, 9))
    ]
    book = policy(
        sites,
        prices,
        routes,
        [data("d", draw(st.sampled_from((100 * GB, 900 * GB, None))), (), [names[0]], ["s"])],
        stores=[store("s", region="r-s")],
        limits=Limits(reclaim_s=draw(st.sampled_from((None, 36_000)))),
    )
    book = draw(near_or_far(book, names))
    carbon = draw(st.sampled_from((None, CarbonPrice(80 * USD, "internal", TODAY))))
    views = [seen(worker(n, nodes(2), [queue(quotas=quota(16))])) for n in names]
    holds = [hold(f"h{n}", n, 1) for n in names if draw(st.booleans())]
    wanted = request(
        "g",
        pods(1, draw(st.sampled_from((1, 8)))),
        data=uses(("d", draw(st.integers(1, 3)))),
        expected_duration_s=draw(st.sampled_from((600, 36_000))),
        checkpoint=draw(st.sampled_from((None, Destination("s", "x")))),  # type: ignore[arg-type]
        checkpoint_bytes=draw(st.sampled_from((None, 50 * GB))),
        checkpoint_interval_s=600,
        attempt=draw(st.integers(1, 2)),
    )
    return World(wanted, Snapshot(tuple(views), tuple(holds)), book).priced(carbon=carbon)


def eligible(decision: Decision) -> set[str]:
    return {c.cluster for c in decision.candidates if c.eligible}


@few
@given(worlds(), st.data())
def test_removing_a_loser_never_changes_the_winner(world: World, data_: st.DataObject) -> None:
    decision = world.decide()
    losers = [c.name for c in world.snapshot.clusters if c.name != decision.chosen]
    gone = data_.draw(st.sampled_from(losers))
    rest = tuple(c for c in world.snapshot.clusters if c.name != gone)
    assert replace(world, snapshot=replace(world.snapshot, clusters=rest)).decide().chosen == decision.chosen


@few
@given(worlds(), st.integers(0, 9))
def test_a_winner_made_cheaper_in_anything_stays_the_winner(world: World, tenths: int) -> None:
    decision = world.decide()
    assume(decision.chosen is not None)
    mine = f"r-{decision.chosen}"
    ways = {
        at: replace(route, usd_micro_per_gb=route.usd_micro_per_gb * tenths // 10)
        if at[1] == mine or at == (mine, "r-s")
        else route
        for at, route in world.policy.prices.egress.items()
    }
    paid = {
        at: replace(price, usd_micro_per_hour=price.usd_micro_per_hour * tenths // 10) if at[1] == mine else price
        for at, price in world.policy.prices.compute.items()
    }
    assert world.priced(egress=ways, compute=paid).decide().chosen == decision.chosen


@few
@given(worlds(), st.data())
def test_the_order_of_clusters_holds_prices_and_routes_changes_nothing(world: World, data_: st.DataObject) -> None:
    prices = world.policy.prices
    shuffled = world.priced(
        egress=dict(data_.draw(st.permutations(list(prices.egress.items())))),
        compute=dict(data_.draw(st.permutations(list(prices.compute.items())))),
    )
    clusters = tuple(data_.draw(st.permutations(world.snapshot.clusters)))
    holds = tuple(data_.draw(st.permutations(world.snapshot.holds)))
    shuffled = replace(shuffled, snapshot=Snapshot(clusters, holds))
    assert repr(shuffled.decide()) == repr(world.decide())


@few
@given(worlds())
def test_what_is_not_known_never_beats_what_is(world: World) -> None:
    for candidate in world.decide().candidates:
        missing = [term for term in candidate.terms if term.amount_usd_micro is None]
        assert (candidate.total_usd_micro is None) == bool(missing)
        assert not (candidate.eligible and missing)
        assert all(term.unknown in candidate.rejections for term in missing if term.unknown is not None)
        assert not missing or any(term.unknown is not None for term in missing), "somebody can mend it"


@few
@given(worlds(), st.data())
def test_a_fact_that_is_lost_never_makes_a_choice_possible(world: World, data_: st.DataObject) -> None:
    prices = world.policy.prices
    assume(prices.egress)
    lost = data_.draw(st.sampled_from(sorted(prices.egress)))
    fewer = world.priced(egress={at: route for at, route in prices.egress.items() if at != lost})
    assert eligible(fewer.decide()) <= eligible(world.decide())
    trips = world.policy.round_trips
    if trips:
        unmeasured = replace(world.policy, round_trips={at: t for at, t in trips.items() if at != min(trips)})
        assert eligible(replace(world, policy=unmeasured).decide()) <= eligible(world.decide())
    unsized = {name: replace(one, size_bytes=None) for name, one in world.policy.data_sets.items()}
    unknown = replace(world, policy=replace(world.policy, data_sets=unsized))
    assert eligible(unknown.decide()) <= eligible(world.decide())


def totals(decision: Decision) -> dict[str, int | None]:
    return {c.cluster: c.total_usd_micro for c in decision.candidates}


def never_cheaper(before: Decision, after: Decision) -> None:
    """What is known of both; a micro-dollar a line may be rounded otherwise."""
    known = totals(before)
    for cluster, amount in totals(after).items():
        whole = known[cluster]
        assert amount is None or (whole is not None and amount >= whole - 4), cluster


@few
@given(worlds(), st.data())
def test_a_price_that_is_too_old_makes_nothing_cheaper(world: World, data_: st.DataObject) -> None:
    """What it priced is then unknown, or comes another way; it is not for nothing."""
    prices = world.policy.prices
    assume(prices.egress)
    at = data_.draw(st.sampled_from(sorted(prices.egress)))
    aged = replace(prices.egress[at], dated=TODAY - timedelta(days=prices.max_age_days + 1))
    before, after = world.decide(), world.priced(egress={**prices.egress, at: aged}).decide()
    event(f"some total changed: {totals(before) != totals(after)}")
    never_cheaper(before, after)


@few
@given(worlds(), st.data())
def test_a_bandwidth_that_nobody_knows_makes_nothing_cheaper(world: World, data_: st.DataObject) -> None:
    prices = world.policy.prices
    slowest = min([route.bandwidth_mbit_s for route in prices.egress.values() if route.bandwidth_mbit_s], default=0)
    known = [at for at, route in sorted(prices.egress.items()) if route.bandwidth_mbit_s]
    assume(len(known) > 1)
    at = data_.draw(st.sampled_from(known))
    rest = {**prices.egress, at: replace(prices.egress[at], bandwidth_mbit_s=None)}
    assume(any(route.bandwidth_mbit_s == slowest for route in rest.values()))
    before, after = world.decide(), world.priced(egress=rest).decide()
    event(f"some total changed: {totals(before) != totals(after)}")
    never_cheaper(before, after)


@few
@given(worlds())
def test_every_bill_adds_up_to_its_term_and_no_amount_is_negative(world: World) -> None:
    for candidate in world.decide().candidates:
        for term in candidate.terms:
            assert all(line.amount_usd_micro >= 0 for line in term.bill)
            if term.amount_usd_micro is not None:
                assert term.amount_usd_micro == sum(line.amount_usd_micro for line in term.bill)


@few
@given(worlds(), st.sampled_from(NAMES), st.sampled_from(("cannot", "unknown")))
def test_fr_sco_03_a_scorer_that_fails_never_raises_a_rank(world: World, name: str, how: str) -> None:
    """A further term that cannot score a cluster takes it out; it never leaves a number that sorts."""
    before = world.decide()
    order = rank(world.request.uid, before.candidates)

    def failing(context: Context) -> Term:
        if context.cluster.name != name:
            return Term(TermKind.STRANDED, 3)
        why = Rejection(Reason.PRICE_UNKNOWN, Resolver.OPERATOR, Detail("x"))
        return Term(TermKind.STRANDED, None, unknown=why if how == "cannot" else None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terms, "TERMS", (*terms.TERMS, failing))
        after = world.decide()
    assert rank(world.request.uid, after.candidates) == tuple(c for c in order if c != name)
    assert after.chosen != name


@few
@given(worlds(), st.sampled_from(NAMES))
def test_a_cache_never_makes_reading_dearer(world: World, name: str) -> None:
    """With the wait for it: a way that costs more and is faster may be the better one then."""
    assume(name in world.policy.clusters)
    known = world.policy.clusters[name]  # type: ignore[index]
    sites = {**world.policy.clusters, known.name: replace(known, cache_bytes=10**15)}
    with_it, without = replace(world, policy=replace(world.policy, clusters=sites)).decide(), world.decide()
    after, before = totals(with_it), totals(without)
    event(f"it pays: {after[name] != before[name]}")
    assert (after[name] is None) == (before[name] is None)
    never_cheaper(with_it, without)


@few
@given(worlds(), st.sampled_from(NAMES), st.integers(0, 10**6), st.booleans())
def test_remembering_what_a_cache_holds_never_makes_anything_dearer(
    world: World, name: str, takes_s: int, there: bool
) -> None:
    size = world.policy.data_sets["d"].size_bytes  # type: ignore[index]
    end = NOW + timedelta(seconds=takes_s)
    known = Cached("d", size or 1, "team/other", "d-other", NOW, end, there)  # type: ignore[arg-type]
    clusters = tuple(replace(c, cached=(known,)) if c.name == name else c for c in world.snapshot.clusters)
    after = replace(world, snapshot=replace(world.snapshot, clusters=clusters)).decide()
    for old, new in zip(world.decide().candidates, after.candidates, strict=True):
        if old.total_usd_micro is not None:
            assert new.total_usd_micro is not None
            assert new.total_usd_micro <= old.total_usd_micro
        if old.cluster != name:
            assert new.total_usd_micro == old.total_usd_micro


@given(
    st.lists(st.tuples(st.integers(1, 50), micro), max_size=3),
    micro,
    st.integers(0, 200 * GB),
    st.integers(0, 200 * GB),
)
def test_a_transfer_never_costs_less_for_more_nor_more_than_its_dearest_price(
    steps: list[tuple[int, int]], beyond: int, size: int, more: int
) -> None:
    tiers, end = [], 0
    for length, price in steps:
        end += length * GB
        tiers.append(EgressTier(end, price))
    route: EgressPrice = replace(egress("a", "b", beyond), tiers=tuple(tiers))
    whole = transfer_amount(route, size + more, 1)
    assert transfer_amount(route, size, 1) <= whole
    dearest = max([beyond, *(tier.usd_micro_per_gb for tier in tiers)])
    assert whole <= div_half_up((size + more) * dearest, GB)


@given(st.integers(30, 10**6), st.integers(1000, 10**8))
def test_no_neighbour_of_the_best_interval_loses_much_less(write_s: int, mean_s: int) -> None:
    """An interval T loses C / (T + C) by writing and (T + C) / 2M by interruptions: the best is where they meet."""
    best = best_interval_s(write_s, mean_s)
    assume(best is not None)
    assert best is not None

    def waste(interval: int) -> float:
        return write_s / (interval + write_s) + (interval + write_s) / (2 * mean_s)

    assert all(waste(best) <= waste(max(1, other)) * 1.01 for other in (best // 2, best - 1, best + 1, best * 2))
