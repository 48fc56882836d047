"""The terms of a candidate's cost, each one amount of expected money with its bill (design section 5).

A term is a plain function from a candidate to a `Term`; adding one is one function and one line in `TERMS`
(docs/add-a-term.md). A term that lacks a fact has no amount and says in `unknown` which one, which rejects the
candidate: a missing price is never 0. Without `unknown` the reason is another filter's (no flavor, not in the
blueprint). Amounts are integer micro-USD, each line rounded half up once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.core.context import Context
from dispatcher.core.decision import Detail, Line, Reason, Rejection, Resolver, Term, TermKind
from dispatcher.core.ids import FlavorName, RegionName
from dispatcher.core.legality import legal_sources
from dispatcher.core.policy import ClusterPolicy, ComputePrice, DataSet, EgressPrice, PriceUnit
from dispatcher.core.prices import (
    compute_amount,
    cpu_price,
    div_half_up,
    egress_price,
    gpu_price,
    transfer_amount,
    transfer_time_s,
)
from dispatcher.core.resources import CPU, is_gpu
from dispatcher.core.workload import DataUse, PodSet

TermFunction = Callable[[Context], Term]


def price(context: Context) -> tuple[Term, ...]:
    """All terms of a candidate, in the order of `TERMS`."""
    return tuple(term(context) for term in TERMS)


def total_of(terms: tuple[Term, ...]) -> int | None:
    """The sum of the terms; None as soon as one of them is unknown."""
    amounts = [term.amount_usd_micro for term in terms]
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)


# --- run ---------------------------------------------------------------------------------------------------------


def run(context: Context) -> Term:
    """Pods x GPUs x price of the flavor x expected duration at the flavor's speed; pods without GPUs by vCPU.

    One price per concrete offer, the one of the flavor that the pods would take (FR-BUD-04).
    """
    bill: list[Line] = []
    flavors = dict(context.fit.flavors)
    for pod_set in context.request.pod_sets:
        name = flavors.get(pod_set.name)
        if context.site is None or name is None:
            return Term(TermKind.RUN, None, tuple(bill))
        line = _run_line(context, context.site, pod_set, name)
        if isinstance(line, Rejection):
            return Term(TermKind.RUN, None, tuple(bill), line)
        bill.append(line)
    return _billed(TermKind.RUN, bill)


def _run_line(context: Context, site: ClusterPolicy, pod_set: PodSet, name: FlavorName) -> Line | Rejection:
    flavor = site.flavors.get(name)
    if flavor is None:
        return Rejection(Reason.PRICE_UNKNOWN, Resolver.OPERATOR, Detail(pod_set.name, flavor=name, expected=(name,)))
    gpus = pod_set.per_pod.gpus()
    seconds = context.setting.estimate.duration_s
    found = (gpu_price if gpus else cpu_price)(site, flavor, context.policy.prices, context.dated)
    if isinstance(found, Rejection):
        return found
    if gpus and found.unit is PriceUnit.VCPU_HOUR:
        detail = Detail(found.product, flavor=name, expected=(PriceUnit.GPU_HOUR.value,), seen=(found.unit.value,))
        return Rejection(Reason.PRICE_UNKNOWN, Resolver.OPERATOR, detail)
    milli = pod_set.count * (gpus * 1000 if gpus else pod_set.per_pod.get(CPU))
    return Line(
        what=f"{pod_set.name} on {name}",
        quantity=div_half_up(milli * seconds, flavor.speed_permille),
        unit=_UNITS[found.unit],
        unit_price_usd_micro=found.usd_micro_per_hour,
        amount_usd_micro=compute_amount(found, milli, seconds, flavor.speed_permille),
        source=found.source,
    )


_UNITS = {
    PriceUnit.GPU_HOUR: "gpu-second",
    PriceUnit.MIG_SLICE_HOUR: "mig-slice-second",
    PriceUnit.VCPU_HOUR: "vcpu-second",
}
"""The quantity of a run line is in seconds of a unit, its unit price by the hour of the same unit."""


# --- data in -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Route:
    """The cheapest way of one data set to a candidate. `price` None: it is there, or in the same region for nothing."""

    data_set: DataSet
    reads: int
    source: str
    region: RegionName
    price: EgressPrice | None

    @property
    def amount_usd_micro(self) -> int:
        return transfer_amount(self.price, self.data_set.size_bytes or 0, self.reads) if self.price else 0

    @property
    def time_s(self) -> int | None:
        return transfer_time_s(self.price, self.data_set.size_bytes or 0, self.reads) if self.price else 0


def data_in(context: Context) -> Term:
    """Bytes x reads x price of the route from the cheapest replica (FR-SCO-15: each epoch pays again)."""
    bill: list[Line] = []
    if context.site is None:
        return Term(TermKind.DATA_IN, None)
    for use in context.request.declared.data:
        route = cheapest_route(context, use)
        if isinstance(route, Rejection):
            return Term(TermKind.DATA_IN, None, tuple(bill), route)
        bill.append(_data_line(route))
    return _billed(TermKind.DATA_IN, bill)


def _data_line(route: Route) -> Line:
    if route.price is None:
        return Line(f"{route.data_set.name}, already in {route.source}", 0, "byte", 0, 0)
    return Line(
        what=f"{route.data_set.name} from {route.source} ({route.region}) x {route.reads}",
        quantity=(route.data_set.size_bytes or 0) * route.reads,
        unit="byte",
        unit_price_usd_micro=route.price.usd_micro_per_gb,
        amount_usd_micro=route.amount_usd_micro,
        source=route.price.source,
    )


def cheapest_route(context: Context, use: DataUse) -> Route | Rejection:
    """The replica that costs least to read from here, or what is not known. A local replica needs no price or size."""
    data_set = context.policy.data_sets.get(use.data_set)
    if context.site is None or data_set is None:
        return _egress_unknown(use, context.site, ())
    if context.site.name in data_set.replica_clusters:
        return Route(data_set, use.reads, context.site.name, context.site.region, None)
    found = [(where, region, _price(context, region)) for where, region in _legal_replicas(context, data_set)]
    routes = [
        Route(data_set, use.reads, where, region, known)
        for where, region, known in found
        if known is None or (isinstance(known, EgressPrice) and data_set.size_bytes is not None)
    ]
    if routes:
        return min(routes, key=lambda route: (route.amount_usd_micro, route.source))
    if data_set.size_bytes is None and any(isinstance(known, EgressPrice) for _, _, known in found):
        return Rejection(Reason.DATA_SIZE_UNKNOWN, Resolver.OPERATOR, Detail(use.data_set))
    return _egress_unknown(use, context.site, tuple((region, known) for _, region, known in found))


def _price(context: Context, region: RegionName) -> EgressPrice | Reason | None:
    if context.site is None:
        return Reason.EGRESS_UNKNOWN
    return egress_price(region, context.site.region, context.policy.prices, context.dated)


def _legal_replicas(context: Context, data_set: DataSet) -> list[tuple[str, RegionName]]:
    """Law before price: the replicas from which reading here is legal. Where none is, the law rejects the candidate,
    and all are priced so that its bill still shows what it would have been."""
    known = _replicas(context, data_set)
    if context.site is None or len(known) < 2:
        return known
    legal = legal_sources(data_set.name, context.request, context.site, context.policy, context.dated)
    return [replica for replica in known if replica[0] in legal] or known


def _replicas(context: Context, data_set: DataSet) -> list[tuple[str, RegionName]]:
    """(name, region) of every replica whose place is in the blueprint, in name order."""
    policy = context.policy
    clusters = [(str(c), policy.clusters[c].region) for c in data_set.replica_clusters if c in policy.clusters]
    stores = [(str(s), policy.stores[s].region) for s in data_set.replica_stores if s in policy.stores]
    return sorted((*clusters, *stores))


def _egress_unknown(
    use: DataUse, site: ClusterPolicy | None, found: tuple[tuple[RegionName, EgressPrice | Reason | None], ...]
) -> Rejection:
    reasons = {known for _, known in found if isinstance(known, Reason)}
    reason = Reason.PRICE_OLD if Reason.PRICE_OLD in reasons else Reason.EGRESS_UNKNOWN
    wanted = (site.region,) if site else ()
    seen = tuple(dict.fromkeys(region for region, _ in found))
    return Rejection(reason, Resolver.OPERATOR, Detail(use.data_set, expected=wanted, seen=seen))


# --- waiting -----------------------------------------------------------------------------------------------------


def waiting(context: Context) -> Term:
    """The class's delay price x the expected time to the start of useful work: the transfer of its data, and at a
    cluster that has just evicted it, the time until that is likely to be over.

    Data sets come in one after another over their routes; a route whose bandwidth is not known adds no time and says
    so in the bill. Coming back is dearer, never forbidden (FR-NOM-03).
    """
    hourly = context.setting.plan.delay_price_usd_micro_per_hour
    bill = _return_lines(context, hourly)
    for use in context.request.declared.data:
        route = cheapest_route(context, use)
        if isinstance(route, Rejection) or route.price is None:
            continue
        seconds = route.time_s
        if seconds is None:
            bill.append(Line(f"transfer of {use.data_set}, bandwidth not known", 0, "second", hourly, 0))
            continue
        amount = div_half_up(seconds * hourly, 3600)
        bill.append(Line(f"transfer of {use.data_set}", seconds, "second", hourly, amount, route.price.source))
    return _billed(TermKind.WAITING, bill)


def _return_lines(context: Context, hourly: int) -> list[Line]:
    bill: list[Line] = []
    for entry in context.request.avoided:
        if entry.excluded or entry.cluster != context.cluster.name or entry.until is None:
            continue
        seconds = int((entry.until - context.now).total_seconds())
        if seconds > 0:
            amount = div_half_up(seconds * hourly, 3600)
            bill.append(Line(f"return to where it was stopped ({entry.code})", seconds, "second", hourly, amount))
    return bill


# --- stranded ----------------------------------------------------------------------------------------------------


def stranded(context: Context) -> Term:
    """A share of the price of GPUs that the placement leaves over on nodes that were whole before (best fit)."""
    bill: list[Line] = []
    share = context.policy.limits.stranded_permille
    seconds = context.setting.estimate.duration_s
    for broken in context.fit.broken:
        flavor = context.site.flavors.get(broken.flavor) if context.site else None
        if context.site is None or flavor is None:
            continue
        found = gpu_price(context.site, flavor, context.policy.prices, context.dated)
        if isinstance(found, ComputePrice) and is_gpu(broken.resource):
            whole = broken.amount * found.usd_micro_per_hour * seconds * share
            amount = div_half_up(whole, 3600 * flavor.speed_permille)
            quantity = div_half_up(broken.amount * 1000 * seconds, flavor.speed_permille)
            what = f"{broken.amount} x {broken.resource} left over on {broken.flavor} at {share} permille"
            bill.append(Line(what, quantity, "gpu-second", found.usd_micro_per_hour, amount, found.source))
    return _billed(TermKind.STRANDED, bill)


def _billed(kind: TermKind, bill: list[Line]) -> Term:
    return Term(kind, sum(line.amount_usd_micro for line in bill), tuple(bill))


TERMS: tuple[TermFunction, ...] = (run, data_in, waiting, stranded)
"""All terms, in the order in which they are shown. The total is their sum: the order changes no choice."""
