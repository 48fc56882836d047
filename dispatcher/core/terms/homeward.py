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


def read_back(context: Context, saved: Written) -> tuple[Line, ...] | Rejection:
    """The bill of reading a checkpoint, or what is not known; no line where it is near. The way to the candidate is
    another than the one home, with a price of its own."""
    price, where = way_back(context, saved.store), f"{saved.store.name} ({saved.store.region})"
    requests = _requests(context, saved.store)
    missing = price if isinstance(price, Reason) else requests if isinstance(requests, Reason) else None
    if missing is not None:
        wanted = (context.site.region,) if context.site is not None else ()
        detail = Detail(f"{saved.what} in {saved.store.name}", expected=wanted, seen=(saved.store.region,))
        return Rejection(missing, Resolver.OPERATOR, detail)
    assert not isinstance(price, Reason)
    assert not isinstance(requests, Reason)
    near, lines = price is None or price.is_free, list[Line]()
    if saved.size_bytes is None:
        return () if near and requests is None else _unread(context, saved)
    if price is not None:
        lines.append(_transfer(f"{saved.what} from {where}", price, saved.size_bytes, 1))
    if requests is not None:
        count, each = requests_of(requests, saved.size_bytes, None), requests.usd_micro_per_million_reads
        lines.append(_requested(f"reads of {saved.what} at {saved.store.name}", count, each, requests.source))
    return tuple(lines)


def way_back(context: Context, store: Store) -> EgressPrice | Reason | None:
    """The price from a store to the candidate; None: within its region, for nothing."""
    if context.site is None:
        return Reason.EGRESS_UNKNOWN
    here, there = (context.site.provider, context.site.region), (store.provider, store.region)
    return route_price(there, here, context.policy.prices, context.dated)


def _requests(context: Context, store: Store) -> RequestPrice | Reason | None:
    return request_price((store.provider, store.region), context.policy.prices, context.dated)


def sent(context: Context, written: Written, times: int | None) -> tuple[Line, ...] | Rejection:
    """The bill of writing something `times` times over (None: not known how often), or what is not known."""
    price, requests = way_home(context, written.store), _requests(context, written.store)
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
    what = f"{written.what} to {written.store.name} ({written.store.region}) x {times}"
    lines = [_transfer(what, price, size, times) if price is not None else Line(what, 0, "byte", 0, 0)]
    if requests is not None:
        count, each = requests_of(requests, size, None) * times, requests.usd_micro_per_million_writes
        lines.append(_requested(f"writes of {written.what} at {written.store.name}", count, each, requests.source))
    return lines


def _transfer(what: str, price: EgressPrice, size: int, times: int) -> Line:
    amount = transfer_amount(price, size, times)
    return Line(what, size * times, "byte", mean_price(price, size * times), amount, price.source)


def _requested(what: str, count: int, each_usd_micro: int, source: str) -> Line:
    return Line(what, count, "request", each_usd_micro, request_amount(each_usd_micro, count), source)


def _unread(context: Context, saved: Written) -> tuple[Line, ...] | Rejection:
    """As `_unknown`, of what is to be read."""
    missing, penalty = f"{saved.what}-size", context.policy.prices.unknown_home_usd_micro
    if penalty is None:
        detail = Detail(f"the {saved.what} in {saved.store.name}", expected=(missing,))
        return Rejection(Reason.DATA_SIZE_UNKNOWN, Resolver.OWNER, detail)
    return (Line(f"{missing} not known, from {saved.store.name}", 1, "penalty", penalty, penalty),)


def _unknown(context: Context, written: Written) -> tuple[Line, ...] | Rejection:
    """What is not known weighs what the price book says, or rejects."""
    missing = f"{written.what}-size" if written.size_bytes is None else f"{written.what}-interval"
    penalty = context.policy.prices.unknown_home_usd_micro
    if penalty is None:
        return Rejection(Reason.HOME_UNKNOWN, Resolver.OWNER, Detail(written.store.name, expected=(missing,)))
    return (Line(f"{missing} not known, to {written.store.name}", 1, "penalty", penalty, penalty),)
