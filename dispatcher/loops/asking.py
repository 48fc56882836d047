"""Asking for a write that was judged a moment ago: whether it still is what was judged, what came of it, and when it is
asked for again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from dispatcher.core.errors import Conflict, Refused, Transient
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.workload import HubWorkload
from dispatcher.loops.rhythm import Retries
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


@dataclass(slots=True)
class Pace:
    """How often one loop asks the hub for writes on Workloads. Every change of any view wakes the loop, so a hub that
    says no (a policy, a missing permission) would be asked many times a second. One failure may be a hiccup: that is
    asked again at the next look, and then after 1, 2, 4 ... 30 s, as with nominations; a Workload that has moved since
    a conflict is another question.

    `beat` says that the loop lives: one that asks for hundreds of writes is busy, not dead.
    """

    state: FleetState
    beat: Callable[[], None]
    _retries: Retries = field(default_factory=Retries)
    _failed: set[WorkloadUid] = field(default_factory=set)
    """Those for which the last write was not made."""

    def spares(self, workload: HubWorkload) -> bool:
        """Whether it is too early to ask for this Workload again."""
        return self._retries.leaves_alone(workload, self.state.clock.now())

    async def result_of(
        self, workload: HubWorkload, write: Awaitable[object], done: str = "asked"
    ) -> tuple[str, Refused | Transient | None]:
        """As `result_of`, of a write on this Workload."""
        self.beat()
        result, error = await result_of(write, done)
        uid, now, made = workload.uid, self.state.clock.now(), error is None and result != "conflict"
        if made:
            self._failed.discard(uid)
            self._retries.made(uid)
        elif uid not in self._failed:
            self._failed.add(uid)
        elif error is None:
            self._retries.overtaken(uid, workload.resource_version, now)
        else:
            self._retries.failed(uid, now)
        return result, error

    def keep(self) -> None:
        """Forget those that are no longer on the hub."""
        alive = self.state.hub_view().workloads
        self._retries.keep(alive)
        self._failed &= alive.keys()
