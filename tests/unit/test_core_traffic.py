"""Look-ahead, and what keeps a workload back whatever fits (dispatcher/core/traffic.py)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dispatcher.core.decide import decide, hold_of
from dispatcher.core.decision import Decision, Fit, LookAhead, Outcome, Reason
from dispatcher.core.explain import sentence
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import Snapshot
from dispatcher.core.traffic import Bound, Refusal, Traffic, claims
from dispatcher.core.workload import Request
from tests.core_builders import NOW, USD, compute, hold, node, pods, policy, queue, quota, request, seen, site, worker

NAMES = ("cloud", "onprem")
FLAVOR = "h100"


def book(look_ahead: int = 1) -> Policy:
    prices = [compute("onprem", USD), compute("cloud", 2 * USD)]
    found = policy([site(name, "DE") for name in NAMES], prices)
    classes = {name: replace(plan, look_ahead=look_ahead) for name, plan in found.classes.items()}
    return replace(found, classes=classes)


def fleet(**used: int) -> Snapshot:
    """Clusters of eight GPUs, of which some are used by others."""
    return Snapshot(
        tuple(
            seen(worker(name, (node("n", used=used.get(name, 8)),), [queue(quotas=quota(8, used=used.get(name, 8)))]))
            for name in NAMES
        )
    )


def asked(name: str = "g", gpus: int = 2, **more: Any) -> Request:
    found = request(name, pods(1, gpus), **more)
    return replace(found, uid=f"uid-{name}", listed_clusters=NAMES)  # type: ignore[arg-type]


def decided(snapshot: Snapshot, traffic: Traffic, one: Request | None = None, look_ahead: int = 1) -> Decision:
    return decide(one or asked(), snapshot.amid(traffic), book(look_ahead), NOW)


def kind(one: Request | None = None) -> str:
    return decided(fleet(), Traffic(), one).workload_class


@pytest.mark.parametrize(
    ("sentence_id", "used", "traffic", "look_ahead", "chosen"),
    [
        ("a-full-fleet-takes-one-on-the-cheapest-cluster", {}, Traffic(), 1, "onprem"),
        ("without-look-ahead-a-full-fleet-takes-none", {}, Traffic(), 0, None),
        ("what-fits-goes-first-however-dear", {"cloud": 0}, Traffic(), 1, "cloud"),
        ("a-cluster-whose-place-is-taken-is-passed-over", {}, Traffic({("onprem", "training"): 1}), 1, "cloud"),  # type: ignore[dict-item]
        ("two-places-take-a-second", {}, Traffic({("onprem", "training"): 1}), 2, "onprem"),  # type: ignore[dict-item]
        ("another-class-takes-no-place-of-this-one", {}, Traffic({("onprem", "simulation"): 9}), 1, "onprem"),  # type: ignore[dict-item]
        ("nobody-is-passed-who-waits-ahead", {}, Traffic(claimed=(("onprem", FLAVOR),)), 1, "cloud"),  # type: ignore[arg-type]
        ("a-claim-on-another-flavor-is-none-here", {}, Traffic(claimed=(("onprem", "l40s"),)), 1, "onprem"),  # type: ignore[arg-type]
    ],
)
def test_look_ahead(sentence_id: str, used: dict[str, int], traffic: Traffic, look_ahead: int, chosen: str) -> None:
    assert kind() == "training", "the table names the class"
    found = decided(fleet(**used), traffic, look_ahead=look_ahead)
    assert found.chosen == chosen, sentence_id
    candidate = found.candidate(found.chosen) if found.chosen is not None else None
    assert (found.ahead is not None) == (candidate is not None and candidate.fit is Fit.WHEN_OTHERS_LEAVE)


def test_a_choice_ahead_is_recorded_with_its_bound_and_told() -> None:
    found = decided(fleet(), Traffic({("onprem", "training"): 1}), look_ahead=2)  # type: ignore[dict-item]
    assert found.ahead == LookAhead(queued=1, limit=2)
    assert sentence(found).startswith("onprem, when others leave: $")
    assert "nothing fits now" in sentence(found)


def test_what_is_promised_is_not_what_others_leave() -> None:
    promised = replace(fleet(onprem=0), holds=(hold("h", "onprem", 1),))
    found = decided(promised, Traffic(), asked(gpus=8))
    assert {r.reason for c in found.candidates if c.cluster == "onprem" for r in c.rejections} == {Reason.HELD}
    assert found.chosen == "cloud"


def test_a_workload_that_is_nominated_queues_in_one_place_only() -> None:
    one = replace(asked(), already_nominated=("cloud",))  # type: ignore[arg-type]
    assert decided(fleet(), Traffic(), one).outcome is Outcome.WAIT


def test_a_promise_made_ahead_gives_way_to_a_higher_priority_and_to_no_other() -> None:
    first = asked("first", priority=5)
    made = hold_of(decided(fleet(), Traffic(), first), first, book(), NOW)
    assert made is not None
    assert made.yields_above == 5
    freed = fleet(onprem=6).with_hold(made)
    urgent, equal = asked("urgent", priority=6), asked("equal", priority=5)
    assert decided(freed, Traffic(), urgent, look_ahead=0).chosen == "onprem"
    assert decided(freed, Traffic(), equal, look_ahead=0).chosen is None


def test_a_promise_of_what_fits_gives_way_to_nobody() -> None:
    one = asked()
    made = hold_of(decided(fleet(onprem=0), Traffic(), one), one, book(), NOW)
    assert made is not None
    assert made.yields_above is None


def test_who_waits_for_room_claims_it_and_who_is_forbidden_does_not() -> None:
    waiting = decided(fleet(), Traffic(), look_ahead=0)
    assert claims(waiting.candidates) == {("cloud", FLAVOR), ("onprem", FLAVOR)}
    narrowed = replace(asked(), declared=replace(asked().declared, clusters=("cloud",)))  # type: ignore[arg-type]
    assert claims(decided(fleet(), Traffic(), narrowed, look_ahead=0).candidates) == {("cloud", FLAVOR)}


REFUSED = Refusal("denied the request: quiet hours", NOW, NOW + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("traffic", "reason", "words"),
    [
        (Traffic(bound=Bound(24, 24)), Reason.TOO_MANY_OUTSTANDING, "has 24 nominations"),
        (Traffic(refusal=REFUSED), Reason.NOMINATION_REFUSED, "refuses its nomination"),
        (Traffic(refusal=replace(REFUSED, own=False)), Reason.NOMINATION_REFUSED, "refuses nominations of others"),
    ],
)
def test_what_the_hub_does_not_take_waits_with_a_reason_though_it_fits(
    traffic: Traffic, reason: Reason, words: str
) -> None:
    found = decided(fleet(onprem=0), traffic)
    assert found.outcome is Outcome.WAIT
    assert any(candidate.eligible for candidate in found.candidates), "the record still shows where it would fit"
    assert found.kept is not None
    assert found.kept.reason is reason
    assert f"waits: the hub {words}" in sentence(found)
    assert found.id != decided(fleet(onprem=0), Traffic()).id


def test_a_bound_that_is_not_reached_keeps_nobody_back() -> None:
    assert decided(fleet(onprem=0), Traffic(bound=Bound(23, 24))).chosen == "onprem"
