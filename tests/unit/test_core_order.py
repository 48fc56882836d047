"""The order of those that wait, and the shares that it weighs: tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from dispatcher.core.decision import Basis, Estimate
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.order import (
    DEFAULT_RULES,
    PPM,
    Ahead,
    Bid,
    OrderRules,
    Turn,
    ahead_by,
    gpu_milli,
    head_start,
    in_order,
    passable_s,
    turn_of,
    worth_of,
)
from dispatcher.core.resources import Resources
from dispatcher.core.shares import Share, Usage, Window, shares
from tests.core_builders import GPU, NOW, USD, pods

HOUR = 3600
HALF = 1000


def bid(name: str = "a", *, gpus: int = 1, hours: int = 1, price: int = 4, waited_s: int = 0, priority: int = 0) -> Bid:
    since = NOW - timedelta(seconds=waited_s)
    estimate = Estimate(hours * HOUR, Basis.DECLARED)
    return Bid(WorkloadUid(name), priority, since, since, "team", gpus * 1000, estimate, price * USD)


def turn(given: Bid, share_ppm: int = 0, rules: OrderRules = DEFAULT_RULES) -> Turn:
    return turn_of(given, rules, share_ppm, "gpu" if share_ppm else "")


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        pytest.param(
            turn(bid("z", priority=1)),
            turn(bid("a", price=400, waited_s=90 * HOUR)),
            Ahead.PRIORITY,
            id="priority goes before everything, whatever waits below it and however long",
        ),
        pytest.param(
            turn(bid("z", gpus=1)),
            turn(bid("a", gpus=64, waited_s=HOUR)),
            Ahead.DELAY_PRICE,
            id="a small one goes before a large one of the same price that came an hour earlier",
        ),
        pytest.param(
            turn(bid("z", gpus=64, waited_s=25 * HOUR)),
            turn(bid("a", gpus=1, price=400)),
            Ahead.WAITED,
            id="a large one that has waited for longer than the ageing is passed by nobody new",
        ),
        pytest.param(
            turn(bid("z"), share_ppm=10_000),
            turn(bid("a"), share_ppm=500_000),
            Ahead.SHARE,
            id="of two alike that of the team that had less goes first",
        ),
        pytest.param(
            turn(bid("z", waited_s=7 * HOUR), share_ppm=PPM // 2),
            turn(bid("a")),
            Ahead.WAITED,
            id="half the fleet costs a team half of the share weight and no more",
        ),
        pytest.param(turn(bid("a")), turn(bid("b")), Ahead.TIE, id="of two that are alike in all the name decides"),
    ],
)
def test_who_goes_first_and_why(first: Turn, second: Turn, why: Ahead) -> None:
    assert in_order([second, first]) == [first, second]
    assert ahead_by(first, second) is why


def test_a_tie_is_broken_by_creation_before_the_name() -> None:
    older = replace(bid("z"), created_at=NOW - timedelta(days=1))
    assert [t.bid.uid for t in in_order([turn(bid("a")), turn(older)])] == ["z", "a"]


@pytest.mark.parametrize(
    ("worth", "part"),
    [
        pytest.param(0, 0, id="waiting that costs nothing has no head start"),
        pytest.param(1 << 10, 0, id="nor has what costs a tenth of a cent"),
        pytest.param(1 << 20, 500, id="a dollar has half of the ageing"),
        pytest.param(1 << 25, 750, id="thirty-two dollars have three quarters"),
        pytest.param(1 << 30, 1000, id="a thousand dollars have all of it"),
        pytest.param(1 << 60, 1000, id="and nothing has more"),
    ],
)
def test_each_doubling_of_the_price_is_worth_the_same(worth: int, part: int) -> None:
    assert head_start(worth, 1_000_000) == part * 1000


def test_worth_is_per_hour_of_waiting_and_gpu_hour_of_work() -> None:
    assert worth_of(12 * USD, 8000, 12 * HOUR) == 12 * USD // 96
    assert worth_of(12 * USD, 0, 0) == 12 * USD * 3600 * 1000, "work without size does not divide by zero"
    assert worth_of(-1, 8000, HOUR) == 0


def test_how_long_others_may_still_pass_is_bounded_and_runs_out() -> None:
    rules = OrderRules(ageing_s=100, share_weight_s=20)
    waits = turn(bid("a", waited_s=50), rules=rules)
    assert passable_s(waits, rules, NOW) == 70
    assert passable_s(waits, rules, NOW + timedelta(milliseconds=500)) == 70
    assert passable_s(waits, rules, NOW + timedelta(seconds=70)) == 0
    assert passable_s(waits, rules, NOW + timedelta(days=1)) == 0


@pytest.mark.parametrize(
    ("per_pod", "milli"),
    [
        pytest.param({GPU: 8, "cpu": 64_000}, 16_000, id="whole GPUs over all pods, whatever CPU they have"),
        pytest.param({"nvidia.com/mig-2g.20gb": 1}, 570, id="a MIG slice is its part of a card"),
        pytest.param({"nvidia.com/mig-odd": 1}, 2000, id="a profile that cannot be read is a whole card"),
        pytest.param({"cpu": 32_000}, 4000, id="CPU counts where there is nothing else"),
        pytest.param({}, 0, id="nothing is nothing"),
    ],
)
def test_the_size_of_a_gang(per_pod: dict[str, int], milli: int) -> None:
    assert gpu_milli([pods(2, per_pod=Resources.of(per_pod))]) == milli


# --- shares ------------------------------------------------------------------------------------------------------

FLEET = Resources.of({GPU: 10, "cpu": 100_000})


def used(team: str, gpus: int, begun_s: int, ended_s: int | None = None, cpu: int = 0) -> Usage:
    ended = NOW - timedelta(seconds=ended_s) if ended_s is not None else None
    return Usage(team, Resources.of({GPU: gpus, "cpu": cpu}), NOW - timedelta(seconds=begun_s), ended)


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        pytest.param([used("a", 10, 100 * HALF)], Share("a", 1_000_000, GPU), id="the whole fleet for ever is all"),
        pytest.param([used("a", 10, HALF)], Share("a", 500_000, GPU), id="for one half-life it is half"),
        pytest.param(
            [used("a", 10, 2 * HALF, HALF)], Share("a", 250_000, GPU), id="the half-life before counts half of that"
        ),
        pytest.param([used("a", 1, 100 * HALF)], Share("a", 100_000, GPU), id="a tenth of the fleet is a tenth"),
        pytest.param(
            [used("a", 1, HALF, cpu=50_000)], Share("a", 250_000, "cpu"), id="the resource counts that it has most of"
        ),
        pytest.param([used("a", 10, -60)], Share("a", 0, ""), id="what has not begun is nothing"),
        pytest.param([used("a", 10, 90 * HALF, 80 * HALF)], Share("a", 0, ""), id="what is long past is forgotten"),
        pytest.param([used("a", 30, 100 * HALF)], Share("a", 1_000_000, GPU), id="more than there is, is all of it"),
    ],
)
def test_a_team_has_its_dominant_share_of_a_fading_window(usage: list[Usage], found: Share) -> None:
    assert shares(usage, FLEET, Window(HALF), NOW) == {"a": found}


def test_a_resource_that_the_fleet_is_not_known_to_have_is_no_share() -> None:
    given = [Usage("a", Resources.of({"nvidia.com/mig-1g.10gb": 4, "pods": 9}), NOW - timedelta(days=9))]
    assert shares(given, FLEET, Window(HALF), NOW) == {"a": Share("a", 0, "")}


def test_parts_of_an_interval_weigh_what_the_whole_does() -> None:
    window, at = Window(777), [NOW - timedelta(seconds=s) for s in (9000, 5431, 1234, 0)]
    parts = sum(window.weight(one, other, NOW) for one, other in pairwise(at))
    assert parts == window.weight(at[0], None, NOW) < window.whole
