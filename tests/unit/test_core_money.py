"""What data, stores and contracts cost: tiers, peerings, requests, caches, checkpoints and outputs, sunk capacity."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from dispatcher.core import explain
from dispatcher.core.decide import hold_of
from dispatcher.core.decision import Decision, Reason, Term, TermKind
from dispatcher.core.policy import EgressPrice, EgressTier, Policy, Purchase, RequestPrice
from dispatcher.core.prices import div_half_up, transfer_amount
from dispatcher.core.workload import Destination, Request, WorkloadClass
from tests.core_builders import (
    GB,
    NOW,
    TODAY,
    USD,
    compute,
    data,
    decided,
    detail_of,
    egress,
    flavor_policy,
    on,
    pods,
    policy,
    reasons,
    request,
    site,
    store,
    uses,
    worker,
)

TB = 1000 * GB
FAR = egress("r-far", "r-onprem", 50_000)
STORES = [store("far", region="r-far"), store("near", region="r-onprem")]


def term(decision: Decision, kind: TermKind, cluster: str = "onprem") -> Term:
    return next(t for t in on(decision, cluster).terms if t.kind is kind)


def reading(reads: int = 1, **book: Any) -> Decision:
    """A job on `onprem` that reads set d: 30 TB, by default in store `far`."""
    rules = policy(
        data_sets=[data("d", 30 * TB, stores=book.pop("stores", ("far",)))],
        egress_prices=book.pop("egress_prices", [FAR]),
        stores=STORES,
    )
    fields = {name: book.pop(name) for name in ("requests", "peerings") if name in book}
    rules = replace(rules, prices=replace(rules.prices, **fields))
    return decided(request(data=uses(("d", reads))), worker(), rules=_at_site(rules, **book))


def _at_site(rules: Policy, **fields: Any) -> Policy:
    clusters = {name: replace(one, **fields) for name, one in rules.clusters.items()}
    return replace(rules, clusters=clusters)


# --- egress ------------------------------------------------------------------------------------------------------

TIERED = replace(FAR, tiers=(EgressTier(10 * TB, 90_000), EgressTier(20 * TB, 70_000)))


@pytest.mark.parametrize(
    ("size", "usd"),
    [
        pytest.param(0, 0, id="nothing costs nothing"),
        pytest.param(10 * TB, 900, id="the first tier alone"),
        pytest.param(15 * TB, 900 + 350, id="a part of the second"),
        pytest.param(30 * TB, 900 + 700 + 500, id="what lies beyond the last tier pays the row's own price"),
    ],
)
def test_each_part_of_a_transfer_pays_the_price_of_its_tier(size: int, usd: int) -> None:
    assert transfer_amount(TIERED, size, 1) == usd * USD


def test_all_reads_of_a_set_count_as_one_transfer_for_the_tiers() -> None:
    found = term(reading(2, egress_prices=[TIERED]), TermKind.DATA_IN)
    assert found.amount_usd_micro == (900 + 700 + 40 * 50) * USD
    assert found.bill[0].unit_price_usd_micro == 60_000, "the bill tells the mean price"


def test_a_peering_between_two_providers_goes_before_the_price_of_their_regions() -> None:
    peering = replace(FAR, usd_micro_per_gb=2_000, via="peering")
    found = term(reading(peerings={("p", "r-far", "p-onprem", "r-onprem"): peering}), TermKind.DATA_IN)
    assert found.amount_usd_micro == 30_000 * 2_000
    assert "peering" in found.bill[0].what


def test_a_peering_that_is_too_old_does_not_fall_back_to_the_internet() -> None:
    old = replace(FAR, usd_micro_per_gb=2_000, dated=TODAY - timedelta(days=31))
    assert reasons(reading(peerings={("p", "r-far", "p-onprem", "r-onprem"): old}), "onprem") == [Reason.PRICE_OLD]


def test_a_free_direction_is_known_and_free() -> None:
    assert term(reading(egress_prices=[egress("r-far", "r-onprem", 0)]), TermKind.DATA_IN).amount_usd_micro == 0


# --- requests ----------------------------------------------------------------------------------------------------

GETS = RequestPrice("p", STORES[0].region, 400_000, 5 * USD, 64 * 10**6, "rate card", TODAY)


def test_a_store_that_bills_requests_is_paid_for_each_object_and_read() -> None:
    found = term(reading(2, requests={("p", "r-far"): GETS}), TermKind.DATA_IN)
    requests = 30 * TB // (64 * 10**6) * 2
    assert (found.bill[1].quantity, found.bill[1].unit) == (requests, "request")
    assert found.bill[1].amount_usd_micro == requests * 400_000 // 10**6
    assert found.amount_usd_micro == sum(line.amount_usd_micro for line in found.bill)


def test_declared_objects_go_before_the_usual_size() -> None:
    rules = policy(
        data_sets=[replace(data("d", 30 * TB, stores=["near"]), objects=2_000_000)],
        stores=STORES,
    )
    near = replace(GETS, region=STORES[1].region)
    rules = replace(rules, prices=replace(rules.prices, requests={("p", "r-onprem"): near}))
    found = term(decided(request(data=uses("d")), worker(), rules=rules), TermKind.DATA_IN)
    assert [line.amount_usd_micro for line in found.bill] == [0, 800_000]


def test_a_request_price_that_is_too_old_is_unknown() -> None:
    old = replace(GETS, dated=TODAY - timedelta(days=31))
    assert reasons(reading(requests={("p", "r-far"): old}), "onprem") == [Reason.PRICE_OLD]


# --- caches and what is on its way -------------------------------------------------------------------------------


def test_a_cache_that_holds_the_set_pays_its_way_once_whatever_the_epochs() -> None:
    assert term(reading(3, cache_bytes=40 * TB), TermKind.DATA_IN).amount_usd_micro == 1500 * USD
    assert term(reading(3, cache_bytes=20 * TB), TermKind.DATA_IN).amount_usd_micro == 4500 * USD


WIDE = egress("r-far", "r-onprem", 50_000, bandwidth=100_000)


def caching(cache: int) -> Policy:
    sets = [data("d", 30 * TB, stores=["far"])]
    return _at_site(policy([site("onprem")], data_sets=sets, egress_prices=[WIDE], stores=STORES), cache_bytes=cache)


def shared(cache: int = 40 * TB) -> tuple[Decision, Decision]:
    """Two jobs that read the same 30 TB: the second is decided when the first was just nominated."""
    rules = caching(cache)
    first = request("first", pods(1, 1), data=uses("d"))
    before = decided(first, worker(), rules=rules)
    promise = hold_of(before, first, rules, NOW)
    assert promise is not None
    return before, decided(request("second", pods(1, 1), data=uses("d")), worker(), rules=rules, holds=[promise])


def test_a_set_that_an_earlier_decision_is_bringing_counts_once_and_is_waited_for() -> None:
    first, second = shared()
    assert [term(d, TermKind.DATA_IN).amount_usd_micro for d in (first, second)] == [1500 * USD, 0]
    waits = [term(d, TermKind.WAITING) for d in (first, second)]
    assert waits[0].amount_usd_micro == waits[1].amount_usd_micro, "it is on its way, not there"
    assert waits[1].bill[0].quantity == 2400
    assert "on its way for team/first" in term(second, TermKind.DATA_IN).bill[0].what


def test_without_a_cache_nobody_shares_what_another_reads() -> None:
    first, second = shared(cache=0)
    assert [term(d, TermKind.DATA_IN).amount_usd_micro for d in (first, second)] == [1500 * USD, 1500 * USD]


def test_a_promise_tells_when_its_data_will_be_there() -> None:
    rules = policy(
        [site("onprem")], data_sets=[data("d", 30 * TB, stores=["far"])], egress_prices=[WIDE], stores=STORES
    )
    rules = _at_site(rules, cache_bytes=40 * TB)
    asked = request(data=uses("d"))
    made = hold_of(decided(asked, worker(), rules=rules), asked, rules, NOW)
    assert made is not None
    assert made.incoming == (("d", NOW + timedelta(seconds=2400)),)


def test_a_derived_set_that_is_gone_names_what_it_can_be_made_from() -> None:
    rules = policy(
        data_sets=[
            data("raw", stores=["far"]),
            data("clean", derived_from=["raw"]),
            data("scenes", derived_from=["clean"]),
        ],
        stores=STORES,
    )
    decision = decided(request(data=uses("scenes")), worker(), rules=rules)
    assert reasons(decision, "onprem") == [Reason.DATA_MISSING]
    assert detail_of(decision, "onprem", Reason.DATA_MISSING).expected == ("raw in far",)
    assert "made from raw in far" in explain.sentence(decision)


def test_fr_sco_17_data_is_what_the_catalog_calls_it_not_what_a_volume_is_called() -> None:
    """Both clusters may have a claim of one name; only the one that is declared to hold d1 is a choice without a way
    to bring it."""
    rules = policy(data_sets=[data("d1", clusters=["onprem"]), data("d2", clusters=["cloud"])])
    decision = decided(request(data=uses("d1")), worker(), worker("cloud"), rules=rules)
    assert decision.chosen == "onprem"
    assert reasons(decision, "cloud") == [Reason.EGRESS_UNKNOWN]


# --- home --------------------------------------------------------------------------------------------------------

HOME = egress("r-onprem", "r-far", 10_000)


def writing(checkpoint: str | None = None, outputs: str | None = None, hours: int = 12, **more: Any) -> Decision:
    said = {name: more.pop(name) for name in tuple(more) if name.startswith(("checkpoint_", "outputs_"))}
    plan = {name: more.pop(name) for name in tuple(more) if name.startswith("class_")}
    rules = policy(egress_prices=[HOME], stores=STORES)
    rules = replace(rules, prices=replace(rules.prices, **more))
    training = replace(rules.classes[WorkloadClass.TRAINING], **{k.removeprefix("class_"): v for k, v in plan.items()})
    rules = replace(rules, classes={**rules.classes, WorkloadClass.TRAINING: training})
    wanted = request(checkpoint=_to(checkpoint), outputs=_to(outputs), expected_duration_s=hours * 3600, **said)
    return decided(wanted, worker(), rules=rules)


def _to(name: str | None) -> Destination | None:
    return Destination(name, "runs") if name is not None else None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "usd"),
    [
        pytest.param({}, 0, id="nothing is written"),
        pytest.param(
            {"checkpoint": "far", "checkpoint_bytes": 100 * GB, "checkpoint_interval_s": 3600},
            12 * 1,
            id="a checkpoint each interval of the run",
        ),
        pytest.param(
            {"checkpoint": "far", "class_checkpoint_bytes": 50 * GB, "class_checkpoint_interval_s": 7200},
            3,
            id="the class says what the owner does not",
        ),
        pytest.param(
            {"checkpoint": "far", "checkpoint_bytes": 100 * GB, "checkpoint_interval_s": 86_400},
            1,
            id="one checkpoint at least",
        ),
        pytest.param({"outputs": "far", "outputs_bytes": 700 * GB}, 7, id="outputs once"),
        pytest.param({"outputs": "near"}, 0, id="a store nearby is free, whatever the size"),
    ],
)
def test_what_is_written_is_brought_home(said: dict[str, Any], usd: int) -> None:
    decision = writing(**said)
    assert (term(decision, TermKind.HOME).amount_usd_micro, reasons(decision, "onprem")) == (usd * USD, [])


@pytest.mark.parametrize(
    ("said", "key"),
    [
        pytest.param({"outputs": "far"}, "outputs-size", id="outputs of unknown size"),
        pytest.param({"checkpoint": "far", "checkpoint_interval_s": 60}, "checkpoint-size", id="unknown checkpoints"),
        pytest.param({"checkpoint": "far", "checkpoint_bytes": GB}, "checkpoint-interval", id="who knows how often"),
    ],
)
def test_what_is_not_known_of_the_way_home_rejects_and_names_the_key(said: dict[str, Any], key: str) -> None:
    decision = writing(**said)
    assert reasons(decision, "onprem") == [Reason.HOME_UNKNOWN]
    assert f"entrepot.dev/{key}" in explain.sentence(decision)


def test_a_blueprint_may_price_what_is_not_known() -> None:
    decision = writing(outputs="far", unknown_home_usd_micro=25 * USD)
    assert (term(decision, TermKind.HOME).amount_usd_micro, decision.chosen) == (25 * USD, "onprem")


def test_a_way_home_that_the_book_lacks_is_unknown() -> None:
    rules = policy(stores=STORES)
    decision = decided(request(outputs=_to("far"), outputs_bytes=GB), worker(), rules=rules)
    assert reasons(decision, "onprem") == [Reason.EGRESS_UNKNOWN]


def test_the_highest_cost_counts_the_way_home() -> None:
    said = {"outputs": "far", "outputs_bytes": 700 * GB, "hours": 1}
    assert writing(**said).chosen == "onprem"
    rules = policy(egress_prices=[HOME], stores=STORES)
    capped = request(outputs=_to("far"), outputs_bytes=700 * GB, max_cost_usd_micro=30 * USD)
    assert reasons(decided(capped, worker(), rules=rules), "onprem") == [Reason.MAX_COST]


BACK = egress("r-cloud", "r-onprem", 20_000, 10_000)


def resumed(attempt: int, back: EgressPrice | None = BACK, size: int | None = 900 * GB, **prices: Any) -> Decision:
    """900 GB of checkpoint lie beside `cloud`; all else is equal. What goes there is free."""
    routes = [egress("r-onprem", "r-cloud", 0), *([back] if back is not None else [])]
    rules = policy(egress_prices=routes, stores=[store("saves", region="r-cloud")])
    rules = replace(rules, prices=replace(rules.prices, **prices))
    wanted = request(checkpoint=_to("saves"), checkpoint_bytes=size, checkpoint_interval_s=600, attempt=attempt)
    return decided(wanted, worker(), worker("cloud"), rules=rules)


def test_fr_sco_16_a_run_that_was_stopped_goes_on_near_its_checkpoint() -> None:
    again = resumed(attempt=2)
    assert again.chosen == "cloud"
    assert term(again, TermKind.DATA_IN).amount_usd_micro == 900 * 20_000
    assert term(again, TermKind.WAITING).bill[0].quantity == 720
    assert term(resumed(attempt=1), TermKind.DATA_IN).amount_usd_micro == 0, "there is nothing to read yet"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        pytest.param({"back": None}, Reason.EGRESS_UNKNOWN, id="no price for the way back"),
        pytest.param({"back": replace(BACK, dated=TODAY - timedelta(days=31))}, Reason.PRICE_OLD, id="an old one"),
        pytest.param({"size": None}, Reason.DATA_SIZE_UNKNOWN, id="a size that nobody told, and a way with a price"),
    ],
)
def test_a_checkpoint_of_which_the_way_back_is_not_known_is_not_read_for_nothing(
    case: dict[str, Any], reason: Reason
) -> None:
    """The way there is known and free, which says nothing of the way back."""
    again = resumed(2, **case)
    assert reasons(again, "onprem") == [reason]
    assert again.chosen == "cloud", "beside its store there is no way"
    assert reasons(resumed(1, **case), "onprem") == [], "there is nothing to read yet"


def test_a_blueprint_may_price_a_checkpoint_of_unknown_size() -> None:
    again = resumed(2, size=None, unknown_home_usd_micro=25 * USD)
    assert term(again, TermKind.DATA_IN).amount_usd_micro == 25 * USD
    assert term(again, TermKind.WAITING).bill[0].what == "transfer of the checkpoint, size not known"


def test_reading_a_checkpoint_pays_the_requests_of_its_store() -> None:
    at_store = replace(GETS, region=BACK.from_region)
    found = term(resumed(2, requests={("p", "r-cloud"): at_store}), TermKind.DATA_IN)
    assert found.amount_usd_micro == 900 * 20_000 + div_half_up(-(-900 * GB // (64 * 10**6)) * 400_000, 10**6)


def test_a_faster_flavor_writes_fewer_checkpoints() -> None:
    """12 hours at speed 1000 are 6 here: 6 checkpoints, an hour apart."""
    rules = policy([site("onprem", flavors=[flavor_policy(speed=2000)])], egress_prices=[HOME], stores=STORES)
    said = {"checkpoint_bytes": 100 * GB, "checkpoint_interval_s": 3600, "expected_duration_s": 12 * 3600}
    found = term(decided(request(checkpoint=_to("far"), **said), worker(), rules=rules), TermKind.HOME)
    assert found.amount_usd_micro == 6 * USD


# --- compute -----------------------------------------------------------------------------------------------------


def priced(asked: Request | None = None, **fields: Any) -> Decision:
    price = replace(compute("onprem", 3 * USD, purchase=Purchase.RESERVED), **fields.pop("price", {}))
    flavors = [replace(flavor_policy(purchase=Purchase.RESERVED), **fields)]
    rules = policy([site("onprem", flavors=flavors)], [price])
    return decided(asked or request(), worker(), rules=rules)


LAST = TODAY + timedelta(days=1)


@pytest.mark.parametrize(
    ("until", "marginal", "usd"),
    [
        pytest.param(None, USD // 2, 24, id="without a contract the whole price"),
        pytest.param(LAST, USD // 2, 4, id="what is paid anyway costs what using it costs"),
        pytest.param(TODAY, USD // 2, 4, id="on the last day too"),
        pytest.param(LAST, 0, 0, id="which may be nothing"),
        pytest.param(LAST, None, 24, id="unless nobody knows that"),
    ],
)
def test_reserved_capacity_costs_what_using_it_costs(until: date | None, marginal: int | None, usd: int) -> None:
    decision = priced(reserved_until=until, price={"marginal_usd_micro_per_hour": marginal})
    assert term(decision, TermKind.RUN).amount_usd_micro == usd * USD


def test_a_contract_that_has_ended_leaves_no_price() -> None:
    decision = priced(reserved_until=TODAY - timedelta(days=1), price={"marginal_usd_micro_per_hour": 0})
    assert reasons(decision, "onprem") == [Reason.PRICE_OLD]


@pytest.mark.parametrize(
    ("seconds", "least", "usd"),
    [
        pytest.param(600, 3600, 24, id="ten minutes are billed as an hour"),
        pytest.param(3600, 3600, 24, id="an hour is an hour"),
        pytest.param(7200, 3600, 48, id="what is longer pays its time"),
        pytest.param(600, 0, 4, id="without a least time ten minutes are ten minutes"),
    ],
)
def test_a_provider_bills_for_its_shortest_time_at_least(seconds: int, least: int, usd: int) -> None:
    decision = priced(request(expected_duration_s=seconds), price={"minimum_billing_s": least})
    found = term(decision, TermKind.RUN)
    assert found.amount_usd_micro == usd * USD
    assert found.bill[0].quantity == 8 * max(seconds, least)


def test_a_class_may_run_at_a_speed_of_its_own() -> None:
    speeds = ((WorkloadClass.SIMULATION, 2000), (WorkloadClass.TRAINING, 500))
    found = [
        term(priced(request(workload_class=kind), class_speeds=speeds), TermKind.RUN).amount_usd_micro
        for kind in (WorkloadClass.TRAINING, WorkloadClass.SIMULATION, WorkloadClass.EVALUATION)
    ]
    assert found == [48 * USD, 12 * USD, 24 * USD]
