"""What a start costs those who are stopped for it, and which cluster that decides."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dispatcher.core.decide import decide
from dispatcher.core.decision import Candidate, Decision, Fit, Outcome, Reason, Resolver, TermKind
from dispatcher.core.explain import counterfactual_text, counterfactuals, sentence, victim_text
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import CohortView, Stake, WorkerView
from dispatcher.core.workload import Avoided, Request, WorkloadClass
from tests.core_builders import (
    NOW,
    QUEUE,
    USD,
    compute,
    copy,
    hold,
    node,
    nodes,
    on,
    plan,
    pods,
    policy,
    queue,
    quota,
    reasons,
    request,
    site,
    snapshot,
    worker,
)

NAMES = ("onprem", "cloud")
HOUR = timedelta(hours=1)


def full(name: str, ran: timedelta | None = HOUR, count: int = 1, **over: Any) -> WorkerView:
    """A cluster of eight GPUs that work of low priority holds, in `count` equal parts, for so long."""
    began = NOW - ran if ran is not None else None
    each = {"admitted_at": began, "quota_reserved_at": began or NOW, **over.pop("victim", {})}
    copies = [replace(copy(f"{name}-{n}", 8 // count, priority=1), **each) for n in range(count)]
    queues = [queue(quotas=quota(8, used=8), preempts_lower_priority=True, **over)]
    return worker(name, nodes(1, used=8), queues, copies=copies)


def book(**classes: Any) -> Policy:
    """Both clusters cost the same; waiting costs nothing and a restart takes 10 minutes unless told otherwise."""
    found = policy([site(n, "DE") for n in NAMES], [compute(n, 3 * USD) for n in NAMES])
    plans = {kind: plan(kind, 0, restart_s=600, **classes) for kind in WorkloadClass}
    return replace(found, classes=plans)


def urgent(name: str = "urgent", **over: Any) -> Request:
    return request(name, pods(1), priority=100, **over)


def decided(
    *views: WorkerView, rules: Policy | None = None, stakes: dict[str, Stake] | None = None, **over: Any
) -> Decision:
    seen = replace(snapshot(*views), stakes=stakes or {})
    return decide(urgent(**over), seen, rules or book(), NOW)


def loss(decision: Decision, cluster: str) -> int:
    (term,) = [t for t in on(decision, cluster).terms if t.kind is TermKind.PREEMPTION]
    assert term.amount_usd_micro is not None
    return term.amount_usd_micro


def chosen(decision: Decision) -> Candidate:
    assert decision.chosen is not None
    return on(decision, decision.chosen)


# --- what it costs -----------------------------------------------------------------------------------------------

A_GPU_HOUR = 3 * USD


@pytest.mark.parametrize(
    ("ran", "stake", "delay", "expected"),
    [
        pytest.param(HOUR, None, 0, 8 * (A_GPU_HOUR + A_GPU_HOUR // 6), id="without checkpoints all that it has run"),
        pytest.param(HOUR, Stake(None, 3600), 0, 8 * (A_GPU_HOUR // 2 + A_GPU_HOUR // 6), id="half an interval"),
        pytest.param(HOUR / 4, Stake(None, 3600), 0, 8 * (A_GPU_HOUR // 4 + A_GPU_HOUR // 6), id="before the first"),
        pytest.param(None, None, 0, 8 * A_GPU_HOUR // 6, id="what has not begun loses its restart alone"),
        pytest.param(HOUR, None, 6 * USD, 8 * (A_GPU_HOUR + A_GPU_HOUR // 6) + 7 * USD, id="and an hour of delay"),
    ],
)
def test_a_victim_costs_its_work_since_the_last_checkpoint_and_its_restart(
    ran: timedelta | None, stake: Stake | None, delay: int, expected: int
) -> None:
    rules = book(delay_price_usd_micro_per_hour=delay) if delay else book()
    stakes = {"team/cloud-0": stake} if stake is not None else {}
    decision = decided(full("cloud", ran), rules=rules, stakes=stakes)
    assert loss(decision, "cloud") == expected
    candidate = chosen(decision)
    assert candidate.total_usd_micro == sum(t.amount_usd_micro or 0 for t in candidate.terms)
    assert [v.cost_usd_micro for v in candidate.preempts] == [expected]


def test_each_victim_restarts() -> None:
    one, four = decided(full("cloud")), decided(full("cloud", count=4))
    assert [len(chosen(d).preempts) for d in (one, four)] == [1, 4]
    assert loss(one, "cloud") == loss(four, "cloud"), "without a price of delay it is the GPUs that count"
    dear = book(delay_price_usd_micro_per_hour=6 * USD)
    one, four = decided(full("cloud"), rules=dear), decided(full("cloud", count=4), rules=dear)
    assert loss(four, "cloud") > loss(one, "cloud")


def test_the_class_is_what_its_owner_says_and_local_work_is_of_its_queues_class() -> None:
    stakes = {"team/cloud-0": Stake(WorkloadClass.EVALUATION, None)}
    ours = chosen(decided(full("cloud"), stakes=stakes)).preempts[0]
    local = chosen(decided(full("cloud", victim={"ours": False}), stakes=stakes)).preempts[0]
    assert (ours.workload_class, local.workload_class) == ("evaluation", "training")


# --- where it is nominated ---------------------------------------------------------------------------------------


def test_a_high_priority_job_goes_where_the_preemption_costs_least() -> None:
    decision = decided(full("onprem", 3 * HOUR), full("cloud", HOUR))
    assert (decision.outcome, decision.chosen) == (Outcome.NOMINATE, "cloud")
    assert decided(full("onprem", HOUR), full("cloud", 3 * HOUR)).chosen == "onprem"


def test_a_checkpoint_makes_a_long_run_the_cheaper_victim() -> None:
    stakes = {"team/onprem-0": Stake(None, 600)}
    assert decided(full("onprem", 30 * HOUR), full("cloud", HOUR), stakes=stakes).chosen == "onprem"


def test_what_is_saved_elsewhere_may_be_worth_a_preemption_that_costs_more() -> None:
    rules = replace(book(), prices=replace(book().prices, compute={}))
    prices = [compute("onprem", 2 * USD), compute("cloud", 9 * USD)]
    rules = policy([site(n, "DE") for n in NAMES], prices)
    decision = decided(full("onprem", HOUR), full("cloud", HOUR / 60), rules=rules, expected_duration_s=36_000)
    assert decision.chosen == "onprem"
    assert loss(decision, "onprem") > loss(decision, "cloud")


def test_who_goes_for_an_earlier_start_is_not_counted_again() -> None:
    """Two starts of one second on a cluster with two victims: each stops one of them."""
    view = full("cloud")
    copies = {(c.namespace, c.name): c for c in (replace(view.copies["team", "cloud-0"], name=n, uid=n) for n in "ab")}
    queues = {QUEUE: queue(quotas=quota(16, used=16), preempts_lower_priority=True)}
    view = replace(view, copies=copies, queues=queues, nodes=nodes(2, used=8))
    first = decided(view)
    second = decide(urgent("second"), snapshot(view, holds=[hold("urgent", "cloud")]), book(), NOW)
    assert [len(chosen(decision).preempts) for decision in (first, second)] == [1, 1]
    assert chosen(first).preempts[0].key != chosen(second).preempts[0].key


def test_free_room_goes_before_any_preemption() -> None:
    decision = decided(full("onprem", timedelta(0)), worker("cloud", nodes(1)))
    assert decision.chosen == "cloud"
    assert on(decision, "onprem").fit is Fit.BY_PREEMPTION


def test_an_unknown_loss_never_beats_a_known_one_however_dear() -> None:
    """Queue `local` is in nobody's plan, so nobody knows what its work is worth."""
    queues = [
        queue(quotas=quota(8), cohort="all", reclaims_within_cohort=True, reclaims_any=True),
        queue("local", quota(0, used=8), cohort="all"),
    ]
    victim = replace(copy("theirs", 8, ours=False, queue_name="local"), admitted_at=NOW)
    unknown = worker("onprem", nodes(1, used=8), queues, copies=[victim], cohorts=[CohortView("all")])
    decision = decided(unknown, full("cloud", 400 * HOUR))
    assert decision.chosen == "cloud"
    assert not on(decision, "onprem").loss_known
    assert (on(decision, "onprem").total_usd_micro or 0) < (on(decision, "cloud").total_usd_micro or 0)
    (told,) = [c for c in counterfactuals(decision) if c.cluster == "onprem"]
    assert "nobody knows" in counterfactual_text(told)
    alone = decided(unknown)
    assert alone.chosen == "onprem", "what is the queue's own it may take back, whatever that costs others"
    assert "queue local is not in the plan" in victim_text(chosen(alone).preempts[0])


