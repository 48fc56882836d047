"""An event-driven run: a scenario on the embedded fleet, with one contender, on a clock that jumps from event to event.

The world (hub, MultiKueue, the workers' Kueue, nodes and pods) plans what happens next; jobs are submitted when the
scenario says; the contender looks when it would. Whatever of these is due first happens next, at its own instant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from connectors.embedded import EmbeddedFleet, ManualClock
from connectors.embedded.objects import Workload
from connectors.embedded.witness import Happening
from dispatcher.core.ids import ClusterName
from dispatcher.sim.contenders import Arena, Contender, Factory
from dispatcher.sim.results import CapacityStep, ContenderResult, JobOutcome
from dispatcher.sim.world import Setup, gpus_by_cluster
from dispatcher.sim.world_ledger import Ledger

REST_S = 4 * 3600.0
"""A world in which nothing has happened for so long, nothing runs and nobody comes any more, is over: what still waits
in it waits for good."""
TELLING = 512
"""Steps from one word of how far a run has come to the next: a fraction of a second."""
Told = Callable[[int, int], None]
"""Told now and then: jobs that have ended, and events so far."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that is over: what became of every job, how many events it had (`Happening`s and submissions), and how many
    actions of the world."""

    outcomes: tuple[JobOutcome, ...]
    setup: Setup
    contender: Contender
    events: int
    actions: int
    end_s: int

    def named(self, name: str, *, is_bound: bool = False) -> ContenderResult:
        """As the result of a contender of this name."""
        capacity = tuple(CapacityStep(0, cluster, gpus) for cluster, gpus in gpus_by_cluster(self.setup).items())
        seed = self.setup.scenario.seed
        return ContenderResult(name, seed, self.outcomes, capacity, self.end_s, is_bound)


@dataclass(slots=True)
class Engine:
    """One run of one contender."""

    setup: Setup
    clock: ManualClock
    fleet: EmbeddedFleet
    ledger: Ledger
    contender: Contender
    _arrived: int = 0
    _arrival_at: datetime | None = None
    _last: tuple[int, datetime] | None = None

    @classmethod
    def of(cls, setup: Setup, factory: Factory) -> Engine:
        clock = ManualClock(setup.start)
        fleet = setup.fleet(clock)
        fleet.connect()
        ledger = Ledger(setup, fleet.world)
        contender = factory(Arena(setup, fleet, clock))

        def told(what: Happening, where: ClusterName | None, workload: Workload) -> None:
            ledger.told(what, where, workload)
            contender.heard(what, where, workload)

        fleet.measure(told, ledger)
        return cls(setup, clock, fleet, ledger, contender)

    async def run(self, told: Told = lambda ended, events: None) -> None:
        """Until every job has ended, or nothing more can happen."""
        self._await(0)
        steps = 0
        due = self.contender.due()
        while (at := self._next_at(due)) is not None and not self._over(at):
            self.clock.move_to(at)
            self.fleet.advance(at)
            self._submit(at)
            self.contender.notice()
            due = self.contender.due()
            if due is not None and due <= at:
                await self.contender.look()
                due = self.contender.due()
            steps += 1
            if steps % TELLING == 0:
                told(self._arrived - self.ledger.open, self.ledger.events)

    def _next_at(self, due: datetime | None) -> datetime | None:
        """Whatever comes first: the next submission, what the world plans, or the contender's look."""
        found = self._arrival_at
        for at in (self.fleet.world.next_at(), due):
            if at is not None and (found is None or at < found):
                found = at
        return found

    def _over(self, at: datetime) -> bool:
        """Nobody comes any more, and all have ended or nothing has happened for a long time and nothing runs."""
        if self._arrived < len(self.setup.scenario.jobs):
            return False
        if self.ledger.open == 0:
            return True
        if self._last is None or self._last[0] != self.ledger.events:
            self._last = (self.ledger.events, self.fleet.world.now)
        return self.ledger.running == 0 and (at - self._last[1]).total_seconds() > REST_S

    def _submit(self, at: datetime) -> None:
        jobs = self.setup.scenario.jobs
        while self._arrival_at is not None and self._arrival_at <= at:
            job = jobs[self._arrived]
            self._await(self._arrived + 1)
            self.ledger.submitted(job)
            self.fleet.submit(self.setup.manifest(job))

    def _await(self, arrived: int) -> None:
        jobs = self.setup.scenario.jobs
        self._arrived = arrived
        left = arrived < len(jobs)
        self._arrival_at = self.setup.start + timedelta(seconds=jobs[arrived].submit_s) if left else None


def run(setup: Setup, factory: Factory, told: Told = lambda ended, events: None) -> Finished:
    """Run a scenario with one contender to its end."""
    engine = Engine.of(setup, factory)
    asyncio.run(engine.run(told))
    ledger = engine.ledger
    outcomes, actions = ledger.outcomes(), engine.fleet.world.steps
    return Finished(outcomes, setup, engine.contender, ledger.events, actions, ledger.end_s)
