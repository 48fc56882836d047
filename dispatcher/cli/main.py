"""`entrepot`, also as `kubectl entrepot`: the commands, and the one place where an error becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer
from typer.exceptions import TyperException

from dispatcher.cli import ask, blueprint, decide, doctor, policy, replay, serve, snapshot, store, version
from dispatcher.cli.errors import CliError, ExitCode

_HELP = """Which cluster runs my job, and why.

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 daemon or hub unreachable, 5 invalid blueprint,
6 the doctor found something, 7 a replay differs, 8 the clusters differ from the blueprint.
`policy` commands: 0 fine, 1 found something, 2 not read."""


def build() -> typer.Typer:
    app = typer.Typer(
        name="entrepot",
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command("why")(ask.why)
    app.command("why-not")(ask.why_not)
    app.command("queue")(ask.queue)
    app.command("clusters")(ask.clusters)
    app.command("decisions")(ask.decisions)
    app.command("snapshot")(snapshot.snapshot)
    app.command("decide")(decide.decide)
    app.command("replay")(replay.replay)
    app.add_typer(blueprint.build(), name="blueprint")
    app.add_typer(policy.build(), name="policy")
    app.add_typer(store.build(), name="store")
    app.command("doctor")(doctor.doctor)
    app.command("serve")(serve.serve)
    app.command("version")(version.version)
    return app


def run(arguments: Sequence[str], program: str = "entrepot") -> int:
    """Run one command line and return its exit code; everything that goes wrong is told on standard error."""
    try:
        code = build()(list(arguments), prog_name=program, standalone_mode=False)
    except CliError as error:
        sys.stderr.write(error.text() + "\n")
        return error.code
    except TyperException as error:
        sys.stderr.write(_usage(error, program).text() + "\n")
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone: that is its right. Python must not complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    return code if isinstance(code, int) else ExitCode.OK


def _usage(error: TyperException, program: str) -> CliError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else program
    return CliError(error.format_message(), where=command, fix=f"see: {command} --help", code=ExitCode.USAGE)


def main() -> None:
    """Entry point of the `entrepot` and `kubectl-entrepot` scripts."""
    name = Path(sys.argv[0]).name
    sys.exit(run(sys.argv[1:], "kubectl entrepot" if name.startswith("kubectl-") else "entrepot"))


if __name__ == "__main__":
    main()
