"""Contenders on the same jobs, for benches that compare what came of them: the runs, and what is kept of them.

A run depends on nothing but the code, the scenario and the contender. So with a folder to keep them in, runs that are
done are not done again, and a bench that was interrupted goes on where it was.

    ENTREPOT_BENCH_JOBS    so many jobs a scenario instead of its own number: to try something
    ENTREPOT_BENCH_SEEDS   so many seeds instead of five
    ENTREPOT_BENCH_KEEP    a folder for runs that are done; those of other code are not taken
    ENTREPOT_BENCH_CORES   so many runs side by side; one without it
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from dispatcher.runtime import calm_collector
from dispatcher.sim.contenders_all import CONTENDERS, as_told
from dispatcher.sim.engine import run
from dispatcher.sim.generator import TracePlan, from_plan, from_trace
from dispatcher.sim.generator.window import densest
from dispatcher.sim.jobs import Scenario
from dispatcher.sim.readers import read_trace
from dispatcher.sim.report.summary import ContenderSummary, summarise
from dispatcher.sim.results import Comparison, ContenderResult
from dispatcher.sim.scenarios import blueprint_folder, load_fleet, plan_named
from dispatcher.sim.side_by_side import side_by_side
from dispatcher.sim.world import set_up, start_of

SEEDS = 5
FLEET = "four-sites"
"""What traces run on."""
ROOT = Path(__file__).parents[1]
_CODE = ("connectors", "dispatcher", "residency")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Course:
    """A scenario before it has a seed: a named one, or a trace by its path at a load, its densest `days`."""

    name: str
    trace: Path | None = None
    load_permille: int | None = None
    days: int | None = None

    def scenario(self, seed: int) -> Scenario:
        """The jobs of one seed; those of a trace are the same for all, and the seed draws what is laid over them."""
        fewer = _number("ENTREPOT_BENCH_JOBS", 0)
        if self.trace is not None:
            trace = read_trace(self.trace)
            jobs, _ = densest(trace.jobs, self.days)
            fleet = load_fleet(FLEET, start_of(blueprint_folder(FLEET)))
            return from_trace(replace(trace, jobs=jobs[: fewer or None]), TracePlan(self.load_permille), fleet, seed)
        plan = plan_named(self.name)
        plan = replace(plan, jobs=fewer or plan.jobs)
        return from_plan(plan, load_fleet(plan.blueprint, start_of(blueprint_folder(plan.blueprint))), seed)


@dataclass(frozen=True, slots=True)
class Heat:
    """One run: a contender on one seed of a course."""

    course: Course
    seed: int
    contender: str


def contest(course: Course, contenders: Sequence[str], say: Say) -> Comparison:
    """All contenders on all seeds of a course. The first of them is the one that the others are compared with."""
    heats = [Heat(course, seed, name) for seed in seeds() for name in contenders]
    found: dict[Heat, ContenderResult] = {}
    for heat, result in _results(heats):
        found[heat] = result
        say(f"{course.name}, seed {heat.seed}, {heat.contender}: {len(found)} of {len(heats)} runs done")
    first = course.scenario(heats[0].seed)
    results = tuple(found[heat] for heat in heats)
    return Comparison(course.name, first.load_permille, first.recipe, first.sources, results)


def summaries(comparison: Comparison) -> Mapping[str, ContenderSummary]:
    """By contender."""
    return {summary.contender: summary for summary in summarise(comparison)}


def seeds() -> range:
    """The seeds that every course is run with."""
    return range(1, _number("ENTREPOT_BENCH_SEEDS", SEEDS) + 1)


def _results(heats: Sequence[Heat]) -> Iterator[tuple[Heat, ContenderResult]]:
    cores = _number("ENTREPOT_BENCH_CORES", 1)
    if cores == 1:
        for heat in heats:
            yield heat, _result(heat)
        return
    with closing(side_by_side(_result, heats, cores)) as over:
        for place, result in over:
            yield heats[place], result


def _result(heat: Heat) -> ContenderResult:
    kept = _place(heat)
    if kept is not None and kept.exists():
        known: ContenderResult = pickle.loads(kept.read_bytes())
        return known
    calm_collector()
    entry = CONTENDERS[heat.contender]
    setup = set_up(as_told(heat.course.scenario(heat.seed), entry))
    result = run(setup, entry.factory).named(heat.contender, is_bound=entry.sees_truth)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.with_suffix(".part").write_bytes(pickle.dumps(result))
        kept.with_suffix(".part").rename(kept)
    return result


def _place(heat: Heat) -> Path | None:
    """Where a run is kept: under a name that other code, or another scenario, does not have."""
    folder = os.environ.get("ENTREPOT_BENCH_KEEP")
    if not folder:
        return None
    scenario = hashlib.sha256(repr(heat.course.scenario(heat.seed)).encode()).hexdigest()
    name = f"{heat.course.name}-{heat.seed}-{heat.contender}-{scenario[:12]}-{_code()[:12]}.pickle"
    return Path(folder) / name


@cache
def _code() -> str:
    """The digest of everything that a run may depend on beside its scenario."""
    found = hashlib.sha256()
    for part in _CODE:
        for path in sorted((ROOT / part).rglob("*")):
            if path.suffix in (".py", ".yaml"):
                found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _number(name: str, default: int) -> int:
    return int(os.environ.get(name) or default)
