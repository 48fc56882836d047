"""Leaders: the terms that began, and intents that two daemons cannot both open.

An intent names the version of the Workload that it was decided on. While one is open no other can be made for the
same Workload, and never two on the same version. Rows from before have no version; of several open ones of a Workload
the newest stays open (a start settles it against the hub).
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("intents", sa.Column("resource_version", sa.String(253), nullable=False, server_default=""))
    op.add_column("intents", sa.Column("term", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        "UPDATE intents SET state = 'abandoned' WHERE state = 'planned' AND EXISTS ("
        "SELECT 1 FROM intents later WHERE later.workload = intents.workload AND later.state = 'planned' AND "
        "(later.made_at > intents.made_at OR (later.made_at = intents.made_at AND later.decision > intents.decision)))"
    )
    open_only, decided = sa.text("state = 'planned'"), sa.text("state <> 'abandoned' AND resource_version <> ''")
    op.create_index(
        "intents_one_open",
        "intents",
        ["workload"],
        unique=True,
        sqlite_where=open_only,
        postgresql_where=open_only,
    )
    op.create_index(
        "intents_one_per_version",
        "intents",
        ["workload", "resource_version"],
        unique=True,
        sqlite_where=decided,
        postgresql_where=decided,
    )
    leadership = op.create_table(
        "leadership",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("term", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String(253), nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(leadership, [{"id": 1, "term": 0, "holder": "", "since": 0}])


def downgrade() -> None:
    raise NotImplementedError("records are not thrown away: restore the copy that was made before the upgrade")
