"""What we have written and do not see yet: open nominations, and the capacity they promise.

A write travels on another connection than the watch, so between the two the view is older than what we did. Until the
view moves, the workload is left alone (FR-RAC-01, FR-RAC-09); until the worker's own reservation shows, the promised
capacity is deducted (FR-SCO-01). Everything here can be rebuilt from the store and the hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.ports import IntentState
from dispatcher.core.snapshot import Hold, HubView, WorkerView
from dispatcher.core.waiting import Phase, standing
from dispatcher.core.workload import HubWorkload

UNSEEN_LIMIT_S = 15.0
"""A write whose effect the view does not show after this is taken as not made; the next try is guarded anyway."""


@dataclass(frozen=True, slots=True)
class Round:
    """One nomination on its way: decided on `resource_version`, for `clusters`, not yet seen in the view."""

    decision: DecisionId
    workload: WorkloadUid
    resource_version: str
    clusters: tuple[ClusterName, ...]
    made_at: datetime


@dataclass(frozen=True, slots=True)
class Settled:
    """What a look at the view closed: intents to mark, and workloads whose holds ended."""

    marks: tuple[tuple[DecisionId, IntentState], ...] = ()
    released: tuple[WorkloadUid, ...] = ()


def round_state(open_round: Round, workload: HubWorkload | None, now: datetime) -> IntentState:
    """WRITTEN once the view shows the nomination or its consequence, ABANDONED once it shows that neither will come."""
    if workload is None:
        return IntentState.ABANDONED
    shown = {*workload.nominated, *((workload.cluster_name,) if workload.cluster_name else ())}
    if shown & set(open_round.clusters[-1:]) or workload.cluster_name in open_round.clusters:
        return IntentState.WRITTEN
    unmoved = workload.resource_version == open_round.resource_version
    if unmoved and (now - open_round.made_at).total_seconds() < UNSEEN_LIMIT_S:
        return IntentState.PLANNED
    return IntentState.ABANDONED


def hold_ended(
    hold: Hold, workload: HubWorkload | None, hub: HubView, worker: WorkerView | None, now: datetime
) -> bool:
    """Whether a hold has nothing left to protect: its capacity is visible, or the promise is void."""
    if workload is None or hold.expires_at <= now:
        return True
    phase = standing(workload, hub).phase
    if phase not in (Phase.NOMINATED, Phase.PLACED):
        return True
    if workload.cluster_name is not None and workload.cluster_name != hold.cluster:
        return True
    copy = worker.copies.get((workload.namespace, workload.name)) if worker is not None else None
    return copy is not None and copy.ours and copy.quota_reserved_at is not None


@dataclass(slots=True)
class Rounds:
    """The open rounds, by workload. At most one each: a workload with an open round is not decided on again."""

    open: dict[WorkloadUid, Round] = field(default_factory=dict)

    def begin(self, opened: Round) -> None:
        self.open[opened.workload] = opened

    def close(self, uid: WorkloadUid) -> None:
        self.open.pop(uid, None)

    def settle(
        self,
        hub: HubView,
        workers: Mapping[ClusterName, WorkerView],
        holds: Mapping[WorkloadUid, tuple[Hold, ...]],
        now: datetime,
    ) -> Settled:
        """Close rounds that the view answers and list workloads whose holds have all ended. Changes only `open`."""
        marks: list[tuple[DecisionId, IntentState]] = []
        for uid, opened in sorted(self.open.items()):
            state = round_state(opened, hub.workloads.get(uid), now)
            if state is not IntentState.PLANNED:
                marks.append((opened.decision, state))
                del self.open[uid]
        released = [
            uid
            for uid, promised in sorted(holds.items())
            if uid not in self.open
            and all(hold_ended(h, hub.workloads.get(uid), hub, workers.get(h.cluster), now) for h in promised)
        ]
        return Settled(tuple(marks), tuple(released))
