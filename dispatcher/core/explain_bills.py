"""Words for what a choice costs: the lines of a bill, and advice that saves money. A part of `explain`."""

from __future__ import annotations

from dispatcher.core.decision import CheckpointAdvice, Line, Term
from dispatcher.core.units import money, quantity, span


def bill_text(term: Term) -> tuple[str, ...]:
    """One text per line of the bill: what, how much of it, at which price, the amount, and the source of the price."""
    return tuple(_line_text(line) for line in term.bill)


def _line_text(line: Line) -> str:
    source = f" [{line.source}]" if line.source else ""
    much = _much(line)
    return f"{line.what}: {f'{much} = ' if much else ''}{money(line.amount_usd_micro)}{source}"


def _much(line: Line) -> str:
    """How much of what at which price; nothing where there is nothing to multiply."""
    each = money(line.unit_price_usd_micro)
    if not line.quantity or line.unit == "penalty":
        return ""
    if line.unit == "byte":
        return f"{quantity(None, line.quantity // 10**9)} GB x {each}/GB"
    if line.unit == "second":
        return f"{span(line.quantity)} x {each}/h"
    if line.unit == "request":
        return f"{quantity(None, line.quantity)} requests x {each}/million"
    if line.unit == "watt-hour":
        return f"{quantity('cpu', line.quantity)} kWh x {each}/kWh"
    unit = line.unit.removesuffix("-second")
    return f"{quantity('cpu', line.quantity * 1000 // 3600)} {unit}-hours x {each}/h"


def advice_text(advice: CheckpointAdvice) -> str:
    """The interval that loses least, why, and whose formula that is."""
    used = f", not every {span(advice.used_s)}" if advice.used_s is not None else ""
    return (
        f"checkpoint every {span(advice.interval_s)}{used}: one takes {span(advice.write_s)}, and the run is "
        f"interrupted every {span(advice.mean_time_s)} on average (sqrt(2 C M) - C, Young 1974 and Daly 2006)"
    )
