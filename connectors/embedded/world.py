"""Time of the embedded world: a heap of actions keyed by (instant, sequence number), and nothing else.

The world is plain synchronous code: asyncio appears only in `ports`. Whoever owns a clock calls `advance`; the same
calls give the same history, since two actions of one instant run in the order in which they were planned.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import datetime, timedelta

Action = Callable[[], None]


class World:
    """The instant that the world has reached, and what is to happen after it."""

    def __init__(self, start: datetime) -> None:
        self.now = start
        self.steps = 0
        self._heap: list[tuple[datetime, int, Action]] = []
        self._planned = 0
        self._observers: list[Action] = []

    def after(self, seconds: float, action: Action) -> None:
        """Plan an action, `seconds` from the world's now."""
        self._planned += 1
        due = self.now + timedelta(seconds=seconds) if seconds > 0 else self.now
        heapq.heappush(self._heap, (due, self._planned, action))

    def advance(self, to: datetime) -> None:
        """Let everything happen that is due until `to`, in order. An instant in the past changes nothing."""
        heap = self._heap
        while heap and heap[0][0] <= to:
            due, _, action = heapq.heappop(heap)
            self.now = due
            self.steps += 1
            action()
            for observe in self._observers:
                observe()
        self.now = max(self.now, to)

    def next_at(self) -> datetime | None:
        """When the next planned action is due; None in a world at rest."""
        return self._heap[0][0] if self._heap else None

    def observe(self, observer: Action) -> None:
        """Call `observer` after every action. Only faults that need the past ask for it: it costs time."""
        self._observers.append(observer)

    def stamp(self) -> datetime:
        """Now as the API writes times: whole seconds (metav1.Time)."""
        return self.now.replace(microsecond=0)


class Pulse:
    """One action that is planned at most once at a time; an earlier wish replaces a later one.

    Controllers are level-triggered: many reasons to look again become one look.
    """

    __slots__ = ("_action", "_due", "_world")

    def __init__(self, world: World, action: Action) -> None:
        self._world = world
        self._action = action
        self._due: datetime | None = None

    def within(self, seconds: float) -> None:
        """See to it that the action runs no later than `seconds` from now."""
        due = self._world.now + timedelta(seconds=seconds)
        if self._due is not None and self._due <= due:
            return
        self._due = due
        self._world.after(seconds, lambda: self._fire(due))

    def _fire(self, due: datetime) -> None:
        if self._due == due:
            self._due = None
            self._action()
