"""A bench with one more loop beside dispatch: what all of these have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from dispatcher.core.audit import Entry, entry_of, verify
from dispatcher.core.waiting import Phase
from dispatcher.loops.idle import AuditPort
from tests.loops.bench import Bench
from tests.loops.test_crash import Fuse


class Cycles(Protocol):
    async def cycle(self) -> None: ...


class Beside(ABC):
    """`bench` with a loop beside dispatch, one cycle each a step."""

    bench: Bench

    @abstractmethod
    def second(self) -> Cycles:
        """The loop beside dispatch."""

    async def step(self, seconds: float = 1.0) -> None:
        await self.bench.step(seconds)
        await self.second().cycle()
        await self.bench.notices.drain()

    async def steps(self, count: int) -> None:
        for _ in range(count):
            await self.step()

    async def until(self, job: str, *phases: Phase, within_s: int = 90) -> None:
        for _ in range(within_s):
            if self.bench.phase(job) in phases:
                return
            await self.step()
        raise AssertionError(f"{job} is not {phases} within {within_s} s: {self.bench.phases()}")

    async def entries(self) -> list[Entry]:
        """The audit log, which must hold."""
        rows = [row async for row in self.bench.store.audit_log.rows()]
        assert verify(rows, await self.bench.store.audit_log.head()) is None
        return [entry_of(row.body) for row in rows]


@dataclass
class FusedRows:
    """The real log; the process dies at the fuse's step."""

    log: AuditPort
    fuse: Fuse

    async def add(self, entries: list[Entry]) -> int:
        self.fuse.before_step()
        count = await self.log.add(entries)
        self.fuse.after_step()
        return count
