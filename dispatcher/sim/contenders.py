"""Who decides in a simulation: Entrepot, and those that it is compared with, behind one small protocol.

A contender sees the world through the ports alone and writes nominations alone. All contenders of a seed meet equal
worlds: the same fleet, jobs and true durations, which none of them sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from connectors.embedded import EmbeddedFleet, ManualClock
from connectors.embedded.objects import Workload
from connectors.embedded.witness import Happening
from dispatcher.core.ids import ClusterName
from dispatcher.sim.world import Setup


class Contender(Protocol):
    """One dispatcher. The engine calls `notice` whenever the world has moved on, and `look` when `due` says so."""

    def notice(self) -> None:
        """The world is at the clock's now, and may have changed."""

    def heard(self, what: Happening, where: ClusterName | None, workload: Workload) -> None:
        """Something happened, as to a witness. A contender may tell by it whether looking again is worth its while, and
        must decide by nothing but what its ports show."""

    def due(self) -> datetime | None:
        """When it wants to look again; None: not before something has changed."""

    async def look(self) -> None:
        """Decide and write."""


@dataclass(frozen=True, slots=True)
class Arena:
    """What a contender is given: what the scenario tells everybody, the fleet's ports, and the time."""

    setup: Setup
    fleet: EmbeddedFleet
    clock: ManualClock


Factory = Callable[[Arena], Contender]
