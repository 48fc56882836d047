"""What a placement leaves over that others can use less well."""

from __future__ import annotations

from dispatcher.core.context import Context
from dispatcher.core.decision import Line, Term, TermKind
from dispatcher.core.policy import ComputePrice, FlavorPolicy, Policy
from dispatcher.core.prices import div_half_up, gpu_price
from dispatcher.core.products import mig_profile_of
from dispatcher.core.resources import is_gpu
from dispatcher.core.terms.bills import billed


def stranded(context: Context) -> Term:
    """A share of the price of GPUs that the placement leaves over on nodes that were whole before (best fit).

    Slices of a card strand nothing: what is left of a cut card is as good for the next slice as it was.
    """
    bill: list[Line] = []
    share = context.policy.limits.stranded_permille
    seconds = context.setting.estimate.duration_s
    for broken in context.fit.broken:
        flavor = context.site.flavors.get(broken.flavor) if context.site else None
        if context.site is None or flavor is None or _in_slices(flavor, broken.resource, context.policy):
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


def _in_slices(flavor: FlavorPolicy, resource: str, policy: Policy) -> bool:
    """Whether its cards are cut, under whichever name their nodes offer the slices."""
    product = policy.products.get(flavor.product) if flavor.product is not None else None
    return mig_profile_of(resource) is not None or (product is not None and product.mig_profile is not None)
