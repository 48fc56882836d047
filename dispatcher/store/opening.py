"""Opening the store, whichever database it is in; the read-only way in for the command line; copies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import ModuleType

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.core.errors import Fatal, Refused
from dispatcher.store import schema, sqlite
from dispatcher.store.faults import translated
from dispatcher.store.inputs import InputLimits
from dispatcher.store.sql import WRITES, SqlStore

SCHEMES = ("postgresql://", "postgres://")
_OPEN_DEADLINE_S = 120.0


def is_postgres(target: Path | str) -> bool:
    """Whether a store is named by a PostgreSQL URL; anything else is a file of SQLite."""
    return isinstance(target, str) and target.startswith(SCHEMES)


def shown(target: Path | str) -> str:
    """A store's name for logs and messages: never with a password."""
    return _postgres().shown(str(target)) if is_postgres(target) else str(target)


def _postgres() -> ModuleType:
    """Its driver is loaded by those who use it: a restart on a file should not wait for it."""
    from dispatcher.store import postgres

    return postgres


async def open_store(
    target: Path | str, *, deadline_s: float = 5.0, busy_s: float = 2.0, replay: InputLimits | None = None
) -> SqlStore:
    """Open (or make) the store for writing and bring its schema to this version.

    `target` is a file of SQLite or a URL `postgresql://...`. `deadline_s` bounds every later call, `busy_s` how long
    one waits for another process's lock on a file, `replay` what is kept of what decisions saw. A file of an older
    schema is copied to `<file>.<revision>.bak` before it is changed; a PostgreSQL database is changed in one
    transaction (docs/operate.md: back it up before).

    Raises:
        Fatal: not a database, damaged, on a file system without WAL, or written by a newer version.
        Transient: locked by another process, the disk is full, or the server cannot be reached.
    """
    file = Path(target)
    if is_postgres(target):
        engine = _postgres().engine_for(str(target), deadline_s)
    else:
        sqlite.make_file(file)
        engine = sqlite.engine_for(file, deadline_s, busy_s)

    def upgrade(connection: Connection) -> None:
        if is_postgres(target):
            _postgres().upgrade(connection, str(target))
        else:
            sqlite.upgrade(connection, file)

    try:
        async with translated(_OPEN_DEADLINE_S, f"opening {shown(target)}"):
            if not is_postgres(target):
                await sqlite.prepare(engine, file)
            async with engine.execution_options(**{WRITES: True}).begin() as connection:
                await connection.run_sync(upgrade)
    except BaseException:
        await engine.dispose()
        raise
    return SqlStore(engine, deadline_s, replay=replay)


async def open_records(target: Path | str, *, deadline_s: float = 5.0) -> SqlStore:
    """Open the records of a daemon that is down, without changing a byte of them; every write is refused.

    Raises:
        Fatal: no such file, not a store, or of another schema version.
        Transient: locked or unreadable now.
    """
    engine: AsyncEngine
    if is_postgres(target):
        engine = _postgres().engine_for(str(target), deadline_s, read_only=True)
    else:
        engine = sqlite.reading_engine(Path(target), deadline_s)
    try:
        async with translated(deadline_s, f"opening {shown(target)}"), engine.connect() as connection:
            await connection.run_sync(schema.require_head, shown(target))
    except BaseException:
        await engine.dispose()
        raise
    return SqlStore(engine, deadline_s, read_only=True)


async def copy_store(target: Path | str, to: Path) -> None:
    """A consistent copy of a SQLite store while the daemon runs; `to` appears whole or not at all.

    Raises:
        Refused: PostgreSQL has tools of its own for this (pg_dump), or `to` exists.
        Fatal: there is no such store.
        Transient: it cannot be read, or `to` not be written, now.
    """
    if is_postgres(target):
        raise Refused(f"store: {shown(target)} is a PostgreSQL database: copy it with pg_dump (docs/operate.md)")
    if await asyncio.to_thread(to.exists):
        raise Refused(f"store: {to} exists already: choose another name")
    await (await open_records(target)).close()
    try:
        await asyncio.to_thread(sqlite.copy, Path(target), to)
    except OSError as error:
        raise Fatal(f"store: {to} cannot be written: {error.strerror}", fix="choose a folder with room") from None
