"""The tables, as the newest migration leaves them. Portable SQL: the same metadata serves SQLite and PostgreSQL.

Instants are integer microseconds since the epoch, UTC: exact, sortable and alike in every database. Names are long
enough for Kubernetes (63 + 1 + 253). `document` is the record itself (see codec); other columns only find it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text

METADATA = MetaData()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BIG = BigInteger().with_variant(Integer(), "sqlite")

decisions = Table(
    "decisions",
    METADATA,
    Column("seq", _BIG, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("workload", String(64), nullable=False),
    Column("key", String(320), nullable=False),
    Column("job_key", String(320), nullable=False),
    Column("name", String(253), nullable=False),
    Column("job_name", String(253), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("decided_at", BigInteger, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("chosen", String(253)),
    Column("request_digest", String(64), nullable=False),
    Column("snapshot_digest", String(64), nullable=False),
    Column("policy_digest", String(64), nullable=False),
    Column("code_version", String(64), nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("reasons", String(16)),
    Column("repeats", Integer, nullable=False, server_default="0"),
    Index("decisions_by_time", "decided_at", "seq"),
    Index("decisions_by_workload", "workload", "decided_at"),
    Index("decisions_by_key", "key", "decided_at"),
    Index("decisions_by_job", "job_key", "decided_at"),
    Index("decisions_by_name", "name"),
    Index("decisions_by_job_name", "job_name"),
    Index("decisions_by_chosen", "chosen", "decided_at"),
)

holds = Table(
    "holds",
    METADATA,
    Column("decision", String(64), primary_key=True),
    Column("workload", String(64), nullable=False),
    Column("cluster", String(253), nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Index("holds_by_workload", "workload"),
)

intents = Table(
    "intents",
    METADATA,
    Column("decision", String(64), primary_key=True),
    Column("workload", String(64), nullable=False),
    Column("clusters", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Index("intents_by_state", "state", "made_at"),
)


def to_micros(instant: datetime) -> int:
    """Microseconds since the epoch. Raises ValueError on a datetime without a zone."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no time zone and names no instant: use UTC")
    return (instant - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
