"""Decisions, holds and intents."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "decisions",
        sa.Column("seq", _BIG, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False, unique=True),
        sa.Column("workload", sa.String(64), nullable=False),
        sa.Column("key", sa.String(320), nullable=False),
        sa.Column("job_key", sa.String(320), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("job_name", sa.String(253), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("decided_at", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("chosen", sa.String(253)),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("snapshot_digest", sa.String(64), nullable=False),
        sa.Column("policy_digest", sa.String(64), nullable=False),
        sa.Column("code_version", sa.String(64), nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("decisions_by_time", "decisions", ["decided_at", "seq"])
    op.create_index("decisions_by_workload", "decisions", ["workload", "decided_at"])
    op.create_index("decisions_by_key", "decisions", ["key", "decided_at"])
    op.create_index("decisions_by_job", "decisions", ["job_key", "decided_at"])
    op.create_index("decisions_by_name", "decisions", ["name"])
    op.create_index("decisions_by_job_name", "decisions", ["job_name"])
    op.create_index("decisions_by_chosen", "decisions", ["chosen", "decided_at"])
    op.create_table(
        "holds",
        sa.Column("decision", sa.String(64), primary_key=True),
        sa.Column("workload", sa.String(64), nullable=False),
        sa.Column("cluster", sa.String(253), nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("holds_by_workload", "holds", ["workload"])
    op.create_table(
        "intents",
        sa.Column("decision", sa.String(64), primary_key=True),
        sa.Column("workload", sa.String(64), nullable=False),
        sa.Column("clusters", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
    )
    op.create_index("intents_by_state", "intents", ["state", "made_at"])


def downgrade() -> None:
    raise NotImplementedError("records are not thrown away: restore the file that was copied before the upgrade")
