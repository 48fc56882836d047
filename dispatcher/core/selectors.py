"""What pods ask of nodes: labels and taints, read literally as Kueue and the scheduler do; products only to explain.

Matching is literal because Kueue and the kube-scheduler match literally: a canonical match whose label is spelled
otherwise would be admitted nowhere. The canonical table says *why* it fails: another product, an unknown one, or the
same one under another spelling, which an operator can mend (FR-CFG-01, FR-SCO-04).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from dispatcher.core.ids import ProductName
from dispatcher.core.policy import Product
from dispatcher.core.products import PRODUCT_LABEL, product_of, whole_of
from dispatcher.core.snapshot import Taint
from dispatcher.core.workload import PodSet, Requirement, Toleration

PRODUCT_KEYS = (
    PRODUCT_LABEL,
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/model",
    "k8s.amazonaws.com/accelerator",
)
"""Node labels whose value names an accelerator product (node-pools.md)."""

_BLOCKING = ("NoSchedule", "NoExecute")
_LIFECYCLE = "node.kubernetes.io/"
Labels = Mapping[str, str]


def requirement_holds(requirement: Requirement, labels: Labels) -> bool:
    """One node selector expression on one label set, with the operators of the core API; an unknown operator fails."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
    return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    try:
        have, limit = int(value), int(requirement.values[0])
    except ValueError:
        return False
    return have > limit if requirement.operator == "Gt" else have < limit


def node_matches(selector: tuple[Requirement, ...], terms: tuple[tuple[Requirement, ...], ...], labels: Labels) -> bool:
    """Whether the scheduler lets such a pod on a node with these labels. An empty affinity term matches none."""
    if not all(requirement_holds(r, labels) for r in selector):
        return False
    if not terms:
        return True
    return any(term and all(requirement_holds(r, labels) for r in term) for term in terms)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> Taint | None:
    """The first taint that keeps the pods off a node (PreferNoSchedule does not), or None."""
    known = tuple(tolerations)
    for taint in taints:
        if taint.effect in _BLOCKING and not any(tolerates(t, taint) for t in known):
            return taint
    return None


def is_lifecycle(taint: Taint) -> bool:
    """Whether the cluster itself set the taint because the node is away for a while (not-ready, unschedulable ...)."""
    return taint.key.startswith(_LIFECYCLE)


class FlavorVerdict(IntEnum):
    """How a pod set's selectors meet a flavor's labels; a larger value is nearer to a match."""

    OTHER = 0
    OTHER_PRODUCT = 1
    UNKNOWN_PRODUCT = 2
    LABEL_MISMATCH = 3
    MATCH = 4


@dataclass(frozen=True, slots=True)
class FlavorMatch:
    """The verdict, the key that decided, the values asked for and the value that the flavor's label has."""

    verdict: FlavorVerdict
    key: str = ""
    wanted: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()


_MATCH = FlavorMatch(FlavorVerdict.MATCH)


def match_flavor(
    pod_set: PodSet, labels: Labels, product: ProductName | None, products: Mapping[ProductName, Product]
) -> FlavorMatch:
    """Judge one flavor as Kueue does: only keys among the flavor's own labels count (flavorassigner, v0.19).

    `product` is what the blueprint says the flavor consists of. Of several affinity terms the nearest to a match
    counts, since one of them is enough.
    """
    best: FlavorMatch | None = None
    for term in pod_set.terms or ((),):
        outcome = _match_all((*pod_set.selector, *term), labels, product, products)
        if best is None or outcome.verdict > best.verdict:
            best = outcome
    return best or _MATCH


def _match_all(
    requirements: tuple[Requirement, ...],
    labels: Labels,
    product: ProductName | None,
    products: Mapping[ProductName, Product],
) -> FlavorMatch:
    worst = _MATCH
    for requirement in requirements:
        if requirement.key not in labels:
            continue
        outcome = _match_one(requirement, labels, product, products)
        if outcome.verdict < worst.verdict:
            worst = outcome
    return worst


def _match_one(
    requirement: Requirement,
    labels: Labels,
    product: ProductName | None,
    products: Mapping[ProductName, Product],
) -> FlavorMatch:
    seen = labels[requirement.key]
    literal = requirement_holds(requirement, labels)
    if requirement.key not in PRODUCT_KEYS or requirement.operator not in ("In", "NotIn"):
        return _MATCH if literal else FlavorMatch(FlavorVerdict.OTHER, requirement.key, requirement.values, (seen,))
    if literal and requirement.operator == "In":
        return _MATCH
    have = _canonical(seen, products) or (whole_of(product) if product else None)
    wanted = tuple(_canonical(value, products) for value in requirement.values)
    if requirement.operator == "NotIn":
        excluded = not literal or (have is not None and have in wanted)
        verdict = FlavorVerdict.OTHER_PRODUCT if excluded else FlavorVerdict.MATCH
    elif have is not None and have in wanted:
        verdict = FlavorVerdict.LABEL_MISMATCH
    elif None in wanted:
        verdict = FlavorVerdict.UNKNOWN_PRODUCT
    else:
        verdict = FlavorVerdict.OTHER_PRODUCT
    return FlavorMatch(verdict, requirement.key, requirement.values, (seen,))


def _canonical(label: str, products: Mapping[ProductName, Product]) -> ProductName | None:
    found = product_of(label, products)
    return whole_of(found) if found is not None else None
