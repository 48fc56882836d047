"""What a simulation found: one outcome a job, the fleet's capacity, and what it was run on. Pure and frozen.

The engine makes these values; the report, the exports and the chart read nothing else. Times are whole seconds from
the start of the scenario, money is integer micro-USD. Nothing in here tells how long the simulation itself took, so
that the same seed gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.jobs import Recipe, Scenario


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt that held GPUs, from `start_s` to `end_s` (exclusive), on one flavor of one cluster."""

    cluster: str
    flavor: str
    start_s: int
    end_s: int


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What became of one job.

    `runs` in order of time; `finish_s` None: it had not finished when the simulation ended. `costs` is real money by
    term in the order of the engine (run, egress, ...), each term at most once; `egress_usd_micro` is the part of it
    that was paid for moving bytes. `copies` counts the Workloads that were made on workers for it. Which
    preemptions were needless, since nobody gained by them, the engine judges.
    """

    job: str
    workload_class: WorkloadClass
    queue: str
    team: str
    gpus: int
    submit_s: int
    runs: tuple[Run, ...]
    finish_s: int | None
    costs: tuple[tuple[str, int], ...]
    egress_usd_micro: int
    egress_bytes: int
    copies: int
    preemptions: int
    needless_preemptions: int

    @property
    def start_s(self) -> int | None:
        """When it ran first."""
        return self.runs[0].start_s if self.runs else None

    @property
    def wait_s(self) -> int | None:
        """From submission to its first run; None: it never ran."""
        return self.runs[0].start_s - self.submit_s if self.runs else None

    @property
    def completion_s(self) -> int | None:
        """From submission to its end; None: it never ended."""
        return None if self.finish_s is None else self.finish_s - self.submit_s

    @property
    def cost_usd_micro(self) -> int:
        return sum(amount for _, amount in self.costs)

    @property
    def gpu_seconds(self) -> int:
        """GPU time that it held, lost work included."""
        return self.gpus * sum(run.end_s - run.start_s for run in self.runs)


@dataclass(frozen=True, slots=True)
class CapacityStep:
    """From `at_s` on, a cluster has this many whole GPUs in nodes that may take work."""

    at_s: int
    cluster: str
    gpus: int


@dataclass(frozen=True, slots=True)
class ContenderResult:
    """One contender on one scenario of one seed. `end_s`: when the simulation ended. `is_bound`: it saw what nobody
    can see (an oracle), so it is a bound and no peer."""

    contender: str
    seed: int
    outcomes: tuple[JobOutcome, ...]
    capacity: tuple[CapacityStep, ...]
    end_s: int
    is_bound: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """All contenders on all seeds of one scenario: what a report is made of. The first contender is the one that the
    others are compared with. `recipe` and `sources` are those of the scenario; seeds stand in the results."""

    scenario: str
    load_permille: int
    recipe: Recipe
    sources: tuple[str, ...]
    results: tuple[ContenderResult, ...]

    @classmethod
    def of(cls, scenarios: Sequence[Scenario], results: Iterable[ContenderResult]) -> Comparison:
        """The results of one scenario drawn with several seeds. Where their recipes differ, as in how long it takes
        until all jobs have come, the values of all seeds stand one after another.

        Raises:
            IndexError: there is no scenario.
        """
        first = scenarios[0]
        recipe = tuple(
            (key, " | ".join(dict.fromkeys(value for s in scenarios for other, value in s.recipe if other == key)))
            for key, _ in first.recipe
        )
        return cls(first.name, first.load_permille, recipe, first.sources, tuple(results))
