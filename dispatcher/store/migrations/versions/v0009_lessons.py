"""What speaks against sending a workload to a cluster again. An older store has none: it was lost with each process."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lessons",
        sa.Column("workload", sa.String(64), primary_key=True),
        sa.Column("cluster", sa.String(253), primary_key=True),
        sa.Column("code", sa.String(32), primary_key=True),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("until", sa.BigInteger),
        sa.Column("excluded", sa.Boolean, nullable=False),
        sa.Column("while_borrowing", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError("records are not thrown away: restore the copy that was made before the upgrade")
