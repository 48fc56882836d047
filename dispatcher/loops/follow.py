"""What a standby does: it keeps up with the leader's records, so that it answers like the leader and can take over.

Views it has of its own, since every connector runs on both. What only the leader knows (decisions, holds) is read
from the shared store; what keeps a workload from being decided follows from the views. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dispatcher.core.decision import Decision
from dispatcher.core.errors import EntrepotError
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.ports import Leadership
from dispatcher.core.request import build_request
from dispatcher.core.snapshot import Hold
from dispatcher.core.waiting import Phase, in_phase
from dispatcher.core.workload import Request
from dispatcher.logs import get_logger
from dispatcher.runtime import Health
from dispatcher.state import FleetState

LOOP = "follow"
EVERY_S = 2.0
MARGIN = 64
"""Positions that are read again: commits that ran side by side may have become visible out of order."""
_SAID = frozenset({Phase.WAITING, Phase.NO_OWNER, Phase.UNREADABLE})


class Records(Protocol):
    """What of the store is followed."""

    async def holds(self) -> Sequence[Hold]: ...

    async def position(self) -> int:
        """Where the newest decision is recorded."""

    async def newer(self, after: int, limit: int = 500) -> tuple[int, Sequence[Decision]]:
        """Decisions recorded after a position, in order, and the position reached."""

    async def recent(self, limit: int = 50) -> Sequence[Decision]:
        """The newest decisions, newest first."""


@dataclass(slots=True)
class FollowLoop:
    """Idle while we lead."""

    state: FleetState
    store: Records
    leadership: Leadership
    health: Health
    _position: int | None = None

    async def run(self) -> None:
        while True:
            self.health.beat(LOOP)
            await self.look()
            await self.state.clock.sleep(EVERY_S)

    async def look(self) -> None:
        """Take over what was recorded since; a store that does not answer leaves what was known."""
        if self.leadership.may_write(self.state.clock.monotonic_s()):
            self._position = None
            return
        try:
            await self._decisions()
            holds = await self.store.holds()
        except EntrepotError as error:
            get_logger().warning("leader_not_followed", error=str(error))
            return
        if self.leadership.may_write(self.state.clock.monotonic_s()):
            return  # we began to lead while we read: what is known now is the dispatch loop's
        by_workload: dict[WorkloadUid, tuple[Hold, ...]] = {}
        for hold in holds:
            by_workload[hold.workload] = (*by_workload.get(hold.workload, ()), hold)
        self.state.holds = by_workload
        self._problems()

    async def _decisions(self) -> None:
        if self._position is None:
            start = await self.store.position()
            self._take(tuple(reversed(await self.store.recent(1000))))
            self._position = start
        while True:
            position, found = await self.store.newer(max(0, self._position - MARGIN))
            self._take(found)
            if position <= self._position:
                return
            self._position = position

    def _take(self, oldest_first: Sequence[Decision]) -> None:
        alive = self.state.hub_view().workloads
        for decision in oldest_first:
            if decision.workload in alive:
                self.state.latest[decision.workload] = decision
        for uid in [uid for uid in self.state.latest if uid not in alive]:
            del self.state.latest[uid]

    def _problems(self) -> None:
        """What the owner must correct, as the leader sees it; telling them is the leader's business."""
        hub, policy = self.state.hub_view(), self.state.policy
        problems = {}
        for uid, _ in in_phase(hub, _SAID):
            workload = hub.workloads[uid]
            owner = hub.owners.get(workload.owner.uid) if workload.owner is not None else None
            built = build_request(workload, owner, hub, policy)
            if not isinstance(built, Request):
                problems[uid] = built
        self.state.problems = problems
