"""The audit log of the law, a chain of rows, and the bundles that ruled. What was decided before has no rows."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("event", sa.String(320), nullable=False, unique=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    op.create_index("audit_by_time", "audit", ["at"])
    head = op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(head, [{"id": 1, "seq": 0, "digest": "0" * 64, "at": 0}])
    op.create_table(
        "bundles",
        sa.Column("tree", sa.String(64), primary_key=True),
        sa.Column("serial", sa.BigInteger),
        sa.Column("first_at", sa.BigInteger, nullable=False),
        sa.Column("last_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError("records are not thrown away: restore the copy that was made before the upgrade")
