"""What teams had of the fleet. An older store has none: their shares begin with what the hub still shows, as before."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "uses",
        sa.Column("workload", sa.String(64), primary_key=True),
        sa.Column("begun_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("team", sa.Text, nullable=False),
        sa.Column("amounts", sa.Text, nullable=False),
    )
    op.create_index("uses_by_end", "uses", ["ended_at"])


def downgrade() -> None:
    raise NotImplementedError("records are not thrown away: restore the copy that was made before the upgrade")
