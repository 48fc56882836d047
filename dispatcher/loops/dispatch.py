"""The dispatch loop: look, decide, store, write, and look again.

Level-triggered: events only wake it, each cycle starts from the newest views and could be the first. The order of
steps is what makes kill -9 harmless: the decision with its hold and intent is stored before the write, the write is
guarded by resourceVersion, and what became of it is read from the hub, never remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dispatcher.core.errors import Fenced, Transient
from dispatcher.core.ids import DecisionId, WorkloadUid
from dispatcher.core.lease import Always
from dispatcher.core.policy import Policy
from dispatcher.core.ports import IntentState, Leadership, LessonLog, Store, UseLog
from dispatcher.core.shares import HALVINGS
from dispatcher.core.snapshot import Hold, HubView, Link
from dispatcher.core.window import window_until
from dispatcher.logs import get_logger
from dispatcher.loops.energy import drawn_now
from dispatcher.loops.lessons import recollect
from dispatcher.loops.line import WaitingLine
from dispatcher.loops.notify import NoticeLoop
from dispatcher.loops.planning import BATCH, Planned, Planner
from dispatcher.loops.planning import LOOP as LOOP
from dispatcher.loops.rhythm import LONGEST_REST_S, SHORTEST_REST_S, Throttle
from dispatcher.loops.rounds import Round, Rounds, turns_of
from dispatcher.loops.telling import Teller
from dispatcher.loops.turns import ShareBook
from dispatcher.loops.writing import Writer
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker
from dispatcher.state import FleetState

RESYNC_S = 5.0
SHARE = 0.2
"""Of a core, that dispatch takes while events come all the time."""
STORE_PAUSE_S = 1.0
"""From a cycle that ended at the store to the next: a database that comes back must not meet a storm."""
MOST_RUNS = 20_000
"""Of the newest of them a start takes over what teams had: as many as a window remembers (core/fading.py)."""
USES_A_CYCLE = 500
WARM_UP_S = 5.0
"""How long a fresh daemon waits for workers that it has not seen yet before it decides without them."""


@dataclass(slots=True)
class DispatchLoop:
    """Leads a cycle from what is seen to what is written: `planning` decides, `writing` stores and writes."""

    state: FleetState
    store: Store
    notices: NoticeLoop
    metrics: Metrics
    health: Health
    waker: Waker
    leadership: Leadership = field(default_factory=Always)
    rules_on_record: Callable[[], Awaitable[None]] | None = None
    """Puts the rules that arrived into the audit log, before anything is decided by them."""
    uses: UseLog | None = None
    """Keeps what teams had; None: shares begin with what the hub shows (a simulation has no restart)."""
    lessons: LessonLog | None = None
    """Keeps what was learnt of copies; None: it is lost with the process."""
    rounds: Rounds = field(default_factory=Rounds)
    store_away_since_s: float | None = None
    """Since when (monotonic) no cycle has got through because of the store; None while it answers."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the first cycle is through, or there is none to make: what was put off for a quick start may be done."""
    planner: Planner = field(init=False)
    writer: Writer = field(init=False)
    _throttle: Throttle = field(default_factory=lambda: Throttle(SHORTEST_REST_S, LONGEST_REST_S, SHARE))
    _busy_s: float = 0.0
    """What this cycle spent on deciding and recording. Writes that are on their way cost nobody anything: what one of
    them conflicts with must not wait as long again."""
    _started_s: float | None = None
    _led: int | None = None
    """The term that we have recovered for; None = none yet."""
    _window: tuple[Policy, datetime, datetime] | None = None
    """The window of time in which nothing of the policy changes by itself: since when it is known, and its end."""
    _kept: HubView | None = None
    """The view that was last compared with what is remembered."""

    def __post_init__(self) -> None:
        teller = Teller(self.state, self.notices, self.metrics)
        self.planner = Planner(self.state, teller, self.health, self.rounds)
        self.writer = Writer(self.state, self.planner, self.rounds, teller, self.metrics, self.leadership)

    async def run(self) -> None:
        self._led = None
        while True:
            self.health.beat(LOOP)
            pause_s = await self.turn()
            await self.waker.wait(RESYNC_S)
            await self.state.clock.sleep(pause_s)

    @property
    def _term(self) -> int:
        """The term that what we remember is of, and that everything is stored in."""
        return self._led or 0

    async def turn(self) -> float:
        """One cycle, where we lead; a new term begins with what the last leader left in the store. Returns how long
        the next one has to wait at least.

        A store that is away ends the cycle and nothing else (design section 9): no new commitment, running work is
        left alone, and the next turn starts from what the store then says.
        """
        if not self.writer.leads():
            self._led = None
            if self.state.hub_link(self.state.clock.now()) is Link.CONNECTED:
                self.settled.set()
            return LONGEST_REST_S
        term = self.leadership.term
        try:
            if self._led != term or self.writer.in_doubt:
                await self.recover()
                self._led, self.writer.in_doubt = term, False
            await self.cycle()
        except Fenced as error:
            self.leadership.lost(str(error))
            return LONGEST_REST_S
        except Transient as error:
            self.writer.in_doubt = True
            self.store_away_since_s = self.store_away_since_s or self.state.clock.monotonic_s()
            self.metrics.store_failures.inc()
            get_logger().error("store_away", error=str(error))
            return STORE_PAUSE_S
        self.store_away_since_s = None
        return self._throttle.rest_s(self._busy_s, self.state.clock.monotonic_s())

    async def recover(self) -> None:
        """After a start or a change of leader: take over holds, unanswered intents and what lies in caches from the
        store; the hub's view will settle them. What was remembered of an earlier term is void."""
        self._started_s = self.state.clock.monotonic_s()
        self.rounds.open.clear()
        self.planner.forget()
        holds: dict[WorkloadUid, tuple[Hold, ...]] = {}
        for hold in await self.store.holds():
            holds[hold.workload] = (*holds.get(hold.workload, ()), hold)
        self.state.holds = holds
        self.planner.unwritten = {intent.decision for intent in await self.store.intents(IntentState.ABANDONED)}
        for intent in await self.store.intents(IntentState.PLANNED):
            decision = await self.store.decision(intent.decision)
            version = decision.resource_version if decision is not None else ""
            self.rounds.begin(Round(intent.decision, intent.workload, version, intent.clusters, intent.made_at))
        await self.writer.caches.recover(self.store)
        if self.lessons is not None:
            recollect(self.state, await self.lessons.recall(self.state.clock.now()))
        if self.uses is not None and self._led != self.leadership.term:
            await self._recall_uses(self.uses)

    async def _recall_uses(self, uses: UseLog) -> None:
        """Shares as the last leader knew them, so that a restart is nobody's turn. One bounded read."""
        rules, now = self.state.policy.order, self.state.clock.now()
        runs = await uses.recall(now - timedelta(seconds=HALVINGS * rules.share_half_life_s), MOST_RUNS)
        book = ShareBook(is_kept=True)
        await book.recall(runs, rules, now, lambda: asyncio.sleep(0))
        self.planner.line = WaitingLine(book=book)

    async def _keep_uses(self) -> None:
        """What has begun or ended since, after all that dispatch itself has to record."""
        if self.uses is None or not self.writer.leads():
            return
        book = self.planner.line.book
        if runs := book.unkept(USES_A_CYCLE):
            try:
                await self.uses.keep(runs, drawn_now(runs, self.state, book.unseen), self._term)
            except Fenced as error:
                self.leadership.lost(str(error))
                return
            book.kept(runs)
            if len(runs) == USES_A_CYCLE:
                self.waker.wake()

    async def cycle(self) -> None:
        """One pass over everything that waits. Does nothing while the hub is not fully seen (design section 9)."""
        started_s, self._busy_s = self.state.clock.monotonic_s(), 0.0
        if not self._may_decide():
            return
        if self.rules_on_record is not None:
            await self.rules_on_record()
        await self._settle()
        considered: set[WorkloadUid] = set()
        more = True
        while more and self.writer.leads() and (planned := await self.plan(considered)):
            await self.write(planned)
            more = len(planned) >= BATCH  # else all that wait were asked, and what came since has woken us
        recording_s = self.state.clock.monotonic_s()
        if not await self.writer.record_waits(self.store):
            self.waker.wake()
        await self._keep_uses()
        self._busy_s += self.state.clock.monotonic_s() - recording_s
        self._forget_gone()
        self.planner.rest(self.again_at)
        self.planner.warm = True
        self.settled.set()
        self.metrics.cycle.observe(self.state.clock.monotonic_s() - started_s)

    def again_at(self, looked_at: datetime | None = None) -> datetime:
        """Until when a cycle comes out as the last one did, if nothing happens that any view shows. `looked_at` is the
        instant of that cycle; None = now, where no time passes in a cycle.

        How old a view may be is not asked: whoever watches tells of a silence.
        """
        now = looked_at or self.state.clock.now()
        policy, ahead_s = self.state.policy, max(0, self.state.clock.wall_ahead_s())
        if self.state.avoided:
            return now  # what speaks against going back grows less all the time
        ttl_s = policy.limits.hold_ttl_s
        holds = [at for held in self.state.holds.values() for hold in held for at in turns_of(hold, ttl_s)]
        ahead = timedelta(seconds=ahead_s)
        coming = [*self.rounds.turns(), *self.writer.caches.turns(), *holds]
        instants = [*self.planner.turns(), *coming, self._window_until(now + ahead) - ahead]
        return min((at for at in instants if at > now), default=now)

    def _window_until(self, now: datetime) -> datetime:
        """As `window.window_until`, asked once in each window."""
        policy, known = self.state.policy, self._window
        if known is None or known[0] is not policy or not known[1] <= now < known[2]:
            known = self._window = (policy, now, window_until(policy, now))
        return known[2]

    async def plan(self, considered: set[WorkloadUid]) -> list[Planned]:
        """The next batch of nominations; `considered` grows by what has been decided on in this cycle."""
        started_s = self.state.clock.monotonic_s()
        planned = await self.planner.plan(self.store, considered)
        self._busy_s += self.state.clock.monotonic_s() - started_s
        return planned

    async def write(self, planned: Sequence[Planned]) -> None:
        await self.writer.nominate(planned, self.store, self._term)
        self.health.beat(LOOP)

    def _may_decide(self) -> bool:
        """The hub is synced and not silent; and at first, the workers have had their chance to be seen."""
        if self.state.hub_link(self.state.clock.now()) is not Link.CONNECTED:
            return False
        if self._started_s is None or self.state.clock.monotonic_s() - self._started_s > WARM_UP_S:
            return True
        return all(view.synced or view.error is not None for view in self.state.worker_views().values())

    async def _settle(self) -> None:
        """Close what the views answer: written or abandoned rounds, holds whose capacity has become visible."""
        now = self.state.clock.now()
        ttl_s = self.state.policy.limits.hold_ttl_s
        settled = self.rounds.settle(self.state.hub_view(), self.state.worker_views(), self.state.holds, now, ttl_s)
        # First of all: what is dropped below must not come back with what goes on.
        self.state.holds.update(settled.renewed)
        for decision, outcome in settled.marks:
            await self.store.mark(decision, outcome, now, self._term)
            if outcome is IntentState.ABANDONED:
                self.planner.unwritten.add(decision)
                self.writer.caches.dropped(decision)
                self._drop_hold_of(decision)
        for uid in settled.released:
            await self.store.release(uid, now, self._term)
            self.state.holds.pop(uid, None)
        await self.writer.caches.settle(self.store, self.rounds.open, now, self._term)

    def _drop_hold_of(self, decision: DecisionId) -> None:
        for uid in [uid for uid, holds in self.state.holds.items() if any(h.decision == decision for h in holds)]:
            self.writer.drop_hold(uid, decision)

    def _forget_gone(self) -> None:
        """Drop what is remembered of workloads that are no longer on the hub."""
        hub = self.state.hub_view()
        if self._kept is None or hub.workloads is not self._kept.workloads:
            self.planner.keep(hub)
            self._kept = hub
