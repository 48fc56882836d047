"""`entrepot`, also as `kubectl entrepot`: the commands, and the one place where an error becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from dispatcher.cli.errors import FULL, CliError, ExitCode, unwritable
from dispatcher.cli.usage import usage_error

_HELP = """Which cluster runs my job, and why.

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 daemon or hub unreachable, 5 invalid blueprint,
6 the doctor found something, 7 a replay differs, 8 the clusters differ from the blueprint.
`policy` commands: 0 fine, 1 found something, 2 not read."""


_COMMANDS = {
    "why": "ask.why",
    "why-not": "ask.why_not",
    "queue": "ask.queue",
    "clusters": "ask.clusters",
    "decisions": "ask.decisions",
    "data": "data.data",
    "snapshot": "snapshot.snapshot",
    "decide": "decide.decide",
    "replay": "replay.replay",
    "simulate": "simulate.simulate",
    "blueprint": "blueprint.build",
    "policy": "policy.build",
    "store": "store.build",
    "doctor": "doctor.doctor",
    "serve": "serve.serve",
    "version": "version.version",
}
"""Each command's function, in the order of the help; a `build` makes a group of commands."""


def build(only: str | None = None) -> typer.Typer:
    """All commands, or `only` one: a daemon that restarts must not wait for what the other commands import."""
    app = typer.Typer(
        name="entrepot",
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)  # also keeps a single command from becoming the program itself
    for name in [only] if only in _COMMANDS else _COMMANDS:
        module, _, function = _COMMANDS[name].partition(".")
        found: Callable[..., typer.Typer] = getattr(import_module(f"dispatcher.cli.{module}"), function)
        if function == "build":
            app.add_typer(found(), name=name)
        else:
            app.command(name)(found)
    return app


def _version(asked: bool) -> None:
    if asked:
        from dispatcher.cli.version import version

        version()
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="the version of this program")
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str], program: str = "entrepot") -> int:
    """Run one command line and return its exit code; everything that goes wrong is told on standard error."""
    first = arguments[0] if arguments else None
    try:
        command = build("version" if first == "--version" else first)
        code = command(list(arguments), prog_name=program, standalone_mode=False)
        sys.stdout.flush()  # what does not come out is told, not found when Python ends
    except CliError as error:
        sys.stderr.write(error.text() + "\n")
        return error.code
    except TyperException as error:
        if not arguments:  # nothing was asked, so nothing is wrong: what there is to ask is the answer
            sys.stderr.write(error.format_message() + "\n")
            return ExitCode.USAGE
        sys.stderr.write(usage_error(error, program).text() + "\n")
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        _give_up_output()  # the reader (head, less) has gone: that is its right
        return ExitCode.OK
    except OSError as error:
        if error.errno not in FULL:
            raise
        _give_up_output()
        sys.stderr.write(unwritable(error, "standard output").text() + "\n")
        return ExitCode.ERROR
    return code if isinstance(code, int) else ExitCode.OK


def _give_up_output() -> None:
    """Python must not complain again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Entry point of the `entrepot` and `kubectl-entrepot` scripts."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by whoever starts us: what is said there is for nobody
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115 - open as long as the process
    name = Path(sys.argv[0]).name
    sys.exit(run(sys.argv[1:], "kubectl entrepot" if name.startswith("kubectl-") else "entrepot"))


if __name__ == "__main__":
    main()
