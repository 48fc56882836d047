"""Laws of what a simulation is made of and reported by: percentiles, tables of quantiles, draws, overlay, summary."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.chart import _across, _doublings, _within
from dispatcher.sim.generator import FleetShape, Overlay, Plan, Shape, from_plan
from dispatcher.sim.generator.draws import UNIT, Draws
from dispatcher.sim.generator.fleet import Site
from dispatcher.sim.generator.published import (
    ESTIMATE_SIGMA_PERMILLE,
    PHILLY_GPUS,
    PHILLY_RUN_TIMES,
)
from dispatcher.sim.generator.quantiles import Quantiles
from dispatcher.sim.generator.synthetic import jobs, submissions
from dispatcher.sim.report import summarise
from dispatcher.sim.report.percentiles import mean, percentile, weighted_percentile
from dispatcher.sim.report.usage import usage
from dispatcher.sim.results import JobOutcome
from dispatcher.sim.trace import gang
from tests.examples import examples
from tests.sim_results import comparison, outcome, result

numbers = st.lists(st.integers(0, 10**9), min_size=1, max_size=60)
permilles = st.integers(0, 1000)
draws = st.integers(0, UNIT - 1)
FLEET = FleetShape(
    "f",
    "0" * 64,
    (Site("a", "de-stuttgart", 96, 96_000, 96), Site("b", "us-ohio", 96, 96_000, 96)),
    (("models", WorkloadClass.TRAINING),),
    frozenset({"internal", "customer-acme"}),
)


@st.composite
def tables(draw: st.DrawFn) -> Quantiles:
    inner = draw(st.lists(st.integers(1, UNIT - 1), unique=True, max_size=8))
    values = draw(st.lists(st.integers(0, 10**7), min_size=len(inner) + 2, max_size=len(inner) + 2))
    return Quantiles((0, *sorted(inner), UNIT), tuple(sorted(values)))


@st.composite
def outcomes(draw: st.DrawFn) -> JobOutcome:
    submit = draw(st.integers(0, 5_000))
    start = draw(st.none() | st.integers(submit, 9_000))
    finish = None if start is None else draw(st.none() | st.integers(start + 1, 9_999))
    return outcome(
        submit_s=submit,
        start_s=start,
        finish_s=finish,
        gpus=draw(st.integers(1, 10)),
        workload_class=draw(st.sampled_from(WorkloadClass)),
        cost=draw(st.integers(10, 10**9)),
        egress=draw(st.integers(0, 10)),
    )


# --- percentiles ---


@given(numbers, permilles)
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(values: list[int], permille: int) -> None:
    ordered = sorted(values)
    found = percentile(ordered, permille)
    assert found in values
    assert 1000 * bisect_right(ordered, found) >= permille * len(values)
    assert 1000 * sum(value < found for value in values) < max(1, permille * len(values))


@given(numbers, permilles, permilles)
def test_percentiles_rise_with_their_rank(values: list[int], one: int, other: int) -> None:
    low, high = sorted((one, other))
    ordered = sorted(values)
    assert ordered[0] <= percentile(ordered, low) <= percentile(ordered, high) <= ordered[-1]


@given(
    st.dictionaries(st.integers(0, 1000), st.integers(0, 40), min_size=1).filter(lambda w: any(w.values())), permilles
)
def test_weights_are_values_that_occur_so_often(weights: dict[int, int], permille: int) -> None:
    spread_out = sorted(value for value, weight in weights.items() for _ in range(weight))
    assert weighted_percentile(weights, permille) == percentile(spread_out, permille)


@given(numbers)
def test_a_mean_is_rounded_and_lies_within(values: list[int]) -> None:
    assert abs(mean(values) - Fraction(sum(values), len(values))) <= Fraction(1, 2)


# --- tables and draws ---


@given(tables(), draws, draws)
def test_a_table_never_falls_and_keeps_its_bounds(table: Quantiles, one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert table.values[0] <= table.at(low) <= table.at(high) <= table.values[-1]


@given(tables())
def test_a_table_goes_through_its_points(table: Quantiles) -> None:
    assert [table.at(p) for p in table.probabilities] == list(table.values)


@given(tables(), st.integers(0, 10**7), st.integers(0, 10**7), draws)
def test_bounds_cut_what_lies_beyond_and_keep_the_ends(table: Quantiles, one: int, other: int, draw: int) -> None:
    least, most = sorted((one, other))
    assert least <= table.between(least, most).at(draw) <= most


@given(tables())
@examples(40)
def test_the_mean_of_a_table_is_that_of_its_draws(table: Quantiles) -> None:
    steps = 4_000
    sampled = Fraction(sum(table.at(UNIT * (2 * n + 1) // (2 * steps)) for n in range(steps)), steps)
    reach = table.values[-1] - table.values[0]
    assert abs(sampled - table.mean()) <= 1 + Fraction(reach * len(table.values), steps)


@given(st.integers(0, 2**40), st.text(max_size=12), st.integers(1, 1_000))
def test_draws_repeat_themselves_and_stay_below_their_bound(seed: int, purpose: str, bound: int) -> None:
    one, other = Draws(seed, purpose), Draws(seed, purpose)
    drawn = [one.below(bound) for _ in range(20)]
    assert drawn == [other.below(bound) for _ in range(20)]
    assert all(0 <= number < bound for number in drawn)


@given(st.integers(1, 300), st.integers(1, 8))
def test_a_gang_has_exactly_its_gpus_on_nodes_that_hold_them(gpus: int, per_pod: int) -> None:
    pods, each = gang(gpus, per_pod)
    assert pods * each == gpus
    assert each <= per_pod


# --- the generator keeps to what is published ---


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_run_times_have_the_quantiles_of_philly(seed: int) -> None:
    drawn = sorted(job.duration_s for job in jobs(6_000, seed, Shape(longest_s=10**7, shortest_s=1)))
    for written, value in ((100, 61), (250, 131), (500, 1_186), (750, 3_340), (900, 12_858)):
        lower, upper = (PHILLY_RUN_TIMES.at(UNIT * (written + off) // 1000) for off in (-20, 20))
        assert lower <= drawn[6_000 * written // 1000] <= upper, f"the quantile {written} permille is {value} s"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_gangs_have_the_sizes_of_philly(seed: int) -> None:
    sizes = Counter(job.gpus for job in jobs(6_000, seed, Shape()))
    for gpus, weight in PHILLY_GPUS:
        assert sizes[gpus] == pytest.approx(0.6 * weight, abs=4 * (0.6 * weight) ** 0.5 + 3)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_estimates_are_off_by_the_factor_that_the_recipe_tells(seed: int) -> None:
    scenario = from_plan(Plan("p", "", 3_000, 1_000, shape=Shape(shortest_s=1_000)), FLEET, seed)
    errors = sorted(job.estimate_s * 1000 // job.duration_s for job in scenario.jobs)
    table = Quantiles.lognormal(1_000, ESTIMATE_SIGMA_PERMILLE)
    for permille in (100, 500, 900):
        lower, upper = (table.at(UNIT * (permille + off) // 1000) for off in (-30, 30))
        assert lower <= errors[3 * permille] <= upper


@given(st.integers(1, 10**6), st.integers(1, 40), st.integers(0, 5))
@examples(50)
def test_jobs_come_in_order_within_the_span(span_s: int, count: int, seed: int) -> None:
    found = submissions(count, span_s, seed, Shape())
    assert len(found) == count
    assert all(a <= b for a, b in pairwise(found))
    assert 0 <= found[0] <= found[-1] < span_s


@given(st.integers(0, 10**6), st.integers(500, 3_000))
@examples(15)
def test_scenarios_of_one_seed_are_equal_and_meet_their_load(seed: int, load: int) -> None:
    plan = Plan("p", "", 60, load, overlay=Overlay(urgent_permille=100))
    one, other = from_plan(plan, FLEET, seed), from_plan(plan, FLEET, seed)
    assert one == other
    assert repr(one) == repr(other)
    work = sum(job.gpu_seconds for job in one.jobs)
    assert (one.span_s - 1) * FLEET.speed_milli * load < work * 10**6 <= one.span_s * FLEET.speed_milli * load


# --- the report ---


@given(st.lists(outcomes(), min_size=1, max_size=12), st.randoms(use_true_random=False))
@examples(60)
def test_the_order_of_outcomes_changes_no_number(found: list[JobOutcome], chance: random.Random) -> None:
    named = [replace(o, job=str(at)) for at, o in enumerate(found)]
    shuffled = list(named)
    chance.shuffle(shuffled)
    assert summarise(comparison(result(*named))) == summarise(comparison(result(*shuffled)))


@given(st.lists(outcomes(), min_size=1, max_size=12))
@examples(60)
def test_time_in_use_is_all_the_time_until_the_last_submission(found: list[JobOutcome]) -> None:
    run = result(*found, gpus=1_000)
    until = max(o.submit_s for o in found)
    shares = usage(run.outcomes, run)
    assert shares.total() == until
    held = sum(o.gpus * max(0, min(r.end_s, until) - r.start_s) for o in found for r in o.runs)
    assert sum(share * seconds for share, seconds in shares.items()) == held


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_longer_waits_lie_further_right_on_the_chart(one: int, other: int) -> None:
    low, high = sorted((one, other))
    longest = max(10, high)
    assert _doublings(low) <= _doublings(high)
    assert 0 <= _across(low, longest) <= _across(high, longest)
    assert _within(_across(low, longest), longest) <= low
