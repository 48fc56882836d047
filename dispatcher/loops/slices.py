"""Long work in slices, between which everything else in the process has its turn."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from dispatcher.runtime import Health
from dispatcher.state import FleetState

SLICE_S = 0.01
"""How long a loop works in one go."""


@dataclass(slots=True)
class Slices:
    """Lets everything else run after each SLICE_S of the work of a loop, and says that the loop lives."""

    state: FleetState
    health: Health
    loop: str
    _resumed_s: float = 0.0

    def __post_init__(self) -> None:
        self._resumed_s = self.state.clock.monotonic_s()

    async def pause(self) -> None:
        """To be awaited between two small steps of work."""
        if self.state.clock.monotonic_s() - self._resumed_s > SLICE_S:
            self.health.beat(self.loop)
            await asyncio.sleep(0)
            self._resumed_s = self.state.clock.monotonic_s()
