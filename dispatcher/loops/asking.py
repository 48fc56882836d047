"""Asking for a write that was judged a moment ago: whether it still is what was judged, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable

from dispatcher.core.errors import Conflict, Refused, Transient
from dispatcher.core.workload import HubWorkload
from dispatcher.state import FleetState


def is_newest(workload: HubWorkload, state: FleetState) -> bool:
    """Whether the hub shows a workload as it was judged."""
    current = state.hub_view().workloads.get(workload.uid)
    return current is not None and current.resource_version == workload.resource_version


async def result_of(write: Awaitable[object], done: str = "asked") -> tuple[str, Refused | Transient | None]:
    """What came of a write, as metrics count it, and the error that somebody should read. A conflict is none: whoever
    was overtaken looks again. Whether one without an answer was made, the view tells."""
    try:
        await write
    except Conflict:
        return "conflict", None
    except Refused as error:
        return "refused", error
    except Transient as error:
        return "unknown", error
    return done, None