def test_a_loss_without_a_price_is_not_known() -> None:
    """A part of the victim lies on a flavor that the blueprint does not know."""
    parts = (*copy("v", 8).pod_sets, *copy("v", 1, flavor_name="odd").pod_sets)
    decision = decided(full("onprem", victim={"pod_sets": parts}), full("cloud", 400 * HOUR))
    assert (decision.chosen, on(decision, "onprem").loss_known) == ("cloud", False)
    assert "no price" in victim_text(on(decision, "onprem").preempts[0])


# --- where nobody is stopped -------------------------------------------------------------------------------------


def test_where_the_queue_may_not_preempt_it_is_no_option() -> None:
    barred = replace(full("onprem", timedelta(0)), queues={"training": queue(quotas=quota(8, used=8))})
    decision = decided(barred, full("cloud", 9 * HOUR))  # type: ignore[arg-type]
    assert decision.chosen == "cloud"
    assert on(decision, "onprem").fit is Fit.WHEN_OTHERS_LEAVE
    assert on(decision, "onprem").preempts == ()


def test_a_class_that_is_not_to_be_stopped_is_not_stopped() -> None:
    stakes = {"team/cloud-0": Stake(WorkloadClass.INFERENCE, None)}
    rules = book()
    served = replace(rules.classes[WorkloadClass.INFERENCE], preemptible=False)
    rules = replace(rules, classes={**rules.classes, WorkloadClass.INFERENCE: served})
    decision = decided(full("cloud"), rules=rules, stakes=stakes)
    assert decision.outcome is Outcome.WAIT
    (rejection,) = on(decision, "cloud").rejections
    assert (rejection.reason, rejection.resolver) == (Reason.NOT_PREEMPTIBLE, Resolver.WAIT)
    assert (rejection.detail.seen, rejection.detail.expected) == (("team/cloud-0",), ("inference",))
    assert "inference" in sentence(decision)


