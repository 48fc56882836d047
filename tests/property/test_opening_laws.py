"""Laws of choosing among clusters that are free now and clusters that will be free soon (ADR 24)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from dispatcher.core.backfill import Opening
from dispatcher.core.decide import decide
from dispatcher.core.decision import Basis, Decision, Reason
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import Snapshot
from dispatcher.core.traffic import Traffic
from dispatcher.core.workload import Request, WorkloadClass
from tests.core_builders import NOW, USD, compute, node, pods, policy, queue, quota, request, seen, site, worker
from tests.examples import examples

NAMES = tuple(map(ClusterName, ("a", "b", "c", "d")))
LONGEST_S = 90_000
"""Beyond this nobody holds out (the order's hold_out_s is a day)."""


@dataclass(frozen=True)
class World:
    """One gang of eight GPUs, clusters with room for it now or from an opening on, and prices of most of them."""

    asked: Request = field(repr=False)
    snapshot: Snapshot = field(repr=False)
    policy: Policy = field(repr=False)
    openings: tuple[Opening, ...]
    prices: dict[ClusterName, int]
    """Of the clusters whose price is known."""
    free: frozenset[ClusterName]
    """The clusters that have room now."""

    def decide(self) -> Decision:
        return decide(self.asked, self.snapshot.amid(Traffic(openings=self.openings)), self.policy, NOW)

    def without(self, *gone: ClusterName) -> World:
        return replace(
            self,
            snapshot=replace(self.snapshot, clusters=tuple(c for c in self.snapshot.clusters if c.name not in gone)),
            openings=tuple(o for o in self.openings if o.cluster not in gone),
        )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    names = NAMES[: draw(st.integers(2, 4))]
    prices = {name: draw(st.integers(1, 9)) * USD for name in names if draw(st.integers(0, 4))}
    book = policy([site(n, "DE") for n in names], [compute(n, amount) for n, amount in prices.items()])
    price = draw(st.integers(0, 9)) * USD
    training = replace(
        book.classes[WorkloadClass.TRAINING],
        look_ahead=draw(st.integers(0, 1)),
        delay_price_usd_micro_per_hour=price,
    )
    book = replace(book, classes={**book.classes, WorkloadClass.TRAINING: training})
    used = {name: draw(st.sampled_from((0, 8))) for name in names}
    clusters = [worker(n, (node("x", used=used[n]),), [queue(quotas=quota(8, used=used[n]))]) for n in names]
    openings = tuple(
        Opening(name, NOW + timedelta(seconds=draw(st.integers(0, LONGEST_S))), Basis.DECLARED)
        for name in names
        if used[name] and draw(st.booleans())
    )
    asked = replace(
        request("g", pods(1, 8), expected_duration_s=36_000),
        listed_clusters=names,
        waiting_since=NOW - timedelta(seconds=draw(st.integers(0, LONGEST_S))),
    )
    free = frozenset(name for name in names if not used[name])
    return World(asked, Snapshot(tuple(map(seen, clusters))), book, openings, prices, free)


def awaited(decision: Decision) -> str | None:
    """The full cluster that a workload holds out for; None when it does not."""
    found = {
        rejection.detail.holder
        for candidate in decision.candidates
        for rejection in candidate.rejections
        if rejection.reason is Reason.WORTH_WAITING
    }
    assert len(found) <= 1, "it waits for one"
    return found.pop() if found else None


@examples(300)
@given(worlds(), st.data())
def test_removing_a_loser_never_changes_the_winner(world: World, data: st.DataObject) -> None:
    decision = world.decide()
    assume(decision.chosen is not None)
    gone = data.draw(st.sampled_from([c.name for c in world.snapshot.clusters if c.name != decision.chosen]))
    assert world.without(gone).decide().chosen == decision.chosen


@examples(300)
@given(worlds())
def test_who_holds_out_for_one_cluster_takes_no_free_one_without_any_of_the_others(world: World) -> None:
    """Where none is free any more there is no choice between now and later: a look-ahead may nominate a full one."""
    best = awaited(world.decide())
    others = [c.name for c in world.snapshot.clusters if c.name != best]
    for gone in others if best is not None else ():  # one world in eleven: too few to assume it
        assert world.without(gone).decide().chosen not in world.free, gone


@examples(300)
@given(worlds(), st.data())
def test_the_order_of_clusters_and_openings_changes_nothing(world: World, data: st.DataObject) -> None:
    clusters = tuple(data.draw(st.permutations(world.snapshot.clusters)))
    openings = tuple(data.draw(st.permutations(world.openings)))
    other = replace(world, snapshot=replace(world.snapshot, clusters=clusters), openings=openings).decide()
    decision = world.decide()
    assert (other.chosen, awaited(other)) == (decision.chosen, awaited(decision))


@examples(300)
@given(worlds(), st.integers(1, 9))
def test_a_winner_made_cheaper_stays_the_winner(world: World, tenths: int) -> None:
    decision = world.decide()
    assume(decision.chosen is not None)
    book = world.policy.prices
    compute = {
        key: replace(price, usd_micro_per_hour=price.usd_micro_per_hour * tenths // 10)
        if key[0] == f"p-{decision.chosen}"
        else price
        for key, price in book.compute.items()
    }
    cheaper = replace(world, policy=replace(world.policy, prices=replace(book, compute=compute)))
    assert cheaper.decide().chosen == decision.chosen


@examples(300)
@given(worlds())
def test_what_is_not_known_never_beats_what_is(world: World) -> None:
    """Neither by room that it has now, nor as what is worth waiting for; and it makes nobody wait."""
    decision = world.decide()
    best = awaited(decision)
    assert best is None or best in world.prices
    rest = world.without(*(c.name for c in world.snapshot.clusters if c.name not in world.prices))
    assume(rest.snapshot.clusters)
    known = rest.decide()
    if known.chosen is not None:
        assert decision.chosen == known.chosen
    assert best == awaited(known)
