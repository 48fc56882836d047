"""When what a run needs is there. Until then it has begun and does not work: its team waits, and its GPUs are held."""

from __future__ import annotations

from collections.abc import Iterator

from dispatcher.core.context import Context
from dispatcher.core.policy import EgressPrice
from dispatcher.core.prices import carried_in_s, taken_mbit_s
from dispatcher.core.terms.homeward import checkpoint_of, way_back
from dispatcher.core.ways import Arrival, Route


def arrivals(context: Context) -> Iterator[Arrival]:
    """Data sets come in one after another over their routes, then the checkpoint of a run that was stopped.

    A set that others bring in already is waited for as long as they do: when this work starts, part of that has passed,
    but how much depends on the moment, and a choice should not. What is in the cache is not waited for.
    """
    for route in context.ways:
        if not isinstance(route, Route):
            continue
        if route.cached is not None and not route.cached.there:
            yield Arrival(f"{route.data_set.name} on its way for {route.source}", route.time_s or 0)
        elif route.cached is None and route.price is not None:
            yield _over(context, f"transfer of {route.data_set.name}", route.price, route.moved_bytes)
    saved = checkpoint_of(context) if context.request.attempt > 1 else None
    price = way_back(context, saved.store) if saved is not None else None
    if saved is not None and isinstance(price, EgressPrice):
        yield _over(context, "transfer of the checkpoint", price, saved.size_bytes)


def _over(context: Context, what: str, price: EgressPrice, size_bytes: int | None) -> Arrival:
    mbit_s = taken_mbit_s(price, context.policy.prices, context.dated)
    takes_s = carried_in_s(mbit_s, size_bytes) if mbit_s is not None and size_bytes is not None else None
    return Arrival(what, takes_s, price, mbit_s, guessed=not price.bandwidth_mbit_s)
