"""Kueue's own dispatchers, AllAtOnce and Incremental, by the same hub port that Entrepot writes through.

Semantics: kueue-contract section 8 and traces.md 2d. The rest is MultiKueue's and happens in the world: a copy on each
nominated cluster, the first that a worker admits wins, the others are deleted. Order is that of the MultiKueueConfig.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from connectors.embedded.objects import Workload
from connectors.embedded.witness import Happening
from dispatcher.core.errors import Conflict
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.ports import Nomination
from dispatcher.core.snapshot import HubView
from dispatcher.core.waiting import Phase, candidates_of, standing, stands_alone
from dispatcher.core.workload import HubWorkload
from dispatcher.sim.contenders import Arena

MOST = 20
"""What nominatedClusterNames takes at most."""
ROUND_S = 300.0
STEP = 3
"""Incremental nominates three more clusters every five minutes."""
RECONCILE_S = 0.02
"""From a change on the hub to the look of a controller that lives in Kueue itself."""


@dataclass(slots=True)
class Nominator:
    """A contender that decides on one workload at a time, from what the hub shows of it: `wanted` says where."""

    arena: Arena
    _seen: object = None
    _next_at: datetime | None = None
    _later: dict[WorkloadUid, datetime] = field(default_factory=dict)
    """When a workload is to be looked at again, though nothing has changed."""
    _due: frozenset[WorkloadUid] = frozenset()
    """Those whose time has come with this look."""
    _settled: dict[WorkloadUid, HubWorkload] = field(default_factory=dict)
    """Those on which nothing was left to decide, as they were then."""
    _checks: object = None
    """The checks of the hub by which they were judged."""

    def wanted(self, workload: HubWorkload, hub: HubView) -> tuple[ClusterName, ...]:
        """Where a waiting workload is nominated; empty: nowhere yet."""
        raise NotImplementedError

    def more(self, workload: HubWorkload, hub: HubView) -> tuple[ClusterName, ...]:
        """The whole list for one that is nominated already and has no cluster yet."""
        return workload.nominated

    def notice(self) -> None:
        """As Contender."""
        seen = self.arena.fleet.hub.feed.token()
        if seen != self._seen:
            self._seen = seen
            if self._next_at is None:
                self._next_at = self.arena.clock.now() + timedelta(seconds=RECONCILE_S)

    def heard(self, what: Happening, where: ClusterName | None, workload: Workload) -> None:
        """As Contender: what the hub shows is enough."""

    def due(self) -> datetime | None:
        """As Contender."""
        times = [*self._later.values(), *((self._next_at,) if self._next_at is not None else ())]
        return min(times, default=None)

    async def look(self) -> None:
        """As Contender."""
        self._next_at = None
        hub = self.arena.fleet.hub.view()
        now = self.arena.clock.now()
        self._due = frozenset(uid for uid, at in self._later.items() if at <= now)
        self._later = {uid: at for uid, at in self._later.items() if at > now and uid in hub.workloads}
        if self._checks is not hub.checks:
            self._settled, self._checks = {}, hub.checks
        before, self._settled = self._settled, {}
        for uid, workload in hub.workloads.items():
            if before.get(uid) is workload and uid not in self._due:
                self._settled[uid] = workload
            else:
                await self._decide(workload, hub)

    async def _decide(self, workload: HubWorkload, hub: HubView) -> None:
        phase = standing(workload, hub).phase
        if phase is Phase.WAITING:
            await self._nominate(workload, self.wanted(workload, hub))
            return
        if phase is Phase.NOMINATED:
            await self._nominate(workload, self.more(workload, hub))
        else:
            self._later.pop(workload.uid, None)
        if stands_alone(workload):
            self._settled[workload.uid] = workload

    async def _nominate(self, workload: HubWorkload, clusters: tuple[ClusterName, ...]) -> None:
        if not clusters or clusters == workload.nominated:
            return
        version = workload.resource_version
        nomination = Nomination(workload.uid, workload.namespace, workload.name, version, clusters[:MOST])
        try:
            await self.arena.fleet.hub.nominate(nomination)
        except Conflict:
            self._later[workload.uid] = self.arena.clock.now() + timedelta(seconds=RECONCILE_S)


class AllAtOnce(Nominator):
    """Every cluster at once; the first that admits it wins."""

    def wanted(self, workload: HubWorkload, hub: HubView) -> tuple[ClusterName, ...]:
        return candidates_of(workload, hub)


class Incremental(Nominator):
    """Three clusters, and three more every five minutes until one admits it."""

    def wanted(self, workload: HubWorkload, hub: HubView) -> tuple[ClusterName, ...]:
        self._again(workload)
        return candidates_of(workload, hub)[:STEP]

    def more(self, workload: HubWorkload, hub: HubView) -> tuple[ClusterName, ...]:
        listed = candidates_of(workload, hub)
        if workload.uid not in self._due or len(workload.nominated) >= len(listed):
            return workload.nominated
        self._again(workload)
        return listed[: len(workload.nominated) + STEP]

    def _again(self, workload: HubWorkload) -> None:
        self._later[workload.uid] = self.arena.clock.now() + timedelta(seconds=ROUND_S)
