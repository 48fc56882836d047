"""Ghosts: room that is charged on a worker for something that is not there (FR-SCO-12).

Where pods really are always counts, whatever was recorded of them (nodes.py). What is left to find is an account
without anything behind it: it makes a cluster look fuller than it is, and nobody comes to clear it. It is told and
never corrected here, since quota that Kueue has reserved stays reserved until Kueue lets go of it.

Pure: a look folds what is seen into since when it has been seen. Time in which nobody could look (a worker or the hub
is not connected) does not count, and a restart begins anew: both make a ghost younger, and never a false one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from dispatcher.core.holds import promised_copy
from dispatcher.core.ids import ClusterName
from dispatcher.core.index import holds_quota
from dispatcher.core.snapshot import Hold, HubView, PodUsage, WorkerCopy, WorkerView, gpus_of

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
    """`name` is the workload's namespace/name, or the node's. `since`: when this daemon first saw it so, later by the
    time in which it could not look. `gpus` is what is charged; of a node that is gone nobody knows."""

    cluster: ClusterName
    kind: GhostKind
    name: str
    since: datetime
    pods: int
    gpus: int | None = None


_Key = tuple[ClusterName, GhostKind, str]


@dataclass(frozen=True, slots=True)
class Sightings:
    """What was without what should be behind it at the last look, and since when."""

    at: datetime | None = None
    since: Mapping[_Key, datetime] = field(default_factory=dict)


_Seen = tuple[str, str, PodUsage | int]
"""What tells it from all others, its name for people, and what is charged for it: by pod sets, or only some pods."""


def promises(holds: Iterable[Hold], hub: HubView, now: datetime) -> tuple[Hold, ...]:
    """The holds of nominations that stand on the hub. One that has run out is no room taken any more, and one whose
    job has gone or went elsewhere is what a daemon remembers that leads no longer."""
    standing = ((hold, hub.workloads.get(hold.workload)) for hold in holds if hold.expires_at > now)
    return tuple(hold for hold, workload in standing if workload is not None and hold.cluster in workload.nominated)


def look(
    known: Sightings,
    workers: Mapping[ClusterName, WorkerView | None],
    promised: Iterable[Hold] | None,
    now: datetime,
) -> tuple[tuple[Ghost, ...], Sightings]:
    """The ghosts of now, sorted, and what to remember for the next look.

    `workers`: None for one that is not connected; `promised`: None where the hub is not. Nothing is concluded of what
    cannot be seen, and what was seen there is kept, as if the time since the last look had not been.
    """
    ghosts: list[Ghost] = []
    unseen = now - known.at if known.at is not None else timedelta()
    sightings: dict[_Key, datetime] = {
        key: since + unseen
        for key, since in known.since.items()
        if key[0] in workers and (workers[key[0]] is None or (promised is None and key[1] is GhostKind.NO_COPY))
    }
    by_cluster: defaultdict[ClusterName, list[Hold]] = defaultdict(list)
    for hold in promised or ():
        by_cluster[hold.cluster].append(hold)
    for cluster, view in sorted(workers.items()):
        if view is None:
            continue
        for kind, (identity, name, charged) in _missing(view, by_cluster[cluster]):
            key = (cluster, kind, identity)
            since = sightings[key] = known.since.get(key, now)
            if now - since > timedelta(seconds=GHOST_AFTER_S):
                ghosts.append(Ghost(cluster, kind, name, since, *_amounts(charged)))
    return tuple(sorted(ghosts, key=lambda ghost: (ghost.cluster, ghost.kind, ghost.name))), Sightings(now, sightings)


def _missing(view: WorkerView, holds: Iterable[Hold]) -> Iterator[tuple[GhostKind, _Seen]]:
    for copy in view.copies.values():
        if _runs_without_pods(copy):
            # One that is admitted anew is given its pods anew, and the same time for it.
            attempt = f"{copy.uid} {copy.admitted_at}"
            yield GhostKind.NO_PODS, (attempt, f"{copy.namespace}/{copy.name}", copy.pod_sets)
    for node, pods in view.astray:
        yield GhostKind.NODE_GONE, (node, node, pods)
    for hold in holds:
        if promised_copy(hold, view) is None:
            yield GhostKind.NO_COPY, (f"{hold.workload} {hold.decision}", hold.workload_key, hold.usage)


def _amounts(charged: PodUsage | int) -> tuple[int, int | None]:
    """Pods and GPUs."""
    if isinstance(charged, int):
        return charged, None
    return sum(count for _, count, _, _ in charged), gpus_of(charged)


def _runs_without_pods(copy: WorkerCopy) -> bool:
    """One that is scaled to nothing takes no room, and has no pods by right."""
    runs = copy.admitted_at is not None and copy.evicted_at is None and copy.active
    return runs and holds_quota(copy) and copy.bound_pods == 0 and any(count for _, count, _, _ in copy.pod_sets)
