"""Runs of the simulator on scenarios that can be checked by hand: every contender, to the second."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.errors import Fatal
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import EgressTier, PriceBook
from dispatcher.core.prices import compute_amount
from dispatcher.sim.contenders_all import CONTENDERS, as_told
from dispatcher.sim.engine import run
from dispatcher.sim.engine_compare import Mark, compare, entries
from dispatcher.sim.jobs import Checkpoint, Reading, Scenario, SimDataSet
from dispatcher.sim.report import report_text
from dispatcher.sim.results import JobOutcome, Run
from dispatcher.sim.world import set_up
from tests.loops.sim_jobs import SITES, crowd, scenario, sim_job

RADAR = SimDataSet("radar", 90 * 10**9, ("internal",), ("us-ohio",))
PEERS = ("all-at-once", "incremental", "cheapest", "home-only", "entrepot")


def outcomes(made: Scenario, contender: str) -> dict[str, JobOutcome]:
    found = run(set_up(made), CONTENDERS[contender].factory)
    return {outcome.job: outcome for outcome in found.outcomes}


# --- one job, each contender -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contender", "cluster", "copies"),
    [
        pytest.param(
            "all-at-once", "cloud-a-fi", 4, id="AllAtOnce makes a copy everywhere; of a tie the first by name wins"
        ),
        pytest.param("incremental", "cloud-a-fi", 3, id="Incremental begins with the first three"),
        pytest.param("cheapest", "onprem-eu", 1, id="the cheapest GPU hour is our own"),
        pytest.param("home-only", "cloud-b-fr", 1, id="home is where the job's team sits"),
        pytest.param("entrepot", "onprem-eu", 1, id="Entrepot makes one copy, where all in all it costs least"),
    ],
)
def test_a_job_on_an_empty_fleet_runs_within_two_seconds(contender: str, cluster: str, copies: int) -> None:
    """10.00 submitted, 10.07 quota on the hub, 10.09 nominated, 10.11 copied, 10.18 admitted there, 11.18 seen by
    MultiKueue, which creates the job: 11.20 its pod is on a node."""
    found = outcomes(scenario(sim_job("alone", lasts=600, home="fr-paris")), contender)["alone"]

    assert found.runs == (Run(cluster, "h100", 11, 611),)
    assert (found.wait_s, found.finish_s, found.copies, found.preemptions) == (1, 612, copies, 0)
    assert dict(found.costs)["run"] == price_of(cluster, gpus=8, seconds=600)


def price_of(cluster: str, gpus: int, seconds: int) -> int:
    """By the price book, with the least that the provider bills."""
    policy = set_up(scenario()).policy
    site = policy.clusters[ClusterName(cluster)]
    flavor = next(iter(site.flavors.values()))
    price = policy.prices.compute[site.provider, site.region, flavor.product or "", flavor.purchase]
    return compute_amount(price, gpus * 1000, seconds, 1000)


# --- what a world does -------------------------------------------------------------------------------------------


def test_at_home_the_second_gang_waits_for_the_first() -> None:
    made = scenario(sim_job("first", 10, 600, pods=4), sim_job("second", 20, 600, pods=4))

    found = outcomes(made, "home-only")

    assert found["first"].runs == (Run("onprem-eu", "h100", 11, 611),)
    assert found["second"].runs == (Run("onprem-eu", "h100", 612, 1212),)


def test_entrepot_sends_the_second_gang_elsewhere() -> None:
    made = scenario(sim_job("first", 10, 600, pods=4), sim_job("second", 20, 600, pods=4))

    found = outcomes(made, "entrepot")

    assert found["second"].wait_s == 1
    assert found["second"].runs[0].cluster != "onprem-eu"


def test_data_from_afar_is_paid_for_and_waited_for_while_the_gpus_are_held() -> None:
    made = scenario(sim_job("reader", lasts=600, data=(Reading("radar"),)), data=(RADAR,))
    policy = set_up(made).policy
    price = policy.prices.egress["us-ohio", "de-stuttgart"]
    assert price.bandwidth_mbit_s is not None
    fetch_s = -(-RADAR.size_bytes * 8 // (price.bandwidth_mbit_s * 10**6))

    found = outcomes(made, "home-only")["reader"]

    assert found.egress_bytes == RADAR.size_bytes
    assert found.egress_usd_micro == 90 * price.usd_micro_per_gb
    assert found.runs == (Run("onprem-eu", "h100", 11, 611 + fetch_s),)


def test_of_a_route_with_tiers_the_whole_transfer_counts_and_a_peering_goes_first() -> None:
    """90 GB: $9 by the first tier of one way, whose last tier is the cheapest price of all; $4.50 by the other."""
    made = scenario(
        sim_job("reader", lasts=600, data=(Reading("radar"),)), data=(replace(RADAR, regions=("us-ohio", "fr-paris")),)
    )
    setup = set_up(made)
    prices = setup.policy.prices
    there = [at for at in prices.egress if at[1] == "de-stuttgart" and at[0] in ("us-ohio", "fr-paris")]
    tiered = {at: replace(prices.egress[at], usd_micro_per_gb=50_000) for at in there}
    ohio = next(at for at in there if at[0] == "us-ohio")
    tiered[ohio] = replace(prices.egress[ohio], usd_micro_per_gb=1_000, tiers=(EgressTier(10**13, 100_000),))
    book = replace(prices, egress={**prices.egress, **tiered})

    def paid(book: PriceBook) -> int:
        found = run(replace(setup, policy=replace(setup.policy, prices=book)), CONTENDERS["home-only"].factory)
        return found.outcomes[0].egress_usd_micro

    assert paid(book) == 90 * 50_000
    site = setup.policy.clusters[ClusterName("onprem-eu")]
    store = next(s for s in setup.policy.stores.values() if s.region == "us-ohio")
    peering = replace(prices.egress[ohio], usd_micro_per_gb=2_000)
    ends = (store.provider, store.region, site.provider, site.region)
    assert paid(replace(book, peerings={ends: peering})) == 90 * 2_000


def test_capacity_under_contract_costs_what_using_it_adds() -> None:
    setup = set_up(scenario(sim_job("alone", lasts=600)))
    policy, name = setup.policy, ClusterName("onprem-eu")
    site = policy.clusters[name]
    (flavor,) = site.flavors.values()
    under = replace(flavor, reserved_until=setup.start.date())
    clusters = {**policy.clusters, name: replace(site, flavors={under.name: under})}
    compute = {
        at: replace(price, marginal_usd_micro_per_hour=300_000) if at[:2] == (site.provider, site.region) else price
        for at, price in policy.prices.compute.items()
    }
    changed = replace(policy, clusters=clusters, prices=replace(policy.prices, compute=compute))

    (found,) = run(replace(setup, policy=changed), CONTENDERS["home-only"].factory).outcomes

    assert dict(found.costs)["run"] == 8 * 600 * 300_000 // 3600


def test_where_the_data_lies_nothing_is_paid_for_it() -> None:
    made = scenario(sim_job("reader", home="us-ohio", data=(Reading("radar"),)), data=(RADAR,))

    found = outcomes(made, "home-only")["reader"]

    assert (found.runs[0].cluster, found.egress_usd_micro, found.egress_bytes) == ("cloud-c-us", 0, 0)


def test_a_gang_that_is_stopped_goes_on_from_its_last_checkpoint() -> None:
    """It writes one each 100 s of work, for 10 s; after 249 s it is stopped, with 200 s of work behind it and 400 s
    and three more checkpoints before it."""
    low = sim_job("low", 10, 600, pods=4, checkpoint=Checkpoint(10**9, 100, 10))
    high = sim_job("high", 260, 100, pods=3, priority="production")  # within the 28 GPUs that its queue owns

    found = outcomes(scenario(low, high), "home-only")

    stopped, resumed = found["low"].runs
    assert stopped == Run("onprem-eu", "h100", 11, 260)
    assert resumed.end_s - resumed.start_s == 400 + 3 * 10
    assert (found["low"].preemptions, found["low"].needless_preemptions) == (1, 0)
    assert resumed.start_s >= found["high"].runs[0].end_s


def test_a_preemption_by_a_copy_that_wins_elsewhere_is_needless() -> None:
    """AllAtOnce sends an urgent gang everywhere: the fourth cluster has room, three stop somebody for it at once, and
    one of them wins."""
    lows = [sim_job(f"low-{number}", 10 + number, 6000, pods=4) for number in range(3)]
    high = sim_job("high", 300, 600, pods=3, priority="production")

    found = outcomes(scenario(*lows, high), "all-at-once")

    stopped = [found[low.name] for low in lows]
    assert [low.preemptions for low in stopped] == [1, 1, 1]
    assert [low.needless_preemptions for low in stopped] == [0, 1, 1]
    assert found["high"].runs[0].cluster == stopped[0].runs[0].cluster


def test_incremental_comes_to_the_fourth_cluster_after_five_minutes() -> None:
    gangs = [sim_job(f"gang-{number}", 10 + number, 6000, pods=4) for number in range(4)]

    found = outcomes(scenario(*gangs), "incremental")

    assert [found[gang.name].wait_s for gang in gangs[:3]] == [1, 1, 1]
    assert 300 <= (found["gang-3"].wait_s or 0) <= 302
    assert {outcome.runs[0].cluster for outcome in found.values()} == set(SITES)


# --- nothing crashes it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contender", PEERS)
def test_a_job_that_fits_nowhere_never_runs_and_ends_the_simulation_all_the_same(contender: str) -> None:
    found = outcomes(scenario(sim_job("huge", pods=13), sim_job("small", 20)), contender)

    assert found["huge"].runs == ()
    assert (found["huge"].finish_s, found["huge"].wait_s, found["huge"].cost_usd_micro) == (None, None, 0)
    assert found["small"].finish_s is not None


@pytest.mark.parametrize("contender", PEERS)
def test_no_jobs_are_over_at_once(contender: str) -> None:
    found = run(set_up(scenario()), CONTENDERS[contender].factory)

    assert (found.outcomes, found.end_s, found.events) == ((), 0, 0)


def test_what_the_law_keeps_at_home_waits_there_and_kueue_does_not_know_of_it() -> None:
    drawings = SimDataSet("drawings", 10**9, ("export-controlled",), ("de-stuttgart",))
    made = scenario(
        sim_job("blocker", 10, 600, pods=4),
        sim_job("drawing", 60, 600, pods=4, data=(Reading("drawings"),)),
        data=(drawings,),
    )

    lawful, blind = outcomes(made, "entrepot")["drawing"], outcomes(made, "all-at-once")["drawing"]

    assert (lawful.runs[0].cluster, lawful.runs[0].start_s >= 611) == ("onprem-eu", True)
    assert (blind.runs[0].cluster, blind.runs[0].start_s) == ("cloud-b-fr", 61)


def test_a_queue_that_the_blueprint_lacks_is_named() -> None:
    with pytest.raises(Fatal, match="no queue robots"):
        set_up(scenario(sim_job("lost", queue="robots")))


# --- the same bytes ----------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes() -> None:
    made = crowd(25)

    first, second = (compare([made], entries(("all-at-once", "entrepot")), lambda mark: None) for _ in range(2))

    assert report_text(first) == report_text(second)
    assert first == second


def test_each_run_tells_when_it_is_over() -> None:
    marks: list[Mark] = []

    compare([scenario(sim_job("alone"))], entries(("home-only", "cheapest", "home-only")), marks.append)

    assert [(m.contender, m.ended, m.jobs) for m in marks if m.over] == [("home-only", 1, 1), ("cheapest", 1, 1)]


def test_only_a_bound_is_told_the_truth() -> None:
    made = scenario(sim_job("noisy", lasts=600, estimate=1200))

    assert as_told(made, CONTENDERS["entrepot"]).jobs[0].estimate_s == 1200
    assert as_told(made, CONTENDERS["oracle"]).jobs[0].estimate_s == 600
    assert [r.is_bound for r in compare([made], entries(("entrepot", "oracle"))).results] == [False, True]


def test_the_manifest_does_not_hold_the_truth() -> None:
    job = sim_job("secret", lasts=777_777, estimate=1_200)
    text = repr(set_up(scenario(job)).manifest(job))

    assert "PT1200S" in text
    assert "777777" not in text


def test_an_unknown_contender_is_refused_with_a_suggestion() -> None:
    with pytest.raises(Fatal, match="'entrpot'") as refused:
        entries(("entrpot",))
    assert "entrepot" in refused.value.fix


def test_a_cache_is_charged_as_it_fills_and_not_again() -> None:
    """At home in Paris, of which the cache holds the radar: the first brings it, once for three epochs; the second
    waits for the rest of that transfer, the third for nothing."""
    read = {"data": (Reading("radar", 3),), "home": "fr-paris"}
    jobs = [sim_job(name, at, 600, **read) for name, at in (("a", 10), ("b", 40), ("c", 400))]
    setup = set_up(scenario(*jobs, data=(RADAR,)))
    sites = {name: replace(site, cache_bytes=10**11) for name, site in setup.policy.clusters.items()}
    cached = replace(setup, policy=replace(setup.policy, clusters=sites))

    plain, shared = (
        {o.job: o for o in run(each, CONTENDERS["home-only"].factory).outcomes} for each in (setup, cached)
    )

    assert [plain[name].egress_bytes for name in "abc"] == [27 * 10**10] * 3
    assert [shared[name].egress_bytes for name in "abc"] == [9 * 10**10, 0, 0]
    way_s = runs_s(shared["a"]) - 600
    assert runs_s(shared["b"]) - 600 == way_s - 30
    assert runs_s(shared["c"]) == 600


def runs_s(outcome: JobOutcome) -> int:
    (only,) = outcome.runs
    return only.end_s - only.start_s
