"""Which hub those commands mean that look at clusters themselves (doctor, blueprint diff), and what if it is away."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.printing import note

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"

KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        envvar="KUBECONFIG",
        help="the hub's kubeconfig; else the pod's own account, else the one in your home",
        metavar="FILE",
    ),
]


def hub_kubeconfig(named: Path | None) -> Path | None:
    """As kubectl looks for it; None: the pod's own account. A list of files is not merged: the first is taken."""
    if named is not None:
        first, separator, _ = str(named).partition(os.pathsep)
        if separator:
            note(f"of the files in KUBECONFIG only {first} is read")
        return Path(first)
    if os.environ.get(_IN_CLUSTER):
        return None
    return Path.home() / ".kube" / "config"


def hub_not_read(reason: str, kubeconfig: Path | None, code: ExitCode = ExitCode.UNREACHABLE) -> CliError:
    where = str(kubeconfig or "the pod's own account")
    fix = "name the hub's with --kubeconfig FILE, and check it: kubectl --kubeconfig FILE get --raw /readyz"
    return CliError(f"the hub was not read: {reason}", where=where, fix=fix, code=code)
