"""Opening the store: pragmas, integrity, migrations; and the read-only way in for the command line.

Durability: WAL with synchronous=FULL flushes the log at every commit, so what was committed survives kill -9 and a
power cut. Writes take the lock at BEGIN (IMMEDIATE), so that a reader never has to become a writer half-way.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dispatcher.core.errors import Fatal
from dispatcher.store.faults import DAMAGE_FIX, translated
from dispatcher.store.sql import WRITES, SqlStore

_OPEN_DEADLINE_S = 120.0
_CHECKED_BYTES = 256 * 1024 * 1024
"""Files up to this size are checked whole at start; larger ones as pages are read, or a start would take minutes."""


async def open_store(path: Path | str, *, deadline_s: float = 5.0, busy_s: float = 2.0) -> SqlStore:
    """Open (or make) the store for writing and bring its schema to this version.

    `deadline_s` bounds every later call, `busy_s` how long one waits for another process's lock. A file of an older
    schema is copied to `<file>.<revision>.bak` before it is changed.

    Raises:
        Fatal: not a database, damaged, on a file system without WAL, or written by a newer version.
        Transient: locked by another process, or the disk is full.
    """
    file = Path(path)
    _make_file(file)
    engine = _engine(f"sqlite+aiosqlite:///{file}", deadline_s, busy_s)
    try:
        async with translated(_OPEN_DEADLINE_S, f"opening {file}"):
            await _prepare(engine, file)
            async with engine.execution_options(**{WRITES: True}).begin() as connection:
                await connection.run_sync(_upgrade, file)
    except BaseException:
        await engine.dispose()
        raise
    return SqlStore(engine, deadline_s)


async def open_records(path: Path | str, *, deadline_s: float = 5.0) -> SqlStore:
    """Open the records of a daemon that is down, without changing a byte on disk; every write is refused.

    With no log beside the file nobody is writing, and the file is read as immutable: a plain read-only connection
    would leave -wal and -shm files behind, owned by whoever ran the command.

    Raises:
        Fatal: no such file, not a store, or of another schema version.
        Transient: locked or unreadable now.
    """
    file = Path(path)
    engine = _engine(_records_url(file), deadline_s, 2.0)
    try:
        async with translated(deadline_s, f"opening {file}"), engine.connect() as connection:
            await connection.run_sync(_require_head, file)
    except BaseException:
        await engine.dispose()
        raise
    return SqlStore(engine, deadline_s, read_only=True)


def _records_url(file: Path) -> str:
    if not file.is_file():
        raise Fatal(f"store: {file} does not exist", fix="name the daemon's store file with --store FILE")
    mode = "mode=ro" if file.with_name(file.name + "-wal").exists() else "mode=ro&immutable=1"
    return f"sqlite+aiosqlite:///file:{quote(str(file))}?{mode}&uri=true"


def _make_file(file: Path) -> None:
    """Records name data sets and projects: a new file is readable by its owner only."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise Fatal(
            f"store: {file} cannot be opened for writing: {error.strerror}",
            fix="give the daemon a writable folder: --store FILE on a mounted volume",
        ) from None


def _engine(url: str, deadline_s: float, busy_s: float) -> AsyncEngine:
    engine = create_async_engine(
        url, pool_size=4, max_overflow=0, pool_timeout=deadline_s, connect_args={"timeout": busy_s}
    )
    _install_hooks(engine.sync_engine)
    return engine


def _install_hooks(engine: Engine) -> None:
    """SQLite's driver begins transactions by itself, and late; these hooks take that over."""

    @event.listens_for(engine, "connect")
    def connected(raw: Any, record: object) -> None:
        raw.isolation_level = None
        try:
            cursor = raw.cursor()
            cursor.execute("PRAGMA synchronous=FULL")
            cursor.close()
        except BaseException:
            raw.close()  # a connection whose hook fails never reaches the pool, and would keep its thread
            raise

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


async def _prepare(engine: AsyncEngine, file: Path) -> None:
    """Turn WAL on (it is a property of the file and cannot be set inside a transaction) and look for damage."""
    async with engine.connect() as connection:
        raw: Any = await connection.get_raw_connection()
        cursor = await raw.driver_connection.execute("PRAGMA journal_mode=WAL")
        mode = (await cursor.fetchone())[0]
        if mode != "wal":
            raise Fatal(
                f"store: {file}: journal mode is {mode!r}, not 'wal'",
                fix="keep the store on a local or block volume: network file systems cannot share a write-ahead log",
            )
        if _size(file) <= _CHECKED_BYTES:
            cursor = await raw.driver_connection.execute("PRAGMA quick_check(1)")
            found = (await cursor.fetchone())[0]
            if found != "ok":
                raise Fatal(f"store: {file} is damaged: {found}", fix=DAMAGE_FIX)


def _size(file: Path) -> int:
    return file.stat().st_size


def _upgrade(connection: Connection, file: Path) -> None:
    config = _config(connection)
    old = MigrationContext.configure(connection).get_current_revision()
    try:
        if old is not None and old != _head(config):
            ScriptDirectory.from_config(config).get_revision(old)
            _copy_before_upgrade(connection, file, old)
        command.upgrade(config, "head")
    except CommandError:
        raise _newer(file, old) from None


def _copy_before_upgrade(connection: Connection, file: Path, revision: str) -> None:
    """A copy through SQLite's own backup: consistent, log included. An earlier copy of that revision is kept."""
    target = file.with_name(f"{file.name}.{revision}.bak")
    if target.exists():
        return
    part = file.with_name(f"{file.name}.{revision}.part")
    source = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)
    copy = sqlite3.connect(part)
    try:
        source.backup(copy)
    finally:
        copy.close()
        source.close()
    part.chmod(0o600)
    part.replace(target)


def _require_head(connection: Connection, file: Path) -> None:
    tables = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
    if "decisions" not in tables:
        raise Fatal(f"store: {file} holds no records of Entrepot", fix="name the daemon's store file with --store FILE")
    found, head = MigrationContext.configure(connection).get_current_revision(), _head(_config(connection))
    if found != head:
        raise Fatal(
            f"store: {file} has schema {found}, this command reads schema {head}",
            fix="use the command line of the daemon's own version, or start the daemon once to upgrade the file",
        )


def _newer(file: Path, revision: str | None) -> Fatal:
    return Fatal(
        f"store: {file} has schema {revision}, which this version does not know",
        fix=f"run the version that wrote it, or put back the copy made before the upgrade ({file.name}.<revision>.bak)",
    )


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _head(config: Config) -> str:
    head = ScriptDirectory.from_config(config).get_current_head()
    assert head is not None, "a package without migrations cannot have been built"
    return head
