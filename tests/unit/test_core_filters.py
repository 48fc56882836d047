"""Every filter: what it rejects, what it says, and that none hides another."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dispatcher.core.decision import Fit, Outcome, Reason, Resolver
from dispatcher.core.filters import FILTERS
from dispatcher.core.ids import ClusterName, QueueName
from dispatcher.core.snapshot import ClusterSnapshot, Link, LocalQueueView, MultiKueueClusterView, StopPolicy
from tests.core_builders import (
    NOW,
    QUEUE,
    USD,
    blind,
    copy,
    data,
    decided,
    detail_of,
    egress,
    nodes,
    on,
    pods,
    policy,
    queue,
    quota,
    reasons,
    request,
    rule,
    seen,
    site,
    uses,
    worker,
)


def hub(**over: object) -> MultiKueueClusterView:
    return replace(MultiKueueClusterView(ClusterName("onprem"), active=True), **over)  # type: ignore[arg-type]


MAIN = worker().local_queues[("team", "main")]


def with_queue(**over: object) -> ClusterSnapshot:
    return seen(worker(queues=[queue(quotas=quota(16), **over)]))


def with_local(local: LocalQueueView) -> ClusterSnapshot:
    return seen(worker(local_queues={("team", "main"): local}))


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        pytest.param(seen(worker()), [], id="a healthy cluster passes"),
        pytest.param(blind("onprem"), [Reason.BLIND], id="never read"),
        pytest.param(seen(worker(synced=False)), [Reason.BLIND], id="not fully listed"),
        pytest.param(
            seen(worker(observed_at=NOW - timedelta(seconds=61))), [Reason.STALE], id="silent beyond the limit"
        ),
        pytest.param(seen(worker(), multikueue=None), [Reason.MULTIKUEUE_INACTIVE], id="no MultiKueueCluster"),
        pytest.param(seen(worker(), multikueue=hub(active=False)), [Reason.MULTIKUEUE_INACTIVE], id="not active"),
        pytest.param(seen(worker(), multikueue=hub(deleting=True)), [Reason.TERMINATING], id="fr_nom_04 being deleted"),
        pytest.param(seen(worker(namespaces=("default",))), [Reason.NAMESPACE_MISSING], id="no namespace"),
        pytest.param(seen(worker(local_queues={})), [Reason.LOCAL_QUEUE_MISSING], id="no LocalQueue"),
        pytest.param(with_local(replace(MAIN, active=False)), [Reason.QUEUE_INACTIVE], id="inactive LocalQueue"),
        pytest.param(
            with_local(replace(MAIN, stop_policy=StopPolicy.HOLD)), [Reason.QUEUE_STOPPED], id="stopped LocalQueue"
        ),
        pytest.param(
            with_local(replace(MAIN, cluster_queue=QueueName("gone"))), [Reason.QUEUE_MISSING], id="no ClusterQueue"
        ),
        pytest.param(with_queue(active=False), [Reason.QUEUE_INACTIVE], id="fr_nom_04 inactive ClusterQueue"),
        pytest.param(with_queue(stop_policy=StopPolicy.HOLD), [Reason.QUEUE_STOPPED], id="fr_nom_05 Hold"),
        pytest.param(
            with_queue(stop_policy=StopPolicy.HOLD_AND_DRAIN), [Reason.QUEUE_STOPPED], id="fr_nom_04 HoldAndDrain"
        ),
        pytest.param(
            seen(worker(copies=[copy("job-a", ours=False)])), [Reason.NAME_TAKEN], id="a workload of that name"
        ),
        pytest.param(seen(worker(copies=[copy("job-a", ours=True, reserved=False)])), [], id="our own copy"),
        pytest.param(
            seen(worker(copies=[copy("w9", ours=False, reserved=False, job_kind="Job", job_name="job-a")])),
            [Reason.NAME_TAKEN],
            id="fr_rac_07 a local job of that name",
        ),
        pytest.param(
            seen(worker(copies=[copy("w9", ours=False, reserved=False, job_kind="RayJob", job_name="job-a")])),
            [],
            id="a local job of another kind",
        ),
        pytest.param(
            seen(worker(copies=[copy("w9", ours=True, reserved=False, job_kind="Job", job_name="job-a")])),
            [],
            id="our own job of that name",
        ),
    ],
)
def test_the_state_of_a_cluster(cluster: ClusterSnapshot, expected: list[Reason]) -> None:
    decision = decided(request(), cluster)
    assert reasons(decision, "onprem") == expected
    assert decision.outcome is (Outcome.WAIT if expected else Outcome.NOMINATE)


def test_a_cluster_that_we_do_not_see_well_has_an_unknown_fit() -> None:
    assert on(decided(request(), blind("onprem")), "onprem").fit is Fit.UNKNOWN
    assert on(decided(request(), seen(worker(), link=Link.STALE)), "onprem").fit is Fit.UNKNOWN


def test_a_cluster_that_is_not_listed_is_a_candidate_with_its_reason() -> None:
    decision = decided(request(listed_clusters=(ClusterName("cloud"),)), worker(), worker("cloud"))
    assert reasons(decision, "onprem") == [Reason.NOT_LISTED]
    assert decision.chosen == "cloud"


def test_a_cluster_outside_the_blueprint_gets_nothing() -> None:
    decision = decided(request(), worker("x"))
    assert reasons(decision, "x") == [Reason.NOT_IN_BLUEPRINT]
    assert on(decision, "x").total_usd_micro is None


def test_the_annotation_narrows() -> None:
    decision = decided(request(clusters=("cloud",)), worker(), worker("cloud"))
    assert decision.chosen == "cloud"
    assert detail_of(decision, "onprem", Reason.NOT_IN_ANNOTATION).expected == ("cloud",)


def test_the_annotation_never_widens() -> None:
    decision = decided(request(clusters=("onprem",), listed_clusters=(ClusterName("cloud"),)), worker())
    assert reasons(decision, "onprem") == [Reason.NOT_LISTED]


def test_a_nominated_cluster_is_not_nominated_again_and_the_next_best_is_added() -> None:
    wanted = request(already_nominated=(ClusterName("onprem"),))
    decision = decided(wanted, worker(), worker("cloud"))
    assert (decision.outcome, decision.chosen) == (Outcome.ADD, "cloud")
    assert reasons(decision, "onprem") == [Reason.ALREADY_NOMINATED]


def test_fr_bud_08_max_cost_is_a_filter_before_any_ranking() -> None:
    """8 GPUs x 1 h x $3 = $24."""
    assert decided(request(max_cost_usd_micro=24 * USD), worker()).chosen == "onprem"
    decision = decided(request(max_cost_usd_micro=24 * USD - 1), worker())
    assert reasons(decision, "onprem") == [Reason.MAX_COST]
    detail = detail_of(decision, "onprem", Reason.MAX_COST)
    assert (detail.needed, detail.found) == (24 * USD, 24 * USD - 1)


def test_waiting_and_stranded_amounts_are_no_bill() -> None:
    """2 of 8 GPUs strand six, and the transfer waits: neither is money that max-cost caps. That the GPUs are held for
    those 80 s is."""
    rules = policy(
        data_sets=[data("d", clusters=["cloud"])],
        egress_prices=[egress("r-cloud", "r-onprem", 0, bandwidth=100)],
    )
    billed = 6 * USD * (3600 + 80) // 3600
    decision = decided(request("g", pods(1, 2), data=uses("d"), max_cost_usd_micro=billed), worker(), rules=rules)
    assert decision.chosen == "onprem"
    assert (on(decision, "onprem").total_usd_micro or 0) > billed
    less = decided(request("g", pods(1, 2), data=uses("d"), max_cost_usd_micro=billed - 1), worker(), rules=rules)
    assert reasons(less, "onprem") == [Reason.MAX_COST]


def test_all_filters_run_and_none_hides_another() -> None:
    """One cluster with everything against it tells everything (design section 5.1)."""
    view = worker(
        node_views=nodes(2, used=8),
        queues=[queue(quotas=quota(16, used=16), active=False, stop_policy=StopPolicy.HOLD)],
        namespaces=(),
        copies=[copy("job-a", ours=False)],
        observed_at=NOW - timedelta(minutes=10),
    )
    rules = policy(data_sets=[data("d", labels=["secret"], clusters=["cloud"])], labels=[rule("secret", "FI")])
    wanted = request(
        data=uses("d"),
        clusters=("cloud",),
        listed_clusters=(ClusterName("cloud"),),
        already_nominated=(ClusterName("onprem"),),
        max_cost_usd_micro=1,
    )
    decision = decided(wanted, seen(view, multikueue=hub(active=False, deleting=True)), rules=rules)
    assert reasons(decision, "onprem") == [
        Reason.STALE,
        Reason.NOT_LISTED,
        Reason.TERMINATING,
        Reason.MULTIKUEUE_INACTIVE,
        Reason.RESIDENCY,
        Reason.NAMESPACE_MISSING,
        Reason.QUEUE_INACTIVE,
        Reason.QUEUE_STOPPED,
        Reason.NAME_TAKEN,
        Reason.NOT_IN_ANNOTATION,
        Reason.QUOTA,
        Reason.NODES,
        Reason.EGRESS_UNKNOWN,
        Reason.ALREADY_NOMINATED,
    ]


def test_every_filter_is_named_once() -> None:
    names = [check.__name__ for check in FILTERS]
    assert len(names) == len(set(names))


def test_who_can_lift_what() -> None:
    view = worker(queues=[queue(quotas=quota(16, used=16))])
    (full,) = on(decided(request(), view), "onprem").rejections
    (stopped,) = on(decided(request(), with_queue(stop_policy=StopPolicy.HOLD)), "onprem").rejections
    (narrow,) = on(decided(request(clusters=("cloud",)), worker()), "onprem").rejections
    assert [full.resolver, stopped.resolver, narrow.resolver] == [Resolver.WAIT, Resolver.OPERATOR, Resolver.OWNER]
    assert full.detail.subject == QUEUE


STOPPED = {
    "a queue on Hold": ({"stop_policy": StopPolicy.HOLD}, Reason.QUEUE_STOPPED),
    "a queue on HoldAndDrain": ({"stop_policy": StopPolicy.HOLD_AND_DRAIN}, Reason.QUEUE_STOPPED),
    "an inactive queue": ({"active": False}, Reason.QUEUE_INACTIVE),
}


@pytest.mark.parametrize(("state", "reason"), STOPPED.values(), ids=STOPPED.keys())
def test_fr_nom_04_a_stopped_queue_on_the_worker_takes_the_cluster_out(
    state: dict[str, object], reason: Reason
) -> None:
    decision = decided(request(), worker(queues=[queue(quotas=quota(16), **state)]))
    assert (decision.chosen, reasons(decision, "onprem")) == (None, [reason])


def test_fr_nom_04_a_cluster_under_deletion_is_no_candidate() -> None:
    going = MultiKueueClusterView(ClusterName("onprem"), active=True, reason="Active", deleting=True)
    decision = decided(request(), seen(worker(), multikueue=going))
    assert (decision.chosen, reasons(decision, "onprem")) == (None, [Reason.TERMINATING])


def test_fr_sco_13_missing_facts_never_outrank_a_known_fit() -> None:
    rules = policy(sites=[site("onprem"), site("cloud")], compute_prices=policy().prices.compute.values())  # type: ignore[arg-type]
    no_price = replace(
        rules,
        prices=replace(
            rules.prices, compute={key: price for key, price in rules.prices.compute.items() if key[0] == "p-onprem"}
        ),
    )
    decision = decided(request(), worker(), worker("cloud"), rules=no_price)
    assert decision.chosen == "onprem"
    assert reasons(decision, "cloud") == [Reason.PRICE_UNKNOWN]
    assert on(decision, "cloud").total_usd_micro is None
