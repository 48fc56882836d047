"""What can go wrong between the world and whoever watches it: silence, broken links, lag, lost replies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from connectors.embedded.world import World
from dispatcher.core.errors import EntrepotError, Transient
from dispatcher.core.snapshot import HubView, WorkerView

View = TypeVar("View", HubView, WorkerView)


class Feed(Generic[View]):
    """One watcher's picture of the world. `truth` makes the current view; faults decide what of it gets through.

    Silence: the picture, or named parts of it, stop changing and `observed_at` stays. Lag: the picture is the one of
    `lag_s` ago, and the watcher cannot know. A broken link: silence with an error; when it is mended everything is
    listed anew.
    """

    def __init__(self, world: World, revision: Callable[[], object], truth: Callable[[datetime], View]) -> None:
        self.started = False
        self._world = world
        self._revision = revision
        self._truth: Callable[[datetime], View] = truth
        self._lag: timedelta = timedelta()
        self._past: deque[tuple[datetime, View]] = deque()
        self._frozen: View | None = None
        self._frozen_parts: dict[str, View] = {}
        self._error: str | None = None
        self._built: View | None = None
        self._built_at: object = None

    def view(self, unsynced: View) -> View:
        """What the watcher sees now; `unsynced` until it has started."""
        if not self.started:
            return unsynced
        if self._frozen is not None:
            return replace(self._frozen, error=self._error)
        current = self._delayed() if self._lag else self._current()
        if not self._frozen_parts:
            return current
        kept = {part: getattr(view, part) for part, view in self._frozen_parts.items()}
        oldest = min(view.observed_at for view in self._frozen_parts.values() if view.observed_at is not None)
        return replace(current, observed_at=oldest, **kept)

    def token(self) -> object:
        """Changes whenever what the watcher sees has changed."""
        if self._frozen is not None:
            return self._error, id(self._frozen)
        if self._lag:
            return id(self._oldest_in_sight())
        return self._revision()

    def silence(self, part: str | None = None) -> None:
        """Let the whole picture, or one of the view's fields ("nodes", "copies", "workloads" ...), go quiet."""
        if part is None:
            self._frozen = self._current()
        else:
            self._frozen_parts[part] = self._current()

    def speak(self) -> None:
        """End all silence."""
        self._frozen, self._error = None, None
        self._frozen_parts.clear()

    def break_link(self, error: str) -> None:
        self._frozen, self._error = self._current(), error

    def set_lag(self, lag_s: float) -> None:
        """From now on the picture is `lag_s` old. Costs a view after every change while it lasts."""
        self._lag = timedelta(seconds=lag_s)
        if lag_s > 0 and not self._past:
            self._past.append((self._world.now, self._current()))
            self._world.observe(self._remember)

    def _current(self) -> View:
        """Only what changed is built anew; a view of the same state has the same parts."""
        state = self._revision()
        now = self._world.now
        if self._built is None or self._built_at != state:
            self._built, self._built_at = self._truth(now), state
        elif self._built.observed_at != now:
            self._built = replace(self._built, observed_at=now)
        return self._built

    def _remember(self) -> None:
        if self._lag and self._built_at != self._revision():
            self._past.append((self._world.now, self._current()))

    def _delayed(self) -> View:
        return replace(self._oldest_in_sight(), observed_at=self._world.now)

    def _oldest_in_sight(self) -> View:
        until = self._world.now - self._lag
        while len(self._past) > 1 and self._past[1][0] <= until:
            self._past.popleft()
        return self._past[0][1]


@dataclass(slots=True)
class WriteFaults:
    """What befalls the next writes to the hub: errors are raised in order, one a write."""

    errors: deque[EntrepotError] = field(default_factory=deque)
    lost_replies: int = 0

    def before(self) -> None:
        """Raise the next planned error, before anything is written."""
        if self.errors:
            raise self.errors.popleft()

    def after(self) -> None:
        """The write has happened; its reply may be lost."""
        if self.lost_replies > 0:
            self.lost_replies -= 1
            raise Transient("the connection was lost before the reply")
