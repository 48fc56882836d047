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

from connectors.embedded.objects import Workload
from connectors.embedded.witness import Happening
from dispatcher.core.decision import Decision
from dispatcher.core.ids import ClusterName
from dispatcher.core.ports import Notice
from dispatcher.core.watchdog import Finding
from dispatcher.loops import dispatch, notify, watch_copies
from dispatcher.loops.dispatch import DispatchLoop
from dispatcher.loops.notify import NoticeLoop
from dispatcher.loops.rhythm import SHORTEST_REST_S
from dispatcher.loops.telling import Teller
from dispatcher.loops.watch_copies import CopiesLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker
from dispatcher.sim.contenders import Arena
from dispatcher.sim.contenders_memo import PatientMemo
from dispatcher.sim.engine_store import MemoryStore
from dispatcher.state import BlueprintStatus, FleetState


class Unheard(NoticeLoop):
    """Takes no notices."""

    def put(self, notice: Notice) -> None:
        """Not kept."""


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
    looked_at: datetime
    next_at: datetime | None = None
    _woken: bool = False

    def changed(self, now: datetime) -> None:
        """Something has changed: it wakes the loop, unless it rests already, from an earlier change or from a wait that
        has just run out."""
        if self.next_at is not None:
            self._woken = True
            return
        step = self.resync + self.rest
        into = (now - self.looked_at) % step
        resting = into >= self.resync
        self.next_at = now + (step - into if resting else self.rest)
        self._woken = into > self.resync

    def looked(self, now: datetime) -> None:
        """It looks. What this changes is told by `changed`."""
        again, self._woken, self.looked_at = self._woken, False, now
        self.next_at = now + self.rest if again else None

    def due(self, since: datetime) -> datetime:
        """The next look, where something changed; else the first one by the clock that is not before `since`."""
        if self.next_at is not None:
            return self.next_at
        step = self.resync + self.rest
        return self.looked_at + step * max(1, -((self.looked_at - since) // step))


_WATCHED = timedelta(minutes=1)
"""How long after an eviction the watchdog looks: it has concluded by then, or goes on while there is a finding."""


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


_FREES = frozenset(
    {
        Happening.RESERVED,
        Happening.STARTED,
        Happening.ENDED,
        Happening.GONE,
        Happening.EVICTED,
        Happening.RELEASED,
        Happening.FINISHED,
        Happening.DELETED,
    }
)
"""What on a worker may change what fits there: quota and promises, or which nodes the pods are on."""


@dataclass(slots=True)
class Stakes:
    """Whether anything that happens can change what dispatch would do: while nobody waits, hardly anything does."""

    worth: bool = True
    """Whether something has happened since the last look that it might answer."""
    waiting: set[str] = field(default_factory=set)
    nominated: set[str] = field(default_factory=set)

    def heard(self, what: Happening, where: ClusterName | None, workload: Workload) -> None:
        if where is None:
            self._on_hub(what, workload)
        elif what is Happening.CREATED or what in _FREES:
            self.worth = self.worth or bool(self.waiting or self.nominated)

    def _on_hub(self, what: Happening, workload: Workload) -> None:
        """A hub Workload is dispatch's business from its quota until its admission."""
        uid = workload.uid
        if what is Happening.RESERVED:
            self.waiting.add(uid)
        elif what is Happening.NOMINATED and workload.nominated:
            self.waiting.discard(uid)
            self.nominated.add(uid)
        elif what is Happening.NOMINATED:
            self.nominated.discard(uid)
            self.waiting.add(uid)
        elif (
            what is Happening.ADMITTED
            or what is Happening.EVICTED
            or (what is Happening.DELETED and (uid in self.waiting or uid in self.nominated))
        ):
            self._forget(uid)
        else:
            return
        self.worth = True

    def _forget(self, uid: str) -> None:
        self.waiting.discard(uid)
        self.nominated.discard(uid)


@dataclass(slots=True)
class Entrepot:
    """Implements `Contender`."""

    arena: Arena
    store: MemoryStore = field(default_factory=MemoryStore)
    stakes: Stakes = field(default_factory=Stakes)
    state: FleetState = field(init=False)
    loop: DispatchLoop = field(init=False)
    copies: CopiesLoop = field(init=False)
    looks: int = 0
    _beat: Beat = field(init=False)
    _copies_beat: Beat = field(init=False)
    _watched_until: datetime | None = None
    """Until when the watchdog looks: for a while after anything was evicted."""
    _again_at: datetime = field(init=False)
    """Until when dispatch would look as it did last, if nothing happens."""
    _seen: int = -1
    _recovered: bool = False

    def __post_init__(self) -> None:
        fleet, clock, policy = self.arena.fleet, self.arena.clock, self.arena.setup.policy
        metrics, health = Metrics(), Health(clock)
        for name in (dispatch.LOOP, notify.LOOP, watch_copies.LOOP):
            health.register(name, 60.0)
        status = BlueprintStatus(policy.digest, clock.now())
        self.state = FleetState(clock, policy, status, fleet.hub, dict(fleet.workers))
        notices = Unheard(fleet.hub, clock, metrics, health, Waker(clock))
        self.loop = DispatchLoop(self.state, self.store, notices, metrics, health, Waker(clock))
        self.loop.planner.memo = PatientMemo()
        self.loop.planner.teller = self.loop.writer.teller = Untold(self.state, notices, metrics)
        self.copies = CopiesLoop(self.state, notices, metrics, health, Waker(clock), self._learned)
        self._beat = Beat(_seconds(SHORTEST_REST_S), _seconds(dispatch.RESYNC_S), clock.now())
        self._copies_beat = Beat(_seconds(watch_copies.SETTLE_S), _seconds(watch_copies.RESYNC_S), clock.now())
        self._again_at = clock.now()
        self._seen = fleet.revision()

    @property
    def decided(self) -> int:
        """How many decisions were made, those included that are not on record."""
        return self.loop.planner.decided

    def _learned(self) -> None:
        """The watchdog has found what dispatch should know of."""
        self.stakes.worth = True
        self._beat.changed(self.arena.clock.now())

    def heard(self, what: Happening, where: ClusterName | None, workload: Workload) -> None:
        """As Contender."""
        self.stakes.heard(what, where, workload)
        if what is Happening.EVICTED:
            self._watched_until = self.arena.clock.now() + _WATCHED

    def notice(self) -> None:
        """As Contender."""
        seen = self.arena.fleet.revision()
        if seen != self._seen:
            self._seen = seen
            self._wake()

    def _wake(self) -> None:
        now = self.arena.clock.now()
        self._beat.changed(now)
        self._copies_beat.changed(now)

    def due(self) -> datetime | None:
        """As Contender."""
        stakes, due = self.stakes, self._beat.next_at
        if due is None and (stakes.waiting or stakes.nominated or self.state.holds or self.loop.writer.caches.turns()):
            due = self._beat.due(self._again_at)
        if self._copies_beat.next_at is not None or self._watches():
            watched = self._watched()
            due = watched if due is None or watched < due else due
        return due

    def _watches(self) -> bool:
        """Whether the watchdog could find anything: something was evicted of late, or is to be ended."""
        return self._watched_until is not None or bool(self.state.in_vain)

    def _watched(self) -> datetime:
        """When the watchdog looks next: it is asked at every beat."""
        return self._copies_beat.due(self._copies_beat.looked_at)

    async def look(self) -> None:
        """As Contender: whichever of its two loops is due. A look that nobody needs is only entered into the beat."""
        now = self.arena.clock.now()
        watched, due = self._watched(), self._beat.due(self._again_at)
        if watched <= now:
            await self._look_at_copies(now)
        if due <= now:
            await self._dispatch(now)

    async def _dispatch(self, now: datetime) -> None:
        woken = self._beat.next_at is not None
        self._beat.looked(now)
        if self.stakes.worth or not woken or any(at <= now for at in self._turns()):
            self.stakes.worth = False
            self.looks += 1
            if not self._recovered:
                await self.loop.recover()
                self._recovered = True
            await self.loop.cycle()
            self._again_at = self.loop.again_at()
            self.notice()
        elif self.stakes.nominated or self.state.holds:
            self._again_at = now  # what happened changes nothing alone, but what is on its way is looked at anew

    def _turns(self) -> list[datetime]:
        return [*self.loop.planner.turns(), *self.loop.writer.caches.turns()]

    async def _look_at_copies(self, now: datetime) -> None:
        self._copies_beat.looked(now)
        if self._watches():
            await self.copies.cycle()
            self.notice()
            over = self._watched_until is not None and now > self._watched_until
            if over and not self.state.avoided and not self.state.findings:
                self._watched_until = None
