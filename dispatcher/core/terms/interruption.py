"""What it costs that a run may be stopped before its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dispatcher.core.context import Context
from dispatcher.core.decision import CheckpointAdvice, Detail, Line, Reason, Rejection, Resolver, Term, TermKind
from dispatcher.core.policy import ComputePrice, FlavorPolicy, Purchase
from dispatcher.core.prices import best_interval_s, div_half_up
from dispatcher.core.terms.bills import billed
from dispatcher.core.terms.homeward import checkpoint_of, write_time_s
from dispatcher.core.terms.run import hourly


@dataclass(frozen=True, slots=True)
class Threat:
    """Something that stops the whole gang: `count` things, each of which does so every `mean_time_s` on average."""

    what: str
    count: int
    mean_time_s: int
    source: str = ""


def interruption(context: Context) -> Term:
    """Expected interruptions x (work lost since the last checkpoint + restart), at what an hour of the gang costs and
    what an hour of delay costs the class.

    A node that the provider takes back (spot) or that fails stops the gang, so more nodes stop it more often; what a
    queue has borrowed, its owner takes back at once. Without a checkpoint half of the run is lost on average, with
    one half of its interval. A run on its own quota, on nodes of which no failures are known, is not threatened.
    """
    threats: list[Threat] = []
    for found in _threats(context):
        if isinstance(found, Rejection):
            return Term(TermKind.INTERRUPTION, None, unknown=found)
        threats.append(found)
    if not threats:
        return Term(TermKind.INTERRUPTION, 0)
    price = hourly(context)
    if price is None:
        return Term(TermKind.INTERRUPTION, None)
    price += context.setting.plan.delay_price_usd_micro_per_hour
    lasting = _lasting_s(context)
    lost = _lost_s(context, lasting)
    advice = _advice(context, threats)
    bill = [_line(threat, lasting, lost, price) for threat in threats]
    return replace(billed(TermKind.INTERRUPTION, bill), advice=advice)


def _line(threat: Threat, lasting: int, lost: int, hourly_usd_micro: int) -> Line:
    """One division an amount: expected interruptions are seldom whole."""
    losses = lasting * threat.count * lost
    return Line(
        what=threat.what,
        quantity=div_half_up(losses, threat.mean_time_s),
        unit="second",
        unit_price_usd_micro=hourly_usd_micro,
        amount_usd_micro=div_half_up(losses * hourly_usd_micro, threat.mean_time_s * 3600),
        source=threat.source,
    )


def _threats(context: Context) -> Iterator[Threat | Rejection]:
    nodes = {(p.pod_set, p.flavor): p.nodes for p in context.fit.placements}
    for offer in context.offers:
        flavor = offer.flavor
        if flavor is None:
            continue
        count = max(1, nodes.get((offer.pod_set.name, flavor.name), 0))
        if flavor.purchase is Purchase.SPOT:
            yield _taken_back(offer.price, flavor, count)
        if flavor.failure_s is not None:
            yield Threat(f"failures of {flavor.name} nodes x {count}", count, flavor.failure_s)
    reclaim = context.policy.limits.reclaim_s
    if context.fit.borrows and reclaim is not None:
        yield Threat("borrowed quota that is taken back", 1, reclaim)


def _taken_back(price: ComputePrice | Rejection | None, flavor: FlavorPolicy, count: int) -> Threat | Rejection:
    """Spot capacity of which nobody knows how long it lasts is not known to be cheap."""
    if isinstance(price, Rejection):
        return price
    if price is None or price.interruption_s is None:
        detail = Detail(flavor.product or flavor.name, flavor=flavor.name, seen=(price.source,) if price else ())
        return Rejection(Reason.INTERRUPTION_UNKNOWN, Resolver.OPERATOR, detail)
    return Threat(f"{flavor.name} nodes on spot x {count}", count, price.interruption_s, price.source)


def _lasting_s(context: Context) -> int:
    """How long the gang runs: as long as its slowest flavor."""
    slowest = min([offer.speed for offer in context.offers if offer.flavor is not None], default=1000)
    return div_half_up(context.setting.estimate.duration_s * 1000, slowest)


def _lost_s(context: Context, lasting: int) -> int:
    saved = checkpoint_of(context)
    interval = saved.interval_s if saved is not None else None
    return (lasting if interval is None else min(interval, lasting)) // 2 + context.setting.plan.restart_s


def _advice(context: Context, threats: list[Threat]) -> CheckpointAdvice | None:
    """The interval that loses least here (prices.best_interval_s), where the owner keeps checkpoints at all."""
    saved = checkpoint_of(context)
    write = write_time_s(context, saved) if saved is not None else None
    if saved is None or not write:
        return None
    # Rates add up; over a common denominator, so that nothing is rounded on the way.
    whole, rate = 1, 0
    for threat in threats:
        whole, rate = whole * threat.mean_time_s, rate * threat.mean_time_s + threat.count * whole
    mean = whole // rate
    best = best_interval_s(write, mean)
    return CheckpointAdvice(best, write, mean, saved.interval_s) if best is not None else None
