"""`doctor`: what is set up wrong on hub and workers, each with its fix."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.hub import KubeconfigOption, hub_kubeconfig, hub_not_read
from dispatcher.cli.options import Output, OutputOption
from dispatcher.cli.printing import console, emit_data
from dispatcher.core.doctor.codes import RANK, Severity
from dispatcher.core.doctor.findings import Finding


def severity_of(text: str | Severity) -> Severity:
    """A severity, also by its beginning (`warn`). Raises BadParameter."""
    found = [each for each in Severity if text and each.value.startswith(text.lower())]
    if len(found) != 1:
        raise typer.BadParameter(f"{text!r} is none of note, warning, error")
    return found[0]


def doctor(  # noqa: PLR0913 - one parameter an option: that is how typer declares a command line
    kubeconfig: KubeconfigOption = None,
    blueprint: Annotated[
        Path | None,
        typer.Option("--blueprint", envvar="ENTREPOT_BLUEPRINT", help="compare with this blueprint", metavar="DIR"),
    ] = None,
    severity: Annotated[
        Severity,
        typer.Option(
            "--severity",
            parser=severity_of,
            help="show only findings that are at least so bad",
            metavar="note|warning|error",
        ),
    ] = Severity.NOTE,
    kueue_namespace: Annotated[
        str, typer.Option("--kueue-namespace", help="where Kueue runs on hub and workers", metavar="NAME")
    ] = "kueue-system",
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="seconds that one cluster may take", metavar="S")
    ] = 60.0,
    server: Annotated[
        str | None,
        typer.Option(
            "--server", envvar="ENTREPOT_SERVER", help="ask this daemon what it sees of data and ghosts", metavar="URL"
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Look at hub, workers and blueprint: everything that is set up wrong, each with its fix. Changes nothing.

    Exit codes: 0 nothing wrong (or notes only), 4 the hub cannot be reached, 6 warnings or errors.
    """
    if blueprint is not None and not blueprint.is_dir():
        fix = "name the folder that holds fleet.yaml, queues.yaml, data.yaml and prices.yaml"
        raise CliError(f"{blueprint} is not a folder", where="--blueprint", fix=fix, code=ExitCode.USAGE)
    # Imported here: only this command and the daemon need the connectors, and `why` must answer at once.
    from dispatcher.app.doctor import DoctorOptions, examine
    from dispatcher.cli.doctor_daemon import ask_daemon
    from dispatcher.cli.show_doctor import doctor_page, progress_line, to_data
    from dispatcher.logs import configure
    from dispatcher.runtime import SystemClock

    configure("critical")  # what the client would log is a finding here
    with progress_line() as progress:
        daemon = ask_daemon(server, progress) if server is not None else None
        options = DoctorOptions(hub_kubeconfig(kubeconfig), blueprint, kueue_namespace, timeout, daemon)
        found = asyncio.run(examine(options, SystemClock(), progress))
    shown = tuple(finding for finding in found.findings if RANK[finding.severity] <= RANK[severity])
    if output in (Output.JSON, Output.YAML):
        emit_data(to_data(found.facts, shown), output)
    else:
        doctor_page(console(), found.facts, shown)
    if found.hub_error is not None:
        raise hub_not_read(found.hub_error, options.kubeconfig)
    if anything_wrong(found.findings):
        raise typer.Exit(ExitCode.FINDINGS)


def anything_wrong(findings: tuple[Finding, ...]) -> bool:
    """Judged on all findings, not on those shown: --severity narrows what is read, not what is true."""
    return any(finding.severity is not Severity.NOTE for finding in findings)
