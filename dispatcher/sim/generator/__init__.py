"""Makes scenarios: jobs from published quantiles or a trace, with a seeded overlay of what no trace tells.

Pure and deterministic to the byte: the same seed gives the same scenario on every machine and in every Python.
"""

from dispatcher.sim.generator.build import Plan, TracePlan, from_plan, from_trace
from dispatcher.sim.generator.fleet import FleetShape, fleet_shape
from dispatcher.sim.generator.overlay import Overlay
from dispatcher.sim.generator.synthetic import Arrivals, Shape

__all__ = ["Arrivals", "FleetShape", "Overlay", "Plan", "Shape", "TracePlan", "fleet_shape", "from_plan", "from_trace"]
