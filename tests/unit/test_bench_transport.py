"""The transport bound on problems that can be solved by hand; that it is a bound; and the blind contender."""

from __future__ import annotations

import pytest

from bench.transport import bound_usd
from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.contenders_all import CONTENDERS
from dispatcher.sim.contenders_blind import blinded
from dispatcher.sim.engine import run
from dispatcher.sim.jobs import Checkpoint, Reading, Scenario, SimDataSet, SimJob
from dispatcher.sim.world import Setup, set_up
from tests.loops.sim_jobs import crowd, scenario, sim_job

OWN, FINLAND, OHIO = 1.90, 2.10, 2.49
"""USD for an hour of an H100, by the price book of the fleet."""
HOUR, DAY = 3600, 86_400


def bound(made: Scenario, end_s: int = DAY, *, by_class: bool = False) -> float:
    return bound_usd(set_up(made), end_s, by_class=by_class)


def test_with_room_for_all_everything_runs_where_it_is_cheapest() -> None:
    assert bound(scenario(*(sim_job(f"j{n}", lasts=HOUR) for n in range(3)))) == pytest.approx(3 * 8 * OWN)


def test_what_has_no_room_there_goes_to_the_next() -> None:
    """Seven jobs of eight GPU-hours come in the last second of an hour and a second; 48 GPUs are our own."""
    made = scenario(*(sim_job(f"j{n}", at=24, lasts=HOUR) for n in range(7)))
    assert bound(made, 23 + HOUR) == pytest.approx(48 * OWN + 8 * FINLAND, rel=1e-3)


def test_who_comes_late_cannot_have_used_what_was_free_before() -> None:
    made = scenario(sim_job("early", at=0, lasts=HOUR), *(sim_job(f"j{n}", at=DAY, lasts=HOUR) for n in range(7)))
    assert bound(made, DAY + HOUR) == pytest.approx(8 * OWN + 48 * OWN + 8 * FINLAND, rel=0.02)


def test_checkpoints_take_time_and_data_costs_its_way() -> None:
    """Nine checkpoints of a minute; 90 GB from Ohio cost 7.20 and take 72 s, which is more than Ohio's dearer hours."""
    radar = SimDataSet("radar", 90 * 10**9, ("internal",), ("us-ohio",))
    job = sim_job("reads", lasts=HOUR, data=(Reading("radar"),), checkpoint=Checkpoint(10**9, 360, 60))
    hours = 8 * (HOUR + 9 * 60) / HOUR
    assert bound(scenario(job, data=(radar,))) == pytest.approx(hours * OHIO, rel=0.001)


def test_a_time_in_which_they_cannot_all_run_is_refused() -> None:
    with pytest.raises(ValueError, match="no transport"):
        bound(scenario(*(sim_job(f"j{n}", lasts=DAY) for n in range(30))), DAY // 2)


@pytest.mark.parametrize("contender", ["all-at-once", "cheapest", "entrepot"])
def test_nobody_pays_less_than_the_bound(contender: str) -> None:
    setup = set_up(crowd(30))
    found = run(setup, CONTENDERS[contender].factory)
    paid = sum(outcome.cost_usd_micro for outcome in found.outcomes) / 10**6
    assert 0.5 * paid < bound_usd(setup, found.end_s, by_class=False) <= paid


def of_three_types() -> Scenario:
    """Two simulations, one slow and one fast on the cards that suit simulations."""
    speeds = ((("a100-80gb", 500), ("h100-80gb", 1000), ("l40s-48gb", fast)) for fast in (600, 3000))
    jobs = [_simulation(f"sim-{at}", each) for at, each in enumerate(speeds)]
    made = scenario(*jobs)
    return Scenario("three", "three-types", 1, 600, made.span_s, made.jobs, (), made.recipe)


def _simulation(name: str, speeds: tuple[tuple[str, int], ...]) -> SimJob:
    kind = WorkloadClass.SIMULATION
    return sim_job(name, lasts=HOUR, gpus=1, queue="simulation", workload_class=kind, speeds=speeds)


def test_a_class_has_the_speed_of_all_its_work() -> None:
    """5/3 of an hour and 1/3 of one: two hours of work in two hours, a speed of 1000, at 0.63."""
    assert bound(of_three_types(), by_class=True) == pytest.approx(2 * 0.63, rel=0.001)
    assert bound(of_three_types()) == pytest.approx((5 / 3 + 1 / 3) * 0.63, rel=0.001)


def test_the_blind_contender_sees_no_difference_between_the_types_of_a_region() -> None:
    setup: Setup = set_up(of_three_types())
    policy = blinded(setup.policy)
    own = {key: price for key, price in policy.prices.compute.items() if key[0] == "onprem"}
    mean = (1_900_000 + 1_100_000 + 630_000) // 3
    assert {price.usd_micro_per_hour for price in own.values()} == {mean}
    flavors = [flavor for cluster in policy.clusters.values() for flavor in cluster.flavors.values()]
    assert {flavor.speed(kind) for flavor in flavors for kind in WorkloadClass} == {1000}
    assert policy.digest != setup.policy.digest
