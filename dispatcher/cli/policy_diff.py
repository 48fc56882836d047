"""`policy diff`: what other rules would do to data, to what waits and to what runs, before they rule."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli import policy_state
from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.options import DEFAULT_SERVER, Output, OutputOption, ServerOption
from dispatcher.cli.policy_options import NowOption, PolicyExit, instant
from dispatcher.cli.policy_state import StateOption
from dispatcher.cli.printing import emit_data, note

if TYPE_CHECKING:
    from dispatcher.core.impact import Impact
    from dispatcher.core.work import Workbook

IN_FORCE = "in-force"
_SHOWN = 20


class Gate(StrEnum):
    """What may fail a pull request."""

    WIDENED = "widened"
    RUNNING = "newly-denied-running"
    QUEUED = "newly-denied-queued"
    DATA = "newly-denied-data"
    OBLIGATIONS = "obligations-added"
    ANY = "any"


def diff(  # noqa: PLR0913 - one parameter an option: that is how typer declares a command line
    base: Annotated[str, typer.Argument(help=f"a folder, REVISION:FOLDER, or `{IN_FORCE}`: the daemon's rules")],
    head: Annotated[str, typer.Argument(help="a folder or REVISION:FOLDER: the rules to come")],
    state: StateOption = None,
    from_daemon: Annotated[
        bool, typer.Option("--from-daemon", help="the work that the daemon sees now", show_default=False)
    ] = False,
    fail_on: Annotated[
        list[Gate] | None,
        typer.Option("--fail-on", help="exit with 1 if there is any (may be repeated)", case_sensitive=False),
    ] = None,
    now: NowOption = None,
    server: ServerOption = DEFAULT_SERVER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare two sets of rules over catalog and fleet; with --state or --from-daemon also over work.

    What widens comes first, then what becomes illegal. Changes nothing anywhere.

    Exit codes: 0 compared (whatever was found), 1 a --fail-on met something, 2 nothing was compared, 4 no daemon.
    """
    book = _book(base, state, server, from_daemon=from_daemon)
    at = instant(now) if now is not None or book is None else book.taken_at
    # Imported here: `policy lint` must answer at once.
    from dispatcher.cli import policy_diff_show as show
    from dispatcher.core.impact import impact

    old = book.policy if base == IN_FORCE and book is not None else policy_state.policy_at(base, at)
    new = policy_state.policy_at(head, at)
    if book is not None and book.policy.residency.digest != old.residency.digest:
        rules = book.policy.residency.digest[:8]
        note(f"the work was taken under rules {rules}, and BASE is {old.residency.digest[:8]}")
    if book is not None and book.unread:
        note(f"{len(book.unread)} workloads cannot be understood and are not judged: {', '.join(book.unread[:5])}")
    found = impact(old, new, book.work if book is not None else (), at)
    report = show.Report(base, head, old, new, at, found, book is not None)
    if output in (Output.JSON, Output.YAML):
        emit_data(show.to_data(report), output)
    else:
        sys.stdout.write(show.to_text(report, None if output is Output.WIDE else _SHOWN))
    met = [gate for gate in dict.fromkeys(fail_on or ()) if _meets(gate, found)]
    if met:
        sys.stderr.write(f"failed on {', '.join(gate.value for gate in met)}\n")
        raise typer.Exit(PolicyExit.FOUND)


def _book(base: str, state: StateOption, server: str, *, from_daemon: bool) -> Workbook | None:
    if state is not None and from_daemon:
        what, fix = "--state and --from-daemon contradict each other", "leave one of them out"
        raise CliError(what, where="--state", fix=fix, code=ExitCode.USAGE)
    if state is not None:
        return policy_state.of_file(state)
    if from_daemon:
        return policy_state.of_daemon(server)
    if base == IN_FORCE:
        fix = "add --from-daemon, or --state FILE"
        raise CliError("the rules in force are the daemon's", where="BASE", fix=fix, code=ExitCode.USAGE)
    return None


def _meets(gate: Gate, found: Impact) -> bool:
    from dispatcher.core.impact import Effect

    if gate is Gate.WIDENED:
        return found.widened
    if gate is Gate.DATA:
        return bool(found.rests)
    if gate is Gate.ANY:
        return not found.empty
    effects = {
        Gate.RUNNING: (Effect.DENIED_RUNNING,),
        Gate.QUEUED: (Effect.DENIED_QUEUED, Effect.DENIED_NOMINATED),
        Gate.OBLIGATIONS: (Effect.BOUND,),
    }[gate]
    return any(found.of(effect) for effect in effects)
