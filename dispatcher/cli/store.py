"""`store`: looking after the daemon's memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.printing import note
from dispatcher.core.errors import EntrepotError, Fatal


def build() -> typer.Typer:
    app = typer.Typer(help="Look after the daemon's store.", no_args_is_help=True)
    app.command("backup")(backup)
    return app


def backup(
    to: Annotated[Path, typer.Argument(metavar="FILE", help="the copy; must not exist yet")],
    store: Annotated[
        str, typer.Option("--store", envvar="ENTREPOT_STORE", help="the daemon's store file", metavar="FILE")
    ] = "entrepot.db",
) -> None:
    """Copy a store file while the daemon runs; the copy is consistent, and appears whole or not at all."""
    # Imported here: opening a database takes longer to load than everything else together.
    from dispatcher.store import copy_store, shown

    try:
        asyncio.run(copy_store(store, to))
    except EntrepotError as error:
        fix = error.fix if isinstance(error, Fatal) else "see docs/operate.md, Backup"
        raise CliError(str(error), where=shown(store), fix=fix, code=ExitCode.ERROR) from None
    note(f"copied {shown(store)} to {to}")
