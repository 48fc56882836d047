"""What a placement leaves over that others can use less well."""

from __future__ import annotations

from dispatcher.core.context import Context
from dispatcher.core.decision import Line, Term, TermKind
from dispatcher.core.policy import ComputePrice
from dispatcher.core.prices import div_half_up, gpu_price
from dispatcher.core.resources import is_gpu
from dispatcher.core.terms.bills import billed


def stranded(context: Context) -> Term:
    """A share of the price of GPUs that the placement leaves over on nodes that were whole before (best fit)."""
    bill: list[Line] = []
    share = context.policy.limits.stranded_permille
    seconds = context.setting.estimate.duration_s
    for broken in context.fit.broken:
        flavor = context.site.flavors.get(broken.flavor) if context.site else None
        if context.site is None or flavor is None:
            continue
        found = gpu_price(context.site, flavor, context.policy.prices, context.dated)
        if isinstance(found, ComputePrice) and is_gpu(broken.resource):
            speed = flavor.speed(context.setting.plan.workload_class)
            whole = broken.amount * found.usd_micro_per_hour * seconds * share
            amount = div_half_up(whole, 3600 * speed)
            quantity = div_half_up(broken.amount * 1000 * seconds, speed)
            what = f"{broken.amount} x {broken.resource} left over on {broken.flavor} at {share} permille"
            bill.append(Line(what, quantity, "gpu-second", found.usd_micro_per_hour, amount, found.source))
    return billed(TermKind.STRANDED, bill)
