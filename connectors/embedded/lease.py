"""A Lease in memory, for several daemons in one process: guarded by version, with the faults a test may wish for."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace

from dispatcher.core.errors import Conflict, EntrepotError, Transient
from dispatcher.core.lease import ABSENT, LeaseRecord


@dataclass(slots=True)
class EmbeddedLease:
    """The object itself, as the hub keeps it. `writes` counts those that took effect."""

    record: LeaseRecord = ABSENT
    writes: int = 0

    def put(self, record: LeaseRecord) -> LeaseRecord:
        """Raises Conflict unless `record.version` is the present one."""
        if record.version != self.record.version:
            raise Conflict(f"the lease is at version {self.record.version or 'none'}, not {record.version or 'none'}")
        self.writes += 1
        self.record = replace(record, version=f"{self.writes}")
        return self.record

    def delete(self) -> None:
        self.record = ABSENT


@dataclass(slots=True)
class EmbeddedLeasePort:
    """LeasePort of one daemon. `link_up` False: nothing arrives; `lost_replies`: that many writes answer nothing."""

    lease: EmbeddedLease
    link_up: bool = True
    lost_replies: int = 0
    errors: deque[EntrepotError] = field(default_factory=deque)

    async def read(self) -> LeaseRecord:
        """As LeasePort."""
        await self._arrive()
        return self.lease.record

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """As LeasePort."""
        await self._arrive()
        written = self.lease.put(record)
        if self.lost_replies > 0:
            self.lost_replies -= 1
            raise Transient("the connection was lost before the reply")
        return written

    async def _arrive(self) -> None:
        await asyncio.sleep(0)
        if not self.link_up:
            raise Transient("the hub cannot be reached")
        if self.errors:
            raise self.errors.popleft()
