"""Ghosts: room that is charged on a worker for something that is not there (FR-SCO-12).

Where pods really are always counts, whatever was recorded of them (nodes.py). What is left to find is an account
without anything behind it: it makes a cluster look fuller than it is, and nobody comes to clear it. It is told and
never corrected here, since quota that Kueue has reserved stays reserved until Kueue lets go of it.

Pure: a look folds what is seen into when it was first seen. A restart begins anew, which makes a ghost younger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from dispatcher.core.holds import promised_copy
from dispatcher.core.ids import ClusterName
from dispatcher.core.index import holds_quota
from dispatcher.core.snapshot import Hold, WorkerCopy, WorkerView

GHOST_AFTER_S = 900
"""Older than anything that goes well: a node of a cloud boots in minutes, the garbage collector removes pods of a node
that is gone within one, and MultiKueue on a busy hub makes a copy within 90 s (kueue-contract section 1). And younger
than the half hour after which Kueue itself gives up on pods that do not become ready (section 9)."""


class GhostKind(StrEnum):
    """What is charged, and what is missing. Stable codes: they are in metrics and the API."""

    NO_PODS = "no-pods"
    """A copy runs by its worker's Kueue, and none of its pods is on a node."""
    NODE_GONE = "node-gone"
    """Pods are on a node that is in no list of nodes: they count as begun, and run nowhere."""
    NO_COPY = "no-copy"
    """We promise room to a nomination of which no copy has come."""


@dataclass(frozen=True, slots=True)
class Ghost:
    """`name` is the workload's namespace/name, or the node's. `since`: when this daemon first saw it so. `gpus` is what
    is charged; of a node that is gone nobody knows."""

    cluster: ClusterName
    kind: GhostKind
    name: str
    since: datetime
    pods: int
    gpus: int | None = None


_Key = tuple[ClusterName, GhostKind, str]
Sightings = Mapping[_Key, datetime]
"""When something was first seen without what should be behind it, by what it is."""
_Seen = tuple[str, str, int, int | None]
"""What tells it from all others, its name for people, its pods and its GPUs."""


def look(
    known: Sightings, workers: Mapping[ClusterName, WorkerView | None], holds: Iterable[Hold], now: datetime
) -> tuple[tuple[Ghost, ...], Sightings]:
    """The ghosts of now, sorted, and what to remember for the next look.

    `workers`: None for one that is not connected. Nothing is concluded of it, and what was seen there is kept.
    """
    promised = tuple(holds)
    ghosts: list[Ghost] = []
    sightings: dict[_Key, datetime] = {key: at for key, at in known.items() if workers.get(key[0]) is None}
    for cluster, view in sorted(workers.items()):
        if view is None:
            continue
        for kind, (identity, name, pods, gpus) in _missing(view, promised):
            key = (cluster, kind, identity)
            since = sightings[key] = known.get(key, now)
            if now - since > timedelta(seconds=GHOST_AFTER_S):
                ghosts.append(Ghost(cluster, kind, name, since, pods, gpus))
    return tuple(sorted(ghosts, key=lambda ghost: (ghost.cluster, ghost.kind, ghost.name))), sightings


def _missing(view: WorkerView, holds: tuple[Hold, ...]) -> Iterator[tuple[GhostKind, _Seen]]:
    for copy in view.copies.values():
        if _runs_without_pods(copy):
            pods = sum(count for _, count, _, _ in copy.pod_sets)
            gpus = sum(count * per_pod.gpus() for _, count, per_pod, _ in copy.pod_sets)
            yield GhostKind.NO_PODS, (copy.uid, f"{copy.namespace}/{copy.name}", pods, gpus)
    for node, pods in view.astray:
        yield GhostKind.NODE_GONE, (node, node, pods, None)
    for hold in holds:
        if hold.cluster == view.cluster and promised_copy(hold, view) is None:
            pods = sum(count for _, count, _, _ in hold.usage)
            gpus = sum(count * per_pod.gpus() for _, count, per_pod, _ in hold.usage)
            yield GhostKind.NO_COPY, (f"{hold.workload} {hold.decision}", hold.workload_key, pods, gpus)


def _runs_without_pods(copy: WorkerCopy) -> bool:
    """One that is scaled to nothing takes no room, and has no pods by right."""
    runs = copy.admitted_at is not None and copy.evicted_at is None and copy.active
    return runs and holds_quota(copy) and copy.bound_pods == 0 and any(count for _, count, _, _ in copy.pod_sets)
