"""Gauges of what we see: phases of hub workloads, links and ages of clusters, open holds, ghosts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dispatcher.core import ghosts
from dispatcher.core.ids import ClusterName
from dispatcher.core.snapshot import Hold, HubView, Link, gpus_of, link_of
from dispatcher.core.waiting import Peers, Phase, standing
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health
from dispatcher.state import FleetState

LOOP = "gauges"
EVERY_S = 5.0


@dataclass(slots=True)
class GaugeLoop:
    state: FleetState
    metrics: Metrics
    health: Health
    _started_at: datetime = field(init=False)
    """What was never seen is as old as we are: an alert on age must not sleep because there is nothing to see."""
    _counted: tuple[HubView, Mapping[Phase, int]] | None = None
    _sightings: ghosts.Sightings = field(default_factory=ghosts.Sightings)
    _shown: frozenset[ClusterName] = frozenset()
    """The clusters that have gauges."""

    def __post_init__(self) -> None:
        self._started_at = self.state.clock.now()

    async def run(self) -> None:
        while True:
            self.health.beat(LOOP)
            self.look()
            self.metrics.tasks.set(len(asyncio.all_tasks()))
            await self.state.clock.sleep(EVERY_S)

    def look(self) -> None:
        now, hub, metrics = self.state.clock.now(), self.state.hub_view(), self.metrics
        phases = self._phases(hub)
        for phase in Phase:
            metrics.waiting.labels(phase).set(phases.get(phase, 0))
        metrics.hub_age.set((now - (hub.observed_at or self._started_at)).total_seconds())
        metrics.input_problems.set(len(self.state.problems))
        self._forget_gone()
        self._clusters()
        holds = self.state.all_holds()
        self._ghosts(hub, holds, now)
        metrics.holds.set(len(holds))
        held = Counter[str]()
        for hold in holds:
            held[hold.cluster] += gpus_of(hold.usage)
        for name in self.state.workers:
            metrics.held_gpus.labels(name).set(held.get(name, 0))

    def _ghosts(self, hub: HubView, holds: Sequence[Hold], now: datetime) -> None:
        state, limit = self.state, self.state.policy.limits.silence_limit_s
        views = state.worker_views()
        seen = {name: v if link_of(v, limit, now) is Link.CONNECTED else None for name, v in views.items()}
        promised = ghosts.promises(holds, hub, now) if link_of(hub, limit, now) is Link.CONNECTED else None
        state.ghosts, self._sightings = ghosts.look(self._sightings, seen, promised, now)
        counted = Counter((ghost.cluster, ghost.kind) for ghost in state.ghosts)
        for name in views:
            for kind in ghosts.GhostKind:
                self.metrics.ghosts.labels(name, kind).set(counted[name, kind])

    def _phases(self, hub: HubView) -> Mapping[Phase, int]:
        """How many stand where; counted anew only where the hub shows something else than at the last look."""
        if self._counted is None or not hub.shows_what(self._counted[0]):
            peers = Peers(hub)
            self._counted = (hub, Counter(standing(w, hub, peers).phase for w in hub.workloads.values()))
        return self._counted[1]

    def _forget_gone(self) -> None:
        """A cluster that was taken out of the fleet has no gauges any more: what stood there last, most likely that it
        cannot be seen, would keep its alerts up until a restart."""
        metrics, names = self.metrics, frozenset(self.state.workers)
        for name in self._shown - names:
            metrics.cluster_age.remove(name)
            metrics.held_gpus.remove(name)
            for link in Link:
                metrics.cluster_link.remove(name, link)
            for kind in ghosts.GhostKind:
                metrics.ghosts.remove(name, kind)
        self._shown = names

    def _clusters(self) -> None:
        now = self.state.clock.now()
        for name, view in self.state.worker_views().items():
            link = link_of(view, self.state.policy.limits.silence_limit_s, now)
            for state in Link:
                self.metrics.cluster_link.labels(name, state).set(1 if state is link else 0)
            seen_at = view.observed_at or self._started_at
            self.metrics.cluster_age.labels(name).set((now - seen_at).total_seconds())
