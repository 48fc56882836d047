"""The generator: tables into jobs, the overlay over both, and a scenario that is the same bytes everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from dispatcher.config import load_blueprint
from dispatcher.core.errors import Fatal
from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.generator import Arrivals, FleetShape, Overlay, Plan, Shape, TracePlan, from_plan, from_trace
from dispatcher.sim.generator.catalog import Catalog, DataMix, LabelShare
from dispatcher.sim.generator.classes import TYPE_AFFINITY
from dispatcher.sim.generator.draws import UNIT, Draws
from dispatcher.sim.generator.fleet import Site
from dispatcher.sim.generator.overlay import Overlaid
from dispatcher.sim.generator.quantiles import Quantiles
from dispatcher.sim.generator.synthetic import submissions
from dispatcher.sim.generator.window import densest, fitting
from dispatcher.sim.jobs import Checkpoint, Reading, Scenario, SimDataSet, SimJob
from dispatcher.sim.readers import SCHEMAS
from dispatcher.sim.scenarios import BLUEPRINTS, PLANS, blueprint_folder, load_fleet, named_scenario, trace_scenario
from dispatcher.sim.trace import Rule, Trace, TraceJob
from tests.builders import START

ROOT = Path(__file__).resolve().parents[2]
DAY_S = 86_400
TWO_SITES = FleetShape(
    name="two",
    digest="0" * 64,
    sites=(Site("a", "de-stuttgart", 64, 64_000, 64), Site("b", "us-ohio", 16, 32_000, 16)),
    queues=(("curation", WorkloadClass.DATA_PROCESSING), ("models", WorkloadClass.TRAINING)),
    labels=frozenset({"internal", "customer-acme"}),
)
SMALL = Plan("tiny", "for tests", jobs=200, load_permille=1_200)


def digest(scenario: Scenario) -> str:
    """Of what was drawn; the recipe also tells the digest of the rules, which changes with the blueprint's form."""
    return sha256(repr((scenario.jobs, scenario.data_sets, scenario.span_s)).encode()).hexdigest()[:16]


# --- draws and tables ---


def test_draws_are_those_of_every_machine_and_every_python() -> None:
    draws = Draws(7, "job", "job-1")
    assert [draws.even() for _ in range(3)] == GOLDEN_DRAWS
    assert [Draws(7, "a").weighted((("x", 1), ("y", 3))) for _ in range(2)] == ["y", "y"]


def test_a_draw_for_one_purpose_knows_nothing_of_another() -> None:
    assert Draws(1, "ab", "c").even() != Draws(1, "a", "bc").even()
    assert Draws(1, "a").even() != Draws(11, "a").even()


def test_nothing_can_be_drawn_from_no_choice() -> None:
    with pytest.raises(ValueError, match="nothing to choose from"):
        Draws(1).weighted((("x", 0),))


