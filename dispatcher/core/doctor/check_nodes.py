"""Flavors against nodes: promises without machines, machines promised twice or to nobody, labels that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from dispatcher.core.doctor.facts import BlueprintFacts, ClusterFacts, FleetFacts
from dispatcher.core.doctor.findings import Code, Finding, Where, found
from dispatcher.core.doctor.reach import seen_workers
from dispatcher.core.ids import ClusterName, FlavorName, ProductName
from dispatcher.core.policy import Product
from dispatcher.core.products import BUILTIN_PRODUCTS, PRODUCT_LABEL, is_shared, nearest, product_of
from dispatcher.core.snapshot import FlavorView, NodeView

PRODUCT_LABELS = (PRODUCT_LABEL, "cloud.google.com/gke-accelerator")
_NAMED_NODES = 3


def check_nodes(facts: FleetFacts) -> Iterator[Finding]:
    yield from _missing_flavors(facts.hub.cluster)
    products = BUILTIN_PRODUCTS
    if facts.blueprint is not None and facts.blueprint.policy is not None:
        products = facts.blueprint.policy.products
    for worker in seen_workers(facts).values():
        cluster = worker.cluster
        yield from _missing_flavors(cluster)
        if cluster.nodes is None or cluster.flavors is None:
            continue
        used = {name: cluster.flavors[name] for name in sorted(_promised(cluster)) if name in cluster.flavors}
        yield from _without_nodes(cluster, used, facts.blueprint)
        yield from _overlaps(cluster, used)
        yield from _unclaimed(cluster)
        yield from _labels(cluster, products)


def matches(flavor: FlavorView, node: NodeView) -> bool:
    """Whether a flavor selects a node: it carries all of the flavor's labels."""
    return set(flavor.labels) <= set(node.labels)


def _promised(cluster: ClusterFacts) -> dict[str, set[str]]:
    """Flavors with quota above zero in some queue or cohort, each with the resources that it has quota of."""
    resources: dict[str, set[str]] = {}
    of_queues = [queue.quotas for queue in (cluster.queues or {}).values()]
    of_cohorts = [cohort.quotas for cohort in (cluster.cohorts or {}).values()]
    for quota in (quota for quotas in (*of_queues, *of_cohorts) for quota in quotas):
        if quota.nominal > 0:
            resources.setdefault(str(quota.flavor), set()).add(quota.resource)
    return resources


def _missing_flavors(cluster: ClusterFacts) -> Iterator[Finding]:
    if cluster.flavors is None:
        return
    for name, queue in sorted((cluster.queues or {}).items()):
        for flavor in sorted({str(flavor) for group in queue.groups for flavor in group.flavors}):
            if flavor not in cluster.flavors:
                where = Where(cluster.name, "ClusterQueue", name)
                yield found(Code.FLAVOR_MISSING, where, f"it names ResourceFlavor {flavor}, which does not exist")


def _without_nodes(
    cluster: ClusterFacts, used: Mapping[str, FlavorView], blueprint: BlueprintFacts | None
) -> Iterator[Finding]:
    for name, flavor in used.items():
        if any(matches(flavor, node) for node in cluster.nodes or ()) or _may_be_empty(cluster.name, name, blueprint):
            continue
        labels = ", ".join(f"{key}={value}" for key, value in flavor.labels)
        where = Where(cluster.name, "ResourceFlavor", name)
        yield found(Code.FLAVOR_WITHOUT_NODES, where, f"no node carries {labels or 'any label'}")


def _may_be_empty(cluster: str, flavor: str, blueprint: BlueprintFacts | None) -> bool:
    """A flavor whose nodes are bought for a while, or that is declared to have none."""
    if blueprint is None:
        return False
    if (cluster, flavor) in blueprint.bursting:
        return True
    known = blueprint.policy.clusters.get(ClusterName(cluster)) if blueprint.policy is not None else None
    declared = known.flavors.get(FlavorName(flavor)) if known is not None else None
    return declared is not None and declared.nodes is not None and declared.nodes.count == 0


def _overlaps(cluster: ClusterFacts, used: Mapping[str, FlavorView]) -> Iterator[Finding]:
    promised = _promised(cluster)
    for (one, first), (other, second) in combinations(used.items(), 2):
        both = [node.name for node in cluster.nodes or () if matches(first, node) and matches(second, node)]
        shared = sorted(promised[one] & promised[other])
        if both and shared:
            seen = f"{one} and {other} both select {_some(both)} and both have quota of {', '.join(shared)}"
            yield found(Code.FLAVORS_OVERLAP, Where(cluster.name, "ResourceFlavor", one), seen)


def _unclaimed(cluster: ClusterFacts) -> Iterator[Finding]:
    flavors = (cluster.flavors or {}).values()
    alone = [
        node.name
        for node in cluster.nodes or ()
        if node.allocatable.gpus() > 0 and not any(matches(flavor, node) for flavor in flavors)
    ]
    if alone:
        yield found(Code.GPUS_WITHOUT_FLAVOR, Where(cluster.name, "Node"), f"no ResourceFlavor selects {_some(alone)}")


def _labels(cluster: ClusterFacts, products: Mapping[ProductName, Product]) -> Iterator[Finding]:
    """One finding for each spelling, however many nodes carry it."""
    carriers: dict[tuple[str, str], list[str]] = {}
    for node in cluster.nodes or ():
        for key, value in node.labels:
            if key in PRODUCT_LABELS and product_of(value, products) is None:
                carriers.setdefault((key, value), []).append(node.name)
    for (key, value), nodes in sorted(carriers.items()):
        close = nearest(value, products)
        hint = f"; did you mean {close}?" if close else ""
        if is_shared(value):
            hint = "; a time-sliced card is not a whole one"
        fix = f"add {value!r} to products.{close or 'NAME'}.aliases in fleet.yaml, or correct the label"
        seen = f"{key}={value} on {_some(nodes)} is no known product{hint}"
        yield found(Code.GPU_LABEL_UNKNOWN, Where(cluster.name, "Node", value), seen, fix)


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED_NODES
    return ", ".join(sorted(names)[:_NAMED_NODES]) + (f" and {more} more" if more > 0 else "")
