"""Runs of equal waits keep their first and newest record: the reasons' fingerprint and how many lay between.

Rows from before have no fingerprint and are never thinned.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("decisions", sa.Column("reasons", sa.String(16)))
    op.add_column("decisions", sa.Column("repeats", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    raise NotImplementedError("records are not thrown away: restore the file that was copied before the upgrade")
