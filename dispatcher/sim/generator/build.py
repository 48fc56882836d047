"""From a plan or a trace, a fleet and a seed to a scenario."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dispatcher.sim.generator.fleet import FleetShape
from dispatcher.sim.generator.overlay import Overlaid, Overlay
from dispatcher.sim.generator.published import SOURCES
from dispatcher.sim.generator.synthetic import Shape, jobs, submissions
from dispatcher.sim.generator.window import densest, fitting
from dispatcher.sim.jobs import Recipe, Scenario
from dispatcher.sim.trace import Counts, Trace, TraceJob


@dataclass(frozen=True, slots=True)
class Plan:
    """A named scenario before it has a seed and a fleet. `load_permille`: 1200 is 1.2 times what the fleet can do."""

    name: str
    about: str
    jobs: int
    load_permille: int
    blueprint: str = "four-sites"
    shape: Shape = field(default_factory=Shape)
    overlay: Overlay = field(default_factory=Overlay)


@dataclass(frozen=True, slots=True)
class TracePlan:
    """How a trace is used. `load_permille` None: as it came, else its time is stretched or squeezed to that load.
    `days`: only its densest stretch of so many days."""

    load_permille: int | None = None
    days: int | None = None
    overlay: Overlay = field(default_factory=Overlay)


def from_plan(plan: Plan, fleet: FleetShape, seed: int) -> Scenario:
    """Generate a scenario. Its span follows from the work of its jobs and the load, so that the load is met exactly."""
    drawn, too_large = fitting(jobs(plan.jobs, seed, plan.shape), fleet.widest)
    span_s = _span_s(drawn, fleet, plan.load_permille)
    when = submissions(len(drawn), span_s, seed, plan.shape)
    timed = tuple(replace(job, submit_s=at) for job, at in zip(drawn, when, strict=True))
    told = (("jobs", f"{len(timed)} generated in {span_s} s{_counted(too_large)}"), *plan.shape.recipe())
    return _laid(_Timed(plan.name, timed, plan.load_permille, span_s, told, SOURCES), fleet, plan.overlay, seed)


def from_trace(trace: Trace, plan: TracePlan, fleet: FleetShape, seed: int) -> Scenario:
    """Lay the overlay over a trace.

    Raises:
        ValueError: no job of it fits on the fleet.
    """
    whole, outside = densest(trace.jobs, plan.days)
    found, too_large = fitting(whole, fleet.widest)
    if not found:
        raise ValueError(f"{trace.name}: no job fits on a cluster of {fleet.name}")
    own_span_s = max(1, found[-1].submit_s)
    work = sum(job.gpu_seconds for job in found)
    load = plan.load_permille or max(1, work * 1_000_000 // (own_span_s * fleet.speed_milli))
    span_s = _span_s(found, fleet, load) if plan.load_permille else own_span_s
    timed = tuple(replace(job, submit_s=job.submit_s * span_s // own_span_s) for job in found)
    counted = _counted((*trace.dropped, *outside, *too_large, *trace.adjusted))
    told = (
        ("jobs", f"{len(timed)} of {trace.rows} rows of {trace.name} ({trace.schema}) in {span_s} s{counted}"),
        ("time", f"stretched from {own_span_s} s" if plan.load_permille else "as in the trace"),
    )
    sources = (f"{trace.name}: {trace.licence}",)
    return _laid(_Timed(trace.name, timed, load, span_s, told, sources), fleet, plan.overlay, seed)


@dataclass(frozen=True, slots=True)
class _Timed:
    """Jobs that know when they come, with what is told of them."""

    name: str
    jobs: tuple[TraceJob, ...]
    load_permille: int
    span_s: int
    told: Recipe
    sources: tuple[str, ...]


def _laid(timed: _Timed, fleet: FleetShape, overlay: Overlay, seed: int) -> Scenario:
    laid = Overlaid(overlay, fleet, seed)
    return Scenario(
        name=timed.name,
        blueprint=fleet.name,
        seed=seed,
        load_permille=timed.load_permille,
        span_s=timed.span_s,
        jobs=laid.jobs(timed.jobs),
        data_sets=laid.catalog.data_sets,
        recipe=(
            ("fleet", fleet.text()),
            ("load", f"{timed.load_permille / 1000:g}"),
            *timed.told,
            *overlay.recipe(fleet),
        ),
        sources=timed.sources,
    )


def _span_s(found: tuple[TraceJob, ...], fleet: FleetShape, load_permille: int) -> int:
    """The time in which the fleet's capacity x the load is just the work of these jobs, rounded up."""
    work = sum(job.gpu_seconds for job in found)
    return max(1, -(-work * 1_000_000 // (fleet.speed_milli * load_permille)))


def _counted(counts: Counts) -> str:
    return "".join(f", {count} {rule}" for rule, count in counts)
