"""Leader election by Lease: looks, renews, steps down (docs/adr/0010-leader-election.md).

The rules are `core/lease.py`; here is only what carries them out. One move a turn, each with a deadline, never two at
once. An answer that does not come changes nothing but our certainty.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dispatcher.core.errors import Conflict, EntrepotError, Fenced
from dispatcher.core.lease import (
    LeaseTiming,
    Move,
    Role,
    Tenure,
    after_failure,
    after_read,
    after_write,
    next_move,
    rested,
    to_write,
)
from dispatcher.core.ports import Clock, Fence, LeasePort
from dispatcher.logs import get_logger
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health

LOOP = "leader"
RELEASE_S = 2.0
"""How long a daemon that ends tries to release the Lease; after that the others wait for its duration."""


def identity() -> str:
    """A name that no other process has or had: pod (or host), process, and a part that differs after a restart."""
    name = os.environ.get("POD_NAME") or socket.gethostname()
    return f"{name}_{os.getpid()}_{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Candidacy:
    """How a daemon stands for election: which Lease, under which name, with which times."""

    port: LeasePort
    me: str
    timing: LeaseTiming = field(default_factory=LeaseTiming)


@dataclass(slots=True)
class Elector:
    """Implements `core.ports.Leadership`. `working` tells whether our work loops live: a leader that does nothing must
    not keep others from it (FR-RAC-05b). `on_change` is called when we begin or cease to lead."""

    candidacy: Candidacy
    fence: Fence
    clock: Clock
    metrics: Metrics
    health: Health
    working: Callable[[], bool]
    on_change: Callable[[], None]
    tenure: Tenure = field(init=False)
    _fenced: int = 0
    _outdated: bool = False
    """The store knows a later term than our Lease: it has to be given back and taken anew, with a higher one."""
    _leading: bool = False

    def __post_init__(self) -> None:
        self.tenure = Tenure(self.candidacy.me, self.candidacy.timing)

    # --- Leadership ----------------------------------------------------------------------------------------------

    @property
    def term(self) -> int:
        """The term that has begun in the store under our name; 0 = none."""
        return self._fenced

    def may_write(self, now_s: float) -> bool:
        """As Leadership. Only in a term that the store knows: from then on nobody commits in an older one."""
        return self.tenure.may_write(now_s) and self._fenced == self.tenure.term

    @property
    def holder(self) -> str:
        """Who leads, as far as we see; "" = nobody."""
        return self.tenure.holder

    # --- the loop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stand for election until cancelled; then give the Lease back, so that another need not wait for its end."""
        try:
            while True:
                self.health.beat(LOOP)
                await self.turn()
                await self.clock.sleep(self._pause_s())
        finally:
            await self.resign()

    def _pause_s(self) -> float:
        """Leaders renew every `retry_s`; the others look twice as often, to take over soon after a release."""
        retry_s = self.candidacy.timing.retry_s
        return retry_s if self.tenure.role is Role.LEADING else retry_s / 2

    async def turn(self) -> None:
        """Look, unless the newest Lease is our own, and make the move that the rules ask for."""
        try:
            async with asyncio.timeout(self._deadline_s()):
                await self._turn()
        except Conflict:
            # Somebody wrote it since: what we know is void, and a leader may not act on it.
            self.tenure = replace(self.tenure, seen=None)
            self._note()
            await self._look_again()
        except Fenced as error:
            self.lost(str(error))
        except (EntrepotError, TimeoutError) as error:
            get_logger().warning("lease_not_reached", error=str(error) or "no answer within the deadline")
            self.metrics.lease_failures.inc()
            self.tenure = after_failure(self.tenure, self.clock.monotonic_s())
        self._note()

    async def _look_again(self) -> None:
        try:
            async with asyncio.timeout(self._deadline_s()):
                await self._read()
        except (EntrepotError, TimeoutError) as error:
            get_logger().warning("lease_not_reached", error=str(error) or "no answer within the deadline")
            self.tenure = after_failure(self.tenure, self.clock.monotonic_s())

    async def _turn(self) -> None:
        if not self.tenure.mine or self.tenure.role not in (Role.LEADING, Role.UNSURE):
            await self._read()
        self._outdated = self._outdated and self.tenure.mine
        move = next_move(self.tenure, self.clock.monotonic_s(), fit=self.working() and not self._outdated)
        if move is Move.NOTHING:
            return
        if move is Move.GIVE_UP:
            self._step_down("a later term has begun" if self._outdated else "the work loops do not work")
        # Whoever cannot reach the store could commit nothing: it does not stand.
        floor = await self.fence.term() if move is Move.TAKE else 0
        await self._write(move, floor)
        if self.tenure.role is Role.LEADING and self._fenced != self.tenure.term:
            await self.fence.lead(self.tenure.term, self.candidacy.me, self.clock.now())
            self._fenced = self.tenure.term

    async def _read(self) -> None:
        lease = await self.candidacy.port.read()
        self.tenure = after_read(self.tenure, lease, self.clock.monotonic_s())

    async def _write(self, move: Move, floor: int) -> None:
        sent_s = self.clock.monotonic_s()
        written = await self.candidacy.port.write(to_write(self.tenure, move, floor, self.clock.now()))
        self.tenure = after_write(self.tenure, move, written, sent_s, self.clock.monotonic_s())

    def _deadline_s(self) -> float:
        """Two tries fit between the last renewal and the deadline."""
        return self.candidacy.timing.renew_deadline_s / 2

    # --- ceasing -------------------------------------------------------------------------------------------------

    def lost(self, why: str) -> None:
        """The store says that another term has begun: stop at once; the next turn gives the Lease back."""
        self._outdated = True
        self._step_down(why)
        self._note()

    def _step_down(self, why: str) -> None:
        if self.tenure.role in (Role.LEADING, Role.UNSURE):
            get_logger().warning("leader_steps_down", why=why, term=self.tenure.term)
        self.tenure = rested(self.tenure, self.clock.monotonic_s())
        self._fenced = 0

    async def resign(self) -> None:
        """Stop leading now, and release the Lease if it is ours; gives up after a moment."""
        mine = self.tenure.mine
        self._step_down("the daemon ends")
        self._note()
        if not mine:
            return
        try:
            async with asyncio.timeout(RELEASE_S):
                await self._write(Move.GIVE_UP, 0)
            get_logger().info("lease_released")
        except (EntrepotError, TimeoutError) as error:
            get_logger().warning("lease_not_released", error=str(error) or "no answer within the deadline")

    def _note(self) -> None:
        leading = self.may_write(self.clock.monotonic_s())
        self.metrics.leading.set(1 if leading else 0)
        if leading == self._leading:
            return
        self._leading = leading
        self.metrics.leader_changes.inc()
        get_logger().info(
            "leader_began" if leading else "leader_ceased",
            me=self.candidacy.me,
            term=self._fenced,
            role=self.tenure.role,
            holder=self.tenure.holder,
        )
        self.on_change()
