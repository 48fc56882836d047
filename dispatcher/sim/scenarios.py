"""The named scenarios, and where a scenario's fleet lies. Reads blueprints; all else is the generator's."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from dispatcher.config import load_blueprint
from dispatcher.config.problems import did_you_mean
from dispatcher.core.errors import Fatal
from dispatcher.sim.generator import FleetShape, Overlay, Plan, Shape, TracePlan, fleet_shape, from_plan, from_trace
from dispatcher.sim.generator.catalog import DataMix
from dispatcher.sim.generator.classes import TYPE_AFFINITY
from dispatcher.sim.jobs import Scenario
from dispatcher.sim.readers import TraceError, read_trace

BLUEPRINTS = Path(__file__).parent / "blueprints"
"""Fleets that come with the simulator, one folder each, in the form of every blueprint."""

PLANS: tuple[Plan, ...] = (
    Plan(
        "small",
        "A few hundred jobs of at most an hour: to try the command and for tests.",
        jobs=300,
        load_permille=1_200,
        shape=Shape(longest_s=3_600),
    ),
    Plan("steady-0.96", "Just under what the fleet can do: nobody should be worse off.", jobs=6_000, load_permille=960),
    Plan("busy-1.2", "A fifth more than the fleet can do: the order decides.", jobs=6_000, load_permille=1_200),
    Plan("overload-1.6", "Far more than the fleet can do.", jobs=6_000, load_permille=1_600),
    Plan(
        "data-heavy",
        "Data sets of terabytes, read by nearly all: where the data lies decides the bill.",
        jobs=4_000,
        load_permille=900,
        overlay=Overlay(data=DataMix(median_mb=1_000_000, sigma_permille=1_000, away_permille=50)),
    ),
    Plan(
        "three-types",
        "Three GPU types with capacity to spare: who runs each class on the type that suits it pays less.",
        jobs=4_000,
        load_permille=600,
        blueprint="three-types",
        overlay=Overlay(affinity=TYPE_AFFINITY),
    ),
    Plan(
        "urgent-1.2",
        "One job of twenty goes before the others, and may stop them.",
        jobs=6_000,
        load_permille=1_200,
        overlay=Overlay(urgent_permille=50),
    ),
)
"""All named scenarios, in the order in which they are listed."""


def plan_named(name: str) -> Plan:
    """The named scenario.

    Raises:
        Fatal: there is none of this name.
    """
    found = next((plan for plan in PLANS if plan.name == name), None)
    if found is None:
        names = [plan.name for plan in PLANS]
        fix = did_you_mean(name, names, f"one of {', '.join(names)}, or the path of a trace")
        path = ", and there is no such file" if "." in name else ""
        raise Fatal(f"no scenario is named '{name}'{path}", fix=fix)
    return found


def blueprint_folder(blueprint: str) -> Path:
    """The folder of a scenario's fleet: one that comes with the simulator, else a path."""
    own = BLUEPRINTS / blueprint
    return own if own.is_dir() and "/" not in blueprint else Path(blueprint)


def load_fleet(blueprint: str, now: datetime) -> FleetShape:
    """The fleet of a blueprint. `now` judges only whether what is attested still holds.

    Raises:
        Fatal: the blueprint does not load, or no scenario can run on it.
    """
    result = load_blueprint(blueprint_folder(blueprint), now)
    if result.policy is None:
        raise Fatal("\n".join(problem.text() for problem in result.errors), fix="correct the blueprint")
    try:
        return fleet_shape(blueprint, result.policy)
    except ValueError as error:
        raise Fatal(str(error), fix="declare the nodes of a flavor with GPUs in fleet.yaml") from error


def named_scenario(name: str, seed: int, now: datetime, blueprint: str | None = None) -> Scenario:
    """A named scenario of one seed, on its own fleet or on another.

    Raises:
        Fatal: as `plan_named` and `load_fleet`.
    """
    plan = plan_named(name)
    return from_plan(plan, load_fleet(blueprint or plan.blueprint, now), seed)


def trace_scenario(path: Path, seed: int, now: datetime, plan: TracePlan, blueprint: str = "four-sites") -> Scenario:
    """A scenario of a trace, by its path.

    Raises:
        Fatal: the trace or the blueprint cannot be used; the text says where and what to do.
    """
    try:
        return from_trace(read_trace(path), plan, load_fleet(blueprint, now), seed)
    except TraceError as error:
        raise Fatal(str(error), fix="give a trace of one of the schemas in docs/simulate.md") from error
    except ValueError as error:
        raise Fatal(str(error), fix="name a larger fleet by its blueprint") from error