def test_a_lognormal_has_the_median_and_spread_that_it_was_made_with() -> None:
    table = Quantiles.lognormal(148_000, 1_500)
    assert table.at(UNIT // 2) == 148_000
    assert table.at(round(0.8413447 * UNIT)) == pytest.approx(148_000 * 4.4817, rel=0.01)
    assert table.at(0) == pytest.approx(148_000 * 148_000 / table.at(UNIT), rel=0.01)


@pytest.mark.parametrize(
    "points",
    [(("0", 1),), (("0", 1), ("0.5", 2)), (("0", 2), ("1", 1)), (("0", 1), ("0.5", 2), ("0.5", 3), ("1", 4))],
    ids=["one point", "no end", "falls", "stands still"],
)
def test_a_table_that_is_no_distribution_is_refused(points: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(ValueError, match="from probability 0 to 1"):
        Quantiles.of(*points)


# --- arrivals ---


def test_at_an_even_rate_each_hour_gets_its_share() -> None:
    hours = Counter(at // 3_600 for at in submissions(24_000, DAY_S, 1, Shape(arrivals=Arrivals.POISSON)))
    assert len(hours) == 24
    assert max(hours.values()) < 1.25 * min(hours.values())


def test_by_the_hour_of_the_day_busy_hours_get_more() -> None:
    shape = Shape(hours=(1, 0, 3), arrivals=Arrivals.DIURNAL)
    hours = Counter(at // 3_600 for at in submissions(8_000, 6 * 3_600, 1, shape))
    assert sorted(hours) == [0, 2, 3, 5]
    assert hours[2] == pytest.approx(3 * hours[0], rel=0.1)


def test_a_span_that_ends_within_an_hour_ends_there() -> None:
    assert max(submissions(5_000, 5_400, 1, Shape(arrivals=Arrivals.POISSON))) in range(5_380, 5_400)


# --- which jobs of a trace ---


def jobs_at(*instants: int, gpus: int = 1) -> tuple[TraceJob, ...]:
    return tuple(TraceJob(f"j{number}", at, 1, gpus, 100) for number, at in enumerate(instants))


def test_the_densest_stretch_begins_with_its_first_submission() -> None:
    kept, counts = densest(jobs_at(0, 10, DAY_S + 5, DAY_S + 6, DAY_S + 7, 5 * DAY_S), 1)
    assert [(job.name, job.submit_s) for job in kept] == [
        ("j1", 0),
        ("j2", DAY_S - 5),
        ("j3", DAY_S - 4),
        ("j4", 86397),
    ]
    assert counts == ((Rule.OUTSIDE_WINDOW, 2),)
    assert densest(jobs_at(0, 9 * DAY_S), None) == (jobs_at(0, 9 * DAY_S), ())


def test_gangs_that_no_cluster_holds_are_left_out_and_counted() -> None:
    kept, counts = fitting((*jobs_at(1), *jobs_at(2, gpus=9)), 8)
    assert (len(kept), counts) == (1, ((Rule.LARGER_THAN_ANY_CLUSTER, 1),))


# --- the fleet ---


def test_the_fleet_of_the_named_scenarios_is_four_equal_clusters() -> None:
    fleet = load_fleet("four-sites", START)
    assert [(site.cluster, site.gpus, site.speed_milli, site.widest) for site in fleet.sites] == [
        (name, 48, 48_000, 48) for name in ("cloud-a-fi", "cloud-b-fr", "cloud-c-us", "onprem-eu")
    ]
    assert fleet.regions == ("de-stuttgart", "fi-helsinki", "fr-paris", "us-ohio")


def test_slices_of_a_gpu_are_no_gpus_and_faster_flavors_do_more() -> None:
    fleet = load_fleet(str(ROOT / "config"), START)
    onprem = next(site for site in fleet.sites if site.cluster == "onprem-eu")
    assert (onprem.gpus, onprem.speed_milli, onprem.widest) == (80, 32 * 1_300 + 48 * 1_000, 32)
    assert fleet.text().startswith("config, 4 clusters, 240 GPUs, rules ")


@pytest.mark.parametrize(
    ("workload_class", "queues"),
    [
        (WorkloadClass.TRAINING, ("models",)),
        (WorkloadClass.DATA_PROCESSING, ("curation",)),
        (WorkloadClass.EVALUATION, ("models",)),
        (WorkloadClass.INTERACTIVE, ("models",)),
    ],
)
def test_a_class_without_a_queue_of_its_own_goes_where_work_like_it_goes(
    workload_class: WorkloadClass, queues: tuple[str, ...]
) -> None:
    assert TWO_SITES.queues_of(workload_class) == queues


# --- the overlay ---


def test_the_overlay_of_a_job_is_the_same_whatever_other_jobs_there_are() -> None:
    found = tuple(TraceJob(f"job-{n}", n, 1, 1 + n % 8, 60 * n + 1) for n in range(50))
    whole = Overlaid(Overlay(), TWO_SITES, 3).jobs(found)
    part = Overlaid(Overlay(), TWO_SITES, 3).jobs(tuple(reversed(found[10:20])))
    assert part == whole[10:20]


def test_names_that_kubernetes_refuses_are_replaced_and_teams_come_from_the_trace() -> None:
    found = (TraceJob("Job_1", 0, 1, 1, 60, user="uAbc"), TraceJob("j2", 0, 1, 1, 60, queue="vc-7"))
    named = {job.name: job.team for job in Overlaid(Overlay(), TWO_SITES, 1).jobs(found)}
    assert named == {"job-0": "uabc", "j2": "vc-7"}


def test_what_a_trace_says_of_its_kind_goes_before_the_rules() -> None:
    found = (TraceJob("j1", 0, 16, 8, 90_000, kind="Evaluation"),)
    assert Overlaid(Overlay(), TWO_SITES, 1).jobs(found)[0].workload_class is WorkloadClass.EVALUATION


def test_gpu_types_become_products_only_where_all_are_known() -> None:
    overlay = Overlay(products=(("v100", ("a100-80gb",)), ("k80", ("l40s-48gb", "a10-24gb"))))
    speeds = (("k80", 250), ("p100", 500))
    found = (
        TraceJob("j1", 0, 1, 1, 60, gpu_types=("v100", "k80"), speeds=speeds),
        TraceJob("j2", 0, 1, 1, 60, gpu_types=("v100", "t4")),
    )
    first, second = Overlaid(overlay, TWO_SITES, 1).jobs(found)
    assert first.products == ("a10-24gb", "a100-80gb", "l40s-48gb")
    assert first.speeds == (("a10-24gb", 250), ("l40s-48gb", 250))
    assert (first.speed_on("l40s-48gb"), first.speed_on("a100-80gb"), second.products) == (250, None, ())


def test_a_job_has_speeds_of_its_own_around_those_of_its_class() -> None:
    found = tuple(TraceJob(f"j{n}", 0, 1, 8, 90_000, kind="sft") for n in range(400))
    made = Overlaid(Overlay(affinity=TYPE_AFFINITY), TWO_SITES, 1).jobs(found)
    on_l40s = sorted(job.speed_on("l40s-48gb") or 0 for job in made)
    assert on_l40s[200] == pytest.approx(180, rel=0.05)
    assert on_l40s[20] < 144 < 230 < on_l40s[380]
    told = replace(found[0], speeds=(("k80", 77),))
    overlay = Overlay(affinity=TYPE_AFFINITY, products=(("k80", ("l40s-48gb",)),))
    assert Overlaid(overlay, TWO_SITES, 1).jobs((told,))[0].speeds == (("l40s-48gb", 77),)


def test_the_fleet_of_three_types_declares_the_medians_of_the_classes() -> None:
    policy = load_blueprint(BLUEPRINTS / "three-types", START).policy
    assert policy is not None
    flavors = [flavor for cluster in policy.clusters.values() for flavor in cluster.flavors.values()]
    assert len(flavors) == 6
    for workload_class, speeds in TYPE_AFFINITY:
        assert {(str(flavor.product), flavor.speed(workload_class)) for flavor in flavors} == set(speeds)


def test_checkpoints_grow_with_the_gang_and_follow_youngs_rule() -> None:
    found = (TraceJob("j1", 0, 2, 8, 90_000, kind="sft"), TraceJob("j2", 0, 1, 1, 60, kind="debug"))
    large, small = Overlaid(Overlay(), TWO_SITES, 1).jobs(found)
    assert large.checkpoint == Checkpoint(size_bytes=28 * 10**9, interval_s=2_276, cost_s=60)
    assert small.checkpoint is None


def test_labels_that_the_blueprint_lacks_go_to_the_first() -> None:
    shares = DataMix().known(TWO_SITES)
    assert shares == (LabelShare("internal", 900), LabelShare("customer-acme", 100, ("de-stuttgart",)))
    assert DataMix().known(replace(TWO_SITES, labels=frozenset())) == (LabelShare("", 1_000),)


def test_data_lies_where_its_label_may_and_its_readers_are_at_home_there() -> None:
    catalog = Catalog(DataMix(away_permille=0), TWO_SITES, 1)
    assert {d.regions for d in catalog.data_sets if d.labels == ("customer-acme",)} == {("de-stuttgart",)}
    placed = {data_set.name: data_set.regions[0] for data_set in catalog.data_sets}
    homes = (("de-stuttgart", 1), ("us-ohio", 3))
    drawn = [catalog.reading(WorkloadClass.TRAINING, homes, Draws(1, str(n))) for n in range(500)]
    assert all(placed[reading.data_set] == home for home, readings in drawn for reading in readings)
    assert sum("customer-acme" in readings[0].data_set for _, readings in drawn) == pytest.approx(50, abs=25)
    assert {reading.epochs for _, readings in drawn for reading in readings} == {1, 2, 3}


def test_people_at_notebooks_read_no_data_sets() -> None:
    catalog = Catalog(DataMix(), TWO_SITES, 1)
    assert catalog.reading(WorkloadClass.INTERACTIVE, (("us-ohio", 1),), Draws(1)) == ("us-ohio", ())


# --- scenarios ---


def test_the_load_is_met_to_the_second() -> None:
    scenario = from_plan(SMALL, TWO_SITES, 1)
    work = sum(job.gpu_seconds for job in scenario.jobs)
    assert work * 1_000_000 / (TWO_SITES.speed_milli * scenario.span_s) == pytest.approx(1_200, rel=0.001)
    assert scenario.jobs[-1].submit_s < scenario.span_s


def test_the_load_changes_when_jobs_come_and_nothing_else() -> None:
    busy, steady = (from_plan(replace(SMALL, load_permille=load), TWO_SITES, 1) for load in (1_600, 960))
    assert {replace(job, submit_s=0) for job in busy.jobs} == {replace(job, submit_s=0) for job in steady.jobs}


def test_the_truth_is_not_what_owners_believe() -> None:
    jobs = from_plan(SMALL, TWO_SITES, 1).jobs
    errors = sorted(job.estimate_s / job.duration_s for job in jobs)
    assert errors[len(errors) // 2] == pytest.approx(1.0, abs=0.15)
    assert errors[len(errors) // 20] < 0.5 < 2 < errors[-len(errors) // 20]


def test_a_trace_is_stretched_to_a_load_or_left_as_it_came() -> None:
    trace = Trace("t.csv", "common", "CC0", 4, jobs_at(0, 500, 1_000), ((Rule.NO_GPU, 1),))
    as_it_came = from_trace(trace, TracePlan(), TWO_SITES, 1)
    stretched = from_trace(trace, TracePlan(load_permille=1), TWO_SITES, 1)
    assert [job.submit_s for job in as_it_came.jobs] == [0, 500, 1_000]
    assert as_it_came.load_permille == 3
    assert [job.submit_s for job in stretched.jobs] == [0, 1_562, 3_125]
    assert as_it_came.recipe[2] == ("jobs", "3 of 4 rows of t.csv (common) in 1000 s, 1 no-gpu")
    assert as_it_came.sources == ("t.csv: CC0",)


def test_a_trace_of_gangs_that_fit_nowhere_is_refused() -> None:
    trace = Trace("t.csv", "common", "CC0", 1, jobs_at(0, gpus=1_000))
    with pytest.raises(ValueError, match="no job fits on a cluster of two"):
        from_trace(trace, TracePlan(), TWO_SITES, 1)


def test_the_recipe_tells_all_that_was_drawn() -> None:
    overlay = Overlay(urgent_permille=50, products=(("v100", ("a100-80gb",)),), affinity=TYPE_AFFINITY)
    recipe = dict(from_plan(replace(SMALL, overlay=overlay), TWO_SITES, 1).recipe)
    assert list(recipe) == [
        "fleet", "load", "jobs", "run times", "GPUs", "arrivals", "home region", "data sets", "labels", "reading",
        "away from home", "class", "checkpoint", "estimates", "priority", "GPU types", "speeds",
    ]  # fmt: skip
    assert recipe["estimates"].startswith("true duration x lognormal(median 1, sigma 0.7)")
    assert recipe["GPU types"] == "v100 = a100-80gb"


@pytest.mark.parametrize("plan", PLANS, ids=[plan.name for plan in PLANS])
def test_every_named_scenario_can_be_made(plan: Plan) -> None:
    fleet = load_fleet(plan.blueprint, START)
    scenario = from_plan(replace(plan, jobs=100), fleet, 1)
    assert (scenario.name, len(scenario.jobs), scenario.blueprint) == (plan.name, 100, plan.blueprint)


def test_the_same_seed_gives_the_same_bytes_on_every_machine() -> None:
    assert digest(named_scenario("small", 1, START)) == GOLDEN_SMALL
    assert digest(named_scenario("small", 2, START)) != GOLDEN_SMALL


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_the_order_of_pythons_sets_changes_nothing(hash_seed: str) -> None:
    code = (
        "from tests.unit.test_sim_generator import digest, named_scenario, START;"
        "print(digest(named_scenario('small', 1, START)))"
    )
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == GOLDEN_SMALL


def test_a_scenario_that_is_not_there_suggests_one() -> None:
    with pytest.raises(Fatal, match=r"no scenario is named 'bussy-1\.2'") as caught:
        named_scenario("bussy-1.2", 1, START)
    assert caught.value.fix == "did you mean 'busy-1.2'?"


def test_a_fleet_that_does_not_load_says_where(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=r"fleet\.yaml"):
        named_scenario("small", 1, START, str(tmp_path))


def test_a_trace_that_cannot_be_read_says_where(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(Fatal, match=r"bad\.csv:1:1: error: 'a,b'"):
        trace_scenario(path, 1, START, TracePlan())


def test_a_fleet_is_one_of_ours_by_its_name_and_a_folder_else() -> None:
    assert blueprint_folder("four-sites") == BLUEPRINTS / "four-sites"
    assert blueprint_folder("./four-sites") == Path("four-sites")


def test_the_documentation_tells_every_scenario_schema_and_rule() -> None:
    page = (ROOT / "docs" / "simulate.md").read_text()
    names = [plan.name for plan in PLANS] + [schema.name for schema in SCHEMAS] + [rule.value for rule in Rule]
    assert [name for name in names if f"| `{name}` |" not in page] == []
    for plan in PLANS:
        assert f"| `{plan.name}` | {plan.jobs:,}" in page


def test_every_line_of_a_recipe_is_explained() -> None:
    overlay = Overlay(urgent_permille=50, products=(("v100", ("a100-80gb",)),), affinity=TYPE_AFFINITY)
    page = (ROOT / "docs" / "simulate.md").read_text()
    generated = from_plan(replace(SMALL, overlay=overlay), TWO_SITES, 1).recipe
    assert [key for key, _ in generated if f"`{key}`" not in page] == []


# --- the vocabulary holds itself ---


def job(name: str = "j", submit_s: int = 0, data: tuple[Reading, ...] = ()) -> SimJob:
    return SimJob(name, submit_s, "models", "t", WorkloadClass.TRAINING, 1, 8, 60, 90, "de-stuttgart", data=data)


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ((job("a", 5), job("b", 4)), "in order of submission"),
        ((job("a"), job("a")), "names of jobs"),
        ((job(data=(Reading("nowhere"),)),), "does not hold"),
    ],
    ids=["out of order", "one name twice", "reads what is not there"],
)
def test_a_scenario_that_does_not_hold_together_is_refused(jobs: tuple[SimJob, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Scenario("s", "four-sites", 1, 1_000, 10, jobs, (SimDataSet("d", 1, (), ("de-stuttgart",)),), ())


@pytest.mark.parametrize("wrong", [{"pods": 0}, {"duration_s": 0}, {"estimate_s": 0}, {"submit_s": -1}])
def test_a_job_that_could_not_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        replace(job(), **wrong)  # type: ignore[arg-type]


GOLDEN_DRAWS = [4_079_405_678, 3_066_143_119, 258_649_193]
GOLDEN_SMALL = "6590777c3b2c54c9"
"""Of `small`, seed 1. It changes whenever what is drawn changes: then every figure that was measured on the named
scenarios must be measured again."""
