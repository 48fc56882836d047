"""The money of a candidate, to the micro-dollar."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dispatcher.core.decision import Basis, Reason, Term, TermKind
from dispatcher.core.policy import Limits, Policy, PriceUnit, Purchase
from dispatcher.core.prices import div_half_up, transfer_time_s
from dispatcher.core.resources import Resources
from dispatcher.core.terms import TERMS
from dispatcher.core.workload import Request, Requirement
from tests.core_builders import (
    GB,
    TODAY,
    USD,
    compute,
    data,
    decided,
    egress,
    flavor,
    flavor_policy,
    node,
    nodes,
    on,
    pods,
    policy,
    queue,
    quota,
    reasons,
    request,
    res,
    site,
    store,
    uses,
    worker,
)


def term(kind: TermKind, wanted: Request, rules: Policy | None = None, **view: object) -> Term:
    decision = decided(wanted, worker(**view), rules=rules)  # type: ignore[arg-type]
    return next(t for t in on(decision, "onprem").terms if t.kind is kind)


# --- run ---------------------------------------------------------------------------------------------------------


def test_a_run_is_pods_x_gpus_x_price_x_hours() -> None:
    found = term(TermKind.RUN, request("g", pods(2), expected_duration_s=5400))
    assert found.amount_usd_micro == 2 * 8 * 3 * USD * 3 // 2
    (line,) = found.bill
    assert (line.quantity, line.unit, line.unit_price_usd_micro) == (16 * 5400, "gpu-second", 3 * USD)
    assert line.source == "list"


def test_a_faster_flavor_takes_less_time() -> None:
    rules = policy(sites=[site("onprem", flavors=[flavor_policy(speed=2000)])])
    assert term(TermKind.RUN, request(), rules).amount_usd_micro == 12 * USD


def test_without_a_declaration_the_class_says_how_long() -> None:
    wanted = request(expected_duration_s=None)
    decision = decided(wanted, worker())
    assert (decision.estimate.duration_s, decision.estimate.basis) == (7200, Basis.CLASS_DEFAULT)
    assert decided(request(), worker()).estimate.basis is Basis.DECLARED
    assert term(TermKind.RUN, wanted).amount_usd_micro == 48 * USD


def test_amounts_are_rounded_half_up_once() -> None:
    assert [div_half_up(n, 4) for n in (0, 1, 2, 3, 4, 5, 6)] == [0, 0, 1, 1, 1, 1, 2]
    rules = policy(compute_prices=[compute("onprem", 1)])
    assert term(TermKind.RUN, request("g", pods(1, 1), expected_duration_s=1800), rules).amount_usd_micro == 1
    assert term(TermKind.RUN, request("g", pods(1, 1), expected_duration_s=1799), rules).amount_usd_micro == 0


def test_pods_without_gpus_pay_for_their_cores() -> None:
    rules = policy(
        compute_prices=[compute("onprem", 40_000, "cpu", PriceUnit.VCPU_HOUR)],
        sites=[site("onprem", flavors=[flavor_policy(product=None, labels={})])],
    )
    found = term(
        TermKind.RUN,
        request("g", pods(2, 0, per_pod=res(0, cpu=4))),
        rules,
        node_views=nodes(1, gpu=0),
        flavors=[flavor(labels={})],
    )
    assert found.amount_usd_micro == 2 * 4 * 40_000
    assert found.bill[0].unit == "vcpu-second"


def test_a_launcher_on_gpu_nodes_pays_the_dearest_core_of_the_place_where_its_own_purchase_has_none() -> None:
    rules = policy(
        compute_prices=[
            compute("onprem", 3 * USD),
            compute("onprem", 40_000, "cpu", PriceUnit.VCPU_HOUR, purchase=Purchase.SPOT),
            compute("onprem", 50_000, "cpu", PriceUnit.VCPU_HOUR, purchase=Purchase.INTERNAL),
        ]
    )
    found = term(TermKind.RUN, request("g", pods(1, name="w"), pods(1, 0, name="launcher")), rules)
    assert [line.amount_usd_micro for line in found.bill] == [24 * USD, 8 * 50_000]


def test_slices_pay_by_the_slice() -> None:
    mig = "nvidia.com/mig-1g.10gb"
    rules = policy(
        compute_prices=[compute("onprem", 400_000, "h100-80gb-mig-1g.10gb", PriceUnit.MIG_SLICE_HOUR)],
        sites=[site("onprem", flavors=[flavor_policy(product="h100-80gb-mig-1g.10gb", labels={})])],
    )
    found = term(
        TermKind.RUN,
        request("g", pods(2, 0, product=None, per_pod=Resources.of({"cpu": 1000, mig: 1}))),
        rules,
        node_views=(node("n", 0, allocatable=Resources.of({"cpu": 64000, mig: 28, "pods": 110})),),
        queues=[queue(quotas=quota(0, resources={mig: 28}))],
        flavors=[flavor(labels={})],
    )
    assert found.amount_usd_micro == 800_000
    assert found.bill[0].unit == "mig-slice-second"


def test_fr_bud_04_the_cost_is_that_of_one_offer_never_of_the_best_parts_of_two() -> None:
    """r1 sells nodes at 8 and GPUs at 28, r2 at 10 and 25: the cheapest whole is 35, and nobody sells 33."""
    sites, prices = [], []
    for name, cpu, gpu in (("onprem", 8, 28), ("cloud", 10, 25)):
        sites.append(site(name, flavors=[flavor_policy(), flavor_policy("cpu", None, labels={"pool": "cpu"})]))
        prices += [compute(name, gpu * USD), compute(name, cpu * USD, "cpu", PriceUnit.VCPU_HOUR)]
    views = [
        worker(
            name,
            (node("g"), node("c", 0, labels={"pool": "cpu"})),
            [queue(quotas=[*quota(0, flavor="cpu"), *quota(8)])],
            [flavor(), flavor("cpu", {"pool": "cpu"})],
        )
        for name in ("onprem", "cloud")
    ]
    gang = request(
        "g",
        pods(1, 1, name="gpu"),
        pods(1, 0, name="vm", per_pod=res(0, cpu=1), terms=[[_in("pool", "cpu")]]),
    )
    decision = decided(gang, *views, rules=policy(sites, prices, limits=Limits(stranded_permille=0)))
    assert decision.chosen == "cloud"
    assert [on(decision, c).total_usd_micro for c in ("onprem", "cloud")] == [36 * USD, 35 * USD]


def _in(key: str, value: str) -> Requirement:
    return Requirement(key, "In", (value,))


# --- data in -----------------------------------------------------------------------------------------------------


def routed(
    *routes: object,
    size: int | None = 500 * GB,
    clusters: tuple[str, ...] = (),
    stores: tuple[str, ...] = (),
    reads: int = 1,
) -> tuple[Term, list[Reason]]:
    rules = policy(
        data_sets=[data("d", size, clusters=clusters, stores=stores)],
        egress_prices=routes,  # type: ignore[arg-type]
        stores=[
            store("near", "DE", region="r-onprem"),
            store("far", "DE", region="r-far"),
            store("farther", "DE", region="r-farther"),
        ],
    )
    decision = decided(request(data=uses(("d", reads))), worker(), rules=rules)
    found = next(t for t in on(decision, "onprem").terms if t.kind is TermKind.DATA_IN)
    return found, reasons(decision, "onprem")


FAR, FARTHER = egress("r-far", "r-onprem", 20_000), egress("r-farther", "r-onprem", 50_000)


def test_egress_is_bytes_x_reads_x_price() -> None:
    found, rejected = routed(FAR, stores=("far",), reads=3)
    assert found.amount_usd_micro == 500 * 3 * 20_000
    assert rejected == []
    assert found.bill[0].quantity == 1500 * GB


def test_the_cheapest_replica_is_read() -> None:
    found, _ = routed(FAR, FARTHER, stores=("far", "farther"))
    assert found.amount_usd_micro == 500 * 20_000
    assert "far (r-far)" in found.bill[0].what


def test_a_replica_in_the_cluster_or_its_region_costs_nothing_and_says_so() -> None:
    for places in ({"clusters": ("onprem",)}, {"stores": ("near",)}):
        found, rejected = routed(size=None, **places)  # type: ignore[arg-type]
        assert (found.amount_usd_micro, rejected) == (0, [])
        assert "already in" in found.bill[0].what


def test_a_book_that_asks_money_within_a_region_is_believed() -> None:
    found, _ = routed(egress("r-onprem", "r-onprem", 1000), stores=("near",))
    assert found.amount_usd_micro == 500_000


@pytest.mark.parametrize(
    ("routes", "size", "reason"),
    [
        pytest.param((), 1, Reason.EGRESS_UNKNOWN, id="no route"),
        pytest.param(
            (egress("r-far", "r-onprem", 1, dated=TODAY - timedelta(days=31)),), 1, Reason.PRICE_OLD, id="old"
        ),
        pytest.param((FAR,), None, Reason.DATA_SIZE_UNKNOWN, id="fr_sco_15 size not known"),
    ],
)
def test_what_is_not_known_rejects(routes: tuple[object, ...], size: int | None, reason: Reason) -> None:
    found, rejected = routed(*routes, size=size, stores=("far",))
    assert (found.amount_usd_micro, rejected) == (None, [reason])
    assert found.unknown is not None


def test_a_known_route_stands_beside_an_unknown_one() -> None:
    found, rejected = routed(FARTHER, stores=("far", "farther"))
    assert (found.amount_usd_micro, rejected) == (500 * 50_000, [])


def test_data_without_any_replica_cannot_be_read() -> None:
    assert routed(FAR)[1] == [Reason.DATA_MISSING]


# --- waiting -----------------------------------------------------------------------------------------------------


def test_waiting_is_transfer_time_x_delay_price() -> None:
    """500 GB at 10 Gbit/s take 400 s; the class pays $6 an hour."""
    rules = policy(
        data_sets=[data("d", 500 * GB, clusters=["cloud"])],
        egress_prices=[egress("r-cloud", "r-onprem", 0, bandwidth=10_000)],
    )
    found = term(TermKind.WAITING, request(data=uses("d")), rules)
    assert found.bill[0].quantity == 400
    assert found.amount_usd_micro == div_half_up(400 * 6 * USD, 3600)


def test_where_no_bandwidth_is_known_at_all_nothing_is_said_of_time() -> None:
    rules = policy(data_sets=[data("d", clusters=["cloud"])], egress_prices=[egress("r-cloud", "r-onprem", 0)])
    found = term(TermKind.WAITING, request(data=uses("d")), rules)
    assert found.amount_usd_micro == 0
    assert "bandwidth not known" in found.bill[0].what


def test_an_unknown_bandwidth_is_no_faster_than_the_slowest_that_is_known() -> None:
    """500 GB; the slowest route of the book, which is another one, carries 5 Gbit/s: 800 s."""
    others = [egress("r-x", "r-onprem", 0, bandwidth=5_000), egress("r-y", "r-onprem", 0, bandwidth=50_000)]
    rules = policy(
        data_sets=[data("d", 500 * GB, clusters=["cloud"])],
        egress_prices=[egress("r-cloud", "r-onprem", 0), *others],
    )
    found = term(TermKind.WAITING, request(data=uses("d")), rules)
    assert found.bill[0].quantity == 800
    assert found.bill[0].what == ("transfer of d at 5000 Mbit/s, not known: taken for that of the slowest route")


def test_of_two_replicas_the_one_is_read_that_costs_least_with_the_wait_for_it() -> None:
    """500 GB for nothing over 100 Mbit/s take 11 hours of 8 GPUs; $10 more brings them in 40 s."""
    slow, fast = egress("r-far", "r-onprem", 0, 100), egress("r-farther", "r-onprem", 20_000, 100_000)
    rules = policy(
        data_sets=[data("d", 500 * GB, stores=("far", "farther"))],
        egress_prices=[slow, fast],
        stores=[store("far", "DE", region="r-far"), store("farther", "DE", region="r-farther")],
    )
    decision = decided(request(data=uses("d")), worker(), rules=rules)
    found = {t.kind: t for t in on(decision, "onprem").terms}
    assert found[TermKind.DATA_IN].amount_usd_micro == 10 * USD
    assert found[TermKind.WAITING].bill[0].quantity == 40


def test_gpus_are_paid_for_while_the_data_comes_in() -> None:
    """500 GB at 10 Gbit/s take 400 s in which 8 GPUs at $3 do nothing; the run itself takes an hour."""
    rules = policy(
        data_sets=[data("d", 500 * GB, clusters=["cloud"])],
        egress_prices=[egress("r-cloud", "r-onprem", 0, bandwidth=10_000)],
        sites=[site("onprem", flavors=[flavor_policy(speed=2000)]), site("cloud")],
    )
    found = term(TermKind.RUN, request(data=uses("d")), rules)
    assert found.amount_usd_micro == div_half_up(24 * USD * (1800 + 400), 3600)
    assert found.bill[0].quantity == 8 * (1800 + 400)
    assert found.bill[0].what == "main on h100, 6 min of it until its data is there"


@pytest.mark.parametrize(
    ("least", "seconds"), [(3600, 4000), (4000, 4000), (7200, 7200)], ids=["longer", "just so long", "billed anyway"]
)
def test_what_is_billed_at_least_counts_the_wait_for_data(least: int, seconds: int) -> None:
    rules = policy(
        data_sets=[data("d", 500 * GB, clusters=["cloud"])],
        egress_prices=[egress("r-cloud", "r-onprem", 0, bandwidth=10_000)],
        compute_prices=[replace(compute("onprem", 3 * USD), minimum_billing_s=least)],
    )
    found = term(TermKind.RUN, request(data=uses("d")), rules)
    assert found.bill[0].quantity == 8 * seconds
    assert ("billed for" in found.bill[0].what) == (least > 4000)


def test_transfer_times_are_rounded_up() -> None:
    assert transfer_time_s(egress("a", "b", 0, bandwidth=8), 1_000_001, 1) == 2


# --- choices -----------------------------------------------------------------------------------------------------


def test_fr_sco_15_egress_for_each_epoch_outweighs_cheaper_gpus() -> None:
    """r1 at 30/h holds 40,000 GB; r2 at 22/h would read them three times at 0.02/GB: 3000 < 2200 + 2400."""
    sites = [site("onprem"), site("cloud")]
    prices = [compute("onprem", 30 * USD), compute("cloud", 22 * USD)]
    rules = policy(
        sites,
        prices,
        egress_prices=[egress("r-onprem", "r-cloud", 20_000)],
        data_sets=[data("d", 40_000 * GB, clusters=["onprem"])],
        limits=Limits(stranded_permille=0),
    )
    wanted = request("g", pods(1, 1), data=uses(("d", 3)), expected_duration_s=100 * 3600)
    decision = decided(wanted, worker(), worker("cloud"), rules=rules)
    assert decision.chosen == "onprem"
    assert [on(decision, c).total_usd_micro for c in ("onprem", "cloud")] == [3000 * USD, 4600 * USD]


def test_fr_sco_15_far_compute_is_slower_which_alone_decides() -> None:
    """The way costs nothing here. 40,000 GB three times over 10 Gbit/s are 26.7 hours, paid at 22/h and waited for at
    $6: 100 x 30 = 3000 < (100 + 26.7) x 22 + 26.7 x 6."""
    rules = policy(
        [site("onprem"), site("cloud")],
        [compute("onprem", 30 * USD), compute("cloud", 22 * USD)],
        egress_prices=[egress("r-onprem", "r-cloud", 0, bandwidth=10_000)],
        data_sets=[data("d", 40_000 * GB, clusters=["onprem"])],
        limits=Limits(stranded_permille=0),
    )
    near = request("g", pods(1, 1), data=uses(("d", 3)), expected_duration_s=100 * 3600)
    decision = decided(near, worker(), worker("cloud"), rules=rules)
    held = 120_000 * 8 / 10
    amounts = [on(decision, c).total_usd_micro for c in ("onprem", "cloud")]
    assert amounts == [3000 * USD, 2200 * USD + round(held * 28 * USD / 3600)]
    assert decision.chosen == "cloud", "2947 < 3000: with one epoch more it is not"
    again = replace(near, declared=replace(near.declared, data=uses(("d", 4))))
    assert decided(again, worker(), worker("cloud"), rules=rules).chosen == "onprem"


def test_fr_sco_14_a_full_cluster_at_price_zero_is_no_choice() -> None:
    full = worker(node_views=nodes(2, used=8), queues=[queue(quotas=quota(16, used=16))])
    rules = policy(compute_prices=[compute("onprem", 0), compute("cloud", 4 * USD)])
    decision = decided(request(), full, worker("cloud"), rules=rules)
    assert decision.chosen == "cloud"


@pytest.mark.parametrize(("age", "expected"), [(30, []), (31, [Reason.PRICE_OLD])])
def test_a_price_counts_until_it_is_too_old(age: int, expected: list[Reason]) -> None:
    rules = policy(compute_prices=[compute("onprem", USD, dated=TODAY - timedelta(days=age))])
    assert reasons(decided(request(), worker(), rules=rules), "onprem") == expected


def test_a_flavor_that_the_blueprint_does_not_know_has_no_price() -> None:
    rules = policy(sites=[site("onprem", flavors=[])])
    assert reasons(decided(request(), worker(), rules=rules), "onprem") == [Reason.PRICE_UNKNOWN]


def test_a_price_by_the_core_does_not_stand_for_gpus() -> None:
    rules = policy(compute_prices=[compute("onprem", USD, unit=PriceUnit.VCPU_HOUR)])
    assert reasons(decided(request(), worker(), rules=rules), "onprem") == [Reason.PRICE_UNKNOWN]


def test_rejected_candidates_are_priced_as_far_as_they_can_be() -> None:
    view = worker(queues=[queue(quotas=quota(16, used=16))])
    assert on(decided(request(), view), "onprem").total_usd_micro == 24 * USD


def test_every_term_is_in_every_candidate_once() -> None:
    """What a preemption costs is told where a start needs one (test_core_preemption.py)."""
    decision = decided(request(), worker(), worker("cloud"))
    always = [kind for kind in TermKind if kind is not TermKind.PREEMPTION]
    for name in ("onprem", "cloud"):
        assert [t.kind for t in on(decision, name).terms] == always
    assert len(TERMS) == len(always)
