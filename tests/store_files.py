"""What tests do to the file below a store, past its own functions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from dispatcher.store import SqlStore
from dispatcher.store.database import CONNECTIONS, FileDatabase, scalar_of


async def asked(store: SqlStore, query: str) -> Any:
    """The first value that a query or pragma says, on a connection of the store's own."""
    return await store._database.read("asking", scalar_of(text(query)))


def limit_pages(store: SqlStore, pages: int) -> None:
    """SQLite at its page limit is what a full disk is. The limit is of a connection: every one of the pool gets it."""
    assert isinstance(store._database, FileDatabase)
    connections = [store._database._engine.connect() for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        connection.close()


async def disconnect(store: SqlStore) -> None:
    """Close what is open of the file: the next call opens it anew."""
    database = store._database
    assert isinstance(database, FileDatabase)
    await database.aside("closing", database._engine.dispose)
