"""The shape of answers about money: amounts, the lines of a bill, and what would make it less."""

from __future__ import annotations

from dispatcher.web.wire import Wire


class Money(Wire):
    usd_micro: int | None
    """Micro-USD; null = unknown."""
    text: str


class BillLine(Wire):
    what: str
    quantity: int
    unit: str
    unit_price: Money
    amount: Money
    source: str
    text: str


class CheckpointAdviceView(Wire):
    """The checkpoint interval that loses least, and from what it follows."""

    interval_s: int
    write_s: int
    mean_time_s: int
    used_s: int | None
    text: str
