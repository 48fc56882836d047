"""Who may go where by labels and taints: the core's rules for nodes, and Kueue's rule for a flavor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dispatcher.core import selectors
from dispatcher.core.snapshot import Taint
from dispatcher.core.workload import Requirement, Toleration


def tolerates(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether every taint that keeps pods away is tolerated. PreferNoSchedule keeps nobody away."""
    return selectors.untolerated(tolerations, taints) is None


def node_matches(
    labels: Mapping[str, str], selector: tuple[Requirement, ...], terms: tuple[tuple[Requirement, ...], ...]
) -> bool:
    """The scheduler's rule: the whole selector, and one of the affinity terms where there are any."""
    return selectors.node_matches(selector, terms, labels)


def flavor_matches(
    labels: Mapping[str, str],
    selector: tuple[Requirement, ...],
    terms: tuple[tuple[Requirement, ...], ...],
) -> bool:
    """Kueue's rule for a flavor (v0.19): as `node_matches`, but only keys that the flavor itself has count.

    A term that is left with no expression matches every flavor, and terms are alternatives: then only the selector
    decides (kueue-contract section 12, "Flavor").
    """
    own = tuple(r for r in selector if r.key in labels)
    reduced = tuple(tuple(r for r in term if r.key in labels) for term in terms)
    return selectors.node_matches(own, reduced if all(reduced) else (), labels)
