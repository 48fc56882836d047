"""What the `policy` commands share: the folder, the instant at which they judge, their exit codes."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.config.lint import lint_text
from dispatcher.config.residency.world import World, look
from dispatcher.core.literals import LiteralError, parse_instant

FolderArgument = Annotated[Path, typer.Argument(metavar="[DIR]", help="the blueprint's folder, with residency/ in it")]
NowOption = Annotated[
    str | None, typer.Option("--now", help="judge ages and ends at this instant; else now", metavar="TIME")
]
HERE = Path("config")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PolicyExit(IntEnum):
    """What CI may rely on (docs/cli.md)."""

    FINE = 0
    FOUND = 1
    """Errors, failing tests, too little coverage: the rules should not be merged."""
    NOT_READ = 2
    """Nothing was judged: a wrong option, no such folder, or (for `test` and `facts`) a blueprint that is not valid."""


def folder_of(folder: Path) -> Path:
    """The folder, if it is one. Raises CliError."""
    if not folder.is_dir():
        fix = "name the folder that holds fleet.yaml, queues.yaml, data.yaml, prices.yaml and residency/"
        raise CliError(f"{folder} is not a folder", where="DIR", fix=fix, code=ExitCode.USAGE)
    return folder


def instant(text: str | None) -> datetime:
    """What --now says, else the moment of asking. Raises CliError."""
    if text is None:
        at = datetime.now(UTC)  # noqa: TID251 - the command line is where a command's time comes from
        where, fix = "this machine's clock", "set it, or say --now 2026-11-29T12:00:00Z"
    else:
        where, fix = "--now", "such as 2026-11-29T12:00:00Z"
        try:
            at = parse_instant(text)
        except LiteralError as error:
            raise CliError(f"{text!r}: {error}", where=where, fix=fix, code=ExitCode.USAGE) from None
    if at < _EPOCH:
        said = f"{at.isoformat()} is before 1970: every rule, attestation and exception would be judged wrongly"
        raise CliError(said, where=where, fix=fix, code=ExitCode.USAGE)
    return at


def world_at(folder: Path, now: datetime) -> World:
    """The rules with their fleet; tells what is wrong and ends the command when the blueprint is not valid."""
    result, world = look(folder_of(folder), now)
    if world is None:
        sys.stderr.write(lint_text(result))
        raise typer.Exit(PolicyExit.NOT_READ)
    return world
