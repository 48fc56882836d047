"""PostgreSQL: the store of replicas (docs/adr/0009-postgresql.md).

The URL is libpq's own (`postgresql://user@host1,host2/db?sslmode=verify-full&target_session_attrs=read-write`) and goes
to it unchanged: what a database team writes into such a URL works here too. What it leaves out gets our bounds.
"""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, Error
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dispatcher.core.errors import Fatal
from dispatcher.store import schema

_POOL = 4
_MIGRATION_LOCK = 0x656E7472
"""Replicas that start together upgrade one after the other."""


def engine_for(url: str, deadline_s: float, *, read_only: bool = False) -> AsyncEngine:
    """An engine on libpq's URL. Nothing is connected yet.

    A commit is on disk when it is acknowledged, whatever the database's default. The server ends a statement of ours
    a little before our own deadline; a peer that vanished is noticed by the kernel within it; a pooled connection is
    tried before it is used, so that a restarted server costs one failed call. No prepared statements: poolers between
    us and the server may not know them.

    Raises:
        Fatal: not a URL of libpq.
    """
    settings = settings_of(url)
    limit_ms = int(deadline_s * 1000)
    options = f"-c statement_timeout={int(limit_ms * 0.9)} -c idle_in_transaction_session_timeout={2 * limit_ms}"
    options += " -c synchronous_commit=on"
    if read_only:
        options += " -c default_transaction_read_only=on"
    bounds: dict[str, Any] = {
        "application_name": "entrepot",
        "connect_timeout": max(2, int(deadline_s)),
        "keepalives_idle": 20,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": limit_ms,
    }
    known = make_conninfo(**{**bounds, **settings, "options": f"{options} {settings.get('options') or ''}".strip()})

    async def connect(*_: Any, **__: Any) -> AsyncConnection[Any]:
        return await AsyncConnection.connect(known, prepare_threshold=None)

    return create_async_engine(
        "postgresql+psycopg://",
        connect_args={"async_creator_fn": connect},
        pool_size=_POOL,
        max_overflow=0,
        pool_timeout=deadline_s,
        pool_pre_ping=True,
    )


def settings_of(url: str) -> dict[str, Any]:
    """What libpq reads from the URL. Raises Fatal, never with the password in it."""
    try:
        return dict(conninfo_to_dict(url))
    except Error:
        fix = "postgresql://USER:PASSWORD@HOST:5432/DATABASE, with special characters in the password %-encoded"
        raise Fatal("store: the PostgreSQL URL cannot be read", fix=fix) from None


def shown(url: str) -> str:
    """The URL without anything secret, for logs and messages."""
    try:
        settings = settings_of(url)
    except Fatal:
        return "postgresql://(unreadable)"
    host, port = settings.get("host") or settings.get("hostaddr") or "", settings.get("port")
    user = f"{settings['user']}@" if settings.get("user") else ""
    return f"postgresql://{user}{host}{f':{port}' if port else ''}/{settings.get('dbname') or ''}"


def upgrade(connection: Connection, url: str) -> None:
    """Bring the schema to this version's, all revisions in one transaction; other replicas wait for its end."""
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
    schema.upgrade(connection, shown(url))
