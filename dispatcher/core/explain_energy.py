"""Words for what runs used of the grid. A part of `explain`."""

from __future__ import annotations

from dispatcher.core.energy import EndedRun
from dispatcher.core.units import counted, span


def run_text(run: EndedRun) -> str:
    """Where and for how long it ran, and what that took."""
    gpus = f", {counted(run.gpus, 'GPU')}" if run.gpus else ""
    where = f"{span(run.lasted_s)} on {run.drawn.cluster}{gpus}"
    if run.watt_hours is None:
        return f"{where}: energy not known (fleet.yaml: energy_factor, watts)"
    grams = run.co2_grams
    carbon = (
        f", {_thousandths(grams)} kg CO2" if grams is not None else ", CO2 not known (fleet.yaml: carbon_g_per_kwh)"
    )
    return f"{where}: {_thousandths(run.watt_hours)} kWh{carbon}"


def _thousandths(amount: int) -> str:
    return f"{amount // 1000}.{amount % 1000:03d}"
