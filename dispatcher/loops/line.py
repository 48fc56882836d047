"""Who waits, in deciding order, kept from one look at the hub to the next.

Thousands wait while a few change: what has not changed since the last look is neither judged nor sorted again, and a
first look at a large hub lets everything else in the process have its turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from dispatcher.core.ids import WorkloadUid
from dispatcher.core.snapshot import HubView
from dispatcher.core.waiting import Peers, Phase, Standing, order_key, standing, stands_alone
from dispatcher.core.workload import HubWorkload

DECIDED = frozenset({Phase.WAITING, Phase.NOMINATED})
HELD_BY_INPUT = frozenset({Phase.NO_OWNER, Phase.UNREADABLE})
IN_LINE = DECIDED | HELD_BY_INPUT
STRIDE = 64
"""Workloads between two looks at how long this has taken."""


class InLine(NamedTuple):
    """A workload that dispatch has to do with, and where it stands."""

    order: tuple[int, datetime, str]
    workload: HubWorkload
    standing: Standing


@dataclass(slots=True)
class WaitingLine:
    """The workloads of the newest hub view that are in one of the phases IN_LINE."""

    _hub: HubView | None = None
    _known: dict[WorkloadUid, InLine] = field(default_factory=dict)
    _line: list[InLine] = field(default_factory=list)

    async def of(self, hub: HubView, pause: Callable[[], Awaitable[None]]) -> list[InLine]:
        """All of them, first in order first. `pause` is awaited every STRIDE workloads."""
        if hub is self._hub:
            return self._line
        same_rules = self._hub is not None and (self._hub.checks, self._hub.configs) == (hub.checks, hub.configs)
        peers = Peers(hub)
        found: dict[WorkloadUid, InLine] = {}
        changed = False
        for at, (uid, workload) in enumerate(hub.workloads.items()):
            if at % STRIDE == 0:
                await pause()
            known = self._known.get(uid) if same_rules else None
            if known is None or known.workload is not workload or not stands_alone(workload):
                known = InLine(order_key(workload), workload, standing(workload, hub, peers))
                changed = True
            found[uid] = known
        if changed or len(found) != len(self._known):
            self._line = sorted(entry for entry in found.values() if entry.standing.phase in IN_LINE)
        self._known, self._hub = found, hub
        return self._line
