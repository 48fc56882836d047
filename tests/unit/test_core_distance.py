"""Work that people wait for goes where its answers come in time: the bound, what nearer is worth, what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.decision import Candidate, Decision, Outcome, Reason, Resolver, TermKind
from dispatcher.core.declaration import PREFIX, parse_declaration
from dispatcher.core.explain import bill_text, problem_text, rejection_text, sentence
from dispatcher.core.ids import ClusterName, RegionName
from dispatcher.core.policy import Policy, RoundTrip
from dispatcher.core.workload import WorkloadClass
from tests.core_builders import TODAY, USD, compute, decided, on, plan, policy, reasons, request, site, worker
from tests.examples import examples

NEAR, FAR = 10, 80
MEASURED: Mapping[tuple[str, str], int] = {
    ("r-cloud", "r-town"): FAR,
    ("r-onprem", "r-town"): NEAR,
    ("r-cloud", "r-village"): NEAR,
    ("r-onprem", "r-village"): FAR,
    ("r-onprem", "r-onprem"): 1,
}
KIND = WorkloadClass.INTERACTIVE


def rules(trips: Mapping[tuple[str, str], int] = MEASURED, **of_class: object) -> Policy:
    """Two clusters, of which `cloud` costs a tenth; round trips to a town and a village."""
    found = policy(
        sites=[site("onprem"), site("cloud")], compute_prices=[compute("onprem", 10 * USD), compute("cloud", USD)]
    )
    return replace(
        found,
        classes={**found.classes, KIND: plan(KIND, **of_class)},
        regions=tuple(RegionName(name) for name in ("r-cloud", "r-onprem", "r-town", "r-village")),
        round_trips={pair: RoundTrip(ms, "ping", TODAY) for pair, ms in trips.items()},
    )


def choice(book: Policy, **said: object) -> Decision:
    return decided(request("nb", workload_class=KIND, **said), worker(), worker("cloud"), rules=book)


def latency(found: Candidate) -> int | None:
    return next(t.amount_usd_micro for t in found.terms if t.kind is TermKind.LATENCY)


TOWN, VILLAGE = (RegionName("r-town"),), (RegionName("r-village"),)


@pytest.mark.parametrize(
    ("of_class", "said", "chosen", "against"),
    [
        pytest.param({}, {}, "cloud", {}, id="nobody waits for it: the cheapest"),
        pytest.param({"users": TOWN}, {}, "cloud", {}, id="users without a bound: the cheapest"),
        pytest.param({"max_round_trip_ms": 20}, {}, "cloud", {}, id="a bound of a class without users binds nobody"),
        pytest.param(
            {"users": TOWN, "max_round_trip_ms": 20}, {}, "onprem", {"cloud": Reason.TOO_FAR}, id="its class's bound"
        ),
        pytest.param({"users": TOWN, "max_round_trip_ms": FAR}, {}, "cloud", {}, id="at the bound is within it"),
        pytest.param(
            {"users": TOWN, "max_round_trip_ms": 20}, {"users": VILLAGE}, "cloud", {"onprem": Reason.TOO_FAR},
            id="the owner's users go before those of the class",
        ),
        pytest.param(
            {"users": TOWN, "max_round_trip_ms": 20}, {"max_round_trip_ms": 100}, "cloud", {},
            id="the owner's bound goes before that of the class",
        ),
        pytest.param(
            {}, {"users": TOWN, "max_round_trip_ms": 20}, "onprem", {"cloud": Reason.TOO_FAR}, id="the owner alone"
        ),
        pytest.param(
            {}, {"users": (*TOWN, *VILLAGE), "max_round_trip_ms": 20}, None,
            {"cloud": Reason.TOO_FAR, "onprem": Reason.TOO_FAR}, id="each of its users must be near",
        ),
        pytest.param(
            {}, {"users": (RegionName("r-cloud"),), "max_round_trip_ms": 20}, None,
            {"cloud": Reason.LATENCY_UNKNOWN, "onprem": Reason.LATENCY_UNKNOWN},
            id="what nobody measured is not known, not even within a region",
        ),
        pytest.param(
            {}, {"users": (RegionName("r-onprem"),), "max_round_trip_ms": 20}, "onprem",
            {"cloud": Reason.LATENCY_UNKNOWN}, id="what was measured within a region counts",
        ),
    ],
)  # fmt: skip
def test_the_bound(
    of_class: dict[str, object], said: dict[str, object], chosen: str | None, against: dict[str, Reason]
) -> None:
    decision = choice(rules(**of_class), **said)
    assert decision.chosen == chosen
    assert {n: reasons(decision, n) for n in ("cloud", "onprem")} == {
        n: [against[n]] if n in against else [] for n in ("cloud", "onprem")
    }


@pytest.mark.parametrize(
    ("price", "chosen"),
    [(None, "cloud"), (0, "cloud"), (100_000, "cloud"), (2_000_000, "onprem")],
    ids=["no price", "a price of nothing", "nearer is worth less than it costs", "nearer is worth more"],
)
def test_nearer_wins_where_it_is_worth_what_it_costs(price: int | None, chosen: str) -> None:
    decision = choice(rules(users=TOWN, round_trip_price_usd_micro=price))
    assert decision.chosen == chosen
    each = price or 0
    assert [latency(on(decision, name)) for name in ("cloud", "onprem")] == [FAR * each, NEAR * each]


def test_the_farthest_users_count_and_the_bill_names_them() -> None:
    decision = choice(rules(users=(*TOWN, *VILLAGE), round_trip_price_usd_micro=1000), expected_duration_s=7200)
    found = next(t for t in on(decision, "onprem").terms if t.kind is TermKind.LATENCY)
    assert bill_text(found) == ("round trip of 80 ms to users in r-village: 160 ms-hours x $0.001/h = $0.16 [ping]",)


def test_without_a_price_a_known_round_trip_is_on_record_and_costs_nothing() -> None:
    found = next(t for t in on(choice(rules(users=TOWN)), "cloud").terms if t.kind is TermKind.LATENCY)
    assert (found.amount_usd_micro, found.bill[0].what) == (0, "round trip of 80 ms to users in r-town")


def test_where_nearer_has_a_price_what_is_not_known_cannot_be_compared() -> None:
    some = {pair: ms for pair, ms in MEASURED.items() if pair != ("r-cloud", "r-town")}
    decision = choice(rules(some, users=TOWN, round_trip_price_usd_micro=1))
    assert (decision.chosen, reasons(decision, "cloud")) == ("onprem", [Reason.LATENCY_UNKNOWN])
    bounded = choice(rules(some, users=TOWN, round_trip_price_usd_micro=1, max_round_trip_ms=90))
    assert reasons(bounded, "cloud") == [Reason.LATENCY_UNKNOWN], "the bound and the price say it once"


@pytest.mark.parametrize(
    ("of_class", "said", "resolver"),
    [
        ({"users": TOWN, "max_round_trip_ms": 5}, {}, Resolver.OPERATOR),
        ({"users": TOWN, "max_round_trip_ms": 5}, {"users": TOWN}, Resolver.OWNER),
        ({"users": TOWN}, {"max_round_trip_ms": 5}, Resolver.OWNER),
    ],
    ids=["a class's bound is the operator's", "the owner named the users", "the owner set the bound"],
)
def test_who_set_the_bound_can_lift_it(
    of_class: dict[str, object], said: dict[str, object], resolver: Resolver
) -> None:
    found = on(choice(rules(**of_class), **said), "cloud").rejections[0]
    assert (found.reason, found.resolver) == (Reason.TOO_FAR, resolver)


def test_the_reasons_tell_both_values_and_what_to_write() -> None:
    decision = choice(rules(), users=(*TOWN, RegionName("r-cloud")), max_round_trip_ms=5)
    told = [rejection_text(r, ClusterName("onprem")) for r in on(decision, "onprem").rejections]
    assert told == [
        "onprem is too far from users in r-town (round trip to r-onprem 10 ms, at most 5 ms; ping)",
        "onprem has no known round trip to users in r-cloud (fleet.yaml: round_trips between that and r-onprem)",
    ]
    assert decision.outcome is Outcome.WAIT
    assert "too far from users in r-town" in sentence(decision)


# --- what owners write -------------------------------------------------------------------------------------------


def test_owners_name_regions_and_milliseconds() -> None:
    keys = ((f"{PREFIX}max-round-trip", "40ms"), (f"{PREFIX}users", "r-village, r-town"))
    declared, problems = parse_declaration(keys, rules())
    assert problems == ()
    assert (declared.users, declared.max_round_trip_ms) == (("r-town", "r-village"), 40)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("users", "r-twon", "region 'r-twon' is not in the fleet (fleet.yaml); did you mean 'r-town'?"),
        ("users", "r-town,,r-village", "without empty places"),
        *(
            ("max-round-trip", value, "such as 40ms")
            for value in ("40", "0ms", "-4ms", "PT0.04S", "1s", "60001ms", "ms")
        ),
    ],
)
def test_what_does_not_read_is_told(key: str, value: str, words: str) -> None:
    _, problems = parse_declaration(((f"{PREFIX}{key}", value),), rules())
    assert words in problem_text(problems[0])


# --- laws --------------------------------------------------------------------------------------------------------

ms = st.one_of(st.none(), st.integers(1, 100))
laws = examples(100)


@laws
@given(ms, ms, st.one_of(st.none(), st.integers(1, 100)), st.one_of(st.none(), st.integers(0, 3_000_000)))
def test_nothing_starts_beyond_a_bound_or_where_nobody_knows(
    onprem: int | None, cloud: int | None, bound: int | None, price: int | None
) -> None:
    trips = {("r-cloud", "r-town"): cloud, ("r-onprem", "r-town"): onprem}
    known = {pair: value for pair, value in trips.items() if value is not None}
    book = rules(known, users=TOWN, max_round_trip_ms=bound, round_trip_price_usd_micro=price)
    chosen = choice(book).chosen
    if chosen is None:
        return
    there = {"cloud": cloud, "onprem": onprem}[chosen]
    if bound is not None:
        assert there is not None
        assert there <= bound
    if price:
        assert there is not None


@laws
@given(st.integers(1, 100), st.integers(1, 100), st.integers(1, 100), st.integers(0, 3_000_000))
def test_a_winner_that_comes_nearer_stays_the_winner(onprem: int, cloud: int, nearer: int, price: int) -> None:
    def chosen(onprem: int, cloud: int) -> str | None:
        trips = {("r-cloud", "r-town"): cloud, ("r-onprem", "r-town"): onprem}
        book = rules(trips, users=TOWN, max_round_trip_ms=90, round_trip_price_usd_micro=price)
        return choice(book).chosen

    before = chosen(onprem, cloud)
    if before == "onprem":
        assert chosen(min(onprem, nearer), cloud) == "onprem"
    elif before == "cloud":
        assert chosen(onprem, min(cloud, nearer)) == "cloud"
