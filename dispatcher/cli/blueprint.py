"""`blueprint lint|render|schema|diff`: the first three work on files alone; none needs a daemon."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli import diff
from dispatcher.cli.errors import CliError, ExitCode, unwritable
from dispatcher.cli.options import Output, OutputOption
from dispatcher.cli.printing import emit_data
from dispatcher.config.lint import lint as lint_folder
from dispatcher.config.lint import lint_text, render_files, to_json
from dispatcher.config.schema import schemas, write_schemas

FolderArgument = Annotated[Path, typer.Argument(metavar="[DIR]", help="the blueprint's folder")]
_HERE = Path("config")


def build() -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check and render the operators' files.")
    app.command("lint")(lint)
    app.command("render")(render)
    app.command("schema")(schema)
    app.command("diff")(diff.diff)
    return app


def lint(folder: FolderArgument = _HERE, output: OutputOption = Output.TABLE) -> None:
    """Check a blueprint: every finding with file:line:column. Exit code 5 when it is not valid."""
    result = lint_folder(_folder(folder), _now())
    if output in (Output.JSON, Output.YAML):
        emit_data(to_json(result), output)
    else:
        sys.stdout.write(lint_text(result))
    if not result.ok:
        raise typer.Exit(ExitCode.INVALID_BLUEPRINT)


def render(
    folder: FolderArgument = _HERE,
    out: Annotated[
        Path | None, typer.Option("--out", help="write hub.yaml and worker-NAME.yaml here", metavar="DIR")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="only this cluster (may be repeated)", metavar="CLUSTER")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print (or write) the Kueue objects that the blueprint stands for."""
    try:
        found = render_files(_folder(folder), out, only or None, _now())
    except ValueError as error:
        raise CliError(str(error), where="--only", fix="name clusters of fleet.yaml", code=ExitCode.USAGE) from None
    except OSError as error:
        raise unwritable(error, str(out)) from None
    if not found.result.ok:
        sys.stderr.write(lint_text(found.result))
        raise typer.Exit(ExitCode.INVALID_BLUEPRINT)
    if output in (Output.JSON, Output.YAML):
        files = [str(path) for path in found.written]
        emit_data({"written": files} if out is not None else dict(found.texts), output)
    elif out is not None:
        sys.stdout.write("".join(f"{path}\n" for path in found.written))
    else:
        sys.stdout.write("".join(f"# {name}\n{text}" for name, text in found.texts))


def schema(
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="write DIR/schema/*.json; else print")] = None,
) -> None:
    """JSON Schemas of the four files, for editors."""
    if folder is None:
        for name, text in sorted(schemas().items()):
            sys.stdout.write(f"// {name}\n{text}")
        return
    try:
        written = write_schemas(_folder(folder))
    except OSError as error:
        raise unwritable(error, str(folder)) from None
    sys.stdout.write("".join(f"{path}\n" for path in written))


def _folder(folder: Path) -> Path:
    if not folder.is_dir():
        fix = "name the folder that holds fleet.yaml, queues.yaml, data.yaml and prices.yaml"
        raise CliError(f"{folder} is not a folder", where="DIR", fix=fix, code=ExitCode.USAGE)
    return folder


def _now() -> datetime:
    """Ages of prices and attestations are judged at the moment of asking."""
    return datetime.now(UTC)  # noqa: TID251 - the command line is where a command's time comes from
