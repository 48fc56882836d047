"""The schema's revisions: bringing a store to this version's, and refusing one that is not.

Alembic is loaded only where there is something to bring up: a restart on a current store does without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from dispatcher.core.errors import Fatal

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0009"
"""The newest revision in migrations/versions."""


def upgrade(connection: Connection, where: str) -> None:
    """Bring the schema to this version's, in the connection's transaction.

    Raises:
        Fatal: written by a newer version.
    """
    old = revision_of(connection)
    if old == HEAD:
        return
    from alembic import command
    from alembic.util.exc import CommandError

    try:
        command.upgrade(config_for(connection), "head")
    except CommandError:
        raise Fatal(
            f"store: {where} has schema {old}, which this version does not know",
            fix="run the version that wrote it, or put back the copy made before the upgrade (docs/operate.md)",
        ) from None


def outdated(connection: Connection) -> str | None:
    """The revision of a store that an upgrade would change; None for a new, a current or an unknown one."""
    old = revision_of(connection)
    if old is None or old == HEAD:
        return None
    from alembic.script import ScriptDirectory

    script = ScriptDirectory.from_config(config_for(connection))
    return old if old in {revision.revision for revision in script.walk_revisions()} else None


def require_head(connection: Connection, where: str) -> None:
    """Raises Fatal unless this is a store of exactly this version's schema."""
    if not inspect(connection).has_table("decisions"):
        raise Fatal(f"store: {where} holds no records of Entrepot", fix="name the daemon's store with --store")
    found = revision_of(connection)
    if found != HEAD:
        raise Fatal(
            f"store: {where} has schema {found}, this command reads schema {HEAD}",
            fix="use the command line of the daemon's own version, or start the daemon once to upgrade the store",
        )


def revision_of(connection: Connection) -> str | None:
    """What Alembic has noted in the store; None = nothing yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return str(found) if found is not None else None


def config_for(connection: Connection) -> Config:
    """Alembic's configuration on a connection; nothing of it is in a file."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
