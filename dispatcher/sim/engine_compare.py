"""Several contenders on the same scenarios: every seed makes one world, and all of them meet it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process

from dispatcher.config.problems import did_you_mean
from dispatcher.core.errors import Fatal
from dispatcher.logs import configure
from dispatcher.runtime import calm_collector
from dispatcher.sim.contenders_all import CONTENDERS, Entry, as_told
from dispatcher.sim.engine import run
from dispatcher.sim.jobs import Scenario
from dispatcher.sim.results import Comparison, ContenderResult
from dispatcher.sim.world import set_up


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one run has come."""

    contender: str
    seed: int
    ended: int
    jobs: int
    events: int
    over: bool


def entries(names: Sequence[str]) -> tuple[Entry, ...]:
    """The contenders of these names, each once, in this order.

    Raises:
        Fatal: there is none of a name, or no name at all.
    """
    known = list(CONTENDERS)
    for name in names:
        if name not in CONTENDERS:
            raise Fatal(f"no contender is named '{name}'", fix=did_you_mean(name, known, f"one of {', '.join(known)}"))
    if not names:
        raise Fatal("no contender is named", fix=f"one or more of {', '.join(known)}")
    return tuple(CONTENDERS[name] for name in dict.fromkeys(names))


def compare(
    scenarios: Sequence[Scenario],
    contenders: Sequence[Entry],
    told: Callable[[Mark], None] = lambda mark: None,
    cores: int = 1,
) -> Comparison:
    """Run every contender on every scenario (the same one of several seeds): one after the other, or as many side by
    side as there are `cores`, each in a process of its own. What comes of it is the same to the byte.

    Raises:
        Fatal: as `set_up`.
        ValueError: there is no scenario.
        BrokenExecutor: a process was ended from outside, as by want of memory.
    """
    if not scenarios:
        raise ValueError("nothing to simulate")
    runs = [(scenario, entry) for scenario in scenarios for entry in contenders]
    if cores > 1 and len(runs) > 1:
        results = _side_by_side(runs, told, min(cores, len(runs)))
    else:
        results = [_run(scenario, entry, told) for scenario, entry in runs]
    first = scenarios[0]
    return Comparison(first.name, first.load_permille, first.recipe, first.sources, tuple(results))


def _run(scenario: Scenario, entry: Entry, told: Callable[[Mark], None]) -> ContenderResult:
    def tell(ended: int, events: int) -> None:
        told(Mark(entry.name, scenario.seed, ended, len(scenario.jobs), events, over=False))

    found = run(set_up(as_told(scenario, entry)), entry.factory, tell)
    ended = sum(outcome.finish_s is not None for outcome in found.outcomes)
    told(Mark(entry.name, scenario.seed, ended, len(scenario.jobs), found.events, over=True))
    return found.named(entry.name, is_bound=entry.sees_truth)


def _side_by_side(
    runs: Sequence[tuple[Scenario, Entry]], told: Callable[[Mark], None], cores: int
) -> list[ContenderResult]:
    """Told only of runs that are over. The first error, or Ctrl-C, ends all the others."""
    others = active_children()
    with ProcessPoolExecutor(cores, get_context("spawn"), _begin) as pool:
        try:
            going = [pool.submit(_elsewhere, scenario, entry.name) for scenario, entry in runs]
            for done in as_completed(going):
                told(done.result()[1])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()).difference(others):
                child.terminate()  # a run does not look up until it is over
            raise
    return [each.result()[0] for each in going]


def _begin() -> None:
    """Once in each process: as the command does it for its own; and it lives no longer than that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    configure("critical")
    calm_collector()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _elsewhere(scenario: Scenario, name: str) -> tuple[ContenderResult, Mark]:
    """A run in a process of its own, with its last mark; an entry is known by its name there."""
    marks: list[Mark] = []
    found = _run(scenario, CONTENDERS[name], marks.append)
    return found, marks[-1]
