"""Several contenders on the same scenarios: every seed makes one world, and all of them meet it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from dispatcher.config.problems import did_you_mean
from dispatcher.core.errors import Fatal
from dispatcher.sim.contenders_all import CONTENDERS, Entry, as_told
from dispatcher.sim.engine import run
from dispatcher.sim.jobs import Scenario
from dispatcher.sim.results import Comparison, ContenderResult
from dispatcher.sim.side_by_side import side_by_side
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
        apart: dict[int, ContenderResult] = {}
        with closing(side_by_side(_elsewhere, [(each, entry.name) for each, entry in runs], cores)) as over:
            for place, (result, mark) in over:
                apart[place] = result
                told(mark)
        results = [apart[place] for place in sorted(apart)]
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


def _elsewhere(asked: tuple[Scenario, str]) -> tuple[ContenderResult, Mark]:
    """A run in a process of its own, with its last mark; an entry is known by its name there."""
    marks: list[Mark] = []
    found = _run(asked[0], CONTENDERS[asked[1]], marks.append)
    return found, marks[-1]
