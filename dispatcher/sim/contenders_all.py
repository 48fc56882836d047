"""All contenders by name, as `entrepot simulate --compare` takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from dispatcher.sim.contenders import Factory
from dispatcher.sim.contenders_blind import type_blind
from dispatcher.sim.contenders_entrepot import Entrepot
from dispatcher.sim.contenders_kueue import AllAtOnce, Incremental
from dispatcher.sim.contenders_simple import Cheapest, HomeOnly
from dispatcher.sim.jobs import Scenario


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender as it can be asked for. `sees_truth`: it is told true durations, so it is a bound and no peer."""

    name: str
    factory: Factory
    about: str
    sees_truth: bool = False


CONTENDERS: Mapping[str, Entry] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            Entry("all-at-once", AllAtOnce, "Kueue's AllAtOnce: every cluster at once, the first to admit wins"),
            Entry("incremental", Incremental, "Kueue's Incremental: three clusters, three more every five minutes"),
            Entry("cheapest", Cheapest, "the lowest price where it fits now, else where it could fit"),
            Entry("home-only", HomeOnly, "the job's home region, however long it waits there"),
            Entry("type-blind", type_blind, "Entrepot, told nothing of what tells GPU types apart"),
            Entry("entrepot", Entrepot, "Entrepot, with the decision code and loops of the daemon"),
            Entry("oracle", Entrepot, "Entrepot, told true durations: a bound, no peer", sees_truth=True),
        )
    }
)


def as_told(scenario: Scenario, entry: Entry) -> Scenario:
    """The scenario as a contender meets it: with its owners' estimates, or for a bound with the truth instead."""
    if not entry.sees_truth:
        return scenario
    return replace(scenario, jobs=tuple(replace(job, estimate_s=job.duration_s) for job in scenario.jobs))
