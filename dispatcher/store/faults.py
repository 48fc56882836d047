"""What goes wrong in a database, in the three words that callers act on (dispatcher.core.errors).

Full, locked, gone, slow: Transient, nothing was promised. Damaged: Fatal, because going on would promise from a memory
that is wrong. A bug in our SQL is neither and passes through.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import exc

from dispatcher.core.errors import Fatal, Transient

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DAMAGED_SQLSTATES = ("XX001", "XX002")
_PASSING_SQLSTATES = ("08", "25006", "40", "42501", "53", "55", "57", "58")
"""Lost, read-only (a standby that was not promoted yet), deadlock, rights (being set up), full, locked, shut down, I/O:
classes of SQLSTATE after which the same call may succeed."""
DAMAGE_FIX = (
    "stop the daemon, move the store file (with its -wal and -shm) aside and put back the last backup; without one, "
    "start on a new file: running work is left alone, only the history is lost"
)

POSTGRES_DAMAGE_FIX = "stop the daemon, have the database repaired or restored from its last backup, and start again"


@asynccontextmanager
async def translated(deadline_s: float, what: str) -> AsyncIterator[None]:
    """Run a store operation within its deadline, and raise only Transient or Fatal for what the database does.

    Raises:
        Transient: locked, full, gone or too slow. The outcome may be unknown; every operation may be repeated.
        Fatal: the file is damaged or not a database.
    """
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except TimeoutError:
        raise Transient(f"store: {what} did not end within {deadline_s:g} s", retry_after_s=1.0) from None
    except exc.TimeoutError:
        raise Transient(f"store: {what}: no free connection", retry_after_s=1.0) from None
    except exc.DBAPIError as error:
        cause = _translate(error, what)
        if cause is None:
            raise
        raise cause from error


def _translate(error: exc.DBAPIError, what: str) -> Exception | None:
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in _DAMAGED:
        return Fatal(f"store: {what}: {error.orig}", fix=DAMAGE_FIX)
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state in _DAMAGED_SQLSTATES:
        return Fatal(f"store: {what}: {_line(error)}", fix=POSTGRES_DAMAGE_FIX)
    if state is not None and state.startswith(_PASSING_SQLSTATES):
        return Transient(f"store: {what}: {_line(error)}", retry_after_s=1.0)
    if isinstance(error, exc.OperationalError | exc.InterfaceError) or error.connection_invalidated:
        return Transient(f"store: {what}: {_line(error)}", retry_after_s=1.0)
    return None


def _line(error: exc.DBAPIError) -> str:
    """What the database says, in one line; statements and parameters stay out."""
    return " ".join(str(error.orig).split())
