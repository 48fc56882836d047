"""Several contenders on the same scenarios: every seed makes one world, and all of them meet it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dispatcher.config.problems import did_you_mean
from dispatcher.core.errors import Fatal
from dispatcher.sim.contenders_all import CONTENDERS, Entry, as_told
from dispatcher.sim.engine import run
from dispatcher.sim.jobs import Scenario
from dispatcher.sim.results import Comparison
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
    scenarios: Sequence[Scenario], contenders: Sequence[Entry], told: Callable[[Mark], None] = lambda mark: None
) -> Comparison:
    """Run every contender on every scenario (the same one of several seeds), one after the other.

    Raises:
        Fatal: as `set_up`.
        ValueError: there is no scenario.
    """
    if not scenarios:
        raise ValueError("nothing to simulate")
    results = []
    for scenario in scenarios:
        for entry in contenders:

            def tell(ended: int, events: int, entry: Entry = entry, scenario: Scenario = scenario) -> None:
                told(Mark(entry.name, scenario.seed, ended, len(scenario.jobs), events, over=False))

            found = run(set_up(as_told(scenario, entry)), entry.factory, tell)
            results.append(found.named(entry.name, is_bound=entry.sees_truth))
            ended = sum(outcome.finish_s is not None for outcome in found.outcomes)
            told(Mark(entry.name, scenario.seed, ended, len(scenario.jobs), found.events, over=True))
    first = scenarios[0]
    return Comparison(first.name, first.load_permille, first.recipe, first.sources, tuple(results))
