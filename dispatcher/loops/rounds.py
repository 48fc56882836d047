"""What we have written and do not see yet: open nominations, and the capacity they promise.

A write travels on another connection than the watch, so between the two the view is older than what we did. Until the
view moves, the workload is left alone (FR-RAC-01, FR-RAC-09); until the worker's own reservation shows, the promised
capacity is deducted (FR-SCO-01). Everything here can be rebuilt from the store and the hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dispatcher.core.holds import is_visible, our_copy, promised_copy, renewed
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.ports import IntentState
from dispatcher.core.snapshot import Hold, HubView, WorkerCopy, WorkerView
from dispatcher.core.waiting import Phase, standing
from dispatcher.core.workload import HubWorkload
from dispatcher.state import FleetState

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
    """What a look at the view found: intents to mark, workloads whose holds ended, and those whose holds go on."""

    marks: tuple[tuple[DecisionId, IntentState], ...] = ()
    released: tuple[WorkloadUid, ...] = ()
    renewed: Mapping[WorkloadUid, tuple[Hold, ...]] = field(default_factory=dict)
    """All holds of each workload of which one has more time now. Not stored: the next leader finds out the same."""


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
    """Whether a hold has nothing left to protect: its capacity is visible, or the promise is void.

    Its deadline is for a copy that its worker does not take. Before there is a copy the nomination itself says whether
    the promise still is one, however long MultiKueue's queue takes.
    """
    if workload is None:
        return True
    phase = standing(workload, hub).phase
    if phase not in (Phase.NOMINATED, Phase.PLACED):
        return True
    if workload.cluster_name is not None:
        # MultiKueue answered this nomination, so whichever copy it found admitted is the promised one.
        copy = our_copy(hold.workload_key, worker)
        if workload.cluster_name != hold.cluster or (copy is not None and copy.quota_reserved_at is not None):
            return True
    if is_visible(hold, worker):
        return True
    return hold.expires_at <= now and not awaits_copy(hold, workload, worker)


def awaits_copy(hold: Hold, workload: HubWorkload | None, worker: WorkerView | None) -> bool:
    """Whether the nomination stands on the hub, and MultiKueue has not come to make its copy."""
    if workload is None or workload.cluster_name is not None or hold.cluster not in workload.nominated:
        return False
    return promised_copy(hold, worker) is None


def nominated_copy(state: FleetState, workload: HubWorkload, cluster: ClusterName) -> WorkerCopy | None:
    """The copy that was made for the nomination of a cluster; what an earlier one has left there does not count.

    A promise lasts until its copy is made, so where none is left, any copy of ours is the one.
    """
    view = state.workers[cluster].view() if cluster in state.workers else None
    promised = [hold for hold in state.holds.get(workload.uid, ()) if hold.cluster == cluster]
    return promised_copy(promised[-1], view) if promised else our_copy(workload.key, view)


def turns_of(hold: Hold, ttl_s: int) -> tuple[datetime, datetime]:
    """The instants at which time alone may change what becomes of a promise: when it is renewed, and when it ends."""
    return hold.expires_at - timedelta(seconds=ttl_s / 2), hold.expires_at


@dataclass(slots=True)
class Rounds:
    """The open rounds, by workload. At most one each: a workload with an open round is not decided on again."""

    open: dict[WorkloadUid, Round] = field(default_factory=dict)

    def begin(self, opened: Round) -> None:
        self.open[opened.workload] = opened

    def close(self, uid: WorkloadUid) -> None:
        self.open.pop(uid, None)

    def turns(self) -> list[datetime]:
        """When those that no view answers are given up."""
        return [opened.made_at + timedelta(seconds=UNSEEN_LIMIT_S) for opened in self.open.values()]

    def settle(
        self,
        hub: HubView,
        workers: Mapping[ClusterName, WorkerView],
        holds: Mapping[WorkloadUid, tuple[Hold, ...]],
        now: datetime,
        ttl_s: int,
    ) -> Settled:
        """Close rounds that the view answers, list workloads whose holds have all ended, and give holds that still wait
        for their copy another `ttl_s`. Changes only `open`."""
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
        ended = frozenset(released)
        lasting = {uid: promised for uid, promised in holds.items() if uid not in ended}
        return Settled(tuple(marks), tuple(released), _renewed(lasting, hub, workers, now, ttl_s))


def _renewed(
    holds: Mapping[WorkloadUid, tuple[Hold, ...]],
    hub: HubView,
    workers: Mapping[ClusterName, WorkerView],
    now: datetime,
    ttl_s: int,
) -> dict[WorkloadUid, tuple[Hold, ...]]:
    """Holds that wait for their copy, with new deadlines once one of them nears its own. All together: each change of
    a hold has its cluster weighed anew."""
    waiting = {
        (uid, hold.decision)
        for uid, promised in holds.items()
        for hold in promised
        if awaits_copy(hold, hub.workloads.get(uid), workers.get(hold.cluster))
    }
    near = now + timedelta(seconds=ttl_s / 2)
    if not any(h.expires_at <= near and (uid, h.decision) in waiting for uid, found in holds.items() for h in found):
        return {}
    return {
        uid: tuple(renewed(h, now, ttl_s) if (uid, h.decision) in waiting else h for h in holds[uid])
        for uid in sorted({uid for uid, _ in waiting})
    }
