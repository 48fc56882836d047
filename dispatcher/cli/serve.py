"""`serve`: the daemon itself."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.options import DEFAULT_LISTEN
from dispatcher.core.errors import EntrepotError, Fatal


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(  # noqa: PLR0913 - one parameter an option: that is how typer declares a command line
    blueprint: Annotated[
        Path, typer.Option("--blueprint", envvar="ENTREPOT_BLUEPRINT", help="the blueprint's folder", metavar="DIR")
    ] = Path("config"),
    kubeconfig: Annotated[
        Path | None,
        typer.Option("--kubeconfig", help="the hub's kubeconfig; else the pod's own account", metavar="FILE"),
    ] = None,
    store: Annotated[
        Path, typer.Option("--store", envvar="ENTREPOT_STORE", help="where decisions are kept", metavar="FILE")
    ] = Path("entrepot.db"),
    listen: Annotated[
        str, typer.Option("--listen", help="address of the API, health and metrics", metavar="HOST:PORT")
    ] = DEFAULT_LISTEN,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="dispatch for an in-memory fleet, to try it out")
    ] = False,
    speed: Annotated[
        float, typer.Option("--speed", min=0.01, help="seconds of the embedded fleet per real second", metavar="N")
    ] = 1.0,
    log_level: Annotated[LogLevel, typer.Option("--log-level", case_sensitive=False)] = LogLevel.INFO,
) -> None:
    """Run the daemon until it is signalled."""
    if embedded and kubeconfig is not None:
        raise CliError(
            "--embedded has no hub to connect to",
            where="--kubeconfig",
            fix="leave one of them out",
            code=ExitCode.USAGE,
        )
    if speed != 1.0 and not embedded:
        raise CliError("a real fleet cannot be sped up", where="--speed", fix="add --embedded", code=ExitCode.USAGE)
    # Imported here: only the daemon needs the connectors, and `why` must answer at once.
    from dispatcher.app import serve as daemon
    from dispatcher.logs import configure

    configure(log_level.value)
    options = daemon.ServeOptions(blueprint, store, listen, kubeconfig, log_level.value, embedded, speed)
    try:
        asyncio.run(daemon.serve(options))
    except daemon.BlueprintInvalid as error:
        fix = f"correct the files: entrepot blueprint lint {blueprint}"
        raise CliError(str(error), where=str(blueprint), fix=fix, code=ExitCode.INVALID_BLUEPRINT) from None
    except (EntrepotError, BaseExceptionGroup) as error:
        raise _explained(error, daemon.reason_of(error)) from error


def _explained(error: BaseException, reason: EntrepotError | None) -> CliError:
    if reason is None:
        raise error  # a bug of ours keeps its traceback
    fix = reason.fix if isinstance(reason, Fatal) else "see the log above; start again when that is repaired"
    return CliError(str(reason), where="entrepot serve", fix=fix)
