"""Learns how long runs last, from what ends on the hub.

After a start it learns again from what the hub still shows, with the flavors of each run from its newest decision in
the store: at most so many runs of a queue and class as are remembered, all asked for together. What is gone from the
hub is remembered by this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dispatcher.core.bids import keys_of, plan_of
from dispatcher.core.decision import Decision
from dispatcher.core.declaration import PREFIX
from dispatcher.core.history import KEPT, Ended, History, Kind
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.keeping import reference_s
from dispatcher.core.ports import Store
from dispatcher.core.workload import HubWorkload, OwnerMeta
from dispatcher.state import FleetState

SUCCEEDED = "Succeeded"
"""Kueue's own reason of a Finished condition of work that ended well."""
MOST_ASKED = 2048
"""Runs of which the store is asked at once; of older ones the flavor is not known."""


@dataclass(slots=True)
class RunBook:
    """What has ended, and what follows from it (`FleetState.usual`)."""

    state: FleetState
    _history: History = field(default_factory=History)
    _noted: set[WorkloadUid] = field(default_factory=set)
    """Of those that the hub shows, whose end is known."""
    _told: dict[WorkloadUid, tuple[HubWorkload, OwnerMeta | None]] = field(default_factory=dict)
    """What ended well and is not known yet."""

    async def note(self, ended: Iterable[tuple[HubWorkload, OwnerMeta | None]], store: Store) -> bool:
        """Learn from work that is over; whether a figure has become another. What is told while the store does not
        answer is kept for the next time.

        Raises:
            Transient: the store did not answer.
        """
        for workload, owner in ended:
            if workload.uid not in self._noted and _ended_well(workload):
                self._told[workload.uid] = (workload, owner)
        if not self._told:
            return False
        found = self._newest()
        decided = await self._decisions([workload for _, workload, _ in found], store)
        for kind, workload, owner in found:
            self._enter(kind, workload, owner, decided.get(workload.uid))
        self._noted |= self._told.keys()
        self._told.clear()
        if self._history.says(self.state.usual):
            return False
        self.state.usual = self._history.usual()
        return True

    def keep(self, alive: Mapping[WorkloadUid, object]) -> None:
        self._noted &= alive.keys()

    def _newest(self) -> list[tuple[Kind, HubWorkload, OwnerMeta | None]]:
        """Of what was told, newest first and of each kind no more than are remembered."""
        count: dict[Kind, int] = {}
        found = []
        for workload, owner in sorted(self._told.values(), key=lambda pair: _end(pair[0]), reverse=True):
            plan = plan_of(workload, keys_of(workload, owner), self.state.policy)
            if plan is None or workload.cluster_queue is None:
                continue
            kind = (workload.cluster_queue, plan.workload_class)
            count[kind] = count.get(kind, 0) + 1
            if count[kind] <= KEPT:
                found.append((kind, workload, owner))
        return found

    async def _decisions(self, workloads: list[HubWorkload], store: Store) -> dict[WorkloadUid, Decision]:
        known = {w.uid: self.state.latest[w.uid] for w in workloads if w.uid in self.state.latest}
        asked = [w.uid for w in workloads if w.uid not in known][:MOST_ASKED]
        for decision in await store.newest_of(asked) if asked else ():
            known[decision.workload] = decision
        return known

    def _enter(self, kind: Kind, workload: HubWorkload, owner: OwnerMeta | None, decision: Decision | None) -> None:
        """One that went on from a checkpoint tells only of its last part. The time that its data was said to take is no
        part of its work; where it ended sooner than that, nobody knows how long the data took."""
        begun_at, ended_at, cluster = workload.admitted_at, workload.finished_at, workload.cluster_name
        if begun_at is None or ended_at is None:
            return
        resumed = decision is not None and decision.attempt > 1
        if resumed and f"{PREFIX}checkpoint" in keys_of(workload, owner):
            return
        there = decision.candidate(cluster) if decision is not None and cluster is not None else None
        flavors = [placed.flavor for placed in there.placements] if there is not None else []
        site = self.state.policy.clusters.get(cluster) if cluster is not None else None
        taken_s = (ended_at - begun_at) // timedelta(seconds=1)
        if there is not None and there.held_s < taken_s:
            taken_s -= there.held_s
        self._history.add(kind, Ended(ended_at, workload.uid, reference_s(taken_s, flavors, site, kind[1])))


def _ended_well(workload: HubWorkload) -> bool:
    return workload.finished and workload.finished_reason == SUCCEEDED and workload.finished_at is not None


def _end(workload: HubWorkload) -> tuple[datetime, WorkloadUid]:
    return workload.finished_at or workload.created_at, workload.uid
