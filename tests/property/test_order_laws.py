"""Laws of the order, the shares and backfill."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.backfill import (
    Amounts,
    Ask,
    Option,
    Release,
    Reservation,
    Schedule,
    calendar_of,
    in_the_way,
    passing,
)
from dispatcher.core.decision import Basis, Estimate
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.order import PPM, Bid, OrderRules, in_order, passable_until, turn_of
from dispatcher.core.resources import Resources
from dispatcher.core.shares import Usage, Window, shares
from tests.core_builders import GPU, NOW
from tests.examples import examples

CLUSTERS = (ClusterName("alpha"), ClusterName("beta"))
POOLS = (("nodes", "h100"), ("quota", "training"))


def after(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


# --- order -------------------------------------------------------------------------------------------------------

rules = st.builds(OrderRules, st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 10**6))
shares_ppm = st.integers(0, PPM)


@st.composite
def bids(draw: st.DrawFn) -> Bid:
    since = after(draw(st.integers(-(10**6), 0)))
    return Bid(
        WorkloadUid(draw(st.text("abc", min_size=1, max_size=3))),
        draw(st.integers(0, 2)),
        since - timedelta(seconds=draw(st.integers(0, 9))),
        since,
        "team",
        draw(st.integers(0, 10**6)),
        Estimate(draw(st.integers(0, 10**6)), Basis.DECLARED),
        draw(st.integers(0, 10**9)),
    )


@examples(300)
@given(rules, bids(), bids(), shares_ppm, shares_ppm)
def test_nobody_of_a_priority_is_passed_by_what_came_later_than_the_bound(
    given_rules: OrderRules, one: Bid, other: Bid, share: int, other_share: int
) -> None:
    waits, comes = turn_of(one, given_rules, share), turn_of(other, given_rules, other_share)
    if one.priority == other.priority and comes.key < waits.key:
        assert other.waiting_since <= passable_until(waits, given_rules)
    if one.priority > other.priority:
        assert waits.key < comes.key


@examples(200)
@given(rules, bids(), shares_ppm, st.integers(1, 10**6))
def test_more_for_less_is_never_later(given_rules: OrderRules, bid: Bid, share: int, more: int) -> None:
    turn = turn_of(bid, given_rules, share)
    dearer = replace(bid, delay_price_usd_micro_per_hour=bid.delay_price_usd_micro_per_hour + more)
    assert turn_of(dearer, given_rules, share).at <= turn.at
    assert turn_of(replace(bid, gpu_milli=bid.gpu_milli + more), given_rules, share).at >= turn.at
    assert turn_of(bid, given_rules, min(PPM, share + more)).at >= turn.at


@examples(100)
@given(st.lists(bids(), unique_by=lambda bid: bid.uid), rules, st.randoms(use_true_random=False))
def test_the_line_does_not_depend_on_how_it_is_given(found: list[Bid], given_rules: OrderRules, dice: object) -> None:
    turns = [turn_of(bid, given_rules) for bid in found]
    shuffled = list(turns)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert in_order(shuffled) == in_order(turns)


# --- shares ------------------------------------------------------------------------------------------------------


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    begun = draw(st.integers(-5000, 0))
    ended = draw(st.none() | st.integers(begun, 0))
    amounts = Resources.of({GPU: draw(st.integers(0, 8)), "cpu": draw(st.integers(0, 8))})
    return Usage(draw(st.sampled_from("ab")), amounts, after(begun), after(ended) if ended is not None else None)


@examples(150)
@given(st.lists(usages(), max_size=6), usages(), st.integers(1, 900), st.randoms(use_true_random=False))
def test_use_adds_up_and_never_lowers_a_share(found: list[Usage], more: Usage, half: int, dice: object) -> None:
    fleet, window = Resources.of({GPU: 64, "cpu": 64}), Window(half)
    before, with_more = shares(found, fleet, window, NOW), shares([*found, more], fleet, window, NOW)
    for team, share in before.items():
        assert 0 <= share.share_ppm <= with_more[team].share_ppm <= PPM
    shuffled = list(found)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert shares(shuffled, fleet, window, NOW) == before


@examples(150)
@given(usages(), st.integers(1, 900), st.integers(0, 5000))
def test_a_share_of_what_has_ended_only_fades(usage: Usage, half: int, later: int) -> None:
    fleet, window = Resources.of({GPU: 64, "cpu": 64}), Window(half)
    ended = replace(usage, ended_at=usage.ended_at or NOW)
    now, then = (shares([ended], fleet, window, at)[usage.team].share_ppm for at in (NOW, after(later)))
    assert then <= now


# --- backfill ----------------------------------------------------------------------------------------------------

amounts = st.fixed_dictionaries({pool: st.integers(0, 8) for pool in POOLS})
options = st.builds(Option, st.sampled_from(CLUSTERS), amounts, st.integers(1, 300), st.integers(0, 3))
releases = st.lists(
    st.builds(Release, st.integers(0, 300).map(after), amounts, st.sampled_from(Basis), st.booleans()), max_size=6
)
worlds = st.fixed_dictionaries({cluster: st.tuples(amounts, releases) for cluster in CLUSTERS})


@st.composite
def lines(draw: st.DrawFn) -> list[Ask]:
    found = draw(st.lists(st.lists(options, min_size=1, max_size=2, unique_by=lambda o: o.cluster), max_size=6))
    return [Ask(WorkloadUid(f"w{at}"), f"w{at}", tuple(each)) for at, each in enumerate(found)]


World = dict[ClusterName, tuple[Amounts, list[Release]]]


def planned(world: World, line: list[Ask]) -> Schedule:
    made = Schedule({name: calendar_of(free, ends, NOW) for name, (free, ends) in world.items()}, NOW)
    for ask in line:
        made.reserve(ask)
    return made


def starts(made: Schedule) -> dict[str, tuple[ClusterName, datetime]]:
    return {ask.uid: (option.cluster, start) for ask, option, start in made.made}


@examples(200)
@given(worlds, lines())
def test_what_is_promised_is_never_more_than_there_will_be(world: World, line: list[Ask]) -> None:
    made = planned(world, line)
    for calendar in made.calendars.values():
        assert all(amount >= 0 for free in calendar.free for amount in free.values())


@examples(200)
@given(worlds, lines(), st.integers(0, 5))
def test_without_one_of_those_behind_nobody_ahead_starts_at_another_time(
    world: World, line: list[Ask], gone: int
) -> None:
    with_all, without = starts(planned(world, line)), starts(planned(world, [*line[:gone], *line[gone + 1 :]]))
    for ask in line[:gone]:
        assert with_all.get(ask.uid) == without.get(ask.uid)


@examples(200)
@given(worlds, lines(), st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_how_the_world_is_given(world: World, line: list[Ask], dice: object) -> None:
    shuffled: World = {}
    for name, (free, ends) in reversed(world.items()):
        mixed = list(ends)
        dice.shuffle(mixed)  # type: ignore[attr-defined]
        shuffled[name] = (dict(reversed(list(free.items()))), mixed)
    turned = [replace(ask, options=tuple(reversed(ask.options))) for ask in line]
    assert planned(shuffled, turned).reservations() == planned(world, line).reservations()


@examples(300)
@given(worlds, lines(), st.lists(options, min_size=1, max_size=5))
def test_who_may_pass_never_delays_a_reservation(world: World, line: list[Ask], passers: list[Option]) -> None:
    """Where estimates are true: with every passer running from now on, all reservations still hold."""
    made = planned(world, line)
    kept: tuple[Reservation, ...] = made.reservations()
    running: list[Option] = []
    for passer in passers:
        until = after(passer.duration_s)
        fits_now = passer.amounts and all(
            made.calendars[passer.cluster].free[0][pool] - _taken(running, passer.cluster, pool) >= amount
            for pool, amount in passer.amounts.items()
        )
        if fits_now and in_the_way(kept, passer.cluster, passer.amounts, until) is None:
            kept = passing(kept, passer.cluster, passer.amounts, until)
            running.append(passer)
    for reservation in kept:
        late = [p for p in running if p.cluster == reservation.cluster and after(p.duration_s) > reservation.start]
        for pool, left in (
            made.calendars[reservation.cluster].least(reservation.start, reservation.end, reservation.spare).items()
        ):
            if pool in reservation.spare:
                assert sum(p.amounts[pool] for p in late) <= left


def _taken(running: list[Option], cluster: ClusterName, pool: tuple[str, ...]) -> int:
    return sum(passer.amounts[pool] for passer in running if passer.cluster == cluster)
