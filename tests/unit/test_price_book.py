"""prices.yaml as decisions read it: currencies, peerings, tiers, requests; what is wrong in it, and what is odd."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from dispatcher.config import LoadResult, load_blueprint
from dispatcher.core.policy import EgressTier, Policy
from dispatcher.core.workload import WorkloadClass
from tests.unit.blueprint_files import EXAMPLE, NOW, SMALL, load

P = "prices.yaml"
CPU = "usd_per_hour: 0.012, source: rate, dated: 2026-11-02"
RATES = "max_age_days: 400\nrates:\n  - {currency: EUR, usd: 1.08, source: bank, dated: 2026-10-01}\n"


def loaded(tmp_path: Path, *edits: tuple[str, str, str]) -> LoadResult:
    files: dict[str, str | bytes] = dict(SMALL)
    for name, old, new in edits:
        text = str(files[name])
        assert old in text, f"{old!r} is not in {name}"
        files[name] = text.replace(old, new, 1)
    return load(tmp_path, files)


def book(tmp_path: Path, *edits: tuple[str, str, str]) -> Policy:
    found = loaded(tmp_path, *edits)
    assert [problem.text() for problem in found.errors] == []
    assert found.policy is not None
    return found.policy


IN_EUR = (P, CPU, "currency: EUR, per_hour: 0.012, marginal_per_hour: 0.001, source: rate, dated: 2026-11-02")


def test_a_price_in_another_currency_is_worth_what_its_rate_says_and_as_old_as_the_older(tmp_path: Path) -> None:
    found = book(tmp_path, IN_EUR, (P, "max_age_days: 400\n", RATES)).prices
    price = found.compute[("onprem", "de-home", "cpu", "internal")]
    assert (price.usd_micro_per_hour, price.marginal_usd_micro_per_hour) == (12_960, 1_080)
    assert price.dated == date(2026, 10, 1)
    assert price.source == "rate; EUR by bank"


def test_without_its_rate_a_price_is_left_out_and_lint_says_so(tmp_path: Path) -> None:
    found = loaded(tmp_path, IN_EUR)
    assert found.policy is not None
    assert ("onprem", "de-home", "cpu", "internal") not in found.policy.prices.compute
    assert any("no rate: the price is unknown" in problem.text() for problem in found.problems)


def test_a_carbon_price_without_its_rate_is_older_than_any_limit(tmp_path: Path) -> None:
    row = "max_age_days: 400\ncarbon: {currency: EUR, per_tonne: 80, source: own, dated: 2026-11-02}\n"
    carbon = book(tmp_path, (P, "max_age_days: 400\n", row)).prices.carbon
    assert carbon is not None
    assert carbon.dated == date.min
    with_rate = book(tmp_path, (P, "max_age_days: 400\n", row), (P, "max_age_days: 400\n", RATES)).prices.carbon
    assert with_rate is not None
    assert with_rate.usd_micro_per_tonne == 86_400_000


ROUTE = "  - {from_region: fi-north, to_region: de-home, usd_per_gb: 0.02, source: rate, dated: 2026-11-02}\n"
PEERING = ROUTE.replace("usd_per_gb: 0.02", "usd_per_gb: 0.003, from_provider: northgrid, to_provider: onprem, via: x")


def test_a_row_between_two_providers_is_a_route_of_its_own(tmp_path: Path) -> None:
    prices = book(tmp_path, (P, ROUTE, ROUTE + PEERING)).prices
    assert prices.egress[("fi-north", "de-home")].usd_micro_per_gb == 20_000
    (found,) = prices.peerings.items()
    assert found[0] == ("northgrid", "fi-north", "onprem", "de-home")
    assert (found[1].usd_micro_per_gb, found[1].via) == (3_000, "x")


def test_a_default_between_two_providers_is_for_every_other_region(tmp_path: Path) -> None:
    default = PEERING.replace("to_region: de-home", 'to_region: "*"')
    prices = book(tmp_path, (P, ROUTE, ROUTE + default)).prices
    assert ("northgrid", "fi-north", "onprem", "fi-north") not in prices.peerings
    assert ("northgrid", "fi-north", "onprem", "de-home") in prices.peerings


def test_tiers_and_requests_become_micro_usd(tmp_path: Path) -> None:
    tiered = ROUTE.replace("usd_per_gb: 0.02", "usd_per_gb: 0.02, tiers: [{up_to: 10TB, per_gb: 0.09}]")
    requests = (
        "requests:\n  - {provider: northgrid, region: fi-north, reads_per_million: 0.4, writes_per_million: 5, "
        "object_size: 64MB, source: card, dated: 2026-11-02}\n"
    )
    prices = book(tmp_path, (P, ROUTE, tiered + requests)).prices
    assert prices.egress[("fi-north", "de-home")].tiers == (EgressTier(10 * 10**12, 90_000),)
    row = prices.requests[("northgrid", "fi-north")]
    assert (row.usd_micro_per_million_reads, row.usd_micro_per_million_writes) == (400_000, 5_000_000)
    assert row.object_bytes == 64 * 10**6


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param(CPU, f"currency: EURO, {CPU}", "not an ISO 4217 currency", id="no such currency"),
        pytest.param(CPU, f"per_hour: 1, {CPU}", "exactly one of 'usd_per_hour' and 'per_hour'", id="two prices"),
        pytest.param(CPU, "source: rate, dated: 2026-11-02", "exactly one of 'usd_per_hour'", id="no price"),
        pytest.param(
            ROUTE,
            ROUTE.replace("usd_per_gb: 0.02", "usd_per_gb: 0.02, from_provider: northgrid"),
            "one provider of a route",
            id="half a peering",
        ),
        pytest.param(
            ROUTE,
            ROUTE + PEERING.replace("to_provider: onprem", "to_provider: onprom"),
            "not one of the providers of fleet.yaml",
            id="a provider that is not there",
        ),
        pytest.param(ROUTE, ROUTE + PEERING + PEERING, "priced twice", id="the same peering twice"),
        pytest.param(
            "max_age_days: 400\n",
            RATES.replace("1.08", "0"),
            "a rate of nothing",
            id="a rate by which everything in a currency would be free",
        ),
        pytest.param(CPU, f"marginal_per_hour: 9, {CPU}", "more than the whole price", id="a part above the whole"),
        pytest.param(
            ROUTE,
            ROUTE.replace(
                "usd_per_gb: 0.02",
                "usd_per_gb: 0.02, tiers: [{up_to: 10TB, per_gb: 0.09}, {up_to: 5TB, per_gb: 0.1}]",
            ),
            "tiers out of order",
            id="tiers that shrink",
        ),
        pytest.param(
            ROUTE,
            ROUTE.replace("usd_per_gb: 0.02", "usd_per_gb: 0.02, currency: EUR, tiers: [{up_to: 1TB, per_gb: 1}]"),
            "tiers in another currency",
            id="two currencies in a row",
        ),
        pytest.param(
            "max_age_days: 400\n",
            RATES.replace("EUR", "USD"),
            "every price is in USD already",
            id="a rate of USD",
        ),
        pytest.param(
            "max_age_days: 400\n",
            RATES + "  - {currency: EUR, usd: 1.1, source: bank, dated: 2026-11-01}\n",
            "priced twice",
            id="two rates",
        ),
    ],
)
def test_what_is_wrong_in_the_book_is_an_error_with_its_rule(tmp_path: Path, old: str, new: str, told: str) -> None:
    found = loaded(tmp_path, (P, old, new))
    assert any(told in problem.text() for problem in found.errors), [p.text() for p in found.errors]


def test_spot_of_which_nobody_knows_how_long_it_lasts_is_a_warning(tmp_path: Path) -> None:
    found = loaded(tmp_path, (P, "purchase: on-demand", "purchase: spot"))
    assert any("nobody knows how long it lasts" in problem.text() for problem in found.problems)


CARBON = "max_age_days: 400\ncarbon: {per_tonne: 80, source: own, dated: 2026-11-02}\n"
CLASS = "  training: {delay_price: 4, patience: PT5M, default_duration: PT2H, preemptible: true, checkpoint_required: "


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        pytest.param(
            (P, "max_age_days: 400\n", CARBON),
            "no energy_factor and no carbon_g_per_kwh and no watts, and carbon has a price",
            id="a carbon price without the facts that it needs",
        ),
        pytest.param(
            ("queues.yaml", f"{CLASS}false", f"{CLASS}true"),
            "checkpoints are asked for, and how much that is is not known",
            id="checkpoints of a size that nobody knows",
        ),
    ],
)
def test_what_keeps_work_away_unseen_is_a_warning(tmp_path: Path, edit: tuple[str, str, str], told: str) -> None:
    assert not any(told in problem.text() for problem in loaded(tmp_path).problems)
    assert any(told in problem.text() for problem in loaded(tmp_path, edit).problems)


def test_an_old_rate_is_a_warning(tmp_path: Path) -> None:
    found = loaded(tmp_path, IN_EUR, (P, "max_age_days: 400\n", RATES.replace("2026-10-01", "2025-01-01")))
    assert any("rates" in p.text() or "older than max_age_days" in p.text() for p in found.problems)


def test_the_facts_of_clusters_classes_and_sets_reach_the_policy() -> None:
    """On the example blueprint."""
    found = load_blueprint(EXAMPLE, NOW).policy
    assert found is not None
    site = found.clusters["onprem-eu"]  # type: ignore[index]
    assert (site.cache_bytes, site.energy_permille, site.grid_g_per_kwh) == (400 * 10**12, 1250, 363)
    cards = site.flavors["rtx-pro-6000"]  # type: ignore[index]
    assert (cards.speed(WorkloadClass.SIMULATION), cards.speed(WorkloadClass.EVALUATION)) == (1600, 1300)
    cloud = found.clusters["cloud-a-fi"].flavors  # type: ignore[index]
    assert cloud["h200"].reserved_until == date(2027, 12, 31)  # type: ignore[index]
    assert (cloud["h200"].failure_s, cloud["h200"].watts) == (250 * 86_400, 1050)  # type: ignore[index]
    training = found.classes[WorkloadClass.TRAINING]
    assert (training.checkpoint_bytes, training.checkpoint_interval_s, training.restart_s) == (150 * 10**9, 3600, 600)
    assert found.data_sets["lidar-raw"].objects == -(-38 * 2**40 // 10**9)  # type: ignore[index]
    assert found.limits.reclaim_s == 86_400
