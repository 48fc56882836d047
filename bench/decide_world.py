"""The world of bench `decide`: fifty clusters of a thousand nodes in different occupancy, and work of several hundred
shapes. Drawn from a seed, so that every run meets the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from dispatcher.core.ids import FlavorName, QueueName, StoreName, WorkloadUid
from dispatcher.core.policy import CarbonPrice, Limits, Policy, PriceUnit, QueuePolicy
from dispatcher.core.resources import Resources
from dispatcher.core.selectors import PRODUCT_KEYS
from dispatcher.core.snapshot import ClusterSnapshot, FlavorView, LocalQueueView, NodeView, Snapshot, WorkerView
from dispatcher.core.workload import DataUse, Destination, PodSet, Request, Requirement, WorkloadClass
from tests.core_builders import (
    GB,
    GIB,
    NOW,
    USD,
    compute,
    copy,
    data,
    egress,
    flavor_policy,
    policy,
    queue,
    quota,
    request,
    rule,
    seen,
    site,
    store,
    worker,
)

CLUSTERS, NODES, SHAPES = 50, 1000, 160
COUNTRIES = ("DE", "FI", "FR", "SE", "US")
LABEL = PRODUCT_KEYS[0]
MIG = "nvidia.com/mig-1g.10gb"
PRODUCTS = {
    "h100": ("NVIDIA-H100-80GB-HBM3", "h100-80gb", 350),
    "h200": ("NVIDIA-H200", "h200-141gb", 250),
    "mig": ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "a100-80gb-mig-1g.10gb", 100),
    "cpu": ("", None, 300),
}
"""Flavor: label on its nodes, canonical product, nodes of a cluster."""
QUEUES = {
    "training": WorkloadClass.TRAINING,
    "rl": WorkloadClass.REINFORCEMENT_LEARNING,
    "curation": WorkloadClass.DATA_PROCESSING,
    "notebooks": WorkloadClass.INTERACTIVE,
    "gates": WorkloadClass.EVALUATION,
}


SAVES = Destination(StoreName("saves"), "runs")


def _name(at: int) -> str:
    return f"c{at:02d}-{COUNTRIES[at % 5].lower()}"


NAMES = tuple(_name(at) for at in range(CLUSTERS))


def rules() -> Policy:
    """Every cluster with four flavors, prices of each, routes between all regions, six data sets under three labels;
    every term has something to count."""
    flavors = [
        replace(
            flavor_policy(name, product, labels=_labels(name), speed=1400 if name == "h200" else 1000),
            watts=900 if product else 8,
            failure_s=200 * 86_400,
        )
        for name, (_, product, _) in PRODUCTS.items()
    ]
    sites = [
        replace(site(name, COUNTRIES[at % 5], flavors, region=f"r{at % 10}"), energy_permille=1200, grid_g_per_kwh=300)
        for at, name in enumerate(NAMES)
    ]
    prices = []
    for at, one in enumerate(sites):
        for name, usd in (("h100-80gb", 3), ("h200-141gb", 5)):
            prices.append(compute(one.name, usd * USD + at * 10_000, name, region=one.region))
        prices.append(compute(one.name, USD // 4, "a100-80gb-mig-1g.10gb", PriceUnit.MIG_SLICE_HOUR, region=one.region))
        prices.append(compute(one.name, USD // 50, "cpu", PriceUnit.VCPU_HOUR, region=one.region))
    routes = [egress(f"r{a}", f"r{b}", 20_000 + a, 10_000) for a in range(10) for b in range(10) if a != b]
    sets = [data(f"set-{at}", (at + 1) * 500 * GB, (("open", "eu", "home")[at % 3],), [NAMES[at]]) for at in range(6)]
    book = policy(
        sites,
        prices,
        routes,
        sets,
        [rule("open", anywhere=True), rule("eu", "DE", "FI", "FR", "SE"), rule("home", "DE")],
        stores=[store("saves", region="r0")],
        limits=Limits(reclaim_s=86_400),
    )
    book = replace(book, prices=replace(book.prices, carbon=CarbonPrice(80 * USD, "bench", NOW.date())))
    plans = {QueueName(name): QueuePolicy(QueueName(name), kind) for name, kind in QUEUES.items()}
    return replace(book, queues=plans)


def _labels(flavor: str) -> dict[str, str]:
    return {LABEL: PRODUCTS[flavor][0]} if PRODUCTS[flavor][0] else {"pool": "cpu"}


def clusters(dice: random.Random, nodes: int = NODES) -> tuple[ClusterSnapshot, ...]:
    return tuple(seen(view(dice, name, nodes)) for name in NAMES)


def view(dice: random.Random, name: str, nodes: int = NODES) -> WorkerView:
    """A worker with mixed occupancy, local work beside ours, and five queues that share a cohort."""
    machines = tuple(
        node
        for flavor, (_, _, count) in PRODUCTS.items()
        for node in (_node(dice, name, flavor, at) for at in range(count * nodes // NODES))
    )
    groups = [
        q
        for flavor, (_, _, count) in PRODUCTS.items()
        for q in quota(
            count * nodes // NODES * 8 // 5, flavor=flavor, used=count * nodes // NODES * dice.randint(5, 8) // 5
        )
    ]
    mig = [
        replace(q, resource=MIG, nominal=q.nominal * 7, reserved=q.reserved * 7) for q in groups if q.flavor == "mig"
    ]
    groups = [q for q in groups if not (q.resource == "nvidia.com/gpu" and q.flavor in ("mig", "cpu"))]
    gpu = [replace(q, resource=MIG, nominal=0, reserved=0) for q in groups if q.resource == "nvidia.com/gpu"]
    none = [
        replace(groups[0], flavor=FlavorName(f), resource=r, nominal=0, reserved=0, borrowing_limit=0)
        for f, r in (("mig", "nvidia.com/gpu"), ("cpu", "nvidia.com/gpu"), ("cpu", MIG))
    ]
    queues = [
        queue(q, [*groups, *mig, *gpu, *none], cohort="all", preempts_lower_priority=q == "gates") for q in QUEUES
    ]
    flavors = [FlavorView(FlavorName(f), tuple(sorted(_labels(f).items()))) for f in PRODUCTS]
    copies = [
        copy(f"local-{at}", 1, 1, ours=False, queue_name=dice.choice(list(QUEUES)), priority=at % 3, bound=1)
        for at in range(200)
    ]
    found = worker(name, machines, queues, flavors, copies)
    local = {("team", q): LocalQueueView("team", q, QueueName(q)) for q in QUEUES}
    return replace(found, local_queues=local)


def _node(dice: random.Random, cluster: str, flavor: str, at: int) -> NodeView:
    """A node as found in the field: a name of its own among its labels, and a few jobs on it."""
    name = f"{cluster}-{flavor}-{at:04d}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{at % 3}", **_labels(flavor)}
    cards = {"h100": 8, "h200": 8, "mig": 56, "cpu": 0}[flavor]
    taken = 0 if not cards else min(cards, dice.choice((0, 2, 4, 6, 8, 8, 8, 8)) * (cards // 8))
    busy = dice.choice((0, 16, 32, 48, 64)) if not cards else taken * 12 * 8 // cards
    have = {"cpu": 128_000, "memory": 2048 * GIB, "pods": 110}
    used = {"cpu": busy * 1000, "memory": busy * 8 * GIB, "pods": 8 + busy // 16}
    if cards:
        resource = MIG if flavor == "mig" else "nvidia.com/gpu"
        have[resource], used[resource] = cards, taken
    return NodeView(name, tuple(sorted(labels.items())), Resources.of(have), Resources.of(used))


def shapes(dice: random.Random, count: int = SHAPES) -> Sequence[Request]:
    """Requests that differ in what a decision reads: gangs, MIG slices, CPU, data sets, classes, priorities."""
    found: dict[object, Request] = {}
    while len(found) < count:
        flavor = dice.choice(("h100", "h100", "h200", "mig", "cpu"))
        which = dice.choice(list(QUEUES))
        each = {"mig": dice.choice((1, 2)), "cpu": 0}.get(flavor, dice.choice((1, 2, 4, 8)))
        amounts = {"cpu": max(4, each * 8) * 1000, "memory": max(16, each * 32) * GIB}
        if each:
            amounts[MIG if flavor == "mig" else "nvidia.com/gpu"] = each
        label = PRODUCTS[flavor][0]
        wanted = (Requirement(LABEL, "In", (label,)),) if label else (Requirement("pool", "In", ("cpu",)),)
        sets = (PodSet("main", dice.choice((1, 1, 2, 4, 16, 64)), Resources.of(amounts), wanted),)
        used = tuple(DataUse(f"set-{at}", 1) for at in range(6) if dice.random() < 0.2)  # type: ignore[arg-type]
        one = request(
            "x", *sets, priority=dice.choice((100, 1000, 5000)), local_queue=which, hub_queue=QueueName(which)
        )
        declared = replace(
            one.declared,
            workload_class=QUEUES[which],
            data=used,
            expected_duration_s=dice.choice((600, 7200, 86_400)),
            checkpoint=SAVES if which in ("training", "rl") else None,
            checkpoint_bytes=60 * GB,
            checkpoint_interval_s=3600,
        )
        one = replace(one, declared=declared, listed_clusters=tuple(NAMES))  # type: ignore[arg-type]
        found[(sets, used, which, one.priority, declared.expected_duration_s)] = one
    return tuple(found.values())


def arrivals(dice: random.Random, kinds: Sequence[Request], count: int) -> list[Request]:
    return [
        replace(
            dice.choice(kinds),
            uid=WorkloadUid(f"uid-{at}"),
            name=f"job-{at}",
            job_name=f"job-{at}",
            resource_version=str(at),
        )
        for at in range(count)
    ]


def moved(dice: random.Random, cluster: ClusterSnapshot) -> ClusterSnapshot:
    """The cluster after a job has ended on one node."""
    assert cluster.worker is not None
    at = dice.randrange(len(cluster.worker.nodes))
    nodes = list(cluster.worker.nodes)
    amounts = {**dict(nodes[at].requested.items), "cpu": dice.randrange(0, 64) * 1000}
    nodes[at] = replace(nodes[at], requested=Resources.of(amounts))
    return replace(cluster, worker=replace(cluster.worker, nodes=tuple(nodes), generation=dice.randrange(1 << 30)))


def with_moved(dice: random.Random, snapshot: Snapshot) -> Snapshot:
    at = dice.randrange(len(snapshot.clusters))
    return Snapshot(tuple(moved(dice, c) if i == at else c for i, c in enumerate(snapshot.clusters)), snapshot.holds)


__all__ = ["arrivals", "clusters", "moved", "rules", "shapes", "with_moved"]
