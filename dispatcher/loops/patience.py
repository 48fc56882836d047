"""How long a nominated cluster may take, and from when that counts.

MultiKueue makes copies one after the other, about one a second for the whole hub (ADR 13): in a deep queue a cluster
has had no chance to admit yet when its class's patience would be over, and a second nomination would only put more
work into that queue. So patience counts from when the copy is seen; until then, from when the queue should have come
to it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dispatcher.core.backfill import RESOLUTION
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.workload import HubWorkload
from dispatcher.loops.rounds import nominated_copy
from dispatcher.state import FleetState

COPY_S = 1.0
"""What one outstanding nomination costs MultiKueue: five looks a job, at five looks a second (ADR 13)."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """`since` is when the newest of the nominated clusters had, or should have had, its copy."""

    nominated: tuple[ClusterName, ...]
    since: datetime
    copied: bool


@dataclass(slots=True)
class Patience:
    """What is waited for, by workload, in times of our own clock. Nothing is durable: after a start or a change of
    leader every nomination is given its whole patience once more, since nobody knows when its copy came."""

    state: FleetState
    _waits: dict[WorkloadUid, _Wait] = field(default_factory=dict)
    _standing: tuple[Mapping[WorkloadUid, HubWorkload], list[tuple[WorkloadUid, datetime]]] | None = None
    """Who stands nominated as last seen, and since when, by the hub's workloads of a look."""

    def forget(self) -> None:
        self._waits.clear()
        self._standing = None

    def keep(self, alive: Container[WorkloadUid]) -> None:
        for uid in [uid for uid in self._waits if uid not in alive]:
            del self._waits[uid]
            self._standing = None

    def waited_s(self, workload: HubWorkload, queued: Callable[[], int], now: datetime) -> float:
        """How long the cluster that was nominated last has had its copy, or should have had it by now; negative while
        the queue still accounts for it. To be asked at every look.

        `queued` says how many nominations MultiKueue has made no copy for; it is asked when a nomination is first seen.
        """
        copied = nominated_copy(self.state, workload, workload.nominated[-1]) is not None
        wait = self._waits.get(workload.uid)
        if wait is None or wait.nominated != workload.nominated:
            due = now if copied else now + timedelta(seconds=COPY_S * queued())
            wait = _Wait(workload.nominated, due, copied)
        elif copied and not wait.copied:
            wait = replace(wait, since=now, copied=True)
        if self._waits.get(workload.uid) is not wait:
            self._waits[workload.uid], self._standing = wait, None
        return (now - wait.since).total_seconds()

    def turns(self, patience_s: Callable[[WorkloadUid], int]) -> list[datetime]:
        """When it is over with each that still stands nominated as it was last seen."""
        workloads = self.state.hub_view().workloads
        if self._standing is None or self._standing[0] is not workloads:
            found = [
                (uid, wait.since)
                for uid, wait in self._waits.items()
                if (shown := workloads.get(uid)) is not None and shown.nominated == wait.nominated
            ]
            self._standing = (workloads, found)
        return [since + timedelta(seconds=patience_s(uid)) + RESOLUTION for uid, since in self._standing[1]]
