"""Entrepot as a contender: the daemon's own dispatch and watchdog loops, on the embedded fleet's ports, with a store in
memory and a clock that jumps.

Nothing is decided here. What differs from the daemon is only when its loops are called, and there the daemon's rhythm
is kept to the instant (`Beat`): woken by a change, a loop rests as long as it would in the daemon, looks, and looks
again after RESYNC_S of silence. A look that must come out as the last one is not made: nothing has changed since, and
nothing that it waits for has a deadline. `tests/loops/test_sim_parity.py` holds both against each other, byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dispatcher.core.decision import Decision
from dispatcher.core.waiting import Phase, standing
from dispatcher.core.watchdog import Finding
from dispatcher.loops import dispatch, notify, watch_copies
from dispatcher.loops.dispatch import DispatchLoop
from dispatcher.loops.notify import NoticeLoop
from dispatcher.loops.rhythm import rest_s
from dispatcher.loops.telling import Teller
from dispatcher.loops.watch_copies import CopiesLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker
from dispatcher.sim.contenders import Arena
from dispatcher.sim.engine_store import MemoryStore
from dispatcher.state import BlueprintStatus, FleetState

IDLE_S = 600.0
"""How long nothing but time may pass while something waits, before it is looked at again all the same."""


@dataclass(slots=True)
class Untold(Teller):
    """Nobody reads Events of a simulation: decisions are in the store, and sentences are made when somebody asks."""

    def decided(self, decision: Decision, reason: str) -> None:
        """Not told."""

    def finding(self, finding: Finding, text: str) -> None:
        """Not told."""


@dataclass(slots=True)
class Beat:
    """When one loop looks: `rest_s` after the change that woke it, or after the wait that nothing ended.

    As the daemon's loops do it: look, wait to be woken or for RESYNC_S, rest, look. What happens during the rest is
    seen by the look, and wakes it once more.
    """

    rest: timedelta
    resync: timedelta
    next_at: datetime | None = None
    _looked_at: datetime | None = None
    _woken: bool = False

    def changed(self, now: datetime) -> None:
        if self.next_at is None:
            self.next_at = now + self.rest
        else:
            self._woken = True

    def looked(self, now: datetime, changed: bool) -> None:
        """A look is over; `changed`: it has changed something itself."""
        again, self._woken, self._looked_at = self._woken or changed, False, now
        self.next_at = now + self.rest if again else None

    def due(self, idle: bool) -> datetime | None:
        """The next look, where something changed; else the next one by the clock. `idle`: those before IDLE_S has
        passed may be left out, since they must come out as the last one did."""
        if self.next_at is not None or self._looked_at is None:
            return self.next_at
        step = self.resync + self.rest
        skipped = int(timedelta(seconds=IDLE_S) / step) if idle else 0
        return self._looked_at + step * (1 + skipped)


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


@dataclass(slots=True)
class Entrepot:
    """Implements `Contender`."""

    arena: Arena
    store: MemoryStore = field(default_factory=MemoryStore)
    state: FleetState = field(init=False)
    loop: DispatchLoop = field(init=False)
    copies: CopiesLoop = field(init=False)
    _beat: Beat = field(init=False)
    _seen: object = None
    _recovered: bool = False
    _idle: bool = False
    _nothing: bool = True

    def __post_init__(self) -> None:
        fleet, clock, policy = self.arena.fleet, self.arena.clock, self.arena.setup.policy
        metrics, health = Metrics(), Health(clock)
        for name in (dispatch.LOOP, notify.LOOP, watch_copies.LOOP):
            health.register(name, 60.0)
        status = BlueprintStatus(policy.digest, clock.now())
        self.state = FleetState(clock, policy, status, fleet.hub, dict(fleet.workers))
        notices = NoticeLoop(fleet.hub, clock, metrics, health, Waker(clock))
        self.loop = DispatchLoop(self.state, self.store, notices, metrics, health, Waker(clock))
        untold = Untold(self.state, notices, metrics)
        self.loop.planner.teller = self.loop.writer.teller = untold
        self.copies = CopiesLoop(self.state, notices, metrics, health, Waker(clock))
        self._beat = Beat(_seconds(rest_s(0.0)), _seconds(dispatch.RESYNC_S))

    def notice(self) -> None:
        """As Contender."""
        seen = self._token()
        if seen != self._seen:
            self._seen = seen
            self._beat.changed(self.arena.clock.now())

    def _token(self) -> object:
        fleet = self.arena.fleet
        return (fleet.hub.feed.token(), *[worker.feed.token() for worker in fleet.workers.values()])

    def due(self) -> datetime | None:
        """As Contender."""
        if self._nothing and self._beat.next_at is None:
            return None
        return self._beat.due(self._idle)

    async def look(self) -> None:
        """As Contender."""
        if not self._recovered:
            await self.loop.recover()
            self._recovered = True
        await self.loop.cycle()
        self._rest()
        seen = self._token()
        changed, self._seen = seen != self._seen, seen
        self._beat.looked(self.arena.clock.now(), changed)

    def _rest(self) -> None:
        """Whether anything waits at all, and whether all that waits waits for a change alone."""
        hub = self.state.hub_view()
        phases = {standing(workload, hub).phase for workload in hub.workloads.values()}
        self._nothing = not phases & {Phase.WAITING, Phase.NOMINATED} and not self.state.holds
        due = Phase.NOMINATED in phases or self.state.holds or self.loop.rounds.open or self.state.avoided
        self._idle = not due
