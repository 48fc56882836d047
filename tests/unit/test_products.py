"""Canonical GPU products: one name behind many spellings, and never one spelling behind two names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.ids import ProductName
from dispatcher.core.policy import Product
from dispatcher.core.products import BUILTIN_PRODUCTS, is_shared, nearest, normalise, product_of, table, whole_of

H100_SPELLINGS = ("h100_nvlink_80gb", "H100_NVLINK_80GB", "NVIDIA-H100-80GB-HBM3", "nvidia h100 80gb hbm3", "h100-80gb")


@pytest.mark.parametrize("spelling", H100_SPELLINGS)
def test_fr_cfg_01_every_spelling_of_one_card_is_one_product(spelling: str) -> None:
    assert product_of(spelling, BUILTIN_PRODUCTS) == "h100-80gb"


def test_fr_cfg_01_an_unknown_spelling_gets_a_suggestion_and_no_match() -> None:
    assert product_of("h100", BUILTIN_PRODUCTS) is None
    assert nearest("h100", BUILTIN_PRODUCTS) == "h100-80gb"


def test_fr_sco_04_a_40_gb_card_does_not_serve_a_request_for_80_gb() -> None:
    node = product_of("NVIDIA-A100-SXM4-40GB", BUILTIN_PRODUCTS)
    request = product_of("a100-80gb", BUILTIN_PRODUCTS)
    assert (node, request) == ("a100-40gb", "a100-80gb")


CASES = [
    pytest.param("A100", None, id="a model without its memory is ambiguous and matches nothing"),
    pytest.param("h100-80gb-extra", None, id="a longer label that begins like a product is not that product"),
    pytest.param("NVIDIA-A100-SXM4-80GB-SHARED", None, id="a time-sliced card is not a whole one"),
    pytest.param("NVIDIA-H100-PCIe", "h100-pcie-80gb", id="the PCIe form is a product of its own"),
    pytest.param("NVIDIA-H100-NVL", "h100-nvl-94gb", id="the NVL form has other memory and is its own product"),
    pytest.param("NVIDIA-H200", "h200-141gb", id="H200"),
    pytest.param("NVIDIA-B200", "b200-180gb", id="B200"),
    pytest.param("NVIDIA-L40S", "l40s-48gb", id="L40S"),
    pytest.param("NVIDIA-L40", "l40-48gb", id="L40 is not L40S"),
    pytest.param("NVIDIA-L4", "l4-24gb", id="L4 is not L40"),
    pytest.param(
        "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "rtx-pro-6000-96gb", id="RTX PRO 6000 of today's servers"
    ),
    pytest.param("NVIDIA-RTX-6000-Ada-Generation", "rtx-6000-ada-48gb", id="RTX 6000 of the Ada generation"),
    pytest.param("NVIDIA-GeForce-RTX-4090", "rtx-4090", id="RTX 4090"),
    pytest.param("Tesla-T4", "t4", id="T4"),
    pytest.param("nvidia-h100-mega-80gb", "h100-80gb", id="the accelerator name of a managed offering"),
    pytest.param(
        "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "h100-80gb-mig-1g.10gb", id="a slice is a product of its own card"
    ),
    pytest.param("a100-80gb-mig-1g.10gb", "a100-80gb-mig-1g.10gb", id="the same profile of another card is another"),
    pytest.param("", None, id="an empty label"),
    pytest.param("---", None, id="only separators"),
]


@pytest.mark.parametrize(("label", "expected"), CASES)
def test_a_label_names_a_product_only_through_the_alias_table(label: str, expected: str | None) -> None:
    assert product_of(label, BUILTIN_PRODUCTS) == expected


def test_no_spelling_means_two_products() -> None:
    owners: dict[str, str] = {}
    for name, product in BUILTIN_PRODUCTS.items():
        for spelling in (str(name), *product.aliases):
            assert spelling == normalise(spelling), f"{spelling} of {name} is not normalised"
            assert owners.setdefault(spelling, name) == name, f"{spelling} is both {owners[spelling]} and {name}"


def test_a_slice_has_its_profile_and_less_memory_than_its_card() -> None:
    slices = [product for product in BUILTIN_PRODUCTS.values() if product.mig_profile is not None]
    assert len(slices) > 50
    for product in slices:
        assert str(product.name).endswith(f"-mig-{product.mig_profile}")
        assert product.memory_gib <= BUILTIN_PRODUCTS[whole_of(product.name)].memory_gib


def test_own_products_are_found_by_their_own_spellings() -> None:
    products = table([Product(ProductName("npu-64gb"), 64, ("acme-npu",))])
    assert product_of("ACME NPU", products) == "npu-64gb"


def test_nothing_is_suggested_for_something_entirely_different() -> None:
    assert nearest("quantum-9000", BUILTIN_PRODUCTS) is None


@given(st.sampled_from(sorted(BUILTIN_PRODUCTS)), st.sampled_from("_- "), st.booleans(), st.booleans())
def test_case_separators_and_vendor_never_matter(name: ProductName, separator: str, upper: bool, vendor: bool) -> None:
    spelled = name.replace("-", separator)
    spelled = f"NVIDIA{separator}{spelled}" if vendor else spelled
    assert product_of(spelled.upper() if upper else spelled, BUILTIN_PRODUCTS) == name


@given(st.sampled_from(sorted(BUILTIN_PRODUCTS)))
def test_a_shared_card_is_never_a_product(name: ProductName) -> None:
    assert is_shared(f"{name}-SHARED")
    assert product_of(f"{name}-SHARED", BUILTIN_PRODUCTS) is None


@given(st.text(st.characters(codec="ascii"), max_size=40) | st.text("nvidia-_ h1", max_size=40))
def test_normalising_twice_changes_nothing_more(label: str) -> None:
    assert normalise(normalise(label)) == normalise(label)


@given(st.text(max_size=40))
def test_any_text_is_read_and_a_suggestion_is_always_a_product(label: str) -> None:
    assert product_of(label, BUILTIN_PRODUCTS) in (None, *BUILTIN_PRODUCTS)
    assert nearest(label, BUILTIN_PRODUCTS) in (None, *BUILTIN_PRODUCTS)
