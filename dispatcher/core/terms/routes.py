"""On which way a data set comes to a candidate: the cheapest legal one, or what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dispatcher.core.context import Context
from dispatcher.core.decision import Detail, Reason, Rejection, Resolver
from dispatcher.core.ids import DataSetName
from dispatcher.core.legality import legal_sources
from dispatcher.core.offers import hourly_of
from dispatcher.core.policy import ClusterPolicy, DataSet, Policy
from dispatcher.core.prices import Site, carried_in_s, div_half_up, request_price, route_price, taken_mbit_s
from dispatcher.core.snapshot import Cached
from dispatcher.core.ways import Route
from dispatcher.core.workload import DataUse


def cheapest_route(context: Context, use: DataUse) -> Route | Rejection:
    """The replica that costs least to read from here, or what is not known. A local replica needs no price or size."""
    policy, site = context.policy, context.site
    data_set = policy.data_sets.get(use.data_set)
    if site is None or data_set is None:
        return _egress_unknown(use, site, ())
    there = site.provider, site.region
    if site.name in data_set.replica_clusters:
        return Route(data_set, use.reads, site.name, there, None, is_local=True)
    fetched = _fetched(context, use, data_set, site)
    known = _in_cache(context, data_set, site)
    if known is None or (isinstance(fetched, Rejection) and fetched.reason is Reason.DATA_MISSING):
        return fetched
    brought = Route(data_set, 1, known.key, there, None, cached=known)
    if isinstance(fetched, Rejection):
        return brought
    brought = replace(brought, brought_s=fetched.alone_s)
    return min((brought, fetched), key=lambda route: _cost(context, route))


def _cost(context: Context, route: Route) -> int:
    """Its way and the wait for it, as the terms have them: a slow way for nothing is not the cheapest, and what others
    bring is shared only where that is no dearer."""
    hourly = context.setting.plan.delay_price_usd_micro_per_hour + (hourly_of(context.offers) or 0)
    return route.amount_usd_micro + div_half_up((taken_s(context, route) or 0) * hourly, 3600)


def taken_s(context: Context, route: Route) -> int | None:
    """Until its data is there, by what its way is taken to carry; None: nobody can say."""
    if route.price is None or route.cached is not None:
        return route.time_s
    mbit_s = taken_mbit_s(route.price, context.policy.prices, context.dated)
    return carried_in_s(mbit_s, route.moved_bytes) if mbit_s is not None else None


def _fetched(context: Context, use: DataUse, data_set: DataSet, site: ClusterPolicy) -> Route | Rejection:
    """The cheapest legal way from a declared replica."""
    policy, there = context.policy, (site.provider, site.region)
    reads = 1 if is_cached(site, data_set) else use.reads
    found = [_way(context, data_set, reads, replica, there) for replica in _legal_replicas(context, data_set)]
    known = [route for route in found if isinstance(route, Route)]
    routes = [route for route in known if data_set.size_bytes is not None or not route.needs_size]
    if routes:
        return min(routes, key=lambda route: (_cost(context, route), route.source)) if len(routes) > 1 else routes[0]
    if known:
        return Rejection(Reason.DATA_SIZE_UNKNOWN, Resolver.OPERATOR, Detail(use.data_set))
    if not found:
        return _missing(data_set, policy)
    return _egress_unknown(use, site, tuple(missed for missed in found if not isinstance(missed, Route)))


def is_cached(site: ClusterPolicy, data_set: DataSet) -> bool:
    """Whether a data set stays in the cluster's cache once it was read."""
    return data_set.size_bytes is not None and 0 < data_set.size_bytes <= site.cache_bytes


def _in_cache(context: Context, data_set: DataSet, site: ClusterPolicy) -> Cached | None:
    """What earlier decisions have brought here is not paid again, nor is what they are bringing: that is on its way,
    not there. Those of the last seconds are known by their promises alone."""
    if data_set.size_bytes is None or not is_cached(site, data_set):
        return None
    for known in context.cluster.cached:
        if known.data_set == data_set.name and known.size_bytes == data_set.size_bytes:
            return known
    for hold in context.holds:
        for name, at in hold.incoming:
            if name == data_set.name:
                promise = (hold.workload_key, hold.decision, hold.made_at)
                return Cached(data_set.name, data_set.size_bytes, *promise, at, there=False)
    return None


_Replica = tuple[str, Site, bool]
"""Name, place, and whether it is a store (which may bill requests)."""


def _way(
    context: Context, data_set: DataSet, reads: int, replica: _Replica, there: Site
) -> Route | tuple[Site, Reason]:
    name, where, in_store = replica
    price = route_price(where, there, context.policy.prices, context.dated)
    if isinstance(price, Reason):
        return where, price
    requests = request_price(where, context.policy.prices, context.dated) if in_store else None
    if isinstance(requests, Reason):
        return where, requests
    return Route(data_set, reads, name, where, price, requests)


def _legal_replicas(context: Context, data_set: DataSet) -> list[_Replica]:
    """Law before price: the replicas from which reading here is legal. Where none is, the law rejects the candidate,
    and all are priced so that its bill still shows what it would have been."""
    known = _replicas(context.policy, data_set)
    if context.site is None or len(known) < 2:
        return known
    legal = legal_sources(data_set.name, context.request, context.site, context.policy, context.dated)
    return [replica for replica in known if replica[0] in legal] or known


def _replicas(policy: Policy, data_set: DataSet) -> list[_Replica]:
    """Every replica whose place is in the blueprint, in name order."""
    found: list[_Replica] = []
    for cluster in data_set.replica_clusters:
        site = policy.clusters.get(cluster)
        if site is not None:
            found.append((str(cluster), (site.provider, site.region), False))
    for name in data_set.replica_stores:
        store = policy.stores.get(name)
        if store is not None:
            found.append((str(name), (store.provider, store.region), True))
    return sorted(found)


def _missing(data_set: DataSet, policy: Policy) -> Rejection:
    """A data set that lies nowhere cannot be read. What it was made from, and where that lies, says how to mend it."""
    lineage = tuple(_lineage(data_set.name, policy))
    gone = tuple(str(store) for store in data_set.missing_stores)
    return Rejection(Reason.DATA_MISSING, Resolver.OPERATOR, Detail(data_set.name, expected=lineage, seen=gone))


def _lineage(name: DataSetName, policy: Policy) -> Iterator[str]:
    """The nearest ancestors that lie somewhere, each with its places: one parent with all that is behind it after the
    other. However long the chain is: a catalog may tell one of thousands of versions."""
    seen, ways = {name}, [iter(policy.data_sets[name].derived_from)]
    while ways:
        parent = next(ways[-1], None)
        if parent is None:
            ways.pop()
            continue
        known = policy.data_sets.get(parent)
        if known is None or parent in seen:
            continue
        seen.add(parent)
        places = [place for place, _, _ in _replicas(policy, known)]
        if places:
            yield f"{parent} in {', '.join(places)}"
        else:
            ways.append(iter(known.derived_from))


def _egress_unknown(use: DataUse, site: ClusterPolicy | None, found: tuple[tuple[Site, Reason], ...]) -> Rejection:
    reasons = {reason for _, reason in found}
    reason = Reason.PRICE_OLD if Reason.PRICE_OLD in reasons else Reason.EGRESS_UNKNOWN
    wanted = (site.region,) if site else ()
    seen = tuple(dict.fromkeys(where[1] for where, _ in found))
    return Rejection(reason, Resolver.OPERATOR, Detail(use.data_set, expected=wanted, seen=seen))
