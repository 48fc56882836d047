"""When dispatch looks again: how long it rests between two cycles, and when a nomination that failed is tried again.

Quick where there is little to do, so that a job on an idle hub is nominated within a few milliseconds of its quota;
slow where much goes on, so that a storm of events costs half a core at most.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from datetime import datetime

from dispatcher.core.ids import WorkloadUid
from dispatcher.core.workload import HubWorkload

SHORTEST_REST_S = 0.002
LONGEST_REST_S = 0.1
OVERTAKEN_S = 1.0
"""How long a view that has not shown what overtook us is waited for."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


def rest_s(cycle_s: float) -> float:
    """As long as the cycle took: what comes meanwhile is seen together by the next one."""
    return min(LONGEST_REST_S, max(SHORTEST_REST_S, cycle_s))


@dataclass(frozen=True, slots=True)
class _Failure:
    at: datetime
    pause_s: float
    overtaken_on: str | None
    """The resourceVersion that somebody else's write made old; None when it failed for another reason."""


@dataclass(slots=True)
class Retries:
    """Workloads whose last nomination was not made, and how long each is left alone.

    Kueue writes to a Workload three times within some milliseconds of its quota reservation (quota, checks, PodsReady),
    so that a quick nomination meets a conflict now and then. That is no reason to wait longer than until the view
    shows the newer version. Everything else is tried again after a pause that doubles.
    """

    _failures: dict[WorkloadUid, _Failure] = field(default_factory=dict)

    def overtaken(self, uid: WorkloadUid, resource_version: str, now: datetime) -> None:
        """Somebody else wrote first: what we decided on is no longer the newest.

        A hub that says so again of the same version (an admission policy denies with 422) is asked ever more rarely.
        """
        before = self._failures.get(uid)
        again = before is not None and before.overtaken_on == resource_version
        pause_s = min(before.pause_s * 2, LONGEST_PAUSE_S) if before is not None and again else OVERTAKEN_S
        self._failures[uid] = _Failure(now, pause_s, resource_version)

    def failed(self, uid: WorkloadUid, now: datetime) -> None:
        """The store, the hub or leadership did not allow it."""
        before = self._failures.get(uid)
        doubled_s = before.pause_s * 2 if before is not None and before.overtaken_on is None else FIRST_PAUSE_S
        self._failures[uid] = _Failure(now, min(doubled_s, LONGEST_PAUSE_S), None)

    def made(self, uid: WorkloadUid) -> None:
        self._failures.pop(uid, None)

    def leaves_alone(self, workload: HubWorkload, now: datetime) -> bool:
        """Whether it is too early to decide on this workload again."""
        failure = self._failures.get(workload.uid)
        if failure is None or (failure.overtaken_on not in (None, workload.resource_version)):
            return False
        return (now - failure.at).total_seconds() < failure.pause_s

    def keep(self, alive: Container[WorkloadUid]) -> None:
        """Forget those that are no longer on the hub."""
        for uid in [uid for uid in self._failures if uid not in alive]:
            del self._failures[uid]

    def clear(self) -> None:
        self._failures.clear()
