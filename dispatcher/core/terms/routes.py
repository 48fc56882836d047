"""On which way a data set comes to a candidate: the cheapest legal one, or what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dispatcher.core.context import Context
from dispatcher.core.decision import Detail, Line, Reason, Rejection, Resolver
from dispatcher.core.ids import DataSetName
from dispatcher.core.instants import stamp
from dispatcher.core.legality import legal_sources
from dispatcher.core.policy import ClusterPolicy, DataSet, EgressPrice, Policy, RequestPrice
from dispatcher.core.prices import (
    Site,
    div_half_up,
    mean_price,
    request_amount,
    request_price,
    requests_of,
    route_price,
    transfer_amount,
    transfer_time_s,
)
from dispatcher.core.snapshot import Cached
from dispatcher.core.workload import DataUse


@dataclass(frozen=True, slots=True)
class Route:
    """The cheapest way of one data set to a candidate.

    `reads` is how often its bytes go that way: each read pays again (FR-SCO-15), but for a cluster whose cache can
    hold it. `price` None: it is there, or in the same region for nothing. `requests` None: nobody bills them.
    `cached` is set where somebody else's work brings it into the cache, or has: then `brought_s` is how long it would
    take this run to bring it itself. `is_local`: the cluster is declared to hold it.
    """

    data_set: DataSet
    reads: int
    source: str
    site: Site
    price: EgressPrice | None
    requests: RequestPrice | None = None
    cached: Cached | None = None
    brought_s: int | None = None
    is_local: bool = False

    @property
    def egress_usd_micro(self) -> int:
        return transfer_amount(self.price, self.data_set.size_bytes or 0, self.reads) if self.price else 0

    @property
    def request_count(self) -> int:
        found, data_set = self.requests, self.data_set
        return requests_of(found, data_set.size_bytes or 0, data_set.objects) * self.reads if found else 0

    @property
    def requests_usd_micro(self) -> int:
        if self.requests is None:
            return 0
        return request_amount(self.requests.usd_micro_per_million_reads, self.request_count)

    @property
    def amount_usd_micro(self) -> int:
        return self.egress_usd_micro + self.requests_usd_micro

    @property
    def time_s(self) -> int | None:
        """Until the data is there, from when the way begins."""
        if self.cached is not None:
            return 0 if self.cached.there else _seconds(self.cached)
        return transfer_time_s(self.price, self.data_set.size_bytes or 0, self.reads) if self.price else 0

    @property
    def alone_s(self) -> int | None:
        """How long it takes this run to bring it into the cache, where nobody else does; None = not known. What comes
        from a store of the region comes as the run reads it, and nobody knows how fast."""
        if self.cached is not None:
            return self.brought_s
        return self.time_s if self.price is not None else None

    @property
    def needs_size(self) -> bool:
        """Whether its cost cannot be known without the size of the data set."""
        return self.price is not None or (self.requests is not None and self.data_set.objects is None)

    def lines(self) -> Iterator[Line]:
        name = self.data_set.name
        if self.cached is not None and self.cached.there:
            yield Line(f"{name}, in the cache since {stamp(self.cached.there_at)}", 0, "byte", 0, 0)
        elif self.cached is not None:
            until = stamp(self.cached.there_at)
            yield Line(f"{name}, on its way for {self.source} until {until}", 0, "byte", 0, 0)
        elif self.price is None:
            yield Line(f"{name}, already in {self.source}", 0, "byte", 0, 0)
        else:
            via = f", {self.price.via}" if self.price.via else ""
            yield Line(
                what=f"{name} from {self.source} ({self.site[1]}{via}) x {self.reads}",
                quantity=(self.data_set.size_bytes or 0) * self.reads,
                unit="byte",
                unit_price_usd_micro=mean_price(self.price, (self.data_set.size_bytes or 0) * self.reads),
                amount_usd_micro=self.egress_usd_micro,
                source=self.price.source,
            )
        if self.requests is not None:
            yield Line(
                what=f"reads of {name} at {self.source}",
                quantity=self.request_count,
                unit="request",
                unit_price_usd_micro=self.requests.usd_micro_per_million_reads,
                amount_usd_micro=self.requests_usd_micro,
                source=self.requests.source,
            )


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
    """Its way and the wait for it, as the terms have them: what others bring is shared only where that is no dearer."""
    hourly = context.setting.plan.delay_price_usd_micro_per_hour
    return route.amount_usd_micro + div_half_up((route.time_s or 0) * hourly, 3600)


def _fetched(context: Context, use: DataUse, data_set: DataSet, site: ClusterPolicy) -> Route | Rejection:
    """The cheapest legal way from a declared replica."""
    policy, there = context.policy, (site.provider, site.region)
    reads = 1 if is_cached(site, data_set) else use.reads
    found = [_way(context, data_set, reads, replica, there) for replica in _legal_replicas(context, data_set)]
    known = [route for route in found if isinstance(route, Route)]
    routes = [route for route in known if data_set.size_bytes is not None or not route.needs_size]
    if routes:
        return min(routes, key=lambda route: (route.amount_usd_micro, route.source))
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


def _seconds(coming: Cached) -> int:
    return max(0, int((coming.there_at - coming.began_at).total_seconds()))


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
