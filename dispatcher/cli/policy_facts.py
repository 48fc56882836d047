"""`policy facts`: what nobody attests, or soon no longer, and what hangs on it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from dispatcher.cli.options import Output, OutputOption
from dispatcher.cli.policy_options import HERE, FolderArgument, NowOption, instant, world_at
from dispatcher.cli.printing import console, emit_data, grid
from dispatcher.config.residency.facts_report import Row, facts_report, to_data


def facts(
    folder: FolderArgument = HERE,
    within: Annotated[
        int, typer.Option("--within", min=0, max=3650, help="also what ends in so many days", metavar="DAYS")
    ] = 30,
    now: NowOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List facts that are missing, not attested, expired or about to expire, those with the most effect first.

    blocks: questions (a label on a flow) that the gap leaves open, or that turn to no when the fact ends; data: how
    many data sets carry such a label.

    Exit codes: 0 there is an answer, 2 nothing could be looked at.
    """
    at = instant(now)
    span = timedelta(days=within)
    rows = facts_report(world_at(folder, at), at, span)
    if output in (Output.JSON, Output.YAML):
        emit_data(to_data(rows, at, span), output)
        return
    wide = output is Output.WIDE
    numbers = frozenset({"blocks"} if wide else {"blocks", "data"})
    table = grid("of", "fact", "state", "blocks", "data", "rules", right=numbers, flexible="rules")
    for row in rows:
        table.add_row(*_cells(row, wide))
    out = console()
    if rows:
        out.print(table)
    else:
        out.print(f"every fact that a rule asks for is attested, and none ends within {within} days")


def _cells(row: Row, wide: bool) -> tuple[str, ...]:
    state = row.state.value if row.ends is None else f"{row.state.value} {row.ends.date().isoformat()}"
    blocks = str(row.blocks) if row.blocks else "-"
    waiting = ", ".join(row.data_sets) if wide else str(len(row.data_sets) or "")
    return (f"{row.subject.value} {row.name}", row.fact, state, blocks, waiting or "-", _listed(row.rules, wide))


def _listed(names: tuple[str, ...], wide: bool) -> str:
    if wide or len(names) <= 1:
        return ", ".join(names) or "-"
    return f"{names[0]} +{len(names) - 1}"
