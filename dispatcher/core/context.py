"""One candidate of one decision, with everything that filters and terms may look at. The only argument they take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from dispatcher.core.appraisal import Appraisal, Appraisals
from dispatcher.core.decision import Estimate, Rejection, Term, TermKind
from dispatcher.core.fit import UNKNOWN_FIT, FitReport, fit_of
from dispatcher.core.history import estimated
from dispatcher.core.index import ClusterIndex
from dispatcher.core.instants import later
from dispatcher.core.legality import Legality
from dispatcher.core.offers import Offer, offers_of
from dispatcher.core.place import Place
from dispatcher.core.policy import ClassPolicy, ClusterPolicy, Policy
from dispatcher.core.snapshot import ClusterQueueView, ClusterSnapshot, Hold, LocalQueueView
from dispatcher.core.ways import Arrival, Route
from dispatcher.core.workload import Request, WorkloadClass


@dataclass(frozen=True, slots=True)
class Setting:
    """What is the same for all candidates of a decision."""

    request: Request
    policy: Policy
    now: datetime
    plan: ClassPolicy
    estimate: Estimate
    wall_ahead_s: int = 0
    appraisals: Appraisals | None = None
    """What was found before of this shape; it saves time and changes no answer."""

    def of_shape(self, shape: Request, appraisals: Appraisals) -> Setting:
        """The same for whoever is of the shape."""
        return Setting(shape, self.policy, self.now, self.plan, self.estimate, self.wall_ahead_s, appraisals)

    @property
    def dated(self) -> datetime:
        """By what dates of the blueprint are judged: the law's, and the age of prices."""
        return later(self.now, self.wall_ahead_s)


@dataclass(frozen=True, slots=True)
class Context:
    """One candidate. `site` is None for a cluster that is not in the blueprint, `index` for one never read.

    `terms` is empty and `law` None while terms are computed; both are there when filters run.
    """

    setting: Setting
    cluster: ClusterSnapshot
    site: ClusterPolicy | None
    index: ClusterIndex | None
    local_queue: LocalQueueView | None
    queue: ClusterQueueView | None
    fit: FitReport
    terms: tuple[Term, ...] = ()
    holds: tuple[Hold, ...] = ()
    """What was promised to others here, oldest first."""
    offers: tuple[Offer, ...] = ()
    """Every pod set with the flavor that it would take, and its price."""
    law: Legality | None = None
    ways: tuple[Route | Rejection, ...] = ()
    """While terms are computed: how each data set comes here, or what is not known of that, in their order."""
    arrivals: tuple[Arrival, ...] = ()
    """While terms are computed: what comes before the work begins."""
    held_s: int = 0
    """For how long what it takes would be held here before it works, as far as that is known."""

    @property
    def request(self) -> Request:
        return self.setting.request

    @property
    def policy(self) -> Policy:
        return self.setting.policy

    @property
    def now(self) -> datetime:
        return self.setting.now

    @property
    def dated(self) -> datetime:
        return self.setting.dated

    def by_ways(self, ways: tuple[Route | Rejection, ...]) -> Context:
        """With the ways of its data."""
        return replace(self, ways=ways)

    def awaiting(self, arrivals: tuple[Arrival, ...]) -> Context:
        """With what comes before the work begins: one after the other."""
        return replace(self, arrivals=arrivals, held_s=sum(arrival.seconds or 0 for arrival in arrivals))

    def appraised(self, found: Appraisal) -> Context:
        """With its terms, and what the law says."""
        seen = (self.setting, self.cluster, self.site, self.index, self.local_queue, self.queue, self.fit)
        return Context(*seen, found.terms, self.holds, self.offers, found.law, held_s=found.held_s)

    def term(self, kind: TermKind) -> Term | None:
        return next((term for term in self.terms if term.kind is kind), None)


def class_of(request: Request, policy: Policy) -> WorkloadClass:
    """The class that the request declares, else its queue's.

    Raises:
        ValueError: neither is known; `build_request` never makes such a request.
    """
    declared = request.declared.workload_class
    if declared is not None:
        return declared
    plan = policy.queues.get(request.hub_queue)
    if plan is None:
        raise ValueError(f"no workload class for {request.key}: queue {request.hub_queue!r} is not in the plan")
    return plan.default_class


def estimate_of(request: Request, plan: ClassPolicy) -> Estimate:
    """As `history.estimated`."""
    return estimated(request.declared.expected_duration_s, request.usual, plan.default_duration_s)


def look(setting: Setting, cluster: ClusterSnapshot, index: ClusterIndex | None, holds: tuple[Hold, ...]) -> Context:
    """Judge how the request fits a cluster on which `holds` are promised to others. Without an index nothing is known
    of it: the fit is unknown."""
    request, policy = setting.request, setting.policy
    site = policy.clusters.get(cluster.name)
    if index is None:
        offers = _offers(setting, site, UNKNOWN_FIT)
        return Context(setting, cluster, site, None, None, None, UNKNOWN_FIT, holds=holds, offers=offers)
    local = index.view.local_queues.get((request.namespace, request.local_queue))
    queue = index.view.queues.get(local.cluster_queue) if local else None
    fit = UNKNOWN_FIT
    if queue is not None:
        fit = fit_of(Place(request, index, holds, index.room(holds), queue, policy, site))
    return Context(setting, cluster, site, index, local, queue, fit, holds=holds, offers=_offers(setting, site, fit))


def _offers(setting: Setting, site: ClusterPolicy | None, fit: FitReport) -> tuple[Offer, ...]:
    kind, prices = setting.plan.workload_class, setting.policy.prices
    return offers_of(setting.request, kind, site, fit.flavors, prices, setting.dated)
