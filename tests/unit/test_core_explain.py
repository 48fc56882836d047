"""The words of decisions: what people read in Events, logs and `entrepot why`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dispatcher.core.counterfactual import Obstacle, counterfactual, counterfactuals
from dispatcher.core.decision import Decision, Detail, Fit, Reason, Rejection, Resolver, TermKind
from dispatcher.core.explain import (
    SENTENCE_LIMIT,
    bill_text,
    counterfactual_text,
    estimate_text,
    fit_text,
    money,
    rejection_text,
    resolver_text,
    sentence,
    term_text,
    why_not_text,
)
from dispatcher.core.explain_room import gap_text
from dispatcher.core.headroom import headroom, room_of
from dispatcher.core.ids import ClusterName
from dispatcher.core.units import quantity, signed_money, span
from tests.core_builders import (
    FLAVOR,
    GB,
    GPU,
    NOW,
    QUEUE,
    USD,
    blind,
    compute,
    data,
    decided,
    egress,
    hold,
    node,
    nodes,
    on,
    pods,
    policy,
    queue,
    quota,
    request,
    rule,
    seen,
    uses,
    worker,
)

PRICED = policy(
    compute_prices=[compute("onprem", 3 * USD), compute("cloud", 2 * USD)],
    egress_prices=[egress("r-onprem", "r-cloud", 20_000, 10_000)],
    data_sets=[data("radar", 900 * GB, clusters=["onprem"])],
)


@pytest.mark.parametrize(
    ("micro", "text"),
    [
        (0, "$0.00"),
        (41_200_000, "$41.20"),
        (-5_270_000, "-$5.27"),
        (5_000, "$0.005"),
        (1, "$0.000001"),
        (14_999, "$0.01"),
        (15_000, "$0.02"),
        (1_234_567_890_000, "$1,234,567.89"),
    ],
)
def test_money(micro: int, text: str) -> None:
    assert money(micro) == text


def test_amounts_and_spans_as_people_write_them() -> None:
    assert signed_money(19_100_000) == "+$19.10"
    assert [quantity("cpu", 2500), quantity("memory", 3 * 2**29), quantity(GPU, 8)] == ["2.5", "1.5 GiB", "8"]
    assert [span(90), span(5400), span(187_200), span(86_400)] == ["90 s", "1 h 30 min", "2 d 4 h", "1 d"]


# --- sentences ---------------------------------------------------------------------------------------------------


def test_a_nomination_names_the_bill_and_the_next_best_with_the_differences() -> None:
    text = sentence(decided(request(data=uses("radar")), worker(), worker("cloud"), rules=PRICED))
    assert text == (
        "onprem: $24.00 expected (run $24.00); next cloud $38.40: egress +$18.00, run -$4.80, waiting +$1.20"
    )


def test_a_nomination_without_a_second_says_why_there_is_none() -> None:
    text = sentence(decided(request(), worker(), blind("cloud"), rules=PRICED))
    assert text.startswith("onprem: $24.00 expected (run $24.00); no other: cloud is not read yet")


def test_an_added_nomination_says_whom_it_follows() -> None:
    wanted = request(already_nominated=(ClusterName("onprem"),))
    text = sentence(decided(wanted, worker(), worker("cloud"), rules=PRICED))
    assert text.startswith("also cloud: $16.00 expected")
    assert "since onprem has not admitted it" in text


def test_waiting_says_what_each_cluster_lacks_and_who_can_help() -> None:
    view = worker(queues=[queue(quotas=quota(16, used=8))], node_views=nodes(2))
    rules = policy(data_sets=[data("camera-eu", labels=["cam"], clusters=["onprem"])], labels=[rule("cam", "DE")])
    rules = replace(rules, prices=PRICED.prices)
    text = sentence(decided(request("g", pods(2), data=uses("camera-eu")), view, worker("cloud"), rules=rules))
    assert text == (
        "waits: no cluster of 2 fits now: "
        "cloud is not legal for camera-eu (cam data: rule only-cam asks for destination.country in DE; there FI, "
        "residency/rules.yaml:3:5; operator), "
        "onprem lacks 8 h100 (needs 16, 8 free in quota; wait)"
    )


def test_a_long_sentence_is_cut_at_a_whole_reason() -> None:
    views = [seen(worker(f"cluster-{i:02d}", nodes(1))) for i in range(30)]
    decision = decided(request("g", pods(2)), *views)
    text = sentence(decision)
    assert len(text) <= SENTENCE_LIMIT
    assert text.endswith(" more")
    told = text.count(" is not in the blueprint") + text.count(" is not in the queue's")
    assert f"and {30 - told} more" in text


@pytest.mark.parametrize("name", ["x" * 600])
def test_even_one_endless_name_stays_within_the_limit(name: str) -> None:
    assert len(sentence(decided(request(), blind(name)))) <= SENTENCE_LIMIT


def test_no_clusters_at_all() -> None:
    assert sentence(decided(request())) == "waits: there is no cluster to choose from"


def test_fr_cli_05_an_unreachable_cluster_is_named_with_since_when() -> None:
    silent = worker("cloud", observed_at=NOW - timedelta(minutes=9))
    text = sentence(decided(request("g", pods(9)), worker(), silent))
    assert "cloud is unreachable since 2027-02-01 09:51:00 UTC" in text
    assert "onprem is too small in h100" in text


def test_fr_cli_02_without_candidates_the_first_and_all_filters_are_told_with_both_values() -> None:
    decision = decided(request("g", pods(9), clusters=("cloud",)), worker())
    assert "(cloud; owner; 2 more)" in sentence(decision)
    text = why_not_text(decision, ClusterName("onprem"))
    assert text.startswith("onprem: is outside the job's clusters (cloud) [owner]; ")
    assert "needs 72, has 16 in quota" in text


def test_fr_sco_02_pieces_are_told_with_the_largest() -> None:
    text = why_not_text(decided(request(), worker(node_views=nodes(10, used=7))), ClusterName("onprem"))
    assert "has h100 only in pieces (needs 8, 10 free on nodes, largest node 1)" in text


def test_fr_sco_01_a_promise_is_told_with_its_holder() -> None:
    decision = decided(request("g", pods(2)), worker(), holds=[hold("first", count=2)])
    assert "has h100 held by team/first (needs 16, 0 free; wait)" in sentence(decision)


def test_every_reason_has_words() -> None:
    for reason in Reason:
        text = rejection_text(Rejection(reason, Resolver.WAIT, Detail(subject="s")), ClusterName("c1"))
        assert text.startswith("c1 ")
    for resolver in Resolver:
        assert resolver_text(resolver).startswith(f"{resolver.value}: ")
    assert all(fit_text(fit) for fit in Fit)


# --- money -------------------------------------------------------------------------------------------------------


def test_bills_name_amount_price_and_source() -> None:
    terms = on(decided(request(data=uses("radar")), worker("cloud"), rules=PRICED), "cloud").terms
    run, data_in, waiting = (next(t for t in terms if t.kind == kind) for kind in ("run", "data-in", "waiting"))
    assert [term_text(t) for t in (run, data_in)] == ["run $19.20", "data $18.00"]
    assert bill_text(run) == (
        "main on h100, 12 min of it until its data is there: 9.6 gpu-hours x $2.00/h = $19.20 [list]",
    )
    assert bill_text(data_in) == ("radar from onprem (r-onprem) x 1: 900 GB x $0.02/GB = $18.00 [list]",)
    assert bill_text(waiting) == ("transfer of radar at 10000 Mbit/s, declared: 12 min x $6.00/h = $1.20 [list]",)


def test_an_unknown_term_is_not_told_as_zero() -> None:
    decision = decided(request(), worker(), rules=policy(compute_prices=[]))
    assert term_text(on(decision, "onprem").terms[0]) == "run unknown"
    assert "p-onprem / r-onprem / h100-80gb / on-demand" in why_not_text(decision, ClusterName("onprem"))


def test_estimates_say_where_they_come_from() -> None:
    assert estimate_text(decided(request(), worker())) == "1 h (as declared)"
    assert "default of the class" in estimate_text(decided(request(expected_duration_s=None), worker()))


# --- counterfactuals ---------------------------------------------------------------------------------------------


def both(*wanted: object, **over: object) -> Decision:
    return decided(request(*wanted, data=uses("radar"), **over), worker(), worker("cloud"), rules=PRICED)  # type: ignore[arg-type]


def test_a_dearer_cluster_tells_the_gap_and_the_term_that_dominates() -> None:
    (found,) = counterfactuals(both())
    assert (found.cluster, found.obstacle, found.gap_usd_micro) == ("cloud", Obstacle.COST, 14_400_000)
    assert found.differences[0].kind is TermKind.DATA_IN
    assert counterfactual_text(found) == (
        "cloud: would have been chosen $14.40 cheaper (egress +$18.00, run -$4.80, waiting +$1.20; most of it data)"
    )


def test_a_single_obstacle_is_told_as_the_only_one_and_with_what_it_would_have_cost() -> None:
    full = worker(queues=[queue(quotas=quota(16, used=16))])
    decision = decided(request(data=uses("radar")), full, worker("cloud"), rules=PRICED)
    text = why_not_text(decision, ClusterName("onprem"))
    assert text == (
        "onprem: lacks 8 h100 (needs 8, 0 free in quota) [wait]; nothing else stood in the way, "
        "and it would have been $14.40 cheaper than the choice"
    )


def test_several_obstacles_do_not_claim_to_be_one() -> None:
    found = counterfactual(on(both(clusters=("onprem",), max_cost_usd_micro=30 * USD), "cloud"), None)
    assert (found.obstacle, found.alone, len(found.blocking)) == (Obstacle.REJECTED, False, 2)
    assert "nothing else" not in counterfactual_text(found)


def test_a_tie_is_told_as_a_tie() -> None:
    (found,) = counterfactuals(decided(request(), worker(), worker("cloud")))
    assert found.obstacle is Obstacle.TIE
    assert "stable hash" in counterfactual_text(found)


def test_a_preemption_that_would_cost_less_is_told_as_what_it_is() -> None:
    decision = both()
    cheaper = replace(on(decision, "cloud"), fit=Fit.BY_PREEMPTION, total_usd_micro=1)
    found = counterfactual(cheaper, on(decision, "onprem"))
    assert (found.obstacle, found.would_win) == (Obstacle.PREEMPTION, True)
    assert "what fits now goes first" in counterfactual_text(found)


def test_the_order_of_losers_is_by_how_near_they_were() -> None:
    decision = decided(
        request(), worker(), worker("cloud"), worker("x"), seen(worker("y"), multikueue=None), rules=PRICED
    )
    assert [found.cluster for found in counterfactuals(decision)] == ["onprem", "x", "y"]


def test_why_not_of_the_chosen_and_of_a_stranger() -> None:
    decision = both()
    assert why_not_text(decision, ClusterName("onprem")).startswith("onprem was chosen: onprem: $24.00")
    assert "was not known" in why_not_text(decision, ClusterName("mars"))


# --- headroom ----------------------------------------------------------------------------------------------------


def test_fr_sco_10_free_is_the_smaller_view_and_the_gap_is_flagged() -> None:
    view = worker(node_views=(*nodes(2), *nodes(3, used=8, prefix="b")), queues=[queue(quotas=quota(40, used=8))])
    (found,) = [h for h in headroom(view, room_of(view), QUEUE) if (h.flavor, h.resource) == (FLAVOR, GPU)]
    assert (found.by_quota, found.by_nodes, found.free) == (32, 16, 16)
    assert (found.used_by_queues, found.used_by_pods, found.mismatch, found.gap) == (8, 24, True, True)
    assert gap_text(found) == (
        "queue training has 32 h100 free by quota and 16 by nodes, and the smaller counts: "
        "queues account for 8 in use, pods for 24"
    )


def test_fr_sco_06_yielding_pods_have_a_column_of_their_own() -> None:
    from dispatcher.core.resources import Resources

    busy = node("n1", used=8, yielding=Resources.of({GPU: 8}))
    view = worker(node_views=(busy,))
    (found,) = [h for h in headroom(view, room_of(view), QUEUE) if h.resource == GPU]
    assert (found.by_nodes, found.reclaimable, found.used_by_pods, found.mismatch) == (8, 8, 0, False)
