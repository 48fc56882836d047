"""Opening the store, whichever database it is in; the read-only way in for the command line; copies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import ModuleType

from dispatcher.core.errors import Fatal, Refused
from dispatcher.store import schema, sqlite
from dispatcher.store.database import Database, FileDatabase, ServerDatabase
from dispatcher.store.inputs import InputLimits
from dispatcher.store.sql import SqlStore

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
    if is_postgres(target):
        database = await _open_server(str(target), deadline_s)
    else:
        database = await _open_file(Path(target), deadline_s, busy_s)
    return SqlStore(database, replay=replay)


async def _open_server(url: str, deadline_s: float) -> Database:
    server = _postgres()
    database = ServerDatabase(server.engine_for(url, deadline_s), deadline_s)
    try:
        await database.write(f"opening {shown(url)}", lambda found: server.upgrade(found, url), _OPEN_DEADLINE_S)
    except BaseException:
        await database.close()
        raise
    return database


async def _open_file(file: Path, deadline_s: float, busy_s: float) -> Database:
    sqlite.make_file(file)
    engine = sqlite.engine_for(file, deadline_s, busy_s)
    database = FileDatabase(engine, deadline_s)
    try:
        await database.aside(f"opening {file}", lambda: sqlite.prepare(engine, file), _OPEN_DEADLINE_S)
        await database.write(f"opening {file}", lambda found: sqlite.upgrade(found, file), _OPEN_DEADLINE_S)
    except BaseException:
        await database.close()
        raise
    return database


async def open_records(target: Path | str, *, deadline_s: float = 5.0) -> SqlStore:
    """Open the records of a daemon that is down, without changing a byte of them; every write is refused.

    Raises:
        Fatal: no such file, not a store, or of another schema version.
        Transient: locked or unreadable now.
    """
    database: Database
    if is_postgres(target):
        database = ServerDatabase(_postgres().engine_for(str(target), deadline_s, read_only=True), deadline_s, True)
    else:
        database = FileDatabase(sqlite.reading_engine(Path(target), deadline_s), deadline_s, True)
    try:
        await database.read(f"opening {shown(target)}", lambda found: schema.require_head(found, shown(target)))
    except BaseException:
        await database.close()
        raise
    return SqlStore(database)


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
