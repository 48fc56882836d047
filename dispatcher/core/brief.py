"""Everything that the law says of one workload, cluster by cluster, for a person who wants to argue: the ruling, and
what would have to be otherwise."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from dispatcher.core.blame import deciding
from dispatcher.core.ids import ClusterName, FlavorName
from dispatcher.core.impact import Counsel
from dispatcher.core.legality import office_of, plan_of
from dispatcher.core.policy import Policy
from dispatcher.core.rulings import standing_rejections
from dispatcher.core.work import Work
from dispatcher.core.workload import Request
from residency.counterfactual import WouldAllow, would_allow
from residency.plans import Ruling
from residency.rules import Exceptable
from residency.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Place:
    """One cluster. `ruling` is None where the policy has no such cluster. `listed`: the hub and its owner let it go
    there, apart from the law. `stands`: it is there, or nominated there. `chief` decides against it."""

    cluster: ClusterName
    ruling: Ruling | None
    listed: bool
    stands: bool
    chief: Verdict | None
    otherwise: tuple[WouldAllow, ...]

    @property
    def allowed(self) -> bool:
        return self.ruling is not None and self.ruling.allowed


@dataclass(frozen=True, slots=True)
class Brief:
    """`legal` are all clusters that it may use and where it may go, shown or not. `standing` is what keeps classified
    work waiting whatever the rules say. `exceptable` tells, of rules that stand in the way, who may grant an exception
    and for how long; a rule that is not in it takes none."""

    work: Work
    policy: Policy
    at: datetime
    places: tuple[Place, ...]
    legal: tuple[ClusterName, ...]
    standing: tuple[str, ...]
    exceptable: dict[str, Exceptable]


def brief_on(work: Work, policy: Policy, now: datetime, only: Collection[str] = ()) -> Brief:
    """What the law says of work now, on all clusters that the hub lists or the policy has, or on those named `only`."""
    request = work.request
    known = sorted({*request.listed_clusters, *policy.clusters})
    counsel, stands = Counsel(policy, now), dict(work.places)
    places = tuple(_place(counsel, work, name, stands.get(name)) for name in known if not only or name in only)
    shape = counsel.shape(request)
    legal = tuple(name for name in known if _listed(request, name) and _is_legal(counsel.ruling(request, shape, name)))
    rules = {rule.id: rule.exceptable for rule in policy.residency.rules if rule.exceptable is not None}
    reasons = (why for place in places if place.chief for why in (place.chief.because, *place.chief.further))
    blocking = {why.rule for why in reasons if why.duty is None}
    return Brief(
        work=work,
        policy=policy,
        at=now,
        places=places,
        legal=legal,
        standing=tuple(rejection.reason.value for rejection in standing_rejections(request, policy, now)),
        exceptable={name: rules[name] for name in sorted(blocking) if name in rules},
    )


def _place(counsel: Counsel, work: Work, name: ClusterName, flavors: tuple[FlavorName, ...] | None) -> Place:
    request = work.request
    ruling = counsel.ruling(request, counsel.shape(request), name, flavors or ())
    chief = deciding(ruling) if ruling is not None and ruling.against else None
    otherwise = _otherwise(counsel, request, name, flavors or ()) if chief is not None else ()
    return Place(name, ruling, _listed(request, name), flavors is not None, chief, otherwise)


def _is_legal(ruling: Ruling | None) -> bool:
    return ruling is not None and ruling.allowed


def _listed(request: Request, name: ClusterName) -> bool:
    named = request.declared.clusters
    return name in request.listed_clusters and (named is None or name in named)


def _otherwise(
    counsel: Counsel, request: Request, name: ClusterName, flavors: tuple[FlavorName, ...]
) -> tuple[WouldAllow, ...]:
    """Single clauses whose turning would make the whole placement legal, on the flavors that it was judged on."""
    policy, now = counsel.policy, counsel.now
    seconds, must_cover = counsel.duration_s(request), policy.residency.settings.must_cover_expected_runtime
    end = now + timedelta(seconds=seconds) if seconds is not None and must_cover else None
    choice = flavors or counsel.choices(request, policy.clusters[name])[0]
    plan = plan_of(request, policy.clusters[name], policy, now, choice, end)
    return tuple(one for one in would_allow(office_of(policy).law, plan, now) if one.whole)
