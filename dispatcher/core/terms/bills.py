"""What the terms share: how a bill becomes a term, and what time costs."""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.core.decision import Line, Term, TermKind
from dispatcher.core.prices import div_half_up


def billed(kind: TermKind, bill: Iterable[Line]) -> Term:
    lines = tuple(bill)
    return Term(kind, sum([line.amount_usd_micro for line in lines]), lines)


def delay_line(what: str, seconds: int, hourly_usd_micro: int, source: str = "") -> Line:
    """Seconds at a price by the hour."""
    amount = div_half_up(seconds * hourly_usd_micro, 3600)
    return Line(what, seconds, "second", hourly_usd_micro, amount, source)
