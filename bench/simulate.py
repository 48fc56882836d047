"""`simulate`: how fast a simulation runs on one core, and whether the same seed gives the same bytes.

An *action* is one entry of the world's queue that is carried out: a submission, a reservation, a reconcile of
MultiKueue, an admission, a pod that starts or ends; it is what an event-driven simulator counts. A *job event* is one
of them that happens to a Workload and that people would name (`connectors.embedded.witness.Happening`). CPU time of
this process, scenario loaded: views, decisions and records of the contender are in it.
"""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.rows import Bar, Row
from dispatcher.logs import configure
from dispatcher.runtime import calm_collector
from dispatcher.sim.contenders_all import CONTENDERS
from dispatcher.sim.engine import run as run_once
from dispatcher.sim.scenarios import blueprint_folder, named_scenario, plan_named
from dispatcher.sim.world import Setup, set_up, start_of

SCENARIO, SEED = "steady-0.96", 1
JOBS = 1000
MEASURED = ("all-at-once", "entrepot")
BAR = Bar("value", "at least", 10_000)
SAME = Bar("value", "at most", 0)


@dataclass(frozen=True, slots=True)
class Measured:
    actions: int
    events: int
    jobs: int
    cpu_s: float
    digest: str


def run(say: Callable[[str], None], count: int = JOBS) -> Sequence[Row]:
    calm_collector()
    configure("critical")  # what loops log of a simulated day is no news
    setup = _first_jobs(count)
    found: dict[str, Measured] = {}
    for name in MEASURED:
        found[name] = _measure(setup, name)
        each = found[name]
        say(f"{name}: {each.actions} actions, {each.events} job events, {each.jobs} jobs in {each.cpu_s:.1f} s CPU")
    again = _measure(setup, "entrepot")
    own, base = found["entrepot"], found["all-at-once"]
    return (
        Row("job events, entrepot", own.events / own.cpu_s, "1/s CPU", bar=BAR),
        Row("job events, all-at-once", base.events / base.cpu_s, "1/s CPU", bar=BAR),
        Row("actions of the world, entrepot", own.actions / own.cpu_s, "1/s CPU"),
        Row("actions of the world, all-at-once", base.actions / base.cpu_s, "1/s CPU"),
        Row("jobs, entrepot", own.jobs / own.cpu_s, "1/s CPU"),
        Row("runs of one seed that differ", float(again.digest != own.digest), "runs", bar=SAME),
    )


def _first_jobs(count: int) -> Setup:
    """The first jobs of the scenario, on its own fleet."""
    whole = named_scenario(SCENARIO, SEED, start_of(blueprint_folder(plan_named(SCENARIO).blueprint)))
    return set_up(replace(whole, jobs=whole.jobs[:count]))


def _measure(setup: Setup, name: str) -> Measured:
    """One run of one contender."""
    gc.collect()
    started_s = time.process_time()
    found = run_once(setup, CONTENDERS[name].factory)
    cpu_s = time.process_time() - started_s
    digest = hashlib.sha256(repr(found.outcomes).encode()).hexdigest()
    return Measured(found.actions, found.events, len(found.outcomes), cpu_s, digest)
