"""How a request fits one cluster: quota, nodes, both, and what would have to change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.decision import Detail, Fit, Outcome, Placement, Reason, Resolver, TermKind
from dispatcher.core.ids import ClusterName, FlavorName
from dispatcher.core.policy import NodeShape
from dispatcher.core.products import PRODUCT_LABEL
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import CohortView, ResourceGroup, Taint, WorkerView
from dispatcher.core.workload import PodSet, Requirement, Toleration
from tests.core_builders import (
    FLAVOR,
    GPU,
    H100,
    QUEUE,
    compute,
    copy,
    decided,
    detail_of,
    flavor,
    flavor_policy,
    hold,
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
    worker,
)

L40S = "NVIDIA-L40S"


def fit(view: WorkerView, *wanted: PodSet, **over: object) -> Fit:
    return on(decided(request("g", *wanted, **over), view), "onprem").fit


def test_a_gang_that_has_quota_and_nodes_fits_now() -> None:
    decision = decided(request("g", pods(2)), worker())
    assert on(decision, "onprem").fit is Fit.NOW
    assert on(decision, "onprem").placements == (Placement("main", FLAVOR, 2, 2),)
    assert reasons(decision, "onprem") == []


def test_fr_sco_02_free_in_sum_is_no_fit() -> None:
    x = worker("x", nodes(10, used=7))
    y = worker("y", nodes(1))
    rules = policy(sites=[site("x"), site("y")])
    decision = decided(request("g", pods(1, 8)), x, y, rules=rules)
    assert decision.chosen == "y"
    detail = detail_of(decision, "x", Reason.NODES)
    assert (detail.needed, detail.found, detail.largest_node_free) == (8, 10, 1)


def test_quota_short_waits_and_says_how_much() -> None:
    view = worker(queues=[queue(quotas=quota(16, used=12))])
    decision = decided(request("g", pods(1, 8)), view)
    assert on(decision, "onprem").fit is Fit.WHEN_OTHERS_LEAVE
    detail = detail_of(decision, "onprem", Reason.QUOTA)
    assert (detail.subject, detail.resource, detail.flavor, detail.needed, detail.found) == (QUEUE, GPU, FLAVOR, 8, 4)


def test_quota_and_nodes_are_both_told() -> None:
    view = worker(node_views=nodes(2, used=8), queues=[queue(quotas=quota(16, used=16))])
    assert reasons(decided(request(), view), "onprem") == [Reason.QUOTA, Reason.NODES]


def test_fr_sco_10_the_smaller_view_counts() -> None:
    """The queue says 32 free, the pods on the nodes leave 16: a gang of 24 does not fit, one of 16 does."""
    view = worker(node_views=nodes(5)[:2] + nodes(3, used=8, prefix="busy"), queues=[queue(quotas=quota(40, used=8))])
    assert fit(view, pods(3)) is Fit.WHEN_OTHERS_LEAVE
    assert fit(view, pods(2)) is Fit.NOW


def test_pod_sets_of_a_gang_share_the_quota() -> None:
    view = worker(node_views=nodes(4), queues=[queue(quotas=quota(16))])
    assert fit(view, pods(1, name="a"), pods(1, name="b")) is Fit.NOW
    assert fit(view, pods(1, name="a"), pods(2, name="b")) is Fit.NEVER


def test_more_than_the_queue_could_ever_have_never_fits() -> None:
    view = worker(node_views=nodes(4), queues=[queue(quotas=quota(16))])
    decision = decided(request("g", pods(3)), view)
    assert on(decision, "onprem").fit is Fit.NEVER
    assert detail_of(decision, "onprem", Reason.NEVER_FITS) == Detail(QUEUE, GPU, FLAVOR, needed=24, found=16)


def test_a_pod_larger_than_any_node_never_fits() -> None:
    decision = decided(request("g", pods(1, 16)), worker())
    assert on(decision, "onprem").fit is Fit.NEVER
    assert detail_of(decision, "onprem", Reason.NEVER_FITS).largest_node_free == 8


@pytest.mark.parametrize("away", [{"schedulable": False}, {"ready": False}, {"deleting": True}])
def test_fr_nom_06_cordoned_nodes_wait_and_are_not_impossible(away: dict[str, bool]) -> None:
    decision = decided(request(), worker(node_views=nodes(4, **away)))  # type: ignore[arg-type]
    assert on(decision, "onprem").fit is Fit.WHEN_OTHERS_LEAVE
    (rejection,) = on(decision, "onprem").rejections
    assert (rejection.reason, rejection.resolver) == (Reason.NODES_UNAVAILABLE, Resolver.WAIT)
    assert rejection.detail.seen == ("n000", "n001", "n002", "n003")


def test_fr_nom_06_only_a_flavor_that_was_never_seen_nor_declared_is_absent() -> None:
    elsewhere = decided(request("g", pods(1, product="NVIDIA-H200")), worker(node_views=nodes(4)))
    assert on(elsewhere, "onprem").fit is Fit.NEVER
    assert all(r.resolver is not Resolver.WAIT for r in on(elsewhere, "onprem").rejections)


def test_fr_nom_06_a_declared_pool_that_is_scaled_to_zero_waits() -> None:
    shape = NodeShape(4, res(8, cpu=64, memory=512, pods=110))
    rules = policy(sites=[site("onprem", flavors=[flavor_policy(shape=shape)])])
    view = worker(node_views=(), queues=[queue(quotas=quota(32))])
    decision = decided(request(), view, rules=rules)
    assert on(decision, "onprem").fit is Fit.WHEN_OTHERS_LEAVE
    assert reasons(decision, "onprem") == [Reason.NODES_UNAVAILABLE]
    too_large = decided(request("g", pods(1, 16)), view, rules=rules)
    assert on(too_large, "onprem").fit is Fit.NEVER


def test_a_flavor_without_nodes_or_declaration_is_unknown() -> None:
    decision = decided(request(), worker(node_views=(), queues=[queue(quotas=quota(32))]))
    assert on(decision, "onprem").fit is Fit.UNKNOWN
    assert decision.outcome is Outcome.WAIT


def test_a_node_taint_that_is_not_tolerated_names_the_taint() -> None:
    taint = Taint("gpu", "yes", "NoSchedule")
    view = worker(node_views=nodes(2, taints=(taint,)))
    decision = decided(request(), view)
    assert detail_of(decision, "onprem", Reason.TAINT).seen == ("gpu=yes:NoSchedule",)
    assert fit(view, pods(tolerations=[Toleration("gpu", "Exists")])) is Fit.NOW


def test_a_flavors_taints_and_tolerations_count_as_kueue_counts_them() -> None:
    taint = Taint("gpu", "yes", "NoSchedule")
    tainted = worker(node_views=nodes(2, taints=(taint,)), flavors=[flavor(taints=[taint])])
    assert reasons(decided(request(), tainted), "onprem") == [Reason.TAINT]
    tolerated = worker(
        node_views=nodes(2, taints=(taint,)),
        flavors=[flavor(taints=[taint], tolerations=[("gpu", "Exists", "", "NoSchedule")])],
    )
    assert fit(tolerated) is Fit.NOW


# --- flavors -----------------------------------------------------------------------------------------------------


def two_flavors(order: tuple[str, str] = ("l40s", "h100"), l40s_used: int = 0, h100_used: int = 0) -> WorkerView:
    quotas = {"l40s": quota(8, flavor="l40s", used=l40s_used), "h100": quota(16, used=h100_used)}
    return worker(
        node_views=(*nodes(2), node("l1", labels={PRODUCT_LABEL: L40S})),
        queues=[queue(quotas=[*quotas[order[0]], *quotas[order[1]]])],
        flavors=[flavor(), flavor("l40s", {PRODUCT_LABEL: L40S})],
    )


BOTH = policy(
    sites=[site("onprem", flavors=[flavor_policy(), flavor_policy("l40s", "l40s-48gb", labels={PRODUCT_LABEL: L40S})])],
    compute_prices=[compute("onprem", 3_000_000), compute("onprem", 1_000_000, "l40s-48gb")],
)


def flavors_of(view: WorkerView, *wanted: PodSet) -> dict[str, FlavorName]:
    decision = decided(request("g", *wanted), view, rules=BOTH)
    return {p.pod_set: p.flavor for p in on(decision, "onprem").placements}


def test_flavors_are_tried_in_the_order_of_the_group() -> None:
    anything = pods(1, product=None)
    assert flavors_of(two_flavors(), anything) == {"main": "l40s"}
    assert flavors_of(two_flavors(("h100", "l40s")), anything) == {"main": "h100"}
    assert flavors_of(two_flavors(l40s_used=8), anything) == {"main": "h100"}


def test_a_selector_picks_its_flavor_whatever_the_order() -> None:
    assert flavors_of(two_flavors(), pods(1, product=H100)) == {"main": "h100"}


def test_two_pod_sets_take_two_flavors() -> None:
    wanted = (pods(1, product=H100, name="learner"), pods(1, product=L40S, name="rollout"))
    assert flavors_of(two_flavors(), *wanted) == {"learner": "h100", "rollout": "l40s"}


def test_the_flavor_that_kueue_would_take_counts_even_if_its_nodes_are_full() -> None:
    """Kueue asks quota, not nodes: it would assign the first flavor and the pods would wait there."""
    view = two_flavors()
    full = tuple(replace(n, requested=Resources.of({GPU: 8})) if n.name == "l1" else n for n in view.nodes)
    decision = decided(request("g", pods(1, product=None)), replace(view, nodes=full), rules=BOTH)
    assert reasons(decision, "onprem") == [Reason.NODES]


def test_products_that_are_not_there_list_what_is() -> None:
    decision = decided(request("g", pods(1, product="NVIDIA-H200")), two_flavors(), rules=BOTH)
    detail = detail_of(decision, "onprem", Reason.NO_SUCH_PRODUCT)
    assert detail.expected == ("NVIDIA-H200",)
    assert detail.seen == (L40S, H100)
    assert on(decision, "onprem").fit is Fit.NEVER


def test_fr_sco_04_a_smaller_card_is_no_match() -> None:
    small = "NVIDIA-A100-SXM4-40GB"
    view = worker(flavors=[flavor(labels={PRODUCT_LABEL: small})], node_views=nodes(2, labels={PRODUCT_LABEL: small}))
    decision = decided(request("g", pods(1, product="a100-80gb")), view)
    assert detail_of(decision, "onprem", Reason.NO_SUCH_PRODUCT).seen == (small,)


def test_fr_cfg_01_another_spelling_of_the_same_card_is_told_with_both() -> None:
    decision = decided(request("g", pods(1, product="h100_nvlink_80gb")), worker())
    (rejection,) = on(decision, "onprem").rejections
    assert (rejection.reason, rejection.resolver) == (Reason.LABEL_MISMATCH, Resolver.OPERATOR)
    assert (rejection.detail.expected, rejection.detail.seen) == (("h100_nvlink_80gb",), (H100,))


def test_an_unknown_spelling_is_unknown_and_not_never() -> None:
    decision = decided(request("g", pods(1, product="h100-foo")), worker())
    assert reasons(decision, "onprem") == [Reason.UNKNOWN_PRODUCT]
    assert on(decision, "onprem").fit is Fit.UNKNOWN


def test_nodes_that_lack_the_selected_label_are_told_with_their_values() -> None:
    zone = Requirement("zone", "In", ("b",))
    view = worker(node_views=nodes(2, labels={"zone": "a"}))
    detail = detail_of(decided(request("g", pods(selector=[zone])), view), "onprem", Reason.NEVER_FITS)
    assert (detail.holder, detail.expected, detail.seen) == ("zone", ("b",), ("a",))


def test_a_resource_that_the_queue_does_not_cover_is_refused_as_kueue_refuses_it() -> None:
    mig = pods(per_pod=Resources.of({"cpu": 1000, "nvidia.com/mig-1g.10gb": 1}), product=None)
    decision = decided(request("g", mig), worker())
    assert detail_of(decision, "onprem", Reason.NO_SUCH_PRODUCT).resource == "nvidia.com/mig-1g.10gb"
    disk = pods(per_pod=Resources.of({"cpu": 1000, "ephemeral-storage": 1}), product=None)
    assert reasons(decided(request("g", disk), worker()), "onprem") == [Reason.NEVER_FITS]


CPU_FIRST = [*quota(0, flavor="cpu"), *quota(16)]


def test_a_cpu_flavor_without_gpus_is_no_option_for_gpu_pods_and_hides_no_reason() -> None:
    """Its labels match every pod, but its GPU quota is zero: what is wrong with the GPU flavor is told instead."""
    view = worker(queues=[queue(quotas=CPU_FIRST)], flavors=[flavor(), flavor("cpu", {})])
    assert fit(view, pods(2)) is Fit.NOW
    large = decided(request("g", pods(3)), view)
    assert detail_of(large, "onprem", Reason.NEVER_FITS).flavor == "h100"
    other = decided(request("g", pods(1, product="NVIDIA-B200")), view)
    assert reasons(other, "onprem") == [Reason.NO_SUCH_PRODUCT]
    assert detail_of(other, "onprem", Reason.NO_SUCH_PRODUCT).seen == (H100,)
    cpu_only = worker(queues=[queue(quotas=quota(0, flavor="cpu"))], flavors=[flavor("cpu", {})])
    assert detail_of(decided(request(), cpu_only), "onprem", Reason.NO_SUCH_PRODUCT).seen == ("cpu",)


def test_a_queue_without_any_quota_says_so_once() -> None:
    decision = decided(request(), worker(queues=[queue()]))
    assert detail_of(decision, "onprem", Reason.NO_SUCH_PRODUCT).expected == ("cpu", "memory", GPU)
    assert len(reasons(decision, "onprem")) == 1


def test_the_pods_resource_counts_where_the_queue_covers_it() -> None:
    view = worker(queues=[queue(quotas=quota(16, resources={"pods": 1}))])
    assert fit(view, pods(1)) is Fit.NOW
    assert fit(view, pods(2)) is Fit.NEVER


def test_a_pod_set_over_two_resource_groups_takes_a_flavor_of_each() -> None:
    cpu = tuple(q for q in quota(0, flavor="cpu") if q.resource != GPU)
    gpu = tuple(q for q in quota(16) if q.resource == GPU)
    groups = (
        ResourceGroup(("cpu", "memory"), (FlavorName("cpu"),)),
        ResourceGroup((GPU,), (FLAVOR,)),
    )
    view = worker(
        queues=[queue(quotas=[*cpu, *gpu], groups=groups)],
        flavors=[flavor(), flavor("cpu", {})],
    )
    decision = decided(request(), view)
    assert decision.chosen == "onprem"
    assert [(p.pod_set, p.flavor) for p in on(decision, "onprem").placements] == [("main", FLAVOR), ("main", "cpu")]


# --- preemption --------------------------------------------------------------------------------------------------


def full_of(priority: int, **over: object) -> WorkerView:
    return worker(
        node_views=nodes(1, used=8),
        queues=[queue(quotas=quota(8, used=8), **over)],
        copies=[copy("old", 8, priority=priority)],
    )


def test_fr_nom_10_a_full_cluster_may_be_nominated_for_its_preemption() -> None:
    view = full_of(10, preempts_lower_priority=True)
    decision = decided(request(priority=100), view)
    assert (decision.outcome, decision.chosen) == (Outcome.NOMINATE, "onprem")
    assert on(decision, "onprem").fit is Fit.BY_PREEMPTION
    assert reasons(decision, "onprem") == []


@pytest.mark.parametrize(
    ("priority", "queue_says"),
    [
        pytest.param(10, True, id="the same priority is no victim"),
        pytest.param(5, True, id="a higher one is none either"),
        pytest.param(100, False, id="the queue must allow it"),
    ],
)
def test_no_preemption_where_kueue_would_do_none(priority: int, queue_says: bool) -> None:
    view = full_of(10, preempts_lower_priority=queue_says)
    assert reasons(decided(request(priority=priority), view), "onprem") == [Reason.QUOTA, Reason.NODES]


def test_victims_must_make_enough_room() -> None:
    view = worker(
        node_views=nodes(2, used=8),
        queues=[queue(quotas=quota(16, used=16), preempts_lower_priority=True)],
        copies=[copy("low", 8, priority=1), copy("high", 8, priority=200)],
    )
    assert fit(view, pods(1), priority=100) is Fit.BY_PREEMPTION
    assert fit(view, pods(2), priority=100) is Fit.WHEN_OTHERS_LEAVE


def test_nobody_is_preempted_for_borrowed_quota() -> None:
    """Kueue preempts in a queue only for what fits in its nominal quota."""
    view = worker(
        node_views=nodes(2, used=8),
        queues=[
            queue("lender", quota(12), cohort="co"),
            queue(quotas=quota(4, used=16), cohort="co", preempts_lower_priority=True),
        ],
        cohorts=[CohortView("co")],
        copies=[copy("low", 8, count=2, priority=1)],
        local_queues={("team", "main"): replace(worker().local_queues[("team", "main")], cluster_queue=QUEUE)},
    )
    assert fit(view, pods(1, 8), priority=100) is Fit.WHEN_OTHERS_LEAVE
    assert fit(view, pods(1, 4), priority=100) is Fit.BY_PREEMPTION


def test_borrowers_of_the_cohort_give_back_what_is_ours() -> None:
    def view(reclaims: bool) -> WorkerView:
        ours = queue(quotas=quota(8), cohort="co", reclaims_within_cohort=reclaims)
        theirs = queue("other", quota(0, used=8), cohort="co")
        return worker(
            node_views=nodes(1, used=8),
            queues=[theirs, ours],
            cohorts=[CohortView("co")],
            copies=[copy("borrower", 8, queue_name="other", priority=-1)],
            local_queues={("team", "main"): replace(worker().local_queues[("team", "main")], cluster_queue=QUEUE)},
        )

    assert fit(view(True)) is Fit.BY_PREEMPTION
    assert fit(view(False)) is Fit.WHEN_OTHERS_LEAVE


def test_fr_nom_07_free_room_goes_before_a_cheaper_preemption() -> None:
    cheap_but_full = replace(full_of(10, preempts_lower_priority=True), cluster=ClusterName("cloud"))
    rules = policy(compute_prices=[compute("onprem", 9_000_000), compute("cloud", 1_000_000)])
    decision = decided(request(priority=100), worker(), cheap_but_full, rules=rules)
    assert decision.chosen == "onprem"
    assert on(decision, "cloud").fit is Fit.BY_PREEMPTION


def test_fr_nom_07_a_preemption_is_not_added_to_a_standing_nomination() -> None:
    view = replace(full_of(10, preempts_lower_priority=True), cluster=ClusterName("cloud"))
    wanted = request(priority=100, already_nominated=(ClusterName("onprem"),))
    decision = decided(wanted, worker(), view)
    assert decision.outcome is Outcome.WAIT
    assert reasons(decision, "cloud") == [Reason.QUOTA]


# --- promised capacity -------------------------------------------------------------------------------------------


def test_fr_sco_01_capacity_held_names_the_holder() -> None:
    decision = decided(request("g", pods(2)), worker(), holds=[hold("first", count=2)])
    (rejection,) = on(decision, "onprem").rejections
    assert (rejection.reason, rejection.detail.holder) == (Reason.HELD, "team/first")
    assert on(decision, "onprem").fit is Fit.WHEN_OTHERS_LEAVE


def test_a_hold_takes_its_nodes_as_well_as_its_quota() -> None:
    view = worker(node_views=nodes(2), queues=[queue(quotas=quota(1000))])
    assert fit(view, pods(2)) is Fit.NOW
    decision = decided(request("g", pods(2)), view, holds=[hold("first")])
    assert reasons(decision, "onprem") == [Reason.HELD]
    assert decided(request("g", pods(1)), view, holds=[hold("first")]).chosen == "onprem"


def test_a_hold_keeps_the_nodes_that_its_selector_meant() -> None:
    zone = Requirement("zone", "In", ("b",))
    view = worker(node_views=(node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"})))
    promised = hold("first", pod_sets=(pods(1, selector=[zone]),))
    assert reasons(decided(request("g", pods(1, selector=[zone])), view, holds=[promised]), "onprem") == [Reason.HELD]
    assert decided(request("g", pods(1)), view, holds=[promised]).chosen == "onprem"


def test_a_hold_on_another_cluster_or_of_the_request_itself_takes_nothing() -> None:
    gang = request("g", pods(2))
    assert decided(gang, worker(), holds=[hold("x", cluster="cloud", count=2)]).chosen == "onprem"
    assert decided(gang, worker(), holds=[hold("g", count=2)]).chosen == "onprem"


# --- stranded ----------------------------------------------------------------------------------------------------


def test_a_placement_that_breaks_a_whole_node_reports_what_is_left() -> None:
    left = {}
    for used in (0, 6, 3):
        terms = on(decided(request("g", pods(1, 2)), worker(node_views=nodes(2, used=used))), "onprem").terms
        left[used] = next(term for term in terms if term.kind is TermKind.STRANDED).amount_usd_micro
    assert left == {0: 6 * 3_000_000 * 100 // 1000, 6: 0, 3: 0}
