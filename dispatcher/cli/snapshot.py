"""`snapshot`: everything that a decision would see now, as a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli.client import Client
from dispatcher.cli.errors import unwritable
from dispatcher.cli.files import write_whole
from dispatcher.cli.options import DEFAULT_SERVER, ServerOption
from dispatcher.cli.printing import note
from dispatcher.web.models import SnapshotDocument


def snapshot(
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="write it here; else to standard output", metavar="FILE")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Take what a decision would see now: clusters, promises, the hub's queues. For `decide`; holds no secret."""
    with Client(server) as client:
        view, raw = client.get(SnapshotDocument, "/v1/snapshot")
    if out is None:
        sys.stdout.write(raw.decode())
        return
    try:
        write_whole(out, raw)
    except OSError as error:
        raise unwritable(error, str(out), "name a file that you may write") from None
    note(f"{out}: {len(raw)} bytes, taken at {view.taken_at.isoformat()} under policy {view.policy_digest}")
