"""The only place that knows how tasks live and die: the clock, wake-ups, supervision and health.

One root TaskGroup; every loop in it is `supervise(...)`d: an error is logged and the loop comes round again after a
growing pause, `Fatal` ends the process, cancellation passes through untouched.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dispatcher.core.errors import Fatal
from dispatcher.core.ports import Clock
from dispatcher.logs import get_logger
from dispatcher.metrics import Metrics

COLLECT_AFTER = (10_000, 20, 100)
"""When the collector looks for cycles. It stops everything, for a fifth of a second where millions of objects live, and
finds next to nothing: what we drop is counted. Looking through all of them is for every twenty million more."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


FOLLOW = 0.05
"""How fast our time runs after a wall clock that jumped: an hour is made up in twenty."""
JUMP_S = 2.0


def calm_collector() -> None:
    """For this process: collect cycles rarely enough that no turn of the loop is long."""
    gc.set_threshold(*COLLECT_AFTER)


def _wall() -> datetime:
    return datetime.now(UTC)


def _elapsed_s() -> float:
    """Seconds that never jump, sleep of the machine included where the system can say it: a leader that was asleep
    must know that its time is over."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(boottime) if boottime is not None else time.monotonic()


class SystemClock:
    """The machine's clocks. Everything else takes the time as an argument or asks a Clock.

    `now` starts as the wall clock and then runs with the seconds that never jump. A wall clock that is set, forwards or
    backwards, is followed by a twentieth of the time that passes: ages, holds, patience and silence, all differences
    of two `now`s, stay right to five percent however it jumps (docs/adr/0018). A restart takes it anew. Dates mean the
    wall clock: `wall_ahead_s` tells by how much the two disagree (core/instants.py).
    """

    def __init__(self, wall: Callable[[], datetime] = _wall, elapsed_s: Callable[[], float] = _elapsed_s) -> None:
        self._wall = wall
        self._elapsed_s = elapsed_s
        self._now, self._at_s = wall(), elapsed_s()
        self._ahead_s = 0.0

    def now(self) -> datetime:
        at_s = self._elapsed_s()
        passed_s = at_s - self._at_s
        steady = self._now + timedelta(seconds=passed_s)
        ahead_s = (self._wall() - steady).total_seconds()
        most_s = passed_s * FOLLOW
        self._now = steady + timedelta(seconds=max(-most_s, min(most_s, ahead_s)))
        self._at_s = at_s
        if abs(ahead_s - self._ahead_s) > JUMP_S + 2 * most_s:
            get_logger().warning("clock_jumped", wall_clock_ahead_s=round(ahead_s), now=self._now.isoformat())
        self._ahead_s = ahead_s
        return self._now

    def wall_ahead_s(self) -> int:
        """Less than a second is no disagreement: two readings are never taken at once."""
        now = self.now()
        ahead_s = (self._wall() - now).total_seconds()
        return int(math.copysign(math.ceil(abs(ahead_s)), ahead_s)) if abs(ahead_s) >= 1 else 0

    def monotonic_s(self) -> float:
        return self._elapsed_s()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def happens(event: asyncio.Event, clock: Clock, at_most_s: float) -> None:
    """Return when `event` is set or after `at_most_s` of the clock's time, whichever is first."""
    async with asyncio.TaskGroup() as group:
        timer = group.create_task(clock.sleep(at_most_s))
        alarm = group.create_task(event.wait())
        await asyncio.wait({timer, alarm}, return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        alarm.cancel()


class Waker:
    """Collapses any number of wake-ups into one; a loop waits for the next, or for its resync to come due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, at_most_s: float) -> None:
        """Return when woken or after `at_most_s` of the clock's time, whichever is first."""
        await happens(self._event, self._clock, at_most_s)
        self._event.clear()


@dataclass(frozen=True, slots=True)
class LoopHealth:
    """One loop: seconds since it last came round, how long it may take, and its last error."""

    name: str
    last_beat_age_s: float
    limit_s: float
    alive: bool
    error: str | None = None


@dataclass(slots=True)
class _Pulse:
    limit_s: float
    beat_s: float
    alive: bool = True
    error: str | None = None


@dataclass(slots=True)
class Health:
    """Heartbeats of the loops. A loop that died or has been silent beyond its limit makes the daemon unhealthy."""

    clock: Clock
    pulses: dict[str, _Pulse] = field(default_factory=dict)

    def register(self, name: str, limit_s: float) -> None:
        self.pulses[name] = _Pulse(limit_s, self.clock.monotonic_s())

    def forget(self, name: str) -> None:
        self.pulses.pop(name, None)

    def beat(self, name: str) -> None:
        pulse = self.pulses[name]
        pulse.beat_s, pulse.alive, pulse.error = self.clock.monotonic_s(), True, None

    def failed(self, name: str, error: str) -> None:
        pulse = self.pulses[name]
        pulse.alive, pulse.error = False, error

    def loops(self) -> Sequence[LoopHealth]:
        now_s = self.clock.monotonic_s()
        return tuple(
            LoopHealth(name, now_s - pulse.beat_s, pulse.limit_s, pulse.alive, pulse.error)
            for name, pulse in sorted(self.pulses.items())
        )

    def sick(self) -> Sequence[LoopHealth]:
        return tuple(loop for loop in self.loops() if not loop.alive or loop.last_beat_age_s > loop.limit_s)


@dataclass(frozen=True, slots=True)
class Supervisor:
    """What `supervise` needs of its surroundings."""

    clock: Clock
    health: Health
    metrics: Metrics

    async def supervise(self, name: str, loop: Callable[[], Awaitable[None]], *, limit_s: float = 60.0) -> None:
        """Run `loop` for ever. It must not return; when it does or fails it is started again after a pause.

        The pause doubles up to 30 s and starts small again once the loop has lived for longer than that.

        Raises:
            Fatal: the loop said that the process must end.
        """
        self.health.register(name, limit_s)
        pause_s = FIRST_PAUSE_S
        while True:
            started_s = self.clock.monotonic_s()
            try:
                await loop()
                error: BaseException = RuntimeError(f"loop {name} returned")
            except Fatal:
                raise
            except Exception as failure:
                error = _fatal_inside(failure) or failure
            if isinstance(error, Fatal):
                raise error
            self.metrics.loop_failures.labels(name).inc()
            self.health.failed(name, f"{type(error).__name__}: {error}")
            get_logger().error("loop_failed", loop=name, pause_s=pause_s, exc_info=error)
            if self.clock.monotonic_s() - started_s > LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            await self.clock.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def _fatal_inside(error: BaseException) -> Fatal | None:
    """The Fatal within an exception group, if any: a loop's inner TaskGroup must not hide it."""
    if isinstance(error, Fatal):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := _fatal_inside(inner))), None)
    return None
