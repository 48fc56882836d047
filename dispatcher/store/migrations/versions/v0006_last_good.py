"""The files of the bundle that ruled last. An older store has none until the next one is recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "last_good",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("tree", sa.String(64), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("files", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError("records are not thrown away: restore the copy that was made before the upgrade")
