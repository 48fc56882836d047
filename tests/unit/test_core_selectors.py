"""Labels, taints and flavors, literally as the scheduler and Kueue read them."""

from __future__ import annotations

import pytest

from dispatcher.core.ids import ProductName
from dispatcher.core.products import BUILTIN_PRODUCTS, PRODUCT_LABEL
from dispatcher.core.selectors import (
    FlavorVerdict,
    is_lifecycle,
    match_flavor,
    node_matches,
    requirement_holds,
    tolerates,
    untolerated,
)
from dispatcher.core.snapshot import Taint
from dispatcher.core.workload import Requirement, Toleration
from tests.core_builders import H100, pods

LABELS = {"zone": "a", "mem": "81920", "gpu": "x", "name": "n1"}
R = Requirement


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        (R("zone", "In", ("a", "b")), True),
        (R("zone", "In", ("b",)), False),
        (R("none", "In", ("a",)), False),
        (R("zone", "NotIn", ("a",)), False),
        (R("zone", "NotIn", ("b",)), True),
        (R("none", "NotIn", ("a",)), True),
        (R("gpu", "Exists"), True),
        (R("none", "Exists"), False),
        (R("none", "DoesNotExist"), True),
        (R("gpu", "DoesNotExist"), False),
        (R("mem", "Gt", ("40000",)), True),
        (R("mem", "Gt", ("81920",)), False),
        (R("mem", "Lt", ("90000",)), True),
        (R("mem", "Lt", ("81920",)), False),
        (R("zone", "Gt", ("1",)), False),
        (R("mem", "Gt", ("x",)), False),
        (R("none", "Lt", ("1",)), False),
        (R("zone", "Near", ("a",)), False),
    ],
)
def test_requirements(requirement: Requirement, holds: bool) -> None:
    assert requirement_holds(requirement, LABELS) is holds


def test_a_selector_and_one_of_the_terms_must_hold() -> None:
    zone_a, zone_b, has_gpu = R("zone", "In", ("a",)), R("zone", "In", ("b",)), R("gpu", "Exists")
    assert node_matches((zone_a,), (), LABELS)
    assert node_matches((zone_a,), ((zone_b,), (has_gpu,)), LABELS)
    assert not node_matches((zone_a,), ((zone_b,), (zone_b, has_gpu)), LABELS)
    assert not node_matches((zone_b,), ((has_gpu,),), LABELS)
    assert not node_matches((), ((),), LABELS), "an empty term matches no node"


T = Toleration


@pytest.mark.parametrize(
    ("toleration", "taint", "fine"),
    [
        (T("k", "Equal", "v", "NoSchedule"), Taint("k", "v", "NoSchedule"), True),
        (T("k", "Equal", "w", "NoSchedule"), Taint("k", "v", "NoSchedule"), False),
        (T("k", "Exists"), Taint("k", "v", "NoExecute"), True),
        (T("k", "", "v"), Taint("k", "v", "NoSchedule"), True),
        (T("", "Exists"), Taint("any", "", "NoSchedule"), True),
        (T("", "Equal", ""), Taint("any", "", "NoSchedule"), False),
        (T("k", "Exists", "", "NoExecute"), Taint("k", "v", "NoSchedule"), False),
        (T("other", "Exists"), Taint("k", "", "NoSchedule"), False),
    ],
)
def test_tolerations(toleration: Toleration, taint: Taint, fine: bool) -> None:
    assert tolerates(toleration, taint) is fine


def test_a_taint_that_only_prefers_keeps_nobody_off() -> None:
    hard, soft = Taint("k", "v", "NoSchedule"), Taint("s", "v", "PreferNoSchedule")
    assert untolerated((), (soft, hard)) == hard
    assert untolerated((), (soft,)) is None
    assert untolerated((T("k", "Exists"),), (soft, hard)) is None


def test_taints_of_the_cluster_itself_are_told_apart() -> None:
    assert is_lifecycle(Taint("node.kubernetes.io/not-ready", "", "NoExecute"))
    assert not is_lifecycle(Taint("nvidia.com/gpu", "present", "NoSchedule"))


def product(wanted: str, label: str, operator: str = "In") -> FlavorVerdict:
    pod_set = pods(selector=(R(PRODUCT_LABEL, operator, (wanted,)),), product=None)
    return match_flavor(pod_set, {PRODUCT_LABEL: label}, None, BUILTIN_PRODUCTS).verdict


@pytest.mark.parametrize(
    ("wanted", "label", "verdict"),
    [
        pytest.param(H100, H100, FlavorVerdict.MATCH, id="the same spelling"),
        pytest.param(
            "H100_NVLINK_80GB", H100, FlavorVerdict.LABEL_MISMATCH, id="fr_cfg_01 the same card, spelled otherwise"
        ),
        pytest.param("a100-80gb", "NVIDIA-A100-SXM4-40GB", FlavorVerdict.OTHER_PRODUCT, id="fr_sco_04 a smaller card"),
        pytest.param(
            "a100", "NVIDIA-A100-SXM4-40GB", FlavorVerdict.UNKNOWN_PRODUCT, id="fr_sco_04 a prefix is no product"
        ),
        pytest.param("h1000", H100, FlavorVerdict.UNKNOWN_PRODUCT, id="an unknown spelling is no match"),
        pytest.param("FOO-1", "FOO-1", FlavorVerdict.MATCH, id="an unknown product whose label is literally the same"),
    ],
)
def test_products(wanted: str, label: str, verdict: FlavorVerdict) -> None:
    assert product(wanted, label) is verdict


def test_an_excluded_card_is_excluded_under_any_spelling() -> None:
    assert product("h100_nvlink_80gb", H100, "NotIn") is FlavorVerdict.OTHER_PRODUCT
    assert product("NVIDIA-L4", H100, "NotIn") is FlavorVerdict.MATCH


def test_only_keys_that_the_flavor_has_count_for_the_flavor() -> None:
    pod_set = pods(selector=(R("zone", "In", ("a",)),), product=None)
    assert match_flavor(pod_set, {PRODUCT_LABEL: H100}, None, BUILTIN_PRODUCTS).verdict is FlavorVerdict.MATCH
    assert match_flavor(pod_set, {"zone": "b"}, None, BUILTIN_PRODUCTS).verdict is FlavorVerdict.OTHER


def test_one_term_that_fits_is_enough_and_the_nearest_miss_is_told() -> None:
    def terms(*values: str) -> FlavorVerdict:
        pod_set = pods(product=None, terms=[[R(PRODUCT_LABEL, "In", (value,))] for value in values])
        return match_flavor(pod_set, {PRODUCT_LABEL: H100}, None, BUILTIN_PRODUCTS).verdict

    assert terms("NVIDIA-L4", H100) is FlavorVerdict.MATCH
    assert terms("NVIDIA-L4", "h100-sxm") is FlavorVerdict.LABEL_MISMATCH


def test_the_blueprint_knows_the_product_of_a_label_that_the_table_does_not() -> None:
    pod_set = pods(product="h100-sxm")
    found = match_flavor(pod_set, {PRODUCT_LABEL: "house-name"}, ProductName("h100-80gb"), BUILTIN_PRODUCTS)
    assert found.verdict is FlavorVerdict.LABEL_MISMATCH
    assert (found.wanted, found.seen) == (("h100-sxm",), ("house-name",))
