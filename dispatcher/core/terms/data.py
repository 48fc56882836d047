"""What bringing the data costs: data sets, and the checkpoint of a run that was stopped."""

from __future__ import annotations

from dataclasses import replace

from dispatcher.core.context import Context
from dispatcher.core.decision import Incoming, Line, Rejection, Term, TermKind
from dispatcher.core.terms.bills import billed
from dispatcher.core.terms.homeward import checkpoint_of, read_back
from dispatcher.core.terms.routes import cheapest_route, is_cached


def data_in(context: Context) -> Term:
    """Bytes x reads x price of the route from the cheapest replica, the store's requests, and where an earlier attempt
    may have left a checkpoint, its bytes: it is data with a place (FR-SCO-16)."""
    bill: list[Line] = []
    incoming: list[Incoming] = []
    if context.site is None:
        return Term(TermKind.DATA_IN, None)
    for use in context.request.declared.data:
        route = cheapest_route(context, use)
        if isinstance(route, Rejection):
            return Term(TermKind.DATA_IN, None, tuple(bill), route)
        bill.extend(route.lines())
        if is_cached(context.site, route.data_set) and not route.is_local:
            incoming.append(Incoming(use.data_set, route.alone_s, route.data_set.size_bytes))
    saved = checkpoint_of(context)
    if saved is not None and context.request.attempt > 1:
        line = read_back(context, saved)
        if line is not None:
            bill.append(line)
    found = billed(TermKind.DATA_IN, bill)
    return replace(found, incoming=tuple(incoming)) if incoming else found
