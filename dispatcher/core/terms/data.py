"""What bringing the data costs: data sets, and the checkpoint of a run that was stopped."""

from __future__ import annotations

from dataclasses import replace

from dispatcher.core.context import Context
from dispatcher.core.decision import Incoming, Line, Rejection, Term, TermKind
from dispatcher.core.terms.bills import billed
from dispatcher.core.terms.homeward import checkpoint_of, read_back
from dispatcher.core.terms.routes import is_cached


def data_in(context: Context) -> Term:
    """Bytes x reads x price of the route from the cheapest replica, the store's requests, and where an earlier attempt
    may have left a checkpoint, its bytes: it is data with a place (FR-SCO-16)."""
    bill: list[Line] = []
    incoming: list[Incoming] = []
    if context.site is None:
        return Term(TermKind.DATA_IN, None)
    for route in context.ways:
        if isinstance(route, Rejection):
            return Term(TermKind.DATA_IN, None, tuple(bill), route)
        bill.extend(route.lines())
        data_set = route.data_set
        if is_cached(context.site, data_set) and not route.is_local:
            incoming.append(Incoming(data_set.name, route.alone_s, data_set.size_bytes))
    saved = checkpoint_of(context) if context.request.attempt > 1 else None
    if saved is not None:
        lines = read_back(context, saved)
        if isinstance(lines, Rejection):
            return Term(TermKind.DATA_IN, None, tuple(bill), lines)
        bill.extend(lines)
    found = billed(TermKind.DATA_IN, bill)
    return replace(found, incoming=tuple(incoming)) if incoming else found
