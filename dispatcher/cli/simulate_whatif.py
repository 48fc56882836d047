"""`simulate --from-snapshot`: the live queue under a changed blueprint, and the difference by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from dispatcher.cli.errors import CliError, ExitCode, undecidable
from dispatcher.cli.options import Output
from dispatcher.cli.printing import console, emit_data, note

if TYPE_CHECKING:
    from dispatcher.core.decision import Decision
    from dispatcher.sim.whatif import Turn, WhatIf

_HEAD = ("EFFECT", "JOB", "NOW", "THEN", "CHANGE")
_STYLES = {"unreadable": "bold red", "kept-back": "bold red", "released": "green", "dearer": "yellow"}


def what_if(snapshot: Path, blueprint: Path, output: Output) -> None:
    """Print what the changed blueprint does to everything that waits.

    Raises:
        CliError: a file cannot be read, or holds no work.
    """
    from dispatcher.cli.decide import read_blueprint, read_snapshot
    from dispatcher.sim.whatif import what_if as decide_again

    taken = read_snapshot(snapshot)
    if taken.book is None:
        fix = "take it again with a daemon of this version: entrepot snapshot -o FILE"
        raise CliError("this snapshot holds no work", where=str(snapshot), fix=fix, code=ExitCode.USAGE)
    loaded = read_blueprint(blueprint, taken.taken_at)
    assert loaded.policy is not None
    try:
        found = decide_again(taken.book, taken.snapshot, loaded.policy, taken.running or {})
    except (ValueError, LookupError, ArithmeticError) as error:
        fix = "take it again with: entrepot snapshot -o FILE"
        what = f"this snapshot cannot be decided on: {undecidable(error)}"
        raise CliError(what, where=str(snapshot), fix=fix, code=ExitCode.USAGE) from None
    for key in found.unread:
        note(f"{key}: what it declares cannot be understood, before and after")
    if output in (Output.TABLE, Output.WIDE):
        _page(found, all_of_them=output is Output.WIDE)
    else:
        emit_data(_data(found), output)


def _page(found: WhatIf, *, all_of_them: bool) -> None:
    from dispatcher.sim.whatif import Effect

    screen = console()
    shown = [turn for effect in Effect for turn in found.of(effect) if all_of_them or effect is not Effect.SAME]
    counts = [f"{len(found.of(effect))} {effect.value}" for effect in Effect if found.of(effect)]
    screen.print(f"{len(found.turns)} wait: {', '.join(counts) or 'nothing to decide'}")
    screen.print(f"policy {found.policy_now} -> {found.policy_then}")
    if not shown:
        return
    screen.print()
    rows = [_cells(turn) for turn in shown]
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    screen.print(Text(_line(_HEAD, widths), style="bold"))
    for turn, cells in zip(shown, rows, strict=True):
        screen.print(Text(_line(cells, widths), style=_STYLES.get(turn.effect.value, "")))
        if because := _because(turn):
            screen.print(Padding(because, (0, 0, 0, widths[0] + 2), expand=False))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One row. What it is because of stands below it: a sentence of hundreds of letters fits beside no four columns."""
    *left, change = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    return "  ".join((*left, f"{change.strip():>{widths[-1]}}"))


def _cells(turn: Turn) -> tuple[str, ...]:
    from dispatcher.core.units import money
    from dispatcher.sim.whatif import cost_of

    change = turn.change_usd_micro
    return (
        turn.effect.value,
        f"{turn.key.partition('/')[0]}/{turn.job}",
        _place(turn.now, cost_of(turn.now)),
        _place(turn.then, cost_of(turn.then)) if turn.then is not None else "-",
        "-" if change is None else f"{'+' if change >= 0 else '-'}{money(abs(change))}",
    )


def _place(decision: Decision, cost: int | None) -> str:
    from dispatcher.core.units import money

    return "waits" if decision.chosen is None else f"{decision.chosen} {money(cost) if cost is not None else '?'}"


def _because(turn: Turn) -> str:
    """What closes the place that it has now, where something does, and the sentence of the decision that would be made.
    That of one that waits tells of some places only: this one goes first where it is not among them."""
    from dispatcher.core.explain import headline, sentence
    from dispatcher.sim.whatif import Effect

    if turn.then is None:
        return "its queue is not in the changed plan"
    if turn.effect is Effect.SAME:
        return ""
    told = sentence(turn.then)
    closed = headline(turn.closed) if turn.closed is not None else None
    return told if closed is None or closed in told else f"{closed}; {told}"


def _data(found: WhatIf) -> dict[str, Any]:
    """As scripts read it; keys are stable."""
    from dispatcher.sim.whatif import cost_of

    def place(decision: Decision | None) -> dict[str, Any] | None:
        return None if decision is None else {"cluster": decision.chosen, "cost_usd_micro": cost_of(decision)}

    return {
        "policy_now": found.policy_now,
        "policy_then": found.policy_then,
        "workloads": [
            {
                "key": turn.key,
                "job": turn.job,
                "effect": turn.effect.value,
                "now": place(turn.now),
                "then": place(turn.then),
                "change_usd_micro": turn.change_usd_micro,
                "because": _because(turn),
            }
            for turn in found.turns
        ],
        "unread": list(found.unread),
    }
