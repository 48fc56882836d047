"""`replay`: a recorded decision decided again from what it saw, and held against its record byte for byte."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.text import Text

from dispatcher.cli.client import Client
from dispatcher.cli.errors import CliError, ExitCode, undecidable
from dispatcher.cli.options import DEFAULT_SERVER, Output, OutputOption, ServerOption, StoreOption
from dispatcher.cli.printing import emit, grid
from dispatcher.core.replay import Change, Replay, Scalar, Verdict, compare
from dispatcher.core.replay import replay as decide_again
from dispatcher.web.models import RecordDocument

if TYPE_CHECKING:
    from dispatcher.core.replay import Record

_WORDS = {
    Verdict.SAME: ("same: the same inputs give the same bytes", "bold green"),
    Verdict.SAME_ANSWER: ("same answer: another version of the decision code decides the same", "bold yellow"),
    Verdict.DIFFERS: ("differs: the same inputs give another decision", "bold red"),
}


class DifferenceView(BaseModel):
    path: str
    change: Change
    recorded: Scalar
    replayed: Scalar


class ReplayView(BaseModel):
    """What `replay -o json` prints; keys are stable."""

    model_config = ConfigDict(frozen=True)

    decision: str
    key: str
    verdict: Verdict
    recorded_sha256: str
    replayed_sha256: str
    recorded_version: str
    replayed_version: str
    request_digest: str
    snapshot_digest: str
    policy_digest: str
    differences: tuple[DifferenceView, ...]


def replay(
    decision: Annotated[
        str,
        typer.Argument(
            metavar="DECISION",
            help="a decision's id or its beginning (4 letters or more), or a record file (with a '/', or .json)",
        ),
    ],
    output: OutputOption = Output.TABLE,
    server: ServerOption = DEFAULT_SERVER,
    store: StoreOption = None,
) -> None:
    """Decide again from what a decision saw. Exit code 0 when it comes out the same, 7 when it does not.

    With --store FILE the record is read from that file, else from the daemon.
    """
    # Imported here: opening a database takes longer to load than everything else together.
    from dispatcher.store.documents import replayed_digest

    record = _record(decision, server, store)
    try:
        again = decide_again(record.inputs)
        found = compare(record, again, replayed_digest(again))
    except (ValueError, LookupError, ArithmeticError) as error:
        what = f"cannot be decided again: {undecidable(error)}"
        fix = "its inputs are not those of a decision: report this with the record (GET /v1/decisions/ID/inputs)"
        raise CliError(what, where=f"decision {decision}", fix=fix) from None
    view = _view(record, found)
    emit(view, None, output, partial(_page, view))
    if found.verdict is Verdict.DIFFERS:
        raise typer.Exit(ExitCode.DIFFERS)


def _record(decision: str, server: str, store: str | None) -> Record:
    from dispatcher.store import CodecError
    from dispatcher.store.documents import decode_record

    if "/" in decision or decision.endswith(".json"):
        where, content = decision, _content(Path(decision))
    elif store is not None:
        return _stored(decision, store)
    else:
        with Client(server) as client:
            where, content = server, client.get(RecordDocument, f"/v1/decisions/{decision}/inputs")[1]
    try:
        return decode_record(content)
    except CodecError as error:
        fix = "use the command line of the version that made the record"
        raise CliError(str(error), where=where, fix=fix) from None


def _stored(decision: str, file: str) -> Record:
    from dispatcher.cli.records import Records

    records = Records(file)
    found = records.decision(decision)
    if found is None:
        what, fix = f"no decision {decision}", "`entrepot decisions --store FILE` lists ids"
        raise CliError(what, where=records.where, fix=fix, code=ExitCode.NOT_FOUND)
    record = records.record(found.id)
    if record is None:
        what = f"the inputs of decision {found.id} are not kept"
        fix = "they are kept for a bounded time and size, and not of decisions from before an upgrade (docs/replay.md)"
        raise CliError(what, where=records.where, fix=fix, code=ExitCode.NOT_FOUND)
    return record


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        fix = "name a record file, or a decision's id"
        raise CliError(f"cannot be read: {error.strerror}", where=str(file), fix=fix, code=ExitCode.USAGE) from None


def _view(record: Record, found: Replay) -> ReplayView:
    decision = record.decision
    return ReplayView(
        decision=decision.id,
        key=decision.key,
        verdict=found.verdict,
        recorded_sha256=found.recorded_digest,
        replayed_sha256=found.replayed_digest,
        recorded_version=found.recorded_version,
        replayed_version=found.replayed_version,
        request_digest=decision.request_digest,
        snapshot_digest=decision.snapshot_digest,
        policy_digest=decision.policy_digest,
        differences=tuple(
            DifferenceView(path=d.path, change=d.change, recorded=d.recorded, replayed=d.replayed)
            for d in found.differences
        ),
    )


def _page(view: ReplayView, out: Console, wide: bool) -> None:
    words, style = _WORDS[view.verdict]
    out.print(Text(words, style=style))
    out.print(Text(f"decision {view.decision} on {view.key}"))
    table = grid("", "code", "sha256", flexible="sha256")
    table.add_row("recorded", view.recorded_version, view.recorded_sha256)
    table.add_row("replayed", view.replayed_version, view.replayed_sha256)
    out.print(table)
    out.print(
        Text(
            f"request {view.request_digest}, snapshot {view.snapshot_digest}, policy {view.policy_digest}", style="dim"
        )
    )
    if view.differences:
        out.print()
        listed = grid("where", "", "recorded", "replayed", flexible="where")
        for one in view.differences:
            listed.add_row(one.path, one.change.value, _cell(one.recorded), _cell(one.replayed))
        out.print(listed)


def _cell(value: Scalar) -> str:
    return "-" if value is None else str(value)
