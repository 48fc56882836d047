"""What a run writes to stores, and on which way: its checkpoints and its outputs."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.context import Context
from dispatcher.core.decision import Detail, Line, Reason, Rejection, Resolver
from dispatcher.core.policy import EgressPrice, RequestPrice, Store
from dispatcher.core.prices import (
    mean_price,
    request_amount,
    request_price,
    requests_of,
    route_price,
    transfer_amount,
    transfer_time_s,
)
from dispatcher.core.workload import Destination


@dataclass(frozen=True, slots=True)
class Written:
    """What goes to a store: `size_bytes` None = not known; `interval_s` is how often, None = once or not known."""

    what: str
    store: Store
    size_bytes: int | None
    interval_s: int | None = None


def checkpoint_of(context: Context) -> Written | None:
    """The checkpoints that the owner keeps in a store, with the class's numbers where the owner says none."""
    said, plan = context.request.declared, context.setting.plan
    store = _store(context, said.checkpoint)
    if store is None:
        return None
    size = said.checkpoint_bytes if said.checkpoint_bytes is not None else plan.checkpoint_bytes
    interval = said.checkpoint_interval_s if said.checkpoint_interval_s is not None else plan.checkpoint_interval_s
    return Written("checkpoint", store, size, interval)


def outputs_of(context: Context) -> Written | None:
    said = context.request.declared
    store = _store(context, said.outputs)
    if store is None:
        return None
    size = said.outputs_bytes if said.outputs_bytes is not None else context.setting.plan.output_bytes
    return Written("outputs", store, size)


def _store(context: Context, to: Destination | None) -> Store | None:
    return context.policy.stores.get(to.store) if to is not None else None


def way_home(context: Context, store: Store) -> EgressPrice | Reason | None:
    """The price from the candidate to a store; None: within its region, for nothing."""
    if context.site is None:
        return Reason.EGRESS_UNKNOWN
    here, there = (context.site.provider, context.site.region), (store.provider, store.region)
    return route_price(here, there, context.policy.prices, context.dated)


def write_time_s(context: Context, written: Written) -> int | None:
    """How long one checkpoint stops the run: what the class says, else as long as its bytes take home."""
    if context.setting.plan.checkpoint_write_s is not None:
        return context.setting.plan.checkpoint_write_s
    price = way_home(context, written.store)
    if written.size_bytes is None or not isinstance(price, EgressPrice):
        return None
    return transfer_time_s(price, written.size_bytes, 1)


def read_back(context: Context, saved: Written) -> Line | None:
    """The bill of reading a checkpoint; None where it is near. What is not known of it is `home`'s to tell, which
    goes the same way."""
    price = way_back(context, saved)
    if saved.size_bytes is None or price is None:
        return None
    amount = transfer_amount(price, saved.size_bytes, 1)
    what = f"checkpoint from {saved.store.name} ({saved.store.region})"
    return Line(what, saved.size_bytes, "byte", mean_price(price, saved.size_bytes), amount, price.source)


def read_back_s(context: Context, saved: Written) -> int | None:
    price = way_back(context, saved)
    return transfer_time_s(price, saved.size_bytes, 1) if price is not None and saved.size_bytes is not None else None


def way_back(context: Context, saved: Written) -> EgressPrice | None:
    """The price from the store to the candidate; None: near, or not known."""
    assert context.site is not None
    here, there = (context.site.provider, context.site.region), (saved.store.provider, saved.store.region)
    price = route_price(there, here, context.policy.prices, context.dated)
    return price if isinstance(price, EgressPrice) else None


def sent(context: Context, written: Written, times: int | None) -> tuple[Line, ...] | Rejection:
    """The bill of writing something `times` times over (None: not known how often), or what is not known."""
    price = way_home(context, written.store)
    asked = (written.store.provider, written.store.region)
    requests = request_price(asked, context.policy.prices, context.dated)
    for missing in (price, requests):
        if isinstance(missing, Reason):
            seen = (context.site.region,) if context.site is not None else ()
            detail = Detail(written.what, expected=(written.store.region,), seen=seen)
            return Rejection(missing, Resolver.OPERATOR, detail)
    assert not isinstance(price, Reason)
    assert not isinstance(requests, Reason)
    near = price is None or price.is_free
    if near and requests is None:
        return (Line(f"{written.what} to {written.store.name}, free", 0, "byte", 0, 0, price.source if price else ""),)
    if written.size_bytes is None or times is None:
        return _unknown(context, written)
    return tuple(_lines(written, written.size_bytes, times, price, requests))


def _lines(
    written: Written, size: int, times: int, price: EgressPrice | None, requests: RequestPrice | None
) -> list[Line]:
    lines: list[Line] = []
    what = f"{written.what} to {written.store.name} ({written.store.region}) x {times}"
    if price is None:
        lines.append(Line(what, 0, "byte", 0, 0))
    else:
        amount = transfer_amount(price, size, times)
        lines.append(Line(what, size * times, "byte", mean_price(price, size * times), amount, price.source))
    if requests is not None:
        count = requests_of(requests, size, None) * times
        each = requests.usd_micro_per_million_writes
        lines.append(
            Line(
                f"writes of {written.what} at {written.store.name}",
                count,
                "request",
                each,
                request_amount(each, count),
                requests.source,
            )
        )
    return lines


def _unknown(context: Context, written: Written) -> tuple[Line, ...] | Rejection:
    """What is not known weighs what the price book says, or rejects."""
    missing = f"{written.what}-size" if written.size_bytes is None else f"{written.what}-interval"
    penalty = context.policy.prices.unknown_home_usd_micro
    if penalty is None:
        return Rejection(Reason.HOME_UNKNOWN, Resolver.OWNER, Detail(written.store.name, expected=(missing,)))
    return (Line(f"{missing} not known, to {written.store.name}", 1, "penalty", penalty, penalty),)
