"""What a run draws from the grid, and what its carbon weighs."""

from __future__ import annotations

from dispatcher.core.context import Context
from dispatcher.core.decision import Detail, Line, Reason, Rejection, Resolver, Term, TermKind
from dispatcher.core.offers import Offer
from dispatcher.core.policy import ClusterPolicy, FlavorPolicy
from dispatcher.core.prices import div_half_up, is_old
from dispatcher.core.terms.bills import billed

GRAMS = 10**6
"""Of a tonne."""


def energy(context: Context) -> Term:
    """Watt-hours of the run at the site (PUE included), and their CO2 at the price book's carbon price.

    Without a carbon price they weigh nothing and are only recorded, where they are known. With one, a site whose
    draw or grid is not known cannot be compared with one whose are: unknown, not 0.
    """
    site, carbon = context.site, context.policy.prices.carbon
    if site is None:
        return Term(TermKind.ENERGY, None if carbon is not None else 0)
    if carbon is not None and is_old(carbon.dated, context.policy.prices, context.dated):
        old = Detail("CO2", expected=(carbon.source,), seen=(carbon.dated.isoformat(),))
        return Term(TermKind.ENERGY, None, unknown=Rejection(Reason.PRICE_OLD, Resolver.OPERATOR, old))
    bill: list[Line] = []
    for offer in context.offers:
        flavor = offer.flavor
        if flavor is None or (flavor.product is not None and not offer.has_gpus):
            continue  # what runs beside GPUs draws from their nodes' share
        missing = _missing(site, flavor, carbon is not None)
        if not missing:
            bill.append(_line(context, site, offer, flavor))
        elif carbon is not None:
            detail = Detail(site.name, flavor=flavor.name, expected=missing)
            return Term(TermKind.ENERGY, None, tuple(bill), Rejection(Reason.ENERGY_UNKNOWN, Resolver.OPERATOR, detail))
    return billed(TermKind.ENERGY, bill)


def _missing(site: ClusterPolicy, flavor: FlavorPolicy, priced: bool) -> tuple[str, ...]:
    """The keys of fleet.yaml that would have to be written."""
    facts = {"energy_factor": site.energy_permille, "watts": flavor.watts}
    if priced:
        facts["carbon_g_per_kwh"] = site.grid_g_per_kwh
    return tuple(name for name, value in facts.items() if value is None)


def _line(context: Context, site: ClusterPolicy, offer: Offer, flavor: FlavorPolicy) -> Line:
    assert flavor.watts is not None
    assert site.energy_permille is not None
    # Milli-units x W x permille x s x (1000 / speed): divided once by all of that and the seconds of an hour.
    drawn = offer.milli * flavor.watts * site.energy_permille * context.setting.estimate.duration_s
    divisor = 1000 * 3600 * offer.speed
    carbon = context.policy.prices.carbon
    grams = site.grid_g_per_kwh or 0
    each = grams * carbon.usd_micro_per_tonne if carbon is not None else 0
    return Line(
        what=f"energy of {offer.pod_set.name} on {flavor.name}",
        quantity=div_half_up(drawn, divisor),
        unit="watt-hour",
        unit_price_usd_micro=div_half_up(each, GRAMS),
        amount_usd_micro=div_half_up(drawn * each, divisor * 1000 * GRAMS),
        source=f"{grams} g CO2 a kWh; {carbon.source}" if carbon is not None else "",
    )
