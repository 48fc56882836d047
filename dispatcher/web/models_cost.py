"""The shape of answers about money: amounts, the lines of a bill, and what would make it less."""

from __future__ import annotations

from datetime import datetime

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


class VictimView(Wire):
    """A workload that Kueue would stop for the start, and what that costs; null = not known."""

    key: str
    ours: bool
    """Whether it came from this hub; otherwise it is local work of the cluster."""
    queue: str
    priority: int
    gpus: int
    reclaimed: bool
    """It gives back what its queue has borrowed; otherwise it gives way to a higher priority in its queue."""
    began_at: datetime | None
    workload_class: str | None
    checkpoint_s: int | None
    lost_s: int | None
    restart_s: int | None
    cost: Money
    text: str


class CheckpointAdviceView(Wire):
    """The checkpoint interval that loses least, and from what it follows."""

    interval_s: int
    write_s: int
    mean_time_s: int
    used_s: int | None
    text: str
