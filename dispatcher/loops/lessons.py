"""What speaks against sending a workload to a cluster again: learnt by the loop that watches copies, obeyed by
dispatch, and taken over from the store by whoever begins to lead."""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.workload import Avoided
from dispatcher.state import FleetState

Lesson = tuple[WorkloadUid, ClusterName | None, str]
"""A workload, a cluster (None: every one) and a cause: of each there is one entry, and the newest counts."""


def learn(state: FleetState, uid: WorkloadUid, entry: Avoided) -> None:
    """Sorted: requests are digested."""
    known = state.avoided.get(uid, ())
    kept = [e for e in known if (e.cluster, e.code) != (entry.cluster, entry.code)]
    state.avoided[uid] = tuple(sorted((*kept, entry), key=lambda e: (e.cluster or "", e.code)))


def recollect(state: FleetState, stored: Iterable[tuple[WorkloadUid, Avoided]]) -> None:
    """What the store knows, beside what was seen here since."""
    for uid, entry in stored:
        known = {(e.cluster, e.code): e.since for e in state.avoided.get(uid, ())}
        since = known.get((entry.cluster, entry.code))
        if since is None or since < entry.since:
            learn(state, uid, entry)
