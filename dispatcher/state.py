"""The newest value of everything that loops decide on and that the API shows. One instance, owned by `app`.

Events only wake; this is what is read when somebody wakes. Nothing here is durable: the store is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime

from dispatcher.core.backfill import Expected
from dispatcher.core.decision import Decision
from dispatcher.core.declaration import InputProblem as InputProblem
from dispatcher.core.footing import Footing
from dispatcher.core.ghosts import Ghost
from dispatcher.core.history import NO_HISTORY, Usual
from dispatcher.core.idle import Standing as IdleStanding
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.instants import later
from dispatcher.core.order import Turn
from dispatcher.core.policy import Policy
from dispatcher.core.ports import Clock, HubPort, WorkerPort
from dispatcher.core.replicas import Replica, Seen
from dispatcher.core.shadow import ShadowStatus
from dispatcher.core.snapshot import Cached, ClusterSnapshot, Hold, HubView, Link, Snapshot, WorkerView, link_of
from dispatcher.core.watchdog import Finding
from dispatcher.core.workload import Avoided


@dataclass(frozen=True, slots=True)
class BlueprintStatus:
    """Whether the files on disk are the policy in force. `errors` are file:line:column texts of a refused edit."""

    digest: str
    loaded_at: datetime
    errors: tuple[str, ...] = ()
    failed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CatalogStatus:
    """How the endpoint of the data sets answers. `where` is its URL without a query; `trouble` is empty while the last
    try was good, else what was wrong with it."""

    where: str
    tried_at: datetime
    read_at: datetime | None = None
    trouble: tuple[str, ...] = ()


MOST_EVENTS = 256


@dataclass(frozen=True, slots=True)
class BundleEvent:
    """A blueprint that arrived: the policy that it became, or why it was refused while `in_force` ruled on."""

    at: datetime
    in_force: Policy
    refused: tuple[str, ...] = ()


@dataclass(slots=True)
class FleetState:
    """Mutable cells around immutable values; only loops write to it.

    `latest` is the newest decision per live workload, `problems` what keeps a workload from being decided,
    `holds` the capacity promised by decisions and not yet visible on workers. `findings` is what the watchdog sees now,
    `avoided` the clusters that earlier attempts of a workload speak against. `law_findings` is what the law no longer
    allows where it is, `bundle_events` what became of blueprints that arrived and is not in the audit log yet.
    """

    clock: Clock
    policy: Policy
    blueprint: BlueprintStatus
    hub: HubPort
    workers: Mapping[ClusterName, WorkerPort]
    latest: dict[WorkloadUid, Decision] = field(default_factory=dict)
    problems: dict[WorkloadUid, tuple[InputProblem, ...]] = field(default_factory=dict)
    holds: dict[WorkloadUid, tuple[Hold, ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    law_findings: tuple[Finding, ...] = ()
    idle: Mapping[WorkloadUid, IdleStanding] = field(default_factory=dict)
    """Everything that may be freed when nobody uses it, and what was."""
    bundle_events: deque[BundleEvent] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    avoided: dict[WorkloadUid, tuple[Avoided, ...]] = field(default_factory=dict)
    footing: Footing = field(default_factory=Footing)
    """What may be concluded from silence now."""
    in_vain: dict[WorkloadUid, ClusterName] = field(default_factory=dict)
    """Who waits for a preemption that does not come and could go elsewhere, with the cluster."""
    turns: Mapping[WorkloadUid, Turn] = field(default_factory=dict)
    """Where everything stands that waits for a decision, as of the last look."""
    usual: Usual = field(default_factory=lambda: NO_HISTORY)
    """How long runs of each queue and class usually last (loops/history.py)."""
    expected: Callable[[Snapshot], Mapping[WorkloadUid, Expected]] | None = None
    """Works out when the first that wait are expected to start; it costs nothing while nobody asks."""
    beyond: Set[WorkloadUid] = frozenset()
    """Who waits behind those, as of the last look: their start is worked out for nobody."""
    shadow: ShadowStatus = field(default_factory=ShadowStatus)
    """What rules that do not rule would do; no decision reads it."""
    replicas: dict[Replica, Seen] = field(default_factory=dict)
    """What looks at stores found, by this replica of the daemon while it led."""
    cached: dict[ClusterName, tuple[Cached, ...]] = field(default_factory=dict)
    """What decisions have brought into the data caches of clusters (loops/caches.py)."""
    catalog: CatalogStatus | None = None
    """For people; what decisions go by is `policy.catalog`."""
    ghosts: tuple[Ghost, ...] = ()
    """Room that is charged for what is not there, as of the last look (loops/gauges.py); no decision reads it."""

    def hub_view(self) -> HubView:
        return self.hub.view()

    def hub_link(self, now: datetime) -> Link:
        """How well we see the hub at `now`: what is not CONNECTED is no ground to decide or to conclude anything."""
        return link_of(self.hub.view(), self.policy.limits.silence_limit_s, now)

    def worker_views(self) -> dict[ClusterName, WorkerView]:
        return {name: self.workers[name].view() for name in sorted(self.workers)}

    def all_holds(self) -> Sequence[Hold]:
        return tuple(hold for uid in sorted(self.holds) for hold in self.holds[uid])

    def snapshot(self, now: datetime) -> Snapshot:
        """What a decision at `now` may see: each cluster of the hub or the blueprint, with how well we see it."""
        hub = self.hub.view()
        names = sorted({*hub.clusters, *self.policy.clusters, *self.workers})
        clusters = tuple(self._cluster(name, hub, now) for name in names)
        return Snapshot(clusters, tuple(self.all_holds()), wall_ahead_s=self.clock.wall_ahead_s())

    def snapshot_of(self, name: ClusterName, now: datetime) -> Snapshot:
        """The part of `snapshot` that concerns one cluster."""
        holds = tuple(hold for hold in self.all_holds() if hold.cluster == name)
        seen = (self._cluster(name, self.hub.view(), now),)
        return Snapshot(seen, holds, wall_ahead_s=self.clock.wall_ahead_s())

    def dated(self) -> datetime:
        """The instant by which dates of the blueprint are judged now (core/instants.py)."""
        return later(self.clock.now(), self.clock.wall_ahead_s())

    def _cluster(self, name: ClusterName, hub: HubView, now: datetime) -> ClusterSnapshot:
        view = self.workers[name].view() if name in self.workers else None
        link = link_of(view, self.policy.limits.silence_limit_s, now)
        multikueue, cached = hub.clusters.get(name), self.cached.get(name, ())
        return ClusterSnapshot(name=name, link=link, multikueue=multikueue, worker=view, cached=cached)
