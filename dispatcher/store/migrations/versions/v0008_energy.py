"""Where runs ran and what they drew. Of runs of before nothing is known: unknown, not zero."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("uses", sa.Column("key", sa.String(320)))
    op.add_column("uses", sa.Column("cluster", sa.String(253)))
    op.add_column("uses", sa.Column("draw_mw", sa.BigInteger))
    op.add_column("uses", sa.Column("grid_g_per_kwh", sa.BigInteger))
    op.create_index("uses_by_key", "uses", ["key", "begun_at"])


def downgrade() -> None:
    raise NotImplementedError("records are not thrown away: restore the copy that was made before the upgrade")
