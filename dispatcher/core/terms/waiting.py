"""What it costs that the work does not begin at once."""

from __future__ import annotations

from dispatcher.core.context import Context
from dispatcher.core.decision import Line, Term, TermKind
from dispatcher.core.instants import stamp
from dispatcher.core.policy import EgressPrice
from dispatcher.core.terms.bills import billed, delay_line
from dispatcher.core.ways import Arrival


def waiting(context: Context) -> Term:
    """The class's delay price x the expected time to the start of useful work: until its data is there (arriving.py),
    and at a cluster that has just evicted it, the time until that is likely to be over.

    Where nobody can say how long a way takes, it adds no time and says so. Coming back is dearer, never forbidden
    (FR-NOM-03).
    """
    hourly = context.setting.plan.delay_price_usd_micro_per_hour
    bill = _return_lines(context, hourly)
    bill.extend(_line(arrival, hourly) for arrival in context.arrivals)
    return billed(TermKind.WAITING, bill)


def _line(arrival: Arrival, hourly: int) -> Line:
    """What it takes, and by which bandwidth that is known."""
    price = arrival.price
    if price is None:
        return delay_line(arrival.what, arrival.seconds or 0, hourly)
    if arrival.seconds is None:
        lacking = "size not known" if arrival.mbit_s is not None else f"bandwidth not known{_outdated(price)}"
        return Line(f"{arrival.what}, {lacking}", 0, "second", hourly, 0)
    if arrival.guessed:
        said = f"not known{_outdated(price)}: taken for that of the slowest route"
    elif price.measured_at is not None:
        said = f"measured {stamp(price.measured_at)}"
    else:
        said = f"declared{_outdated(price)}"
    return delay_line(f"{arrival.what} at {arrival.mbit_s} Mbit/s, {said}", arrival.seconds, hourly, price.source)


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
