"""What running costs: the GPU hours."""

from __future__ import annotations

from dispatcher.core.context import Context
from dispatcher.core.decision import Line, Rejection, Term, TermKind
from dispatcher.core.offers import Offer
from dispatcher.core.policy import ComputePrice, PriceUnit
from dispatcher.core.prices import billed_milli_s, compute_amount, div_half_up
from dispatcher.core.terms.bills import billed
from dispatcher.core.units import span

_UNITS = {
    PriceUnit.GPU_HOUR: "gpu-second",
    PriceUnit.MIG_SLICE_HOUR: "mig-slice-second",
    PriceUnit.VCPU_HOUR: "vcpu-second",
}
"""The quantity of a run line is in seconds of a unit, its unit price by the hour of the same unit."""


def run(context: Context) -> Term:
    """Pods x GPUs x price of the flavor x expected duration at the flavor's speed; pods without GPUs by vCPU.

    One price per concrete offer, the one of the flavor that the pods would take (FR-BUD-04). A provider that bills
    for an hour at least is paid an hour; capacity that is paid anyway costs what using it costs. A run that has begun
    holds what it takes while its data comes in: far compute is slower, and paid for longer (FR-SCO-15).
    """
    bill: list[Line] = []
    for offer in context.offers:
        if offer.price is None:
            return Term(TermKind.RUN, None, tuple(bill))
        if isinstance(offer.price, Rejection):
            return Term(TermKind.RUN, None, tuple(bill), offer.price)
        bill.append(_line(offer, offer.price, context.setting.estimate.duration_s, context.held_s))
    return billed(TermKind.RUN, bill)


def _line(offer: Offer, price: ComputePrice, seconds: int, held: int) -> Line:
    billed_longer = (price.minimum_billing_s - held) * offer.speed > seconds * 1000
    least = f", billed for {price.minimum_billing_s} s at least" if billed_longer else ""
    idle = f", {span(held)} of it until its data is there" if held else ""
    return Line(
        what=f"{offer.pod_set.name} on {offer.flavor.name if offer.flavor is not None else ''}{idle}{least}",
        quantity=div_half_up(billed_milli_s(price, offer.milli, seconds, offer.speed, held), 1000 * offer.speed),
        unit=_UNITS[price.unit],
        unit_price_usd_micro=price.usd_micro_per_hour,
        amount_usd_micro=compute_amount(price, offer.milli, seconds, offer.speed, held),
        source=price.source,
    )
