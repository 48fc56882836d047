"""Who may go where by labels and taints: the rules that Kueue and the scheduler share, as pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dispatcher.core.snapshot import Taint
from dispatcher.core.workload import Requirement, Toleration

_BINDING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


def tolerates(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether every taint that keeps pods away is tolerated. PreferNoSchedule keeps nobody away."""
    known = tuple(tolerations)
    return all(any(_tolerates(t, taint) for t in known) for taint in taints if taint.effect in _BINDING_EFFECTS)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def satisfies(labels: Mapping[str, str], requirement: Requirement) -> bool:
    """One node selector requirement against labels, literally as the API defines its operators."""
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
            if value is None or len(requirement.values) != 1:
                return False
            try:
                have, bound = int(value), int(requirement.values[0])
            except ValueError:
                return False
            return have > bound if requirement.operator == "Gt" else have < bound
        case _:
            return False


def node_matches(
    labels: Mapping[str, str], selector: tuple[Requirement, ...], terms: tuple[tuple[Requirement, ...], ...]
) -> bool:
    """The scheduler's rule: the whole selector, and one of the affinity terms where there are any."""
    if not all(satisfies(labels, requirement) for requirement in selector):
        return False
    return not terms or any(term and all(satisfies(labels, r) for r in term) for term in terms)


def flavor_matches(
    labels: Mapping[str, str],
    selector: tuple[Requirement, ...],
    terms: tuple[tuple[Requirement, ...], ...],
) -> bool:
    """Kueue's rule for a flavor (v0.19): as `node_matches`, but only keys that the flavor itself has count.

    A term that is left with no expression matches every flavor, and terms are alternatives: then only the selector
    decides (kueue-contract section 12, "Flavor").
    """
    if not all(satisfies(labels, r) for r in selector if r.key in labels):
        return False
    reduced = [tuple(r for r in term if r.key in labels) for term in terms]
    if not reduced or not all(reduced):
        return True
    return any(all(satisfies(labels, r) for r in term) for term in reduced)
