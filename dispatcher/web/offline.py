"""What a decision sees, to take away: the live snapshot and the inputs of a recorded decision (docs/replay.md)."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Response

from dispatcher.core.ids import DecisionId
from dispatcher.core.ports import Store
from dispatcher.state import FleetState
from dispatcher.store.documents import encode_record, encode_snapshot, taken_snapshot
from dispatcher.web.models import RecordDocument, SnapshotDocument
from dispatcher.web.problems import ProblemError

JSON = "application/json"


def router(state: FleetState, store: Store, errors: dict[int | str, dict[str, object]]) -> APIRouter:
    found = APIRouter(prefix="/v1", tags=["offline"], responses=errors)

    @found.get("/snapshot", response_class=Response, responses={200: {"model": SnapshotDocument}})
    async def snapshot() -> Response:
        """Everything that a decision would see now, for `entrepot decide`. Holds no secret."""
        now = state.clock.now()
        taken = taken_snapshot(state.hub_view(), state.snapshot(now), state.policy.digest, now)
        # In a thread: a large fleet takes longer than the loops may wait. The views are immutable.
        return Response(await asyncio.to_thread(encode_snapshot, taken), media_type=JSON)

    @found.get("/decisions/{decision_id}/inputs", response_class=Response, responses={200: {"model": RecordDocument}})
    async def inputs(decision_id: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]) -> Response:
        """A recorded decision with everything that it saw, for `entrepot replay`."""
        wanted = DecisionId(decision_id)
        record = await store.record(wanted)
        if record is None:
            raise await _missing(store, wanted)
        return Response(await asyncio.to_thread(encode_record, record), media_type=JSON)

    return found


async def _missing(store: Store, wanted: DecisionId) -> ProblemError:
    if await store.decision(wanted) is not None:
        what = f"the inputs of decision {wanted} are not kept"
        fix = (
            "inputs are kept for a bounded time and size, and not of decisions made before the upgrade (docs/replay.md)"
        )
        return ProblemError(404, "inputs-not-kept", what, fix)
    fix = "`entrepot decisions` lists ids; old decisions and repeated waits are not kept"
    return ProblemError(404, "no-such-decision", f"no decision {wanted}", fix)
