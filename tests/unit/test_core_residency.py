"""Labels with their countries, from the catalog to the verdict: the simplest law there is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dispatcher.core.decision import Reason, Resolver
from dispatcher.core.ids import ClusterName
from dispatcher.core.legality import plan_of
from dispatcher.core.policy import DataSet, Policy
from residency.vocabulary import Flow
from tests.core_builders import (
    TODAY,
    LabelRule,
    data,
    decided,
    detail_of,
    egress,
    on,
    policy,
    reasons,
    request,
    rule,
    site,
    store,
    uses,
    worker,
)

ROUTES = [
    egress("r-onprem", "r-cloud", 0),
    egress("r-cloud", "r-onprem", 0),
    egress("r-store", "r-onprem", 0),
    egress("r-store", "r-cloud", 0),
]
STORES = [store("fi-store", "FI")]


def rules(data_sets: list[DataSet], labels: list[LabelRule], **sites: object) -> Policy:
    known = [site("onprem", "DE"), site("cloud", "FI", **sites)]  # type: ignore[arg-type]
    return policy(known, data_sets=data_sets, labels=labels, egress_prices=ROUTES, stores=STORES, unlabelled=None)


def against(policy_: Policy, *names: str) -> dict[str, list[Reason]]:
    decision = decided(request(data=uses(*names)), worker(), worker("cloud"), rules=policy_)
    return {name: reasons(decision, name) for name in ("onprem", "cloud")}


D, I = [Reason.RESIDENCY], [Reason.RESIDENCY_INDETERMINATE]  # noqa: E741
CAMERA = rule("camera-eu", "DE", "FR")


@pytest.mark.parametrize(
    ("data_sets", "labels", "onprem", "cloud"),
    [
        pytest.param([data("d", labels=["camera-eu"], clusters=["onprem"])], [CAMERA], [], D, id="country not allowed"),
        pytest.param(
            [data("d", labels=["camera-eu", "public"], clusters=["onprem"])],
            [CAMERA, rule("public", anywhere=True)],
            [],
            D,
            id="the permissive label of two does not win",
        ),
        pytest.param(
            [data("d", labels=["public"], clusters=["onprem"])], [rule("public", anywhere=True)], [], [], id="anywhere"
        ),
        pytest.param(
            [data("d", labels=["odd"], clusters=["onprem"])], [CAMERA], D, D, id="a label without a rule goes nowhere"
        ),
        pytest.param(
            [data("d", labels=[], clusters=["onprem"])],
            [CAMERA],
            [],
            D,
            id="fr_pol_01 unlabelled data stays in its country",
        ),
        pytest.param(
            [data("d", labels=[], stores=["fi-store"])], [CAMERA], D, [], id="a store's country is a home as well"
        ),
        pytest.param(
            [
                data("d", labels=["public"], clusters=["onprem"], derived_from=["raw"]),
                data("raw", labels=[], derived_from=["source"]),
                data("source", labels=["camera-eu"]),
            ],
            [CAMERA, rule("public", anywhere=True)],
            [],
            D,
            id="labels are inherited from what it is derived from",
        ),
        pytest.param(
            [
                data("d", labels=[], clusters=["cloud"], derived_from=["raw"]),
                data("raw", labels=["camera-eu"], derived_from=["d"]),
            ],
            [CAMERA],
            [],
            D,
            id="a set that is made of others has their labels alone, and a ring ends",
        ),
        pytest.param(
            [data("d", labels=["none"], clusters=["onprem"])], [rule("none")], D, D, id="an empty list allows nowhere"
        ),
    ],
)
def test_law(data_sets: list[DataSet], labels: list[LabelRule], onprem: list[Reason], cloud: list[Reason]) -> None:
    assert against(rules(data_sets, labels), "d") == {"onprem": onprem, "cloud": cloud}


SECRET = [data("d", labels=["fi-only"], clusters=["cloud"])]
FI = [rule("fi-only", "FI")]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({}, [], id="known and attested"),
        pytest.param({"until": TODAY}, [], id="attested through today"),
        pytest.param({"until": TODAY - timedelta(days=1)}, I, id="attestation ran out yesterday"),
        pytest.param({"until": None}, I, id="never attested"),
        pytest.param({"country": None}, I, id="country not known"),
    ],
)
def test_a_missing_or_stale_fact_denies_with_a_code_of_its_own(
    facts: dict[str, object], expected: list[Reason]
) -> None:
    known = [site("onprem", "DE"), site("cloud", **{"country": "FI", **facts})]  # type: ignore[arg-type]
    found = against(policy(known, data_sets=SECRET, labels=FI, egress_prices=ROUTES), "d")
    assert found == {"onprem": D, "cloud": expected}


def test_data_that_may_go_anywhere_asks_for_no_facts() -> None:
    known = [site("onprem", None, until=None)]
    open_data = [data("d", labels=["public"], clusters=["onprem"])]
    found = policy(known, data_sets=open_data, labels=[rule("public", anywhere=True)])
    assert decided(request(data=uses("d")), worker(), rules=found).chosen == "onprem"


def test_a_job_that_names_no_data_is_not_without_data() -> None:
    """residency.md section 4.3: the queue's default labels, else unlabelled; where that has no rule, nowhere."""

    def chosen(**over: object) -> str | None:
        return decided(request(), worker("onprem"), worker("cloud"), rules=policy(labels=FI, **over)).chosen  # type: ignore[arg-type]

    assert chosen(default_labels=["fi-only"]) == "cloud"
    assert chosen(unlabelled=rule("unlabelled", "DE")) == "onprem"
    assert chosen(unlabelled=None) is None
    decision = decided(request(), worker("onprem"), rules=policy(labels=FI, unlabelled=None))
    (rejection,) = on(decision, "onprem").rejections
    assert (rejection.resolver, rejection.detail.subject) == (Resolver.OWNER, "unnamed data")


