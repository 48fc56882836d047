"""How a transaction runs: a plain function of a connection, away from the event loop, within a deadline.

A transaction of ours is a dozen short statements. Written as one function it costs one way to a thread and back (a
file) or one task (PostgreSQL), instead of one for each statement and each cursor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, Executable, Row, Select

from dispatcher.core.errors import Refused
from dispatcher.store.faults import translated

if TYPE_CHECKING:  # the asyncio side is for PostgreSQL alone: a daemon on a file starts without it
    from sqlalchemy.ext.asyncio import AsyncEngine

WRITES = "entrepot_writes"
"""Execution option of connections that will write: they take the lock at BEGIN (see sqlite)."""
CONNECTIONS = 4
Result = TypeVar("Result")
Work = Callable[[Connection], Result]


class Database(Protocol):
    """Where the store's transactions run. `what` names one in messages, `deadline_s` stands in for the usual one.

    Raises:
        Transient: locked, full, gone or too slow. A transaction that was given up on may still be made: every
            operation may be repeated.
        Fatal: damaged.
        Refused: a write to what was opened for reading.
    """

    is_file: bool
    read_only: bool

    async def write(self, what: str, work: Work[Result], deadline_s: float | None = None) -> Result: ...

    async def read(self, what: str, work: Work[Result]) -> Result: ...

    async def close(self) -> None: ...


class FileDatabase:
    """SQLite, in threads of its own: a disk that hangs holds up these and nothing else."""

    is_file = True

    def __init__(self, engine: Engine, deadline_s: float, read_only: bool = False) -> None:
        self.read_only = read_only
        self._engine = engine
        self._deadline_s = deadline_s
        # One writer at a time is SQLite's own rule; queueing here keeps it fair and off the busy timeout.
        self._writer = asyncio.Semaphore(1)
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="store")

    async def write(self, what: str, work: Work[Result], deadline_s: float | None = None) -> Result:
        if self.read_only:
            raise Refused("store: opened for reading only")
        writing = self._engine.execution_options(**{WRITES: True})
        async with translated(deadline_s or self._deadline_s, what), self._writer:
            return await self._in_thread(lambda: _within(writing, work))

    async def read(self, what: str, work: Work[Result]) -> Result:
        return await self.aside(what, lambda: _within(self._engine, work))

    async def aside(self, what: str, call: Callable[[], Result], deadline_s: float | None = None) -> Result:
        """Anything else that touches the file."""
        async with translated(deadline_s or self._deadline_s, what):
            return await self._in_thread(call)

    async def close(self) -> None:
        await self._in_thread(self._engine.dispose)
        self._threads.shutdown(wait=False)

    async def _in_thread(self, call: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


class ServerDatabase:
    """PostgreSQL: the server excludes writers from each other where they touch the same rows."""

    is_file = False

    def __init__(self, engine: AsyncEngine, deadline_s: float, read_only: bool = False) -> None:
        self.read_only = read_only
        self._engine = engine
        self._deadline_s = deadline_s

    async def write(self, what: str, work: Work[Result], deadline_s: float | None = None) -> Result:
        if self.read_only:
            raise Refused("store: opened for reading only")
        return await self._within(what, work, deadline_s or self._deadline_s)

    async def read(self, what: str, work: Work[Result]) -> Result:
        return await self._within(what, work, self._deadline_s)

    async def _within(self, what: str, work: Work[Result], deadline_s: float) -> Result:
        async with translated(deadline_s, what), self._engine.begin() as connection:
            return await connection.run_sync(work)

    async def close(self) -> None:
        await self._engine.dispose()


def _within(engine: Engine, work: Work[Result]) -> Result:
    with engine.begin() as connection:
        return work(connection)


def rows_of(query: Select[Any]) -> Work[list[Row[Any]]]:
    """All rows of one query."""
    return lambda connection: list(connection.execute(query).all())


def scalar_of(query: Executable) -> Work[Any]:
    """The first column of the first row; None without one."""
    return lambda connection: connection.scalar(query)


def run_of(statement: Executable) -> Work[None]:
    """One statement whose result nobody asks for."""

    def run(connection: Connection) -> None:
        connection.execute(statement)

    return run
