"""The choosers that people write first: the cheapest place that fits, and home whatever it costs."""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatcher.core.context import Setting, class_of, estimate_of
from dispatcher.core.decide import weigh
from dispatcher.core.decision import Candidate, Fit, TermKind
from dispatcher.core.ids import ClusterName
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.request import build_request
from dispatcher.core.snapshot import ClusterSnapshot, HubView, Link, Snapshot
from dispatcher.core.waiting import candidates_of
from dispatcher.core.workload import HubWorkload, Request
from dispatcher.sim.contenders_kueue import Nominator

_FITS = ({Fit.NOW}, {Fit.BY_PREEMPTION, Fit.WHEN_OTHERS_LEAVE})
"""What a chooser by price tries in turn: room that is there, then any place where it could ever run."""


class HomeOnly(Nominator):
    """The clusters of the job's home region and no other; where there are several, the first by name."""

    def wanted(self, workload: HubWorkload, hub: HubView) -> tuple[ClusterName, ...]:
        listed = candidates_of(workload, hub)
        return home_of(self, workload, listed)[:1] or listed[:1]


def home_of(nominator: Nominator, workload: HubWorkload, listed: tuple[ClusterName, ...]) -> tuple[ClusterName, ...]:
    """The clusters in the home region of a workload's job, in order of name."""
    setup, owner = nominator.arena.setup, workload.owner
    job = setup.jobs.get((workload.namespace, owner.name)) if owner is not None else None
    sites = setup.policy.clusters
    return tuple(n for n in sorted(listed) if n in sites and job is not None and sites[n].region == job.home_region)


@dataclass(slots=True)
class Cheapest(Nominator):
    """The lowest price of the run among the clusters where it fits now, else among those where it could fit: one
    cluster, once. It sees prices and room as Entrepot does, and nothing of data, waiting, or law."""

    _memo: CandidateMemo = field(default_factory=CandidateMemo)

    def wanted(self, workload: HubWorkload, hub: HubView) -> tuple[ClusterName, ...]:
        arena = self.arena
        owner = hub.owners.get(workload.owner.uid) if workload.owner is not None else None
        request = build_request(workload, owner, hub, arena.setup.policy)
        if not isinstance(request, Request):
            return ()
        plan = arena.setup.policy.classes[class_of(request, arena.setup.policy)]
        setting = Setting(request, arena.setup.policy, arena.clock.now(), plan, estimate_of(request, plan))
        seen = tuple(
            ClusterSnapshot(name, Link.CONNECTED, hub.clusters.get(name), arena.fleet.workers[name].view())
            for name in sorted(arena.fleet.workers)
        )
        candidates = self._memo.slate(setting, Snapshot(seen), weigh).candidates
        for fits in _FITS:
            priced = [(cost, c.cluster) for c in candidates if c.fit in fits and (cost := run_cost(c)) is not None]
            if priced:
                return (min(priced)[1],)
        return ()


def run_cost(candidate: Candidate) -> int | None:
    """What the run alone costs there, in micro-USD; None where that is not known."""
    return next((term.amount_usd_micro for term in candidate.terms if term.kind is TermKind.RUN), None)
