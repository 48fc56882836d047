"""Alembic's environment: the connection is always handed in by `dispatcher.store.opening`, there is no .ini file."""

from alembic import context

from dispatcher.store.tables import METADATA


def run() -> None:
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=METADATA,
        render_as_batch=True,
        transaction_per_migration=False,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
