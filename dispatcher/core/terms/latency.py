"""What it costs people to wait for answers from far away."""

from __future__ import annotations

from dispatcher.core.context import Context
from dispatcher.core.decision import Line, Term, TermKind
from dispatcher.core.distance import reaches, unknown_trip
from dispatcher.core.ids import RegionName
from dispatcher.core.prices import div_half_up
from dispatcher.core.terms.bills import billed


def latency(context: Context) -> Term:
    """The class's price of a millisecond of round trip and hour x the farthest users' round trip x how long they work.

    Without a price it weighs nothing and is only recorded, where it is known. With one, a cluster of which a round
    trip is not known cannot be compared with one of which all are: unknown, not 0. A faster flavor shortens no session,
    so the duration is taken as it is.
    """
    plan, site, price = context.setting.plan, context.site, context.setting.plan.round_trip_price_usd_micro or 0
    if site is None:
        return Term(TermKind.LATENCY, None if price else 0)
    trips: list[tuple[int, RegionName, str]] = []
    for reach in reaches(context.request, plan, site, context.policy):
        if reach.trip is not None:
            trips.append((reach.trip.ms, reach.users, reach.trip.source))
        elif price:
            return Term(TermKind.LATENCY, None, unknown=unknown_trip(reach.users, site))
        else:
            return Term(TermKind.LATENCY, 0)
    return billed(TermKind.LATENCY, [_line(max(trips), context.setting.estimate.duration_s, price)] if trips else [])


def _line(farthest: tuple[int, RegionName, str], seconds: int, price: int) -> Line:
    ms, users, source = farthest
    amount = div_half_up(ms * seconds * price, 3600)
    return Line(f"round trip of {ms} ms to users in {users}", ms * seconds, "ms-second", price, amount, source)
