"""What it costs that a run may be stopped before its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dispatcher.core.context import Context
from dispatcher.core.decision import CheckpointAdvice, Detail, Line, Reason, Rejection, Resolver, Term, TermKind
from dispatcher.core.offers import hourly_of, lasting_s
from dispatcher.core.policy import ComputePrice, FlavorPolicy, Purchase
from dispatcher.core.prices import best_interval_s, div_half_up, lost_to_interruptions
from dispatcher.core.terms.bills import billed
from dispatcher.core.terms.homeward import checkpoint_of, write_time_s


@dataclass(frozen=True, slots=True)
class Threat:
    """Something that stops the whole gang: `count` things, each of which does so every `mean_time_s` on average."""

    what: str
    count: int
    mean_time_s: int
    source: str = ""


def interruption(context: Context) -> Term:
    """Expected time lost to interruptions and restarts, at what an hour of the gang costs and what an hour of delay
    costs the class.

    A node that the provider takes back (spot) or that fails stops the gang, so more nodes stop it more often; what a
    queue has borrowed, its owner takes back at once. What was done since the last checkpoint is done again, without one
    all of it (prices.lost_to_interruptions). A run on its own quota, on nodes of which no failures are known, is not
    threatened.
    """
    threats: list[Threat] = []
    for found in _threats(context):
        if isinstance(found, Rejection):
            return Term(TermKind.INTERRUPTION, None, unknown=found)
        threats.append(found)
    if not threats:
        return Term(TermKind.INTERRUPTION, 0)
    price = hourly_of(context.offers)
    if price is None:
        return Term(TermKind.INTERRUPTION, None)
    price += context.setting.plan.delay_price_usd_micro_per_hour
    rate = _rate(threats)
    bill = list(_lines(threats, rate, _lost_s(context, rate), price))
    return replace(billed(TermKind.INTERRUPTION, bill), advice=_advice(context, rate))


def _rate(threats: list[Threat]) -> tuple[int, int]:
    """All interruptions a second. Rates add up; over a common denominator, so that nothing is rounded on the way."""
    rate, whole = 0, 1
    for threat in threats:
        rate, whole = rate * threat.mean_time_s + threat.count * whole, whole * threat.mean_time_s
    return rate, whole


def _lines(
    threats: list[Threat], rate: tuple[int, int], lost: tuple[int, int], hourly_usd_micro: int
) -> Iterator[Line]:
    """Each threat with its part of the loss. One division an amount: expected losses are seldom whole."""
    (count, whole), (seconds, parts) = rate, lost
    for threat in threats:
        of_it, of_all = seconds * threat.count * (whole // threat.mean_time_s), parts * count
        yield Line(
            what=threat.what,
            quantity=div_half_up(of_it, of_all),
            unit="second",
            unit_price_usd_micro=hourly_usd_micro,
            amount_usd_micro=div_half_up(of_it * hourly_usd_micro, of_all * 3600),
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


def _lost_s(context: Context, rate: tuple[int, int]) -> tuple[int, int]:
    lasting = lasting_s(context.offers, context.setting.estimate.duration_s)
    saved = checkpoint_of(context)
    interval = saved.interval_s if saved is not None else None
    stretch = lasting if interval is None else min(interval, lasting)
    return lost_to_interruptions(lasting, stretch, context.setting.plan.restart_s, rate)


def _advice(context: Context, rate: tuple[int, int]) -> CheckpointAdvice | None:
    """The interval that loses least here (prices.best_interval_s), where the owner keeps checkpoints at all."""
    saved = checkpoint_of(context)
    write = write_time_s(context, saved) if saved is not None else None
    if saved is None or not write:
        return None
    count, whole = rate
    mean = whole // count
    best = best_interval_s(write, mean)
    return CheckpointAdvice(best, write, mean, saved.interval_s) if best is not None else None
