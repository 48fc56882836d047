"""What bringing the results home costs."""

from __future__ import annotations

from dispatcher.core.context import Context
from dispatcher.core.decision import Line, Rejection, Term, TermKind
from dispatcher.core.offers import lasting_s
from dispatcher.core.terms.bills import billed
from dispatcher.core.terms.homeward import Written, checkpoint_of, outputs_of, sent


def home(context: Context) -> Term:
    """Every checkpoint of the run and its outputs, from the candidate to the store that the owner named.

    A store in the same region costs nothing, whatever the size. Else a size that neither the owner nor the class
    knows is unknown: it rejects, or weighs what the price book says (`unknown_home`).
    """
    if context.site is None:
        return Term(TermKind.HOME, None)
    bill: list[Line] = []
    for written in (checkpoint_of(context), outputs_of(context)):
        if written is None:
            continue
        lines = sent(context, written, _times(context, written))
        if isinstance(lines, Rejection):
            return Term(TermKind.HOME, None, tuple(bill), lines)
        bill.extend(lines)
    return billed(TermKind.HOME, bill)


def _times(context: Context, written: Written) -> int | None:
    """Outputs are written once; checkpoints as often as their interval fits into the run as long as it lasts there, and
    once at least."""
    if written.what == "outputs":
        return 1
    if written.interval_s is None:
        return None
    return max(1, lasting_s(context.offers, context.setting.estimate.duration_s) // written.interval_s)
