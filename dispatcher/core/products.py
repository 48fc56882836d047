"""The canonical accelerator products and the one way to read a label as one of them.

Providers and GPU feature discovery spell the same card in many ways (field reports FR-CFG-01), and two cards of one
model differ in memory and form (FR-SCO-04). A product is therefore a (model, memory, form) of its own, found only
through an explicit alias table after normalisation. Nothing here ever compares prefixes: `a100` alone is ambiguous and
matches nothing, and a time-sliced card (`-SHARED`) is not a whole one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from types import MappingProxyType

from dispatcher.core.ids import ProductName
from dispatcher.core.policy import Product
from dispatcher.core.resources import MIG_PREFIX

PRODUCT_LABEL = "nvidia.com/gpu.product"
"""The node label that GPU feature discovery writes and that flavors and pod templates select by."""

_SEPARATORS = re.compile(r"[\s_\-]+")
_VENDOR = "nvidia-"
_SHARED = "-shared"
_NEAREST_CUTOFF_PERMILLE = 600
_SAME_MODEL_BONUS = 300
"""Only suggestions favour the same first word ("h100" suggests h100-80gb rather than h200); matching never does."""


@lru_cache(maxsize=4096)
def normalise(label: str) -> str:
    """One spelling for case, separators (`_`, `-`, space, any run of them) and the vendor prefix.

    "NVIDIA-H100-80GB-HBM3" and "nvidia h100_80gb HBM3" both give "h100-80gb-hbm3".
    """
    text = _SEPARATORS.sub("-", label.lower()).strip("-")
    while text.startswith(_VENDOR):
        text = text.removeprefix(_VENDOR)
    return text


def is_shared(label: str) -> bool:
    """Whether a label is that of a time-sliced card (GPU feature discovery appends `-SHARED`)."""
    return normalise(label).endswith(_SHARED)


def mig_profile_of(resource: str) -> str | None:
    """The MIG profile that a resource name stands for: "nvidia.com/mig-1g.10gb" gives "1g.10gb"; None otherwise."""
    return resource.removeprefix(MIG_PREFIX) if resource.startswith(MIG_PREFIX) else None


def product_of(label: str, products: Mapping[ProductName, Product]) -> ProductName | None:
    """The product that a label, a selector value or a person's spelling names, or None when the table has none.

    None means "no match, and say so": the caller reports the raw label (FR-SCO-04), with `nearest` where it helps.
    """
    wanted = normalise(label)
    name = ProductName(wanted)
    if name in products:
        return name
    return next((product.name for product in products.values() if wanted in product.aliases), None)


def nearest(label: str, products: Mapping[ProductName, Product]) -> str | None:
    """The canonical name whose spelling is closest, for "did you mean"; None when nothing is close."""
    wanted = normalise(label).removesuffix(_SHARED)
    best: tuple[int, str] | None = None
    for product in products.values():
        for spelling in (str(product.name), *product.aliases):
            score = round(1000 * SequenceMatcher(None, wanted, spelling, autojunk=False).ratio())
            score += _SAME_MODEL_BONUS if spelling.partition("-")[0] == wanted.partition("-")[0] else 0
            if score >= _NEAREST_CUTOFF_PERMILLE and (best is None or (-score, str(product.name)) < best):
                best = (-score, str(product.name))
    return best[1] if best else None


def table(products: Iterable[Product]) -> Mapping[ProductName, Product]:
    """An immutable product table in name order."""
    return MappingProxyType({p.name: p for p in sorted(products, key=lambda p: p.name)})


# name, memory in GiB as sold, normalised spellings beside the name. Sources: the products' own labels as GPU feature
# discovery writes them, and the accelerator names of the managed Kubernetes offerings (node-pools.md section 2).
_WHOLE: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("a10-24gb", 24, ("a10",)),
    ("a10g-24gb", 24, ("a10g",)),
    ("a16-16gb", 16, ("a16",)),
    ("a30-24gb", 24, ("a30",)),
    ("a40-48gb", 48, ("a40",)),
    ("a100-40gb", 40, ("a100-sxm4-40gb", "a100-sxm-40gb", "a100-40gb-sxm4", "a100-40gb-sxm", "a100-nvlink-40gb")),
    ("a100-80gb", 80, ("a100-sxm4-80gb", "a100-sxm-80gb", "a100-80gb-sxm4", "a100-80gb-sxm", "a100-nvlink-80gb")),
    ("a100-pcie-40gb", 40, ("a100-40gb-pcie",)),
    ("a100-pcie-80gb", 80, ("a100-80gb-pcie",)),
    ("b200-180gb", 180, ("b200", "b200-sxm", "b200-sxm-180gb", "b200-nvlink-180gb", "b200-hgx")),
    ("b300-270gb", 270, ("b300", "b300-sxm", "b300-sxm6", "b300-sxm6-ac")),
    ("gb200-186gb", 186, ("gb200", "gb200-nvl72")),
    ("gb300-279gb", 279, ("gb300", "gb300-nvl72")),
    ("gh200-96gb", 96, ("gh200-480gb", "gh200-120gb", "gh200-96gb-hbm3")),
    ("gh200-144gb", 144, ("gh200-144g-hbm3e", "gh200-144gb-hbm3e")),
    (
        "h100-80gb",
        80,
        (
            "h100-80gb-hbm3",
            "h100-sxm",
            "h100-sxm5",
            "h100-sxm-80gb",
            "h100-sxm5-80gb",
            "h100-80gb-sxm",
            "h100-80gb-sxm5",
            "h100-nvlink-80gb",
            "h100-mega-80gb",
        ),
    ),
    ("h100-pcie-80gb", 80, ("h100-pcie", "h100-80gb-pcie")),
    ("h100-nvl-94gb", 94, ("h100-nvl", "h100-94gb-nvl")),
    ("h200-141gb", 141, ("h200", "h200-sxm", "h200-sxm5", "h200-sxm-141gb", "h200-141gb-hbm3e", "h200-nvlink-141gb")),
    ("h200-nvl-141gb", 141, ("h200-nvl",)),
    ("l4-24gb", 24, ("l4",)),
    ("l40-48gb", 48, ("l40",)),
    ("l40s-48gb", 48, ("l40s", "l40s-pcie")),
    ("rtx-3090", 24, ("geforce-rtx-3090", "rtx-3090-24gb", "rtx3090")),
    ("rtx-4090", 24, ("geforce-rtx-4090", "rtx-4090-24gb", "rtx4090")),
    ("rtx-5090", 32, ("geforce-rtx-5090", "rtx-5090-32gb", "rtx5090")),
    ("rtx-4000-ada-20gb", 20, ("rtx-4000-ada", "rtx-4000-ada-generation")),
    ("rtx-5000-ada-32gb", 32, ("rtx-5000-ada", "rtx-5000-ada-generation")),
    ("rtx-6000-ada-48gb", 48, ("rtx-6000-ada", "rtx-6000-ada-generation", "rtx6000-ada")),
    ("rtx-a5000-24gb", 24, ("rtx-a5000", "a5000")),
    ("rtx-a6000-48gb", 48, ("rtx-a6000", "a6000")),
    ("rtx-pro-6000-96gb", 96, ("rtx-pro-6000", "rtx-pro-6000-blackwell-server-edition", "rtx-pro-6000-server-edition")),
    (
        "rtx-pro-6000-workstation-96gb",
        96,
        ("rtx-pro-6000-blackwell-workstation-edition", "rtx-pro-6000-workstation-edition"),
    ),
    ("t4", 16, ("tesla-t4", "t4-16gb")),
    ("v100-16gb", 16, ("tesla-v100-sxm2-16gb", "v100-sxm2-16gb", "tesla-v100-16gb")),
    ("v100-32gb", 32, ("tesla-v100-sxm2-32gb", "v100-sxm2-32gb", "tesla-v100-32gb", "tesla-v100-sxm3-32gb")),
    ("v100-pcie-16gb", 16, ("tesla-v100-pcie-16gb",)),
    ("v100-pcie-32gb", 32, ("tesla-v100-pcie-32gb",)),
)

# A slice of one model is no slice of another: profile names repeat (an A100 and an H100 both have 1g.10gb), products
# do not.
_MIG: Mapping[str, tuple[str, ...]] = {
    "a30-24gb": ("1g.6gb", "2g.12gb", "4g.24gb"),
    "a100-40gb": ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "a100-80gb": ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "a100-pcie-40gb": ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "a100-pcie-80gb": ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "b200-180gb": ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
    "gb200-186gb": ("1g.23gb", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"),
    "gh200-96gb": ("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    "h100-80gb": ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "h100-pcie-80gb": ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "h100-nvl-94gb": ("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
    "h200-141gb": ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    "rtx-pro-6000-96gb": ("1g.24gb", "2g.48gb", "4g.96gb"),
}


def _builtin() -> Iterable[Product]:
    for name, memory_gib, aliases in _WHOLE:
        yield Product(ProductName(name), memory_gib, aliases)
        for profile in _MIG.get(name, ()):
            yield Product(
                name=ProductName(f"{name}-mig-{profile}"),
                memory_gib=int(profile.partition(".")[2].removesuffix("gb")),
                aliases=tuple(f"{alias}-mig-{profile}" for alias in aliases),
                mig_profile=profile,
            )


BUILTIN_PRODUCTS: Mapping[ProductName, Product] = table(_builtin())
"""Today's datacenter and RTX cards and their MIG slices; a blueprint may add products of its own (fleet.yaml)."""


def whole_of(product: ProductName) -> ProductName:
    """The card that a MIG product is cut from ("h100-80gb-mig-1g.10gb" gives "h100-80gb"); a whole card is itself."""
    return ProductName(str(product).partition("-mig-")[0])
