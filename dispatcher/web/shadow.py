"""What rules that do not rule would do, as the newest look of the shadow loop found it."""

from __future__ import annotations

from fastapi import APIRouter

from dispatcher.core.explain_law import turn_text
from dispatcher.core.shadow import Beside
from dispatcher.state import FleetState
from dispatcher.web.models_law import BesideView, ShadowView, TrialView


def router(state: FleetState, errors: dict[int | str, dict[str, object]]) -> APIRouter:
    found = APIRouter(prefix="/v1", tags=["law"], responses=errors)

    @found.get("/shadow")
    async def shadow() -> ShadowView:
        """Where the candidate of `serve --shadow-policy` differs, and what live rules on trial would have denied."""
        status = state.shadow
        return ShadowView(
            live=state.policy.residency.digest,
            candidate=status.candidate or None,
            loaded_at=status.loaded_at,
            errors=status.errors,
            failures=status.failures,
            looked_at=status.looked_at,
            items=tuple(_item(one) for one in status.beside),
        )

    return found


def _item(one: Beside) -> BesideView:
    change = one.change
    turns = (*change.stands, *change.closed, *change.opened) if change is not None else ()
    return BesideView(
        workload=one.work.key,
        stage=one.work.stage.value,
        effects=tuple(effect.value for effect in change.effects) if change is not None else (),
        legal_before=change.was if change is not None else (),
        legal_after=change.now if change is not None else (),
        reasons=tuple(dict.fromkeys(turn_text(turn) for turn in turns)),
        trials=tuple(TrialView(rule=t.rule, mode=t.mode.value, clause=t.clause, at=t.at) for t in one.trials),
    )