def test_what_it_borrowed_its_owner_takes_back_whatever_its_class() -> None:
    queues = [
        queue(quotas=quota(8), cohort="all", reclaims_within_cohort=True, reclaims_any=True),
        queue("other", quota(0, used=8), cohort="all"),
    ]
    victim = replace(copy("served", 8, priority=900, queue_name="other"), admitted_at=NOW - HOUR)
    view = worker("cloud", nodes(1, used=8), queues, copies=[victim], cohorts=[CohortView("all")])
    rules = book()
    served = replace(rules.classes[WorkloadClass.INFERENCE], preemptible=False)
    rules = replace(rules, classes={**rules.classes, WorkloadClass.INFERENCE: served})
    decision = decided(view, rules=rules, stakes={"team/served": Stake(WorkloadClass.INFERENCE, None)})
    assert decision.chosen == "cloud"
    assert [v.reclaimed for v in chosen(decision).preempts] == [True]
    assert "taking back what team/served borrowed" in sentence(decision)


# --- what was taken back -----------------------------------------------------------------------------------------


def borrowing(own: int) -> WorkerView:
    """The queue has `own` GPUs of its own there and may borrow the rest."""
    queues = [queue(quotas=quota(own), cohort="all"), queue("owner", quota(8 - own), cohort="all")]
    return worker("onprem", (node("n"),), queues, cohorts=[CohortView("all")])


@pytest.mark.parametrize(
    ("own", "minutes", "expected"),
    [
        pytest.param(0, 10, [Reason.RECLAIMED], id="borrowed again it would be taken back again"),
        pytest.param(8, 10, [], id="on its own quota it may come back at once"),
        pytest.param(0, -1, [], id="after a while it may borrow again"),
    ],
)
def test_what_its_owner_took_back_is_not_borrowed_again_at_once(own: int, minutes: int, expected: list[Reason]) -> None:
    until = NOW + timedelta(minutes=minutes)
    entry = Avoided(ClusterName("onprem"), "copy-reclaimed", NOW - HOUR, until, excluded=False, while_borrowing=True)
    view = replace(borrowing(own), local_queues=worker().local_queues)
    decision = decided(view, avoided=(entry,))
    assert reasons(decision, "onprem") == expected
    waiting = next(t for t in on(decision, "onprem").terms if t.kind is TermKind.WAITING)
    assert waiting.amount_usd_micro == 0, "it is barred or welcome, not dearer"
