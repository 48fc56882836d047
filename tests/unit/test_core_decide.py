"""Choosing, recording and holding."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dispatcher.core.decide import decide, hold_of
from dispatcher.core.decision import Fit, Outcome, Reason
from dispatcher.core.holds import is_visible, live_holds
from dispatcher.core.ids import ClusterName, QueueName
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.snapshot import Snapshot
from dispatcher.core.version import CODE_VERSION
from dispatcher.core.workload import Declaration, Requirement
from tests.core_builders import (
    FLAVOR,
    NOW,
    QUEUE,
    USD,
    blind,
    compute,
    copy,
    decided,
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
    snapshot,
    worker,
)

CHEAP_CLOUD = policy(compute_prices=[compute("onprem", 3 * USD), compute("cloud", 2 * USD)])


def test_the_cheapest_that_fits_is_chosen() -> None:
    decision = decided(request(), worker(), worker("cloud"), rules=CHEAP_CLOUD)
    assert (decision.outcome, decision.chosen) == (Outcome.NOMINATE, "cloud")
    assert [c.cluster for c in decision.candidates] == ["cloud", "onprem"]


def test_nothing_fits_means_wait_with_every_reason_recorded() -> None:
    decision = decided(request("g", pods(9)), worker(), blind("cloud"))
    assert (decision.outcome, decision.chosen) == (Outcome.WAIT, None)
    assert reasons(decision, "cloud") == [Reason.BLIND]
    assert reasons(decision, "onprem") == [Reason.NEVER_FITS, Reason.NEVER_FITS]


def test_no_clusters_means_wait() -> None:
    assert decide(request(), Snapshot(()), policy(), NOW).outcome is Outcome.WAIT


def test_equal_costs_are_spread_by_a_stable_hash() -> None:
    views = [worker(name) for name in ("onprem", "cloud")]
    chosen = {name: decided(request(name), *views).chosen for name in (f"job-{i}" for i in range(40))}
    assert set(chosen.values()) == {"onprem", "cloud"}
    assert chosen == {name: decided(request(name), *reversed(views)).chosen for name in chosen}


def test_the_record_is_complete() -> None:
    decision = decided(request("g", job_kind="JobSet"), worker(), rules=CHEAP_CLOUD)
    assert decision.key == "team/g"
    assert (decision.job_kind, decision.attempt, decision.resource_version) == ("JobSet", 1, "7")
    assert (decision.policy_digest, decision.code_version) == ("policy-1", CODE_VERSION)
    assert decision.workload_class == "training"
    assert decision.waiting_since == NOW - timedelta(minutes=4)
    candidate = on(decision, "onprem")
    assert candidate.observed_at == NOW - timedelta(seconds=2)
    assert len(candidate.view_digest) == len(decision.snapshot_digest) == len(decision.request_digest) == 16


def test_the_id_is_the_content() -> None:
    first = decided(request(), worker(), worker("cloud"))
    assert decided(request(), worker("cloud"), worker()).id == first.id
    others = [
        decided(request(resource_version="8"), worker(), worker("cloud")),
        decided(request(), worker(generation=2), worker("cloud")),
        decided(request(), worker(), worker("cloud"), rules=CHEAP_CLOUD),
        decided(request(), worker(), worker("cloud"), holds=[hold(gpu=1)]),
        decide(request(), snapshot(worker(), worker("cloud")), policy(), NOW + timedelta(seconds=1)),
    ]
    assert first.id not in {other.id for other in others}
    assert len({other.id for other in others}) == len(others)


def test_a_shared_memo_changes_no_byte() -> None:
    views, shared = [worker(), worker("cloud")], CandidateMemo()
    holds = [hold("first", count=1)]
    for wanted in (request("a"), request("b", pods(2)), request("a")):
        for promised in ([], holds, [*holds, hold("second", "cloud")], []):
            seen = snapshot(*views, holds=promised)
            assert repr(decide(wanted, seen, policy(), NOW, shared)) == repr(decide(wanted, seen, policy(), NOW))


def test_a_request_without_class_takes_its_queues_or_is_refused() -> None:
    plain = request(declared=Declaration())
    assert decided(plain, worker()).workload_class == "training"
    with pytest.raises(ValueError, match="no workload class"):
        decided(replace(plain, hub_queue=QueueName("other")), worker())


# --- holds -------------------------------------------------------------------------------------------------------


def test_a_nomination_promises_what_it_places() -> None:
    wanted = request("g", pods(2))
    decision = decided(wanted, worker())
    promised = hold_of(decision, wanted, policy(), NOW)
    assert promised is not None
    assert (promised.cluster, promised.queue, promised.decision) == ("onprem", QUEUE, decision.id)
    assert promised.usage == (("main", 2, res(8), FLAVOR),)
    assert promised.pod_sets == wanted.pod_sets
    assert promised.expires_at == NOW + timedelta(seconds=300)


def test_a_promise_lasts_as_long_as_the_class_is_patient() -> None:
    rules = policy()
    patient = replace(rules, classes={c: replace(plan, patience_s=900) for c, plan in rules.classes.items()})
    promised = hold_of(decided(request(), worker()), request(), patient, NOW)
    assert promised is not None
    assert promised.expires_at == NOW + timedelta(seconds=900)


def test_waiting_promises_nothing() -> None:
    wanted = request("g", pods(9))
    assert hold_of(decided(wanted, worker()), wanted, policy(), NOW) is None


def test_fr_sco_01_two_gangs_in_one_second_never_get_the_same_gpus() -> None:
    """a has 16 GPUs and b has 8: the first gang of 16 goes to a, the second is not nominated and says who holds it."""
    rules = policy(sites=[site("x"), site("y")])
    a, b = worker("x", nodes(2)), worker("y", nodes(1))
    first, second = request("g1", pods(2)), request("g2", pods(2))
    one = decided(first, a, b, rules=rules)
    promised = hold_of(one, first, rules, NOW)
    assert one.chosen == "x"
    assert promised is not None
    two = decide(second, snapshot(a, b).with_hold(promised), rules, NOW)
    assert two.outcome is Outcome.WAIT
    (rejection,) = on(two, "x").rejections
    assert (rejection.reason, rejection.detail.holder) == (Reason.HELD, "team/g1")
    assert on(two, "y").fit is Fit.NEVER


def test_a_batch_in_one_second_fills_a_cluster_exactly() -> None:
    view, promised = worker(node_views=nodes(4)), []
    for number in range(6):
        wanted = request(f"g{number}", pods(2, 4))
        decision = decided(wanted, view, holds=promised)
        made = hold_of(decision, wanted, policy(), NOW + timedelta(microseconds=number))
        promised += [made] if made else []
    assert len(promised) == 4


def test_a_promise_ends_when_the_worker_shows_it_and_is_never_counted_twice() -> None:
    """Quota for exactly two gangs: with the first visible as reserved the second still fits."""
    made = hold("g1", count=2)
    shown = worker(
        node_views=nodes(4),
        queues=[queue(quotas=quota(32, used=16))],
        copies=[copy("g1", 8, count=2, bound=0)],
    )
    assert decided(request("g2", pods(2)), shown, holds=[made]).chosen == "onprem"
    assert reasons(decided(request("g2", pods(3)), shown, holds=[made]), "onprem") == [Reason.QUOTA, Reason.NODES]


def test_which_promises_still_count() -> None:
    views = {ClusterName("onprem"): worker(copies=[copy("seen"), copy("waiting", reserved=False)])}
    live, expired, shown = hold("waiting"), hold("late", expires_at=NOW), hold("seen")
    other = hold("else", cluster="cloud")
    assert live_holds([shown, other, expired, live, live], views, NOW) == (other, live)
    foreign = worker(copies=[copy("seen", ours=False)])
    assert not is_visible(shown, foreign)
    assert is_visible(shown, worker(copies=[copy("seen", reserved=False, finished=True)]))
    assert not is_visible(shown, None)


def test_a_copy_that_lay_there_at_the_decision_is_not_taken_for_the_promised_one() -> None:
    """Evicted and nominated again: what MultiKueue has not deleted yet still shows the reservation of before."""
    left = worker(node_views=nodes(4), queues=[queue(quotas=quota(32))], copies=[copy("g")])
    wanted = request("g", pods(1))
    made = hold_of(decided(wanted, left), wanted, policy(), NOW, snapshot(left))
    assert made is not None
    assert made.former_copy == left.copies["team", "g"].uid
    name = ClusterName("onprem")
    assert live_holds([made], {name: left}, NOW) == (made,)
    new = worker(copies=[replace(copy("g"), uid="new", quota_reserved_at=None)])
    assert live_holds([made], {name: new}, NOW) == (made,)
    assert live_holds([made], {name: worker(copies=[replace(copy("g"), uid="new")])}, NOW) == ()


def test_work_of_others_under_the_same_name_is_no_former_copy() -> None:
    there = worker(copies=[copy("g", ours=False)])
    wanted = request("g", pods(1))
    made = hold_of(decided(wanted, worker()), wanted, policy(), NOW, snapshot(there))
    assert made is not None
    assert made.former_copy is None


def test_a_newer_promise_of_the_same_workload_replaces_the_older() -> None:
    older, newer = hold("g"), hold("g", decision="d-2", made_at=NOW)
    assert live_holds([newer, older], {}, NOW) == (newer,)


def test_fr_scl_01_of_fifty_clusters_one_is_nominated_and_the_list_grows_one_at_a_time() -> None:
    names = [f"c{at:02d}" for at in range(50)]
    sites = [site(name) for name in names]
    rules = policy(sites, [compute(name, (at + 1) * USD) for at, name in enumerate(names)])
    listed = tuple(ClusterName(name) for name in names)
    nominated: tuple[ClusterName, ...] = ()
    for turn in range(5):
        asked = request(listed_clusters=listed, already_nominated=nominated)
        decision = decided(asked, *(worker(name) for name in names), rules=rules)
        assert decision.chosen == names[turn], "the best of those that are left"
        nominated = (*nominated, decision.chosen)


# --- flavors and slices on the same nodes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("any_gpus", "h100_gpus", "fits"),
    [
        pytest.param(4, 4, True, id="together as much as there is"),
        pytest.param(8, 0, True, id="all by one flavor"),
        pytest.param(8, 8, False, id="twice what there is, though each quota has it"),
        pytest.param(4, 5, False, id="one more than there is"),
    ],
)
def test_fr_sco_11_two_flavors_over_the_same_nodes_have_them_once(any_gpus: int, h100_gpus: int, fits: bool) -> None:
    """A pod set on flavor `any` and one on `h100`, over the same 8 GPUs, with quota for 8 in each."""
    names = {"any": flavor("any", labels={"pool": "gpu"}), "h100": flavor("h100")}
    both = queue(quotas=(*quota(8, flavor="h100"), *quota(8, flavor="any")))
    view = worker(node_views=nodes(1), queues=[both], flavors=tuple(names.values()))
    planned = [flavor_policy("h100"), flavor_policy("any", labels={"pool": "gpu"})]
    loose = pods(1, any_gpus, name="loose", product=None, selector=(Requirement("pool", "In", ("gpu",)),))
    sets = [loose, *([pods(1, h100_gpus, name="strict")] if h100_gpus else [])]
    decision = decided(request("g", *sets), view, rules=policy([site("onprem", flavors=planned)]))
    assert (on(decision, "onprem").fit is Fit.NOW) is fits, on(decision, "onprem")


@pytest.mark.parametrize(
    ("whole", "slices", "fits"),
    [
        pytest.param(4, 28, True, id="all cards and all slices"),
        pytest.param(5, 0, False, id="a card that is cut is no whole one"),
        pytest.param(0, 29, False, id="a whole card is no slices"),
    ],
)
def test_fr_sco_07_whole_cards_and_slices_of_a_node_are_each_counted_once(whole: int, slices: int, fits: bool) -> None:
    """A node of 8 cards, 4 of them cut into 7 slices each."""
    mig = "nvidia.com/mig-1g.10gb"
    mixed = node("n1", allocatable=res(4, cpu=64, memory=512, pods=110, **{mig: 28}))
    view = worker(node_views=(mixed,), queues=[queue(quotas=quota(100, resources={mig: 100}))])
    asked = res(whole, cpu=1, memory=1, **({mig: slices} if slices else {}))
    decision = decided(request("g", pods(1, whole, per_pod=asked, product=None)), view)
    assert (on(decision, "onprem").fit is Fit.NOW) is fits, on(decision, "onprem")
