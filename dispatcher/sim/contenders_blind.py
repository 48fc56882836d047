"""A dispatcher that takes GPUs for GPUs: Entrepot's own loops, told nothing of what tells GPU types apart.

It is what choosing by region, data and room alone would do, so that the difference to Entrepot is the worth of knowing
the type, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dispatcher.core.policy import ClusterPolicy, ComputePrice, FlavorPolicy, Policy, PriceBook, PriceUnit
from dispatcher.core.prices import div_half_up
from dispatcher.core.resources import WHOLE_GPU
from dispatcher.core.snapshot import digest_of
from dispatcher.sim.contenders import Arena
from dispatcher.sim.contenders_entrepot import Entrepot


def type_blind(arena: Arena) -> Entrepot:
    """Entrepot under a policy in which all GPUs of a region cost the same and are equally fast."""
    setup = replace(arena.setup, policy=blinded(arena.setup.policy))
    return Entrepot(replace(arena, setup=setup))


def blinded(policy: Policy) -> Policy:
    """Every GPU runs at speed 1000, and costs what the GPUs of its provider in that region cost on average."""
    clusters = {name: _even(cluster) for name, cluster in policy.clusters.items()}
    prices = _levelled(policy.prices, policy.clusters.values())
    return replace(policy, clusters=clusters, prices=prices, digest=digest_of((policy.digest, "type-blind")))


def _even(cluster: ClusterPolicy) -> ClusterPolicy:
    return replace(cluster, flavors={name: _plain(flavor) for name, flavor in cluster.flavors.items()})


def _plain(flavor: FlavorPolicy) -> FlavorPolicy:
    return replace(flavor, speed_permille=1000, class_speeds=()) if flavor.product is not None else flavor


def _levelled(book: PriceBook, clusters: Iterable[ClusterPolicy]) -> PriceBook:
    """The mean of each region is over the GPUs that are there."""
    there: dict[tuple[str, str], list[tuple[int, ComputePrice]]] = {}
    for cluster in clusters:
        for flavor in cluster.flavors.values():
            key = (cluster.provider, cluster.region, str(flavor.product), flavor.purchase)
            price, nodes = book.compute.get(key), flavor.nodes
            if price is not None and price.unit is PriceUnit.GPU_HOUR and nodes is not None:
                gpus = nodes.count * nodes.allocatable.get(WHOLE_GPU)
                there.setdefault((cluster.provider, cluster.region), []).append((gpus, price))
    means = {where: _mean(found) for where, found in there.items() if sum(gpus for gpus, _ in found)}
    compute = {
        key: replace(price, usd_micro_per_hour=means[key[0], key[1]])
        if price.unit is PriceUnit.GPU_HOUR and (key[0], key[1]) in means
        else price
        for key, price in book.compute.items()
    }
    return replace(book, compute=compute)


def _mean(found: Iterable[tuple[int, ComputePrice]]) -> int:
    prices = list(found)
    return div_half_up(sum(gpus * price.usd_micro_per_hour for gpus, price in prices), sum(gpus for gpus, _ in prices))
