"""What decisions saw, so that they can be replayed. Decisions from before have no inputs and are told so."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "input_segments",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("decisions", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "input_pieces",
        sa.Column("segment", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(16), primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "inputs",
        sa.Column("decision", sa.String(64), primary_key=True),
        sa.Column("segment", sa.BigInteger, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("inputs_by_segment", "inputs", ["segment"])


def downgrade() -> None:
    raise NotImplementedError("records are not thrown away: restore the copy that was made before the upgrade")
