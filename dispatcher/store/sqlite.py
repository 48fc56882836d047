"""SQLite: pragmas, integrity, copies.

Durability: WAL with synchronous=FULL flushes the log at every commit, so what was committed survives kill -9 and a
power cut. Writes take the lock at BEGIN (IMMEDIATE), so that a reader never has to become a writer half-way.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from dispatcher.core.errors import Fatal
from dispatcher.store import schema
from dispatcher.store.database import CONNECTIONS, WRITES
from dispatcher.store.faults import DAMAGE_FIX

_CHECKED_BYTES = 256 * 1024 * 1024
"""Files up to this size are checked whole at start; larger ones as pages are read, or a start would take minutes."""
_INCREMENTAL = 2


def engine_for(file: Path, deadline_s: float, busy_s: float) -> Engine:
    """An engine on a file that is there (see make_file)."""
    return _engine(f"sqlite:///{file}", deadline_s, busy_s)


def reading_engine(file: Path, deadline_s: float) -> Engine:
    """An engine that changes no byte on disk.

    With no log beside the file nobody is writing, and the file is read as immutable: a plain read-only connection
    would leave -wal and -shm files behind, owned by whoever ran the command.
    """
    if not file.is_file():
        raise Fatal(f"store: {file} does not exist", fix="name the daemon's store file with --store FILE")
    mode = "mode=ro" if file.with_name(file.name + "-wal").exists() else "mode=ro&immutable=1"
    return _engine(f"sqlite:///file:{quote(str(file))}?{mode}&uri=true", deadline_s, 2.0)


def make_file(file: Path) -> None:
    """Records name data sets and projects: a new file is readable by its owner only."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise Fatal(
            f"store: {file} cannot be opened for writing: {error.strerror}",
            fix="give the daemon a writable folder: --store FILE on a mounted volume",
        ) from None


def _engine(url: str, deadline_s: float, busy_s: float) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=CONNECTIONS,
        max_overflow=0,
        pool_timeout=deadline_s,
        # One connection after another would each keep pages that the next one's commit makes stale.
        pool_use_lifo=True,
        connect_args={"timeout": busy_s, "check_same_thread": False},
    )
    _install_hooks(engine)
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
            raw.close()  # a connection whose hook fails never reaches the pool
            raise

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def prepare(engine: Engine, file: Path) -> None:
    """Set what is a property of the file and not of a connection, and look for damage.

    Incremental vacuum lets the file shrink in small steps (SqlStore.compact); an older file is rewritten once.
    """
    with engine.connect() as connection:
        raw: Any = connection.connection.driver_connection

        def pragma(text: str) -> Any:
            found = raw.execute(f"PRAGMA {text}").fetchone()
            return found[0] if found is not None else None

        small = _size(file) <= _CHECKED_BYTES
        rewrite = small and pragma("auto_vacuum") != _INCREMENTAL
        if rewrite:
            pragma(f"auto_vacuum={_INCREMENTAL}")
        mode = pragma("journal_mode=WAL")
        if mode != "wal":
            raise Fatal(
                f"store: {file}: journal mode is {mode!r}, not 'wal'",
                fix="keep the store on a local or block volume: network file systems cannot share a write-ahead log",
            )
        if small and (found := pragma("quick_check(1)")) != "ok":
            raise Fatal(f"store: {file} is damaged: {found}", fix=DAMAGE_FIX)
        if rewrite:
            raw.execute("VACUUM")


def _size(file: Path) -> int:
    return file.stat().st_size


def upgrade(connection: Connection, file: Path) -> None:
    """Bring the schema to this version's; a file of an older one is copied beside itself first."""
    old = schema.outdated(connection)
    if old is not None:
        target = file.with_name(f"{file.name}.{old}.bak")
        if not target.exists():
            copy(file, target)
    schema.upgrade(connection, str(file))


def copy(file: Path, target: Path) -> None:
    """A consistent copy, log included, while others read and write: it appears whole or not at all."""
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    source = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)
    made = sqlite3.connect(part)
    try:
        source.backup(made)
    finally:
        made.close()
        source.close()
    part.replace(target)
