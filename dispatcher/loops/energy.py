"""What the runs draw that are about to be recorded (core/energy.py): by the flavors that their workers gave them, else
by those of the decision that sent them there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from datetime import datetime

from dispatcher.core.energy import Drawn, Given, drawn_by
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.shares import Run
from dispatcher.core.snapshot import WorkerView
from dispatcher.core.workload import HubWorkload
from dispatcher.state import FleetState


def drawn_now(
    runs: Iterable[Run], state: FleetState, unseen: Set[tuple[WorkloadUid, datetime]] = frozenset()
) -> Mapping[tuple[WorkloadUid, datetime], Drawn | None]:
    """Of the runs that the hub still shows as they are told; of one that it has ended meanwhile, what was recorded when
    it began goes on to count. None: nobody saw it end (`unseen`), and what it used is not known."""
    hub, views = state.hub_view(), state.worker_views()
    found: dict[tuple[WorkloadUid, datetime], Drawn | None] = {}
    for uid, usage in runs:
        if (uid, usage.begun_at) in unseen:
            found[uid, usage.begun_at] = None
            continue
        workload = hub.workloads.get(uid)
        cluster = workload.cluster_name if workload is not None else None
        if workload is None or cluster is None or workload.admitted_at != usage.begun_at:
            continue
        given, site = _given(workload, views.get(cluster)), state.policy.clusters.get(cluster)
        if known := given or _decided(workload, cluster, state):
            drawn = drawn_by(workload, cluster, known, site)
            found[uid, usage.begun_at] = replace(drawn, guessed=not given or site is None)
    return found


def _given(workload: HubWorkload, view: WorkerView | None) -> Mapping[str, Given]:
    copy = view.copies.get((workload.namespace, workload.name)) if view is not None else None
    if copy is None or not copy.ours:
        return {}
    given = {name: Given(flavor, pods) for name, pods, _, flavor in copy.pod_sets if flavor is not None}
    return given if len(given) == len(copy.pod_sets) else {}


def _decided(workload: HubWorkload, cluster: ClusterName, state: FleetState) -> Mapping[str, Given]:
    decision = state.latest.get(workload.uid)
    there = decision.candidate(cluster) if decision is not None else None
    return (
        {placed.pod_set: Given(placed.flavor, placed.pods) for placed in reversed(there.placements)}
        if there is not None
        else {}
    )
