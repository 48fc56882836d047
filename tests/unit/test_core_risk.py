"""What may be lost, and what a run draws: interruptions, the checkpoint interval that loses least, energy."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dispatcher.core import explain
from dispatcher.core.decision import CheckpointAdvice, Decision, Reason, Term, TermKind
from dispatcher.core.policy import CarbonPrice, Limits, Purchase
from dispatcher.core.prices import best_interval_s, lost_to_interruptions
from dispatcher.core.workload import Destination, WorkloadClass
from tests.core_builders import (
    GB,
    TODAY,
    USD,
    compute,
    decided,
    egress,
    flavor_policy,
    on,
    pods,
    policy,
    queue,
    quota,
    reasons,
    request,
    site,
    store,
    worker,
)

HOUR = 3600
STORES = [store("saves", region="r-saves")]
ROUTE = egress("r-onprem", "r-saves", 0, bandwidth=8_000)
SAVES = Destination(STORES[0].name, "runs")


def term(decision: Decision, kind: TermKind) -> Term:
    return next(t for t in on(decision, "onprem").terms if t.kind is kind)


def run(
    purchase: Purchase = Purchase.SPOT,
    lasts_s: int | None = 20 * HOUR,
    nodes: int = 1,
    flavor: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    limits: Limits | None = None,
    own_gpus: int = 16,
    **said: Any,
) -> Decision:
    """Ten hours on whole nodes of eight GPUs at $3, an hour of delay at $6."""
    price = replace(compute("onprem", 3 * USD, purchase=purchase), interruption_s=lasts_s)
    flavors = [replace(flavor_policy(purchase=purchase), **(flavor or {}))]
    rules = policy([site("onprem", flavors=flavors)], [price], [ROUTE], stores=STORES, limits=limits)
    training = replace(rules.classes[WorkloadClass.TRAINING], **(plan or {}))
    rules = replace(rules, classes={**rules.classes, WorkloadClass.TRAINING: training})
    wanted = request("g", pods(nodes), expected_duration_s=10 * HOUR, **said)
    queues = [queue(quotas=quota(own_gpus), cohort="all"), queue("other", quotas=quota(16 - own_gpus), cohort="all")]
    return decided(wanted, worker(queues=queues), rules=rules)


SAVED = {"checkpoint": SAVES, "checkpoint_bytes": 60 * GB, "checkpoint_interval_s": HOUR}


def lost(hours: float, each: float, stretch: float, restart: float = 0) -> float:
    """Of so many hours, interrupted once in `each`, in stretches that are begun anew exp(x) - 1 times."""
    again = math.exp(stretch / each) - 1
    return hours / stretch * (again * (each + restart) - stretch)


@pytest.mark.parametrize(
    ("case", "hours", "hourly"),
    [
        pytest.param({}, lost(10, 20, 10), 30, id="without a checkpoint all of it is begun anew"),
        pytest.param({"lasts_s": 4 * HOUR}, lost(10, 4, 10), 30, id="which hardly ends where nodes do not last"),
        pytest.param(SAVED, lost(10, 20, 1), 30, id="with one it goes on from there"),
        pytest.param(
            {**SAVED, "plan": {"restart_s": HOUR // 2}}, lost(10, 20, 1, 0.5), 30, id="and the time to come back"
        ),
        pytest.param({**SAVED, "nodes": 2}, lost(10, 10, 1), 54, id="two nodes stop the gang twice as often"),
        pytest.param({"purchase": Purchase.ON_DEMAND, **SAVED}, 0, 30, id="own capacity is not taken back"),
        pytest.param(
            {"purchase": Purchase.ON_DEMAND, "flavor": {"failure_s": 200 * HOUR}, **SAVED},
            lost(10, 200, 1),
            30,
            id="nodes fail",
        ),
        pytest.param(
            {"purchase": Purchase.ON_DEMAND, "own_gpus": 4, "limits": Limits(reclaim_s=10 * HOUR), **SAVED},
            lost(10, 10, 1),
            30,
            id="borrowed quota is taken back",
        ),
        pytest.param(
            {"purchase": Purchase.ON_DEMAND, "own_gpus": 8, "limits": Limits(reclaim_s=10 * HOUR), **SAVED},
            0,
            30,
            id="its own is not",
        ),
    ],
)
def test_interruption_is_what_is_done_again_and_the_restarts(case: dict[str, Any], hours: float, hourly: int) -> None:
    assert term(run(**case), TermKind.INTERRUPTION).amount_usd_micro == pytest.approx(hours * hourly * USD, abs=1)


def test_each_threat_has_its_part_of_the_loss() -> None:
    both = term(run(flavor={"failure_s": 60 * HOUR}), TermKind.INTERRUPTION)
    assert both.amount_usd_micro == pytest.approx(lost(10, 15, 10) * 30 * USD, abs=1), "1 / 20 and 1 / 60 an hour"
    spot, failures = both.bill
    assert spot.amount_usd_micro == pytest.approx(3 * failures.amount_usd_micro, abs=4)


@pytest.mark.parametrize(("stretch", "restart"), [(3.0, 0.0), (1.0, 0.25)])
def test_the_expected_loss_is_that_of_many_runs(stretch: float, restart: float) -> None:
    """Three hours of work, an interruption an hour: played through, not worked out."""
    dice, runs, took = random.Random(6), 20_000, 0.0
    for _ in range(runs * round(3 / stretch)):
        while (stopped := dice.expovariate(1.0)) < stretch:
            took += stopped + restart
        took += stretch
    seconds, parts = lost_to_interruptions(3 * HOUR, round(stretch * HOUR), round(restart * HOUR), (1, HOUR))
    assert seconds / parts / HOUR == pytest.approx(took / runs - 3, rel=0.03)


def test_the_loss_grows_with_its_causes_and_stays_an_amount() -> None:
    """Up to runs that would never end: 60 hours without a checkpoint on a node that lasts a minute."""
    means = (10**9, 10 * HOUR, HOUR, HOUR - 1, 600, 60)
    whole = 60 * HOUR
    found = [seconds // parts for seconds, parts in (lost_to_interruptions(whole, whole, 0, (1, m)) for m in means)]
    assert found == sorted(found)
    assert found[0] == whole**2 // (2 * 10**9), "where it is rare, half of the run each time"
    assert found[-1] < 10**12


def test_spot_of_which_nobody_knows_how_long_it_lasts_is_unknown() -> None:
    decision = run(lasts_s=None)
    assert reasons(decision, "onprem") == [Reason.INTERRUPTION_UNKNOWN]
    assert "nobody knows how long that lasts" in explain.sentence(decision)


@pytest.mark.parametrize(
    ("write_s", "mean_s", "best"),
    [
        pytest.param(60, 24 * HOUR, 3159, id="a minute a day: 53 minutes (traces.md section 4e, less C)"),
        pytest.param(60, 120, None, id="a checkpoint that takes half the mean time helps nobody"),
        pytest.param(59, 120, 59, id="just short of it"),
        pytest.param(0, 3600, None, id="what takes no time has no best"),
    ],
)
def test_the_best_interval_is_that_of_young_and_daly(write_s: int, mean_s: int, best: int | None) -> None:
    assert best_interval_s(write_s, mean_s) == best


def test_the_owner_is_told_the_interval_that_loses_least_and_whose_formula_it_is() -> None:
    """60 GB at 8 Gbit/s take a minute; 20 hours a node."""
    advice = term(run(**SAVED), TermKind.INTERRUPTION).advice
    assert advice == CheckpointAdvice(2879, 60, 20 * HOUR, HOUR)
    text = explain.advice_text(advice)
    assert text.startswith("checkpoint every 47 min, not every 1 h")
    assert "Young 1974" in text


def test_threats_add_up_in_the_advice() -> None:
    found = term(run(nodes=2, flavor={"failure_s": 40 * HOUR}, **SAVED), TermKind.INTERRUPTION)
    assert found.advice is not None
    assert found.advice.mean_time_s == 20 * HOUR // 3, "2 nodes / 20 h + 2 nodes / 40 h"
    assert len(found.bill) == 2


def test_a_class_may_say_how_long_a_checkpoint_stops_the_run() -> None:
    advice = term(run(plan={"checkpoint_write_s": 15}, **SAVED), TermKind.INTERRUPTION).advice
    assert advice is not None
    assert advice.write_s == 15


# --- energy ------------------------------------------------------------------------------------------------------

CARBON = CarbonPrice(80 * USD, "internal price 2026", TODAY)


def drawn(carbon: CarbonPrice | None = None, watts: int | None = 1000, **facts: Any) -> Decision:
    known = {"energy_permille": 1250, "grid_g_per_kwh": 400, **facts}
    one = replace(site("onprem", flavors=[replace(flavor_policy(), watts=watts)]), **known)
    rules = policy([one])
    rules = replace(rules, prices=replace(rules.prices, carbon=carbon))
    return decided(request("g", pods(1), expected_duration_s=10 * HOUR), worker(), rules=rules)


def test_the_energy_of_a_run_is_recorded_and_weighs_nothing_without_a_price() -> None:
    found = term(drawn(), TermKind.ENERGY)
    assert found.amount_usd_micro == 0
    assert (found.bill[0].quantity, found.bill[0].unit) == (100_000, "watt-hour")


def test_with_a_carbon_price_energy_weighs_what_its_grid_emits() -> None:
    """8 GPUs x 1 kW x 1.25 x 10 h = 100 kWh; at 400 g and $80 a tonne."""
    found = term(drawn(CARBON), TermKind.ENERGY)
    assert found.amount_usd_micro == 3_200_000
    assert explain.bill_text(found)[0].startswith("energy of main on h100: 100 kWh x $0.03/kWh = $3.20")


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"watts": None}, id="the draw of its GPUs"),
        pytest.param({"energy_permille": None}, id="its facility overhead"),
        pytest.param({"grid_g_per_kwh": None}, id="its grid"),
    ],
)
def test_a_site_of_which_this_is_not_known_is_rejected_only_where_carbon_has_a_price(facts: dict[str, Any]) -> None:
    assert reasons(drawn(CARBON, **facts), "onprem") == [Reason.ENERGY_UNKNOWN]
    assert drawn(**facts).chosen == "onprem"


def test_a_carbon_price_that_is_too_old_is_unknown() -> None:
    old = replace(CARBON, dated=TODAY - timedelta(days=31))
    assert reasons(drawn(old), "onprem") == [Reason.PRICE_OLD]
