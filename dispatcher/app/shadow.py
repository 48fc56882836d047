"""The candidate's folder: a whole blueprint that is read and compared, and never rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dispatcher.config import BlueprintWatcher
from dispatcher.config.catalog import Answer
from dispatcher.core.policy import Policy
from dispatcher.core.ports import Clock


@dataclass(slots=True)
class ShadowFolder:
    """A PolicySource. No seal is asked for: what does not rule needs nobody's signature."""

    folder: Path
    clock: Clock
    catalog: Callable[[], Answer | None] = lambda: None
    """The answer that the daemon has of its own catalog: good for a candidate that names the same endpoint."""
    _watcher: BlueprintWatcher = field(init=False)

    def __post_init__(self) -> None:
        self._watcher = BlueprintWatcher(self.folder)

    async def poll(self) -> Policy | tuple[str, ...] | None:
        found = await asyncio.to_thread(self._watcher.poll, self.clock.now(), self.catalog())
        if found is None or found.policy is not None:
            return found.policy if found is not None else None
        return tuple(problem.text() for problem in found.errors)
