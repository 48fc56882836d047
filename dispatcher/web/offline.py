"""What a decision sees, to take away: the live snapshot and the inputs of a recorded decision (docs/replay.md)."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Response

from dispatcher.core.decision import Decision
from dispatcher.core.illegal import Sight
from dispatcher.core.ports import Store
from dispatcher.core.work import Lore, workbook
from dispatcher.state import FleetState
from dispatcher.store.documents import encode_record, encode_snapshot, encode_workbook, taken_snapshot
from dispatcher.web.models import RecordDocument, SnapshotDocument
from dispatcher.web.models_law import WorkDocument
from dispatcher.web.problems import ProblemError
from dispatcher.web.recorded import find_decision, repeated_in

JSON = "application/json"


def router(state: FleetState, store: Store, errors: dict[int | str, dict[str, object]]) -> APIRouter:
    found = APIRouter(prefix="/v1", tags=["offline"], responses=errors)

    @found.get("/snapshot", response_class=Response, responses={200: {"model": SnapshotDocument}})
    async def snapshot() -> Response:
        """Everything that a decision would see now, for `entrepot decide`. Holds no secret."""
        now = state.clock.now()
        hub, snapshot, sight = state.hub_view(), state.snapshot(now), _sight(state, now)
        lore = Lore(state.turns, state.usual, dict(state.avoided))

        def written() -> bytes:
            return encode_snapshot(taken_snapshot(hub, snapshot, sight.policy.digest, now, workbook(sight, lore)))

        # In a thread: a large fleet takes longer than the loops may wait. The views are immutable.
        return Response(await asyncio.to_thread(written), media_type=JSON)

    @found.get("/work", response_class=Response, responses={200: {"model": WorkDocument}})
    async def work() -> Response:
        """All work that waits or runs, with the policy in force, for `entrepot policy diff` and `policy explain`."""
        sight = _sight(state, state.clock.now())
        return Response(await asyncio.to_thread(lambda: encode_workbook(workbook(sight))), media_type=JSON)

    @found.get("/decisions/{decision_id}/inputs", response_class=Response, responses={200: {"model": RecordDocument}})
    async def inputs(decision_id: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]) -> Response:
        """A recorded decision with everything that it saw, for `entrepot replay`; by its id, or the beginning of it."""
        found = await find_decision(state, store, decision_id)
        record = await store.record(found.id)
        if record is None:
            raise await _not_kept(store, found)
        return Response(await asyncio.to_thread(encode_record, record), media_type=JSON)

    return found


def _sight(state: FleetState, now: datetime) -> Sight:
    """What one look sees, for a thread: the views are immutable, and of the newest decisions it gets its own copy."""
    ahead_s = state.clock.wall_ahead_s()
    return Sight(state.hub_view(), state.worker_views(), state.policy, dict(state.latest), now, ahead_s)


async def _not_kept(store: Store, decision: Decision) -> ProblemError:
    if (recorded := await repeated_in(store, decision)) is not None:
        what = f"decision {decision.id} says again what {recorded} said, and only that is recorded"
        return ProblemError(404, "inputs-not-kept", what, f"entrepot replay {recorded}", (recorded,))
    what = f"the inputs of decision {decision.id} are not kept"
    fix = "inputs are kept for a bounded time and size, and not of decisions made before the upgrade (docs/replay.md)"
    return ProblemError(404, "inputs-not-kept", what, fix)
