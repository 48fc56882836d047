"""The work that previews are about: from a file of `entrepot snapshot`, or from the daemon; and blueprints by folder or
by git revision."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.client import Client
from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.policy_options import world_at
from dispatcher.web.models_law import WorkDocument

if TYPE_CHECKING:
    from dispatcher.core.policy import Policy
    from dispatcher.core.work import Workbook

StateOption = Annotated[
    Path | None, typer.Option("--state", help="the work of a file that `entrepot snapshot` wrote", metavar="FILE")
]
GIT_PATIENCE_S = 30


def of_file(path: Path) -> Workbook:
    """Raises CliError: it cannot be read, or holds no work."""
    # Imported here, as below: the store's codecs take longer to load than a lint needs.
    from dispatcher.store import CodecError
    from dispatcher.store.documents import decode_workbook

    try:
        return decode_workbook(path.read_bytes())
    except OSError as error:
        fix = "name a file that you may read"
        said = f"cannot be read: {error.strerror}"
        raise CliError(said, where=str(path), fix=fix, code=ExitCode.USAGE) from None
    except CodecError as error:
        fix = "make one with: entrepot snapshot -o FILE"
        raise CliError(str(error), where=str(path), fix=fix, code=ExitCode.USAGE) from None


def of_daemon(server: str) -> Workbook:
    """Raises CliError: nobody answers there, or not in a way that this version reads."""
    from dispatcher.store import CodecError
    from dispatcher.store.documents import decode_workbook

    with Client(server) as client:
        _, raw = client.get(WorkDocument, "/v1/work")
    try:
        return decode_workbook(raw)
    except CodecError as error:
        fix = "use the command line of the daemon's version"
        raise CliError(str(error), where=server, fix=fix, code=ExitCode.USAGE) from None


def policy_at(place: str, now: datetime) -> Policy:
    """The blueprint of a folder, or of a folder at a git revision, written REVISION:FOLDER.

    Raises CliError, or typer.Exit after telling what is wrong with the files.
    """
    if Path(place).is_dir():
        return world_at(Path(place), now).policy
    revision, colon, folder = place.partition(":")
    if not colon or not revision:
        fix = "name a folder, or a folder at a git revision: origin/main:config"
        raise CliError(f"{place!r} is not a folder", where="BASE or HEAD", fix=fix, code=ExitCode.USAGE)
    with tempfile.TemporaryDirectory(prefix="entrepot-") as empty:
        _unpack(revision, folder.strip("/"), Path(empty))
        return world_at(Path(empty), now).policy


def _unpack(revision: str, folder: str, into: Path) -> None:
    """`git archive` of a tree: no work tree is touched."""
    tree = f"{revision}:{folder}"
    command = ["git", "archive", "--format=tar", tree]
    try:
        done = subprocess.run(command, check=True, capture_output=True, timeout=GIT_PATIENCE_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        fix = "name a revision that git knows here and a folder in it, from the repository's root"
        what = " ".join(said.decode(errors="replace").split())
        raise CliError(what, where=tree, fix=fix, code=ExitCode.USAGE) from None
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(into, filter="data")
