"""The tables, as the newest migration leaves them. Portable SQL: the same metadata serves SQLite and PostgreSQL.

Instants are integer microseconds since the epoch, UTC: exact, sortable and alike in every database. Names are long
enough for Kubernetes (63 + 1 + 253). `document` is the record itself (see codec); other columns only find it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text, text

METADATA = MetaData()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BIG = BigInteger().with_variant(Integer(), "sqlite")
_OPEN = text("state = 'planned'")
_DECIDED = text("state <> 'abandoned' AND resource_version <> ''")

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
    Column("resource_version", String(253), nullable=False, server_default=""),
    Column("term", BigInteger, nullable=False, server_default="0"),
    Index("intents_by_state", "state", "made_at"),
    # Two daemons cannot both promise: one open nomination a Workload, and one for each version that was decided on.
    # The migration says the same to PostgreSQL: named here too, its dialect would be loaded at every start on a file.
    Index("intents_one_open", "workload", unique=True, sqlite_where=_OPEN),
    Index("intents_one_per_version", "workload", "resource_version", unique=True, sqlite_where=_DECIDED),
)

leadership = Table(
    "leadership",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("term", BigInteger, nullable=False),
    Column("holder", String(253), nullable=False),
    Column("since", BigInteger, nullable=False),
)
"""One row: the newest term that began."""


input_segments = Table(
    "input_segments",
    METADATA,
    Column("id", _BIG, primary_key=True, autoincrement=True),
    Column("started_at", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("decisions", BigInteger, nullable=False),
)
"""What decisions saw is kept and forgotten by the segment (see inputs); `size` is at least the bytes that are in it."""

input_pieces = Table(
    "input_pieces",
    METADATA,
    Column("segment", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(16), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

inputs = Table(
    "inputs",
    METADATA,
    Column("decision", String(64), primary_key=True),
    Column("segment", BigInteger, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Index("inputs_by_segment", "segment"),
)

audit = Table(
    "audit",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("event", String(320), nullable=False, unique=True),
    Column("at", BigInteger, nullable=False),
    Column("kind", String(24), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Index("audit_by_time", "at"),
)
"""The audit log: a chain (dispatcher.core.audit). `event` lets the same thing be written once only."""

audit_head = Table(
    "audit_head",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
)
"""One row: where the chain ends, and the newest instant in it. Locked by whoever writes the next row."""

bundles = Table(
    "bundles",
    METADATA,
    Column("tree", String(64), primary_key=True),
    Column("serial", BigInteger),
    Column("first_at", BigInteger, nullable=False),
    Column("last_at", BigInteger, nullable=False),
)
"""Bundles that ruled, by the digest of their files."""

last_good = Table(
    "last_good",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("tree", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("files", LargeBinary, nullable=False),
)
"""One row: the files of the bundle that ruled last, with what vouches for them (config/residency/kept.py)."""

uses = Table(
    "uses",
    METADATA,
    Column("workload", String(64), primary_key=True),
    Column("begun_at", BigInteger, primary_key=True, autoincrement=False),
    Column("ended_at", BigInteger),
    Column("team", Text, nullable=False),
    Column("amounts", Text, nullable=False),
    Column("key", String(320)),
    Column("cluster", String(253)),
    Column("draw_mw", BigInteger),
    Column("grid_g_per_kwh", BigInteger),
    Index("uses_by_end", "ended_at"),
    Index("uses_by_key", "key", "begun_at"),
)
"""What runs had of the fleet (core/shares.py); `ended_at` null: as far as was seen they go on. `amounts` is JSON. From
`key` on what they draw (core/energy.py), null where that is not known."""

lessons = Table(
    "lessons",
    METADATA,
    Column("workload", String(64), primary_key=True),
    Column("cluster", String(253), primary_key=True),
    Column("code", String(32), primary_key=True),
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger),
    Column("excluded", Boolean, nullable=False),
    Column("while_borrowing", Boolean, nullable=False),
)
"""What speaks against sending a workload to a cluster again (core/workload.py, Avoided); `cluster` "": to any."""


def to_micros(instant: datetime) -> int:
    """Microseconds since the epoch. Raises ValueError on a datetime without a zone."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no time zone and names no instant: use UTC")
    return (instant - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
