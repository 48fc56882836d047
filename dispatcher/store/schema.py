"""The schema's revisions: bringing a store to this version's, and refusing one that is not."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, inspect

from dispatcher.core.errors import Fatal


def upgrade(connection: Connection, where: str) -> None:
    """Bring the schema to this version's, in the connection's transaction.

    Raises:
        Fatal: written by a newer version.
    """
    old = revision_of(connection)
    try:
        command.upgrade(config_for(connection), "head")
    except CommandError:
        raise Fatal(
            f"store: {where} has schema {old}, which this version does not know",
            fix="run the version that wrote it, or put back the copy made before the upgrade (docs/operate.md)",
        ) from None


def outdated(connection: Connection) -> str | None:
    """The revision of a store that an upgrade would change; None for a new, a current or an unknown one."""
    old, script = revision_of(connection), ScriptDirectory.from_config(config_for(connection))
    known = {revision.revision for revision in script.walk_revisions()}
    return old if old in known and old != script.get_current_head() else None


def require_head(connection: Connection, where: str) -> None:
    """Raises Fatal unless this is a store of exactly this version's schema."""
    if not inspect(connection).has_table("decisions"):
        raise Fatal(f"store: {where} holds no records of Entrepot", fix="name the daemon's store with --store")
    found, head = revision_of(connection), head_of(connection)
    if found != head:
        raise Fatal(
            f"store: {where} has schema {found}, this command reads schema {head}",
            fix="use the command line of the daemon's own version, or start the daemon once to upgrade the store",
        )


def revision_of(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def head_of(connection: Connection) -> str:
    head = ScriptDirectory.from_config(config_for(connection)).get_current_head()
    assert head is not None, "a package without migrations cannot have been built"
    return head


def config_for(connection: Connection) -> Config:
    """Alembic's configuration on a connection; nothing of it is in a file."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
