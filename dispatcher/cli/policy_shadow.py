"""`policy shadow`: what rules that do not rule would have done, as the daemon sees it now."""

from __future__ import annotations

from functools import partial

from rich.console import Console
from rich.text import Text

from dispatcher.cli.client import Client
from dispatcher.cli.options import DEFAULT_SERVER, Output, OutputOption, ServerOption
from dispatcher.cli.printing import clock, emit, grid
from dispatcher.web.models_law import BesideView, ShadowView


def shadow(server: ServerOption = DEFAULT_SERVER, output: OutputOption = Output.TABLE) -> None:
    """List where the candidate of `serve --shadow-policy` differs, and what rules on trial would have denied.

    Exit codes: 0 there is an answer, 4 no daemon.
    """
    with Client(server) as client:
        view, raw = client.get(ShadowView, "/v1/shadow")
    emit(view, raw, output, partial(_page, view))


def _page(view: ShadowView, out: Console, wide: bool) -> None:
    if view.candidate is not None:
        beside = f"{view.candidate[:8]} beside them since {clock(view.loaded_at)}"
    elif view.errors:
        beside = "the candidate beside them has never been valid"
    else:
        beside = "no candidate beside them: serve --shadow-policy DIR"
    out.print(f"rules {view.live[:8]} rule; {beside}")
    for error in view.errors:
        out.print(Text(f"not used: {error}", style="red"))
    if not view.items:
        out.print(f"no difference over {view.looked_at} workloads")
        return
    table = grid("workload", "stage", "would", "clusters", "why", flexible="why")
    for one in view.items:
        table.add_row(one.workload, one.stage, _would(one), _clusters(one), "; ".join(_why(one, wide)))
    out.print(table)


def _would(one: BesideView) -> str:
    return ", ".join((*one.effects, *(("would have denied",) if one.trials else ())))


def _clusters(one: BesideView) -> str:
    return f"{len(one.legal_before)} -> {len(one.legal_after)}" if one.effects else "-"


def _why(one: BesideView, wide: bool) -> tuple[str, ...]:
    trials = tuple(f"{trial.rule} ({trial.mode}) on {trial.clause}, {trial.at}" for trial in one.trials)
    found = (*one.reasons, *trials)
    return found if wide else found[:1]
