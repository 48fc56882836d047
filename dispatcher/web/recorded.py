"""Decisions by what people have of them: the beginning of an id, or the id of a wait that repeats a recorded one."""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.ids import SHORTEST_START, DecisionId
from dispatcher.core.ports import Store
from dispatcher.state import FleetState
from dispatcher.store.codec import wait_fingerprint
from dispatcher.web.problems import ProblemError

LONGER = "write more of the id; `entrepot decisions` lists ids"
_MOST = 5


def too_short(text: str) -> str:
    """What is wrong with a beginning of fewer letters than SHORTEST_START."""
    return f"{text!r} is too short for the beginning of an id: at least {SHORTEST_START} letters of it are needed"


async def find_decision(state: FleetState, store: Store, text: str) -> Decision:
    """The decision whose id is `text`, or begins with it.

    Raises:
        ProblemError: 404 when there is none; 409 when several begin so, with their ids; 400 when it is too short to be
            a beginning.
    """
    remembered = {d.id: d for d in state.latest.values() if d.id.startswith(text)}
    exact = remembered.get(DecisionId(text)) or await store.decision(DecisionId(text))
    if exact is not None:
        return exact
    if len(text) < SHORTEST_START:
        raise ProblemError(400, "id-too-short", too_short(text), LONGER)
    found = sorted({*remembered, *await store.ids_like(text, _MOST + 1)})
    if len(found) > 1:
        raise _ambiguous(text, found)
    if found:
        only = remembered.get(found[0]) or await store.decision(found[0])
        if only is not None:
            return only
    fix = "`entrepot decisions` lists ids; old decisions and repeated waits are not kept"
    raise ProblemError(404, "no-such-decision", f"no decision {text}", fix)


def _ambiguous(text: str, found: Sequence[DecisionId]) -> ProblemError:
    many = str(len(found)) if len(found) <= _MOST else f"more than {_MOST}"
    what = f"the ids of {many} decisions begin with {text}"
    return ProblemError(409, "ambiguous-id", what, "write more of the id", found[:_MOST])


async def repeated_in(store: Store, found: Decision) -> DecisionId | None:
    """As `repeated`, for a decision of any age."""
    if found.outcome is not Outcome.WAIT or await store.decision(found.id) is not None:
        return None
    return repeated(found, await store.decisions_of(found.key))


def repeated(latest: Decision, history: Sequence[Decision]) -> DecisionId | None:
    """The recorded decision that the newest one says again; None where it is recorded itself, or is like none.

    A wait for the same reasons is recorded once, however often it is looked at: the id to copy is that of the record.
    """
    if latest.outcome is not Outcome.WAIT or any(d.id == latest.id for d in history):
        return None
    own = (d for d in history if d.workload == latest.workload and d.outcome is Outcome.WAIT)
    return next((d.id for d in own if wait_fingerprint(d) == wait_fingerprint(latest)), None)
