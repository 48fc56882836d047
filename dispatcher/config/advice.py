"""What is valid and probably not meant. Warnings never keep a blueprint from being loaded."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from itertools import combinations

from dispatcher.config.blueprint import DATA, FLEET, PRICES, QUEUES, Blueprint, Draft, gpu_resource, unit_of
from dispatcher.config.fleet_file import Cluster
from dispatcher.config.price_book import CPU_ONLY, canonical_product, egress_routes
from dispatcher.config.prices_file import USD
from dispatcher.core.policy import Purchase
from dispatcher.core.products import PRODUCT_LABEL, product_of


def add_warnings(draft: Draft, blueprint: Blueprint, now: datetime) -> None:
    """Judge a blueprint that has no errors."""
    today = now.date()
    for name, cluster in blueprint.fleet.clusters.items():
        _overlaps(draft, name, cluster)
        _labels(draft, name, cluster)
        _facts(draft, name, cluster)
        _unpriced(draft, blueprint, name, cluster)
    _oversold(draft, blueprint)
    _price_ages(draft, blueprint, today)
    _routes(draft, blueprint)
    _currencies(draft, blueprint)
    _spot(draft, blueprint)
    _carbon(draft, blueprint)
    _home(draft, blueprint)
    _near(draft, blueprint)
    _data(draft, blueprint)
    _measured(draft, blueprint, now)


def _overlaps(draft: Draft, name: str, cluster: Cluster) -> None:
    """Two flavors over the same nodes count their capacity twice (FR-SCO-11)."""
    for (first, a), (second, b) in combinations(cluster.flavors.items(), 2):
        if a.labels.items() <= b.labels.items() or b.labels.items() <= a.labels.items():
            said = (f"selects the same nodes as '{first}': capacity would be counted twice", "add a label to tell them")
            draft.warn(FLEET, ("clusters", name, "flavors", second), second, said)


def _labels(draft: Draft, name: str, cluster: Cluster) -> None:
    for key, flavor in cluster.flavors.items():
        label = flavor.labels.get(PRODUCT_LABEL)
        if label is not None and product_of(label, draft.products) is None:
            said = ("a product label that the table does not know", "add the spelling to fleet.yaml's products")
            draft.warn(FLEET, ("clusters", name, "flavors", key, "labels", PRODUCT_LABEL), label, said)
        if flavor.reserved is not None and flavor.reserved.nodes > flavor.nodes.count:
            said = (f"more nodes under contract than the {flavor.nodes.count} declared", "correct one of the two")
            draft.warn(FLEET, ("clusters", name, "flavors", key, "reserved"), flavor.reserved.nodes, said)


def _facts(draft: Draft, name: str, cluster: Cluster) -> None:
    if cluster.site.country is None:
        said = ("the country is not known: every rule that asks for it denies", "add country: and who attests it")
        draft.warn(FLEET, ("clusters", name, "site"), name, said)


def _unpriced(draft: Draft, blueprint: Blueprint, name: str, cluster: Cluster) -> None:
    """A flavor without a price cannot be compared with others: its cluster is rejected or penalised for it."""
    rows = {
        (row.provider, row.region, canonical_product(row.product, draft.products), row.purchase)
        for row in blueprint.prices.compute
    }
    wanted = [(("flavors", key), flavor, flavor.purchase) for key, flavor in cluster.flavors.items()]
    for key, pool in cluster.node_pools.items():
        wanted.append((("node_pools", key), cluster.flavors[pool.flavor], pool.purchase))
    for path, flavor, purchase in wanted:
        product = product_of(flavor.product, draft.products) if flavor.product else CPU_ONLY
        if (cluster.provider, cluster.region, product, purchase) not in rows:
            rule = f"no price for {product} of {cluster.provider} in {cluster.region}, {purchase}: unknown, never 0"
            draft.warn(FLEET, ("clusters", name, *path), path[1], (rule, "add a row to prices.yaml"))


def _oversold(draft: Draft, blueprint: Blueprint) -> None:
    """Nominal quota beyond the nodes is a promise that nobody can keep."""
    promised: dict[tuple[str, str, str], int] = {}
    for name, queue in blueprint.queues.queues.items():
        if not any(share.nominal or share.borrow != 0 for s in queue.shares.values() for share in s.values()):
            said = ("has no share anywhere: nothing in it can ever run", "give it a share of a flavor")
            draft.warn(QUEUES, ("queues", name), name, said)
        for cluster, shares in queue.shares.items():
            for flavor_name, share in shares.items():
                flavor = blueprint.fleet.clusters[cluster].flavors[flavor_name]
                gpu = gpu_resource(flavor)
                per_node = flavor.nodes.resources().get(gpu) if gpu else 1
                pieces = share.nominal * (per_node if unit_of(share) == "nodes" else 1)
                key = (cluster, flavor_name, gpu or "nodes")
                before, have = promised.get(key, 0), per_node * flavor.nodes.count
                promised[key] = before + pieces
                if before <= have < before + pieces:
                    rule = f"the queues up to here are promised {before + pieces} of {have} ({gpu or 'nodes'})"
                    path = ("queues", name, "shares", cluster, flavor_name)
                    draft.warn(QUEUES, path, flavor_name, (rule, "lower a share, or declare more nodes"))


def _price_ages(draft: Draft, blueprint: Blueprint, today: date) -> None:
    oldest = today - timedelta(days=min(blueprint.prices.max_age_days, 36_500))
    prices = blueprint.prices
    dates: list[tuple[tuple[str | int, ...], date]] = []
    for key, rows in (
        ("rates", prices.rates),
        ("compute", prices.compute),
        ("egress", prices.egress),
        ("requests", prices.requests),
    ):
        dates += [((key, index, "dated"), row.dated) for index, row in enumerate(rows)]
    if prices.carbon is not None:
        dates.append((("carbon", "dated"), prices.carbon.dated))
    for path, dated in dates:
        if dated < oldest:
            rule = f"older than max_age_days ({blueprint.prices.max_age_days}): not used"
            draft.warn(PRICES, path, dated, (rule, "look the price up again"))
        elif dated > today + timedelta(days=1):
            draft.warn(PRICES, path, dated, ("dated in the future", "write the day on which it was looked up"))


def _measured(draft: Draft, blueprint: Blueprint, now: datetime) -> None:
    """A measurement that does not count, and a route that nobody measures any more."""
    newest: dict[tuple[str, str], tuple[datetime, int]] = {}
    for index, row in enumerate(blueprint.data.bandwidth):
        pair = (row.from_region, row.to_region)
        newest[pair] = max(newest.get(pair, (row.at, index)), (row.at, index))
        if row.at > now + timedelta(minutes=5):
            said = ("measured in the future: not used before", "write the instant at which it was measured")
            draft.warn(DATA, ("bandwidth", index, "at"), row.at.isoformat(), said)
    for at, index in newest.values():
        if (now - at).total_seconds() >= blueprint.data.bandwidth_max_age:
            said = ("older than bandwidth_max_age: what prices.yaml declares is used", "measure the route again")
            draft.warn(DATA, ("bandwidth", index, "at"), at.isoformat(), said)


def _currencies(draft: Draft, blueprint: Blueprint) -> None:
    """Without a rate a price in another currency is not known."""
    prices = blueprint.prices
    known = {USD, *(row.currency for row in prices.rates)}
    named: list[tuple[tuple[str | int, ...], str]] = [
        *((("compute", index, "currency"), row.currency) for index, row in enumerate(prices.compute)),
        *((("egress", index, "currency"), row.currency) for index, row in enumerate(prices.egress)),
        *((("requests", index, "currency"), row.currency) for index, row in enumerate(prices.requests)),
    ]
    if prices.carbon is not None:
        named.append((("carbon", "currency"), prices.carbon.currency))
    for path, currency in named:
        if currency not in known:
            draft.warn(PRICES, path, currency, ("no rate: the price is unknown, never 0", "add a row to rates:"))


def _spot(draft: Draft, blueprint: Blueprint) -> None:
    """Work on a spot flavor of which nobody knows how long it lasts is rejected."""
    for index, row in enumerate(blueprint.prices.compute):
        if row.purchase is Purchase.SPOT and row.interrupted_after is None and row.product != CPU_ONLY:
            said = ("nobody knows how long it lasts: no work is sent there", "add interrupted_after:, such as PT18H")
            draft.warn(PRICES, ("compute", index), row.product, said)


def _carbon(draft: Draft, blueprint: Blueprint) -> None:
    """Where carbon has a price, a flavor whose carbon is not known takes no work."""
    if blueprint.prices.carbon is None:
        return
    for name, cluster in blueprint.fleet.clusters.items():
        facts = {
            "energy_factor": cluster.energy_factor,
            "carbon_g_per_kwh": blueprint.fleet.regions[cluster.region].carbon_g_per_kwh,
        }
        for key, flavor in cluster.flavors.items():
            missing = [fact for fact, value in {**facts, "watts": flavor.watts}.items() if value is None]
            if missing:
                rule = f"no {' and no '.join(missing)}, and carbon has a price: no work is sent there"
                draft.warn(FLEET, ("clusters", name, "flavors", key), key, (rule, "add what is missing"))


def _home(draft: Draft, blueprint: Blueprint) -> None:
    """A checkpoint of unknown size goes only to a store nearby."""
    if blueprint.prices.unknown_home is not None:
        return
    for name, plan in blueprint.queues.classes.items():
        if plan.checkpoint_required and None in (plan.checkpoint_size, plan.checkpoint_interval):
            rule = "checkpoints are asked for, and how much that is is not known: work stays near its store"
            said = (rule, "add checkpoint_size: and checkpoint_interval:, or unknown_home: to prices.yaml")
            draft.warn(QUEUES, ("classes", str(name)), str(name), said)


def _near(draft: Draft, blueprint: Blueprint) -> None:
    """Where a round trip is bounded or has a price, a cluster of which none is known takes none of that work."""
    known = {frozenset(row.between) for row in blueprint.fleet.round_trips}
    regions = sorted({cluster.region for cluster in blueprint.fleet.clusters.values()})
    for name, plan in blueprint.queues.classes.items():
        if plan.max_round_trip_ms is None and plan.round_trip_price is None:
            continue
        if not plan.users:
            said = ("a round trip is bounded or priced, and nobody is named", "add users:, or let each job name them")
            draft.warn(QUEUES, ("classes", str(name)), str(name), said)
        for index, users in enumerate(plan.users):
            missing = [region for region in regions if frozenset((users, region)) not in known]
            if missing:
                rule = f"no round trip to {', '.join(missing)}: not known, so no such work is sent there"
                said = (rule, "add a row to fleet.yaml's round_trips")
                draft.warn(QUEUES, ("classes", str(name), "users", index), users, said)


def _routes(draft: Draft, blueprint: Blueprint) -> None:
    """Every pair of regions between which data may move needs a price, or the move has none (FR-CFG-02)."""
    routes = egress_routes(blueprint.prices.egress, tuple(blueprint.fleet.regions))
    stores = {store.region for store in blueprint.data.stores.values()}
    clusters = {cluster.region for cluster in blueprint.fleet.clusters.values()}
    pairs = {(a, b) for a in stores | clusters for b in stores | clusters if a != b}
    for source, target in sorted(pairs - routes.keys()):
        said = (f"no egress price to {target}: moving data there has an unknown price", "add a row, or to_region: '*'")
        draft.warn(PRICES, ("egress",), source, said)


def _data(draft: Draft, blueprint: Blueprint) -> None:
    for name, entry in blueprint.data.data_sets.items():
        at = ("data_sets", name)
        if entry.size is None:
            draft.warn(DATA, at, name, ("the size is not known: moving it has an unknown price", "add size:"))
        if not entry.replicas.stores and not entry.replicas.clusters:
            draft.warn(DATA, at, name, ("lies nowhere: it cannot be read", "add a store or cluster to replicas"))
