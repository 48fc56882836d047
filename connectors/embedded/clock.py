"""Clocks that are not the wall's: one that runs fast, one that moves only when told to.

Both implement the Clock port. `now` and `monotonic_s` move together, so silence limits and backoff scale like the
world does.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from datetime import datetime, timedelta


class FastClock:
    """Real time, `speed` times as fast, that reads `start` when it is made. For the demo.

    `start` must be aware; the caller says it, so that nothing here asks the machine what day it is.
    """

    def __init__(self, speed: float, start: datetime) -> None:
        if speed <= 0:
            raise ValueError(f"speed must be more than zero, not {speed}")
        self._speed = speed
        self._start = start
        self._zero_s = time.monotonic()

    def now(self) -> datetime:
        """The instant of this clock, in UTC."""
        return self._start + timedelta(seconds=self.monotonic_s())

    def monotonic_s(self) -> float:
        """Seconds of this clock since it was made."""
        return (time.monotonic() - self._zero_s) * self._speed

    def wall_ahead_s(self) -> int:
        """Nothing: it is its own wall clock."""
        return 0

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds of this clock."""
        await asyncio.sleep(max(0.0, seconds) / self._speed)


class ManualClock:
    """A clock that moves only by `advance`, for tests and for the simulator.

    Sleepers are woken in order of their deadlines (then of their calls) and each sees the instant it asked for, not
    the end of a long step: `run_for` moves from deadline to deadline and lets every woken task run in between.
    """

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._now = start
        self._elapsed_s = 0.0
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._calls = 0
        self.set_by_s = 0
        """How far somebody has set the wall clock beside this one."""

    def now(self) -> datetime:
        """The instant of this clock, in UTC."""
        return self._now

    def monotonic_s(self) -> float:
        """Seconds of this clock since it was made."""
        return self._elapsed_s

    def wall_ahead_s(self) -> int:
        return self.set_by_s

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by that much. Zero or less only lets others run."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls += 1
        heapq.heappush(self._sleepers, (self._now + timedelta(seconds=seconds), self._calls, future))
        await future

    def advance(self, seconds: float) -> None:
        """Move on at once and wake all whose time has come; they run when the caller next awaits."""
        self._move_to(self._now + timedelta(seconds=seconds))

    def move_to(self, to: datetime) -> None:
        """Move on at once to an instant; one in the past changes nothing."""
        self._move_to(to)

    async def run_for(self, seconds: float) -> None:
        """Move on from deadline to deadline; tasks that wake run before time goes on."""
        end = self._now + timedelta(seconds=seconds)
        await settle()
        while (due := self.next_deadline()) is not None and due <= end:
            self._move_to(max(due, self._now))
            await settle()
        self._move_to(end)
        await settle()

    def next_deadline(self) -> datetime | None:
        """When the first of those who sleep is to be woken; None where nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _move_to(self, to: datetime) -> None:
        if to > self._now:
            self._now, self._elapsed_s = to, (to - self._start).total_seconds()
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)


SETTLE_TURNS = 20


async def settle() -> None:
    """Give ready tasks several turns of the event loop: a chain of awaits that never sleeps comes to rest."""
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)
