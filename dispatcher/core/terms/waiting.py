"""What it costs that the work does not begin at once."""

from __future__ import annotations

from dispatcher.core.context import Context
from dispatcher.core.decision import Line, Term, TermKind
from dispatcher.core.instants import stamp
from dispatcher.core.policy import EgressPrice
from dispatcher.core.terms.bills import billed, delay_line
from dispatcher.core.terms.homeward import checkpoint_of, read_back, read_back_s, way_back
from dispatcher.core.terms.routes import Route, cheapest_route


def waiting(context: Context) -> Term:
    """The class's delay price x the expected time to the start of useful work: the transfer of its data, and at a
    cluster that has just evicted it, the time until that is likely to be over.

    Data sets come in one after another over their routes; a route whose bandwidth is not known adds no time and says
    so in the bill. One that others bring in already is waited for as long as they do: when this work starts, part of
    that has passed, but how much depends on the moment, and a choice should not. What is in the cache is not waited
    for. Coming back is dearer, never forbidden (FR-NOM-03).
    """
    hourly = context.setting.plan.delay_price_usd_micro_per_hour
    bill = _return_lines(context, hourly)
    for use in context.request.declared.data:
        route = cheapest_route(context, use)
        if isinstance(route, Route) and (route.price is not None or (route.cached and not route.cached.there)):
            bill.append(_transfer_line(route, hourly))
    saved = checkpoint_of(context) if context.request.attempt > 1 and context.site is not None else None
    if saved is not None and read_back(context, saved) is not None:
        seconds, price = read_back_s(context, saved), way_back(context, saved)
        assert price is not None
        bill.append(_timed("transfer of the checkpoint", seconds, hourly, price))
    return billed(TermKind.WAITING, bill)


def _transfer_line(route: Route, hourly: int) -> Line:
    if route.cached is not None:
        return delay_line(f"{route.data_set.name} on its way for {route.source}", route.time_s or 0, hourly)
    assert route.price is not None
    return _timed(f"transfer of {route.data_set.name}", route.time_s, hourly, route.price)


def _timed(what: str, seconds: int | None, hourly: int, price: EgressPrice) -> Line:
    """What a transfer takes, and by which bandwidth that is known."""
    if seconds is None:
        return Line(f"{what}, bandwidth not known{_outdated(price)}", 0, "second", hourly, 0)
    said = f"measured {stamp(price.measured_at)}" if price.measured_at is not None else f"declared{_outdated(price)}"
    return delay_line(f"{what} at {price.bandwidth_mbit_s} Mbit/s, {said}", seconds, hourly, price.source)


def _outdated(price: EgressPrice) -> str:
    return f" (measured {stamp(price.outdated_at)}, too long ago)" if price.outdated_at is not None else ""


def _return_lines(context: Context, hourly: int) -> list[Line]:
    bill: list[Line] = []
    for entry in context.request.avoided:
        if entry.excluded or entry.while_borrowing or entry.cluster != context.cluster.name or entry.until is None:
            continue
        seconds = int((entry.until - context.now).total_seconds())
        if seconds > 0:
            bill.append(delay_line(f"return to where it was stopped ({entry.code})", seconds, hourly))
    return bill