def test_the_rule_of_unlabelled_data_goes_before_the_place_where_it_lies() -> None:
    sets = [data("d", labels=[], clusters=["cloud"])]
    assert against(policy(data_sets=sets, unlabelled=rule("unlabelled", "DE"), egress_prices=ROUTES), "d") == {
        "onprem": [],
        "cloud": D,
    }


def test_every_data_set_and_label_that_denies_is_told_with_its_line() -> None:
    sets = [data("a", labels=["x", "y"], clusters=["onprem"]), data("b", labels=["x"], clusters=["onprem"])]
    known = rules(sets, [rule("x", "FI"), rule("y", "FI")])
    decision = decided(request(data=uses("a", "b")), worker(), rules=known)
    told = [(r.detail.subject, r.detail.holder, r.detail.line) for r in on(decision, "onprem").rejections]
    assert told == [(name, label, "residency/rules.yaml:1:5") for name, label in (("a", "x"), ("a", "y"), ("b", "x"))]
    detail = detail_of(decision, "onprem", Reason.RESIDENCY)
    assert (detail.expected, detail.seen) == (("FI",), ("DE",))
    assert on(decision, "onprem").rejections[0].resolver is Resolver.OPERATOR


def test_no_fact_no_go_even_where_it_costs_least() -> None:
    sets = [data("d", labels=["fi-only"], clusters=["onprem"])]
    assert decided(request(data=uses("d")), worker(), worker("cloud"), rules=rules(sets, FI)).chosen == "cloud"


def test_what_a_run_makes_tells_which_data_brings_each_label() -> None:
    known = rules([data("a", labels=["fi-only"]), data("b", labels=["fi-only", "odd"])], FI)
    plan = plan_of(request(data=uses("a", "b")), known.clusters[ClusterName("cloud")], known, TODAY)
    logs = next(hop.cargo for hop in plan.hops if hop.flow is Flow.LOGS)
    assert {one.label: one.brought_by for one in logs.labels.inherited} == {"fi-only": ("a", "b"), "odd": ("b",)}
