"""`decide`: the production decision on files alone, for what-if questions and bug reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from dispatcher.cli.errors import CliError, ExitCode, undecidable
from dispatcher.cli.options import Output, OutputOption, instant
from dispatcher.cli.printing import emit, note
from dispatcher.cli.show_why import decision_page

if TYPE_CHECKING:
    from dispatcher.config import LoadResult
    from dispatcher.core.workload import Request
    from dispatcher.store.documents import TakenSnapshot


def decide(
    snapshot: Annotated[Path, typer.Option("--snapshot", help="a file of `entrepot snapshot`", metavar="FILE")],
    request: Annotated[
        Path, typer.Option("--request", help="a Job or JobSet manifest, or a stored request or record", metavar="FILE")
    ],
    blueprint: Annotated[
        Path, typer.Option("--blueprint", envvar="ENTREPOT_BLUEPRINT", help="the blueprint's folder", metavar="DIR")
    ] = Path("config"),
    now: Annotated[
        str | None, typer.Option("--now", help="decide as of this instant; default: the snapshot's", metavar="TIME")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Which cluster would it be? Decides offline, with the daemon's own code; nothing is written anywhere."""
    # Imported here: `why` must answer at once.
    from dispatcher.core.stakes import decide_knowing
    from dispatcher.web import decisions as shown

    taken = read_snapshot(snapshot)
    at = instant(now, "--now") if now is not None else taken.taken_at
    loaded = read_blueprint(blueprint, at)
    assert loaded.policy is not None
    if loaded.policy.digest != taken.policy_digest:
        note(f"the snapshot was taken under policy {taken.policy_digest}; this decides under {loaded.policy.digest}")
    wanted = _request(request, loaded, at)
    try:
        decision = decide_knowing(wanted, taken.snapshot, loaded.policy, at, taken.running or {})
    except (ValueError, LookupError, ArithmeticError) as error:
        fix = "add the queue to queues.yaml, or let the request name a workload class"
        raise CliError(undecidable(error), where=str(request), fix=fix, code=ExitCode.USAGE) from None
    if taken.running is None and any(victim.ours for each in decision.candidates for victim in each.preempts):
        note("the snapshot says nothing of what runs: preemptions are priced by the queue's class, without checkpoints")
    view = shown.full(decision)
    emit(view, None, output, partial(decision_page, view))


def read_snapshot(file: Path) -> TakenSnapshot:
    """A file of `entrepot snapshot`. Raises CliError."""
    from dispatcher.store import CodecError
    from dispatcher.store.documents import decode_snapshot

    try:
        return decode_snapshot(_content(file))
    except CodecError as error:
        fix = "make one with: entrepot snapshot -o FILE"
        raise CliError(str(error), where=str(file), fix=fix, code=ExitCode.USAGE) from None


def read_blueprint(folder: Path, at: datetime) -> LoadResult:
    """A blueprint with its policy. Raises CliError, with every error in it."""
    from dispatcher.config import load_blueprint

    loaded = load_blueprint(folder, at)
    if loaded.policy is None:
        errors = "\n".join(problem.text() for problem in loaded.errors)
        fix = f"correct the files: entrepot blueprint lint {folder}"
        raise CliError(errors, where=str(folder), fix=fix, code=ExitCode.INVALID_BLUEPRINT)
    return loaded


def _request(file: Path, loaded: LoadResult, at: datetime) -> Request:
    from dispatcher.store import CodecError
    from dispatcher.store.documents import decode_request

    body = _document(file)
    if "kind" in body:
        return _of_manifest(file, body, loaded, at)
    try:
        return decode_request(body)
    except CodecError as error:
        said = str(error) if "format" in body else "no Kubernetes object: it has no kind"
        fix = "give a Job or JobSet manifest, or what GET /v1/decisions/ID/inputs answers"
        raise CliError(said, where=str(file), fix=fix, code=ExitCode.USAGE) from None


def _document(file: Path) -> Mapping[str, Any]:
    content = _content(file)
    try:
        if content.lstrip().startswith(b"{"):
            found = [json.loads(content)]
        else:
            found = [document for document in yaml.safe_load_all(content) if document is not None]
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        what = " ".join(str(error).split())
        fix = "give one YAML or JSON document"
        raise CliError(f"cannot be read: {what}", where=str(file), fix=fix, code=ExitCode.USAGE) from None
    if len(found) != 1 or not isinstance(found[0], dict):
        fix = "give one Job or JobSet a file"
        what = "no object, but a list or a value" if len(found) == 1 else f"{len(found)} documents, not one"
        raise CliError(what, where=str(file), fix=fix, code=ExitCode.USAGE)
    return found[0]


def _of_manifest(file: Path, manifest: Mapping[str, Any], loaded: LoadResult, at: datetime) -> Request:
    from dispatcher.app.offline import request_of_manifest
    from dispatcher.core.errors import Refused
    from dispatcher.core.explain import problems_text
    from dispatcher.core.workload import Request

    assert loaded.blueprint is not None
    assert loaded.policy is not None
    try:
        built = request_of_manifest(manifest, loaded.blueprint, loaded.policy, at)
    except Refused as error:
        fix = "the namespace and queue must be in the blueprint's queues.yaml; kinds are Job and JobSet"
        raise CliError(str(error), where=str(file), fix=fix, code=ExitCode.USAGE) from None
    if not isinstance(built, Request):
        fix = "the daemon would hold it back for this"
        raise CliError(problems_text(built), where=str(file), fix=fix, code=ExitCode.USAGE)
    return built


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        fix = "name a file that you may read"
        raise CliError(f"cannot be read: {error.strerror}", where=str(file), fix=fix, code=ExitCode.USAGE) from None
