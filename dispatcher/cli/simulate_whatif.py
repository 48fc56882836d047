"""`simulate --from-snapshot`: the live queue under a changed blueprint, and the difference by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from dispatcher.cli.errors import CliError, ExitCode, undecidable
from dispatcher.cli.options import Output
from dispatcher.cli.printing import console, emit_data, grid, note

if TYPE_CHECKING:
    from dispatcher.core.decision import Decision
    from dispatcher.sim.whatif import Turn, WhatIf

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
        found = decide_again(taken.book, taken.snapshot, loaded.policy)
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
    from dispatcher.core.units import money
    from dispatcher.sim.whatif import Effect, cost_of

    screen = console()
    shown = [turn for effect in Effect for turn in found.of(effect) if all_of_them or effect is not Effect.SAME]
    counts = [f"{len(found.of(effect))} {effect.value}" for effect in Effect if found.of(effect)]
    screen.print(f"{len(found.turns)} wait: {', '.join(counts) or 'nothing to decide'}")
    screen.print(f"policy {found.policy_now} -> {found.policy_then}")
    if not shown:
        return
    screen.print()
    table = grid(
        "EFFECT", "WORKLOAD", "NOW", "THEN", "CHANGE", "BECAUSE", right=frozenset({"CHANGE"}), flexible="BECAUSE"
    )
    for turn in shown:
        change = turn.change_usd_micro
        table.add_row(
            Text(turn.effect.value, style=_STYLES.get(turn.effect.value, "")),
            turn.key,
            _place(turn.now, cost_of(turn.now)),
            _place(turn.then, cost_of(turn.then)) if turn.then is not None else "-",
            "-" if change is None else f"{'+' if change >= 0 else '-'}{money(abs(change))}",
            _because(turn),
        )
    screen.print(table)


def _place(decision: Decision, cost: int | None) -> str:
    from dispatcher.core.units import money

    return "waits" if decision.chosen is None else f"{decision.chosen} {money(cost) if cost is not None else '?'}"


def _because(turn: Turn) -> str:
    """What closes the place that it has now, where something does, and the sentence of the decision that would be made.
    One that waits tells of every place itself."""
    from dispatcher.core.explain import headline, sentence
    from dispatcher.sim.whatif import Effect

    if turn.then is None:
        return "its queue is not in the changed plan"
    if turn.effect is Effect.SAME:
        return ""
    told = sentence(turn.then)
    closed = turn.closed if turn.then.chosen is not None else None
    return told if closed is None else f"{headline(closed)}; {told}"


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
