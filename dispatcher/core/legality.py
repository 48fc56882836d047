"""Bridge to the law of `residency/`: from a request and a cluster to the plan of flows that placing it there implies,
and from verdicts to rejections with their rule, clause and line.

A placement processes each data set, caches what lies elsewhere, writes checkpoints and outputs to the stores that the
owner named, sends logs to where the cluster's logs end, and lets the people of an interactive job log in. Every one of
these must be legal. What is made carries the labels of all that was read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from dispatcher.core.decision import Detail, LegalDetail, Reason, Rejection, Resolver
from dispatcher.core.ids import ClusterName, DataLabel, DataSetName, FlavorName, RegionName, StoreName
from dispatcher.core.policy import UNLABELLED, ClusterPolicy, Credentials, Policy
from dispatcher.core.workload import Destination, Request, WorkloadClass
from residency.derivation import Artefact, ArtefactKind, Inherited, Labels, labels_of
from residency.facts import Attestation, Kind, Place, Tenant, earliest
from residency.judge import Law, law_of
from residency.memo import Memo
from residency.moments import moments
from residency.obligations import Obligation
from residency.plans import Cargo, Hop, Plan, Ruling, judge_plan
from residency.verdict import Verdict, Would
from residency.vocabulary import Answer, Flow

UNNAMED = "unnamed data"
"""The subject of a verdict on a job that names no data sets; its owner can lift it by naming them."""
CHECKPOINTS, OUTPUTS, LOGS = "its checkpoints", "its outputs", "its logs"
NO_PLACE = Place("")
ANSWERS = 16_384
"""How many answers of the law are remembered at most; past it all are forgotten, and found again when asked for."""
T = TypeVar("T")
_MADE = frozenset({CHECKPOINTS, OUTPUTS, LOGS})


@dataclass(frozen=True, slots=True)
class Legality:
    """What the law says of a request on a cluster: everything against it, what must be done if it goes there, and until
    when (exclusive) the answer holds; None: it never changes by itself."""

    rejections: tuple[Rejection, ...]
    obligations: tuple[tuple[Flow, Obligation], ...] = ()
    would: tuple[Would, ...] = ()
    valid_until: datetime | None = None


@dataclass(slots=True)
class Office:
    """The law of one policy, compiled, with the catalog as it sees it. Saves time and changes no answer."""

    policy: Policy
    law: Law
    memo: Memo
    catalog: Mapping[str, Artefact]
    tenants: Mapping[str, Tenant]
    moments: tuple[datetime, ...]
    """The instants at which an answer may change by itself, in order."""
    named: frozenset[str]
    """Workloads that an exception names."""
    _cargo: dict[tuple[str, ...], tuple[datetime, Cargo]] = field(default_factory=dict)
    _made: dict[tuple[str | int, ...], tuple[tuple[Cargo, ...], Cargo]] = field(default_factory=dict)
    _places: dict[tuple[str, str, str], Place] = field(default_factory=dict)
    _assumed: dict[tuple[str, ...], Cargo] = field(default_factory=dict)
    _answers: dict[Hashable, tuple[ClusterPolicy, Any]] = field(default_factory=dict)

    def once(
        self, request: Request, cluster: ClusterPolicy, now: datetime, about: Hashable, answer: Callable[[], T]
    ) -> T:
        """What `answer` says of a request on a cluster `about` something, asked once for all requests and instants of
        which the law cannot tell the difference. Where a run must be covered to its end, it can tell all."""
        if self.policy.residency.settings.must_cover_expected_runtime:
            return answer()
        name = request.name if request.key in self.named else ""
        key = (cluster.name, request.hub_queue, request.namespace, name, bisect_right(self.moments, now), about)
        known = self._answers.get(key)
        if known is not None and known[0] is cluster:
            return known[1]  # type: ignore[no-any-return]
        if len(self._answers) >= ANSWERS:
            self._answers.clear()
        found = answer()
        self._answers[key] = (cluster, found)
        return found

    def cargo(self, name: str, now: datetime) -> Cargo:
        """A data set with its labels as they are at an instant."""
        known = self._cargo.get((name,))
        if known is not None and known[0] <= now and (known[1].labels.changes is None or now < known[1].labels.changes):
            return known[1]
        labels = labels_of(name, self.catalog, self.law.bundle.declassifications, now)
        artefact = self.catalog.get(name)
        found = Cargo(name, labels, artefact.home if artefact else (), artefact.persons if artefact else None)
        self._cargo[(name,)] = (now, found)
        return found

    def made(self, name: str, inputs: list[Cargo]) -> Cargo:
        """What a run makes of some cargo: worked out once, since where it runs changes nothing of it."""
        key: tuple[str | int, ...] = (name, *(id(cargo) for cargo in inputs))
        known = self._made.get(key)
        if known is None:
            if len(self._made) >= ANSWERS:
                self._made.clear()
            known = (tuple(inputs), _made(name, inputs))  # the inputs are kept, so that no other can have their ids
            self._made[key] = known
        return known[1]

    def assumed(self, names: tuple[DataLabel, ...]) -> Cargo:
        """What a job that names no data is taken to read. One object for all, so that the memo knows it again."""
        labels = tuple(sorted({str(name) for name in names}))
        if labels not in self._assumed:
            self._assumed[labels] = Cargo(UNNAMED, Labels(tuple(Inherited(label, (UNNAMED,)) for label in labels)))
        return self._assumed[labels]

    def beside(self, place: Place, name: str, kind: Kind, country: str | None, tenant: Tenant | None = None) -> Place:
        """Another place with the facts of a cluster and a country of its own: where its logs end, or where people sit.
        One object for each, so that the memo knows it again."""
        key = (place.name, name, country or "")
        if key not in self._places:
            attested = place.attested if tenant is None else _weaker(place.attested, tenant.attested)
            self._places[key] = replace(place, name=name, kind=kind, site="", country=country, attested=attested)
        return self._places[key]


@dataclass(frozen=True, slots=True)
class _Same:
    """A policy by identity: comparing its content would cost more than compiling it."""

    policy: Policy

    def __hash__(self) -> int:
        return id(self.policy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.policy is self.policy


def office_of(policy: Policy) -> Office:
    return _office(_Same(policy))


@lru_cache(maxsize=4)
def _office(key: _Same) -> Office:
    policy = key.policy
    law = law_of(policy.residency)
    catalog = {str(name): _artefact(str(name), policy) for name in policy.data_sets}
    tenants = {queue: tenant for tenant in policy.residency.tenants for queue in tenant.queues}
    named = frozenset(key for one in policy.residency.exceptions for key in one.scope.workloads)
    places: list[Place | Tenant] = [cluster.site for cluster in policy.clusters.values()]
    places += [store.site for store in policy.stores.values()]
    instants = moments(law, [*places, *policy.residency.tenants])
    return Office(policy, law, Memo(law), catalog, tenants, instants, named)


def law_window(policy: Policy, now: datetime) -> tuple[int, datetime | None]:
    """Two instants of the same window have the same verdicts. Where a run must be covered to its expected end, each
    instant is a window of its own."""
    must_cover = policy.residency.settings.must_cover_expected_runtime
    return bisect_right(office_of(policy).moments, now), now if must_cover else None


def named_workloads(policy: Policy) -> frozenset[str]:
    """The workloads (namespace/name) for which the law may be another than for their like."""
    return office_of(policy).named


def _artefact(name: str, policy: Policy) -> Artefact:
    known = policy.data_sets[DataSetName(name)]
    places = [policy.clusters[c].site for c in known.replica_clusters if c in policy.clusters]
    # A replica that went missing is no source any more; where the data may be, it has changed nothing of.
    places += [policy.stores[s].site for s in (*known.replica_stores, *known.missing_stores) if s in policy.stores]
    return Artefact(
        name=name,
        kind=ArtefactKind.BASE if known.base else ArtefactKind.DATA,
        labels=tuple(str(label) for label in known.labels),
        derived_from=tuple(str(source) for source in known.derived_from),
        made=known.made,
        home=tuple(sorted({place.country for place in places if place.country is not None})),
        persons=known.persons,
    )


def _weaker(a: Attestation | None, b: Attestation | None) -> Attestation | None:
    """The attestation that ends first; none where either is missing."""
    if a is None or b is None:
        return None
    ends = earliest(a.ends(), b.ends())
    return a if a.ends() == ends else b


_UNKNOWN = ClusterPolicy(ClusterName(""), "", RegionName(""), NO_PLACE, {}, Credentials())
"""A cluster of which the blueprint says nothing."""


# --- the plan ----------------------------------------------------------------------------------------------------


def plan_of(
    request: Request,
    cluster: ClusterPolicy,
    policy: Policy,
    now: datetime,
    flavors: Iterable[FlavorName] = (),
    expected_end: datetime | None = None,
) -> Plan:
    """Every flow that placing the request on the cluster implies. `flavors` are those that its pods would take."""
    office, site = office_of(policy), cluster.site
    tenant = office.tenants.get(request.hub_queue)
    products = _products(request, cluster, flavors)
    cargo = [office.cargo(str(use.data_set), now) for use in request.declared.data] or [_assumed(request, office)]

    def asking(hops: Iterable[Hop], until: datetime | None = None) -> Plan:
        return Plan(tuple(hops), request.hub_queue, request.key, tenant, products, until)

    hops = [hop for one in cargo for hop in _reading(office, asking, one, site, now)]
    for flow, name, to in (
        (Flow.CHECKPOINT, CHECKPOINTS, request.declared.checkpoint),
        (Flow.OUTPUT, OUTPUTS, request.declared.outputs),
    ):
        if to is not None:
            hops.append(Hop(flow, office.made(name, cargo), _store(policy, to), site))
    for country in (None,) if site.log_sink is None else site.log_sink:
        sink = office.beside(site, f"logs of {site.name}", Kind.SINK, country)
        hops.append(Hop(Flow.LOGS, office.made(LOGS, cargo), sink, site))
    if _class_of(request, policy) is WorkloadClass.INTERACTIVE:
        hops += _logins(office, cargo, site, tenant)
    return asking(hops, expected_end)


def _class_of(request: Request, policy: Policy) -> WorkloadClass | None:
    plan = policy.queues.get(request.hub_queue)
    return request.declared.workload_class or (plan.default_class if plan is not None else None)


def _assumed(request: Request, office: Office) -> Cargo:
    """A job that names no data is not without data: it is what its queue's work usually is, else unlabelled
    (residency.md section 4.3)."""
    plan = office.policy.queues.get(request.hub_queue)
    return office.assumed(plan.default_labels if plan is not None and plan.default_labels else (UNLABELLED,))


def _reading(
    office: Office, asking: Callable[[Iterable[Hop]], Plan], cargo: Cargo, site: Place, now: datetime
) -> list[Hop]:
    """Processing here what lies somewhere, from the first replica from which that is legal; else from the first."""
    ways = [_way(cargo, site, source) for source in sources(office.policy, cargo.name, site)]
    if len(ways) == 1:
        return ways[0]
    for hops in ways:
        if _ruled(office, asking(hops), now).allowed:
            return hops
    return ways[0]


def _way(cargo: Cargo, site: Place, source: Place | None) -> list[Hop]:
    hops = [Hop(Flow.PROCESS, cargo, site, source)]
    if source is not None and source.name != site.name:
        hops.append(Hop(Flow.CACHE, cargo, site, source))
    return hops


def sources(policy: Policy, name: str, site: Place) -> tuple[Place | None, ...]:
    """From where a data set may be read: the cluster alone where it lies there, else every replica, in name order."""
    data_set = policy.data_sets.get(DataSetName(name))
    if data_set is None:
        return (None,)
    if any(replica == site.name for replica in data_set.replica_clusters):
        return (site,)
    places = [policy.clusters[c].site for c in data_set.replica_clusters if c in policy.clusters]
    places += [policy.stores[s].site for s in data_set.replica_stores if s in policy.stores]
    return tuple(sorted(places, key=lambda place: place.name)) or (None,)


def legal_sources(name: str, request: Request, cluster: ClusterPolicy, policy: Policy, now: datetime) -> frozenset[str]:
    """The replicas (stores and clusters, by name) from which the request may read a data set on a cluster."""
    office = office_of(policy)
    return office.once(request, cluster, now, name, lambda: _legal_sources(office, name, request, cluster, policy, now))


def _legal_sources(
    office: Office, name: str, request: Request, cluster: ClusterPolicy, policy: Policy, now: datetime
) -> frozenset[str]:
    cargo = office.cargo(name, now)
    asked = Plan((), request.hub_queue, request.key, office.tenants.get(request.hub_queue))
    return frozenset(
        source.name
        for source in sources(policy, name, cluster.site)
        if source is not None
        and _ruled(office, replace(asked, hops=tuple(_way(cargo, cluster.site, source))), now).allowed
    )


def _made(name: str, inputs: list[Cargo]) -> Cargo:
    """What a run makes carries every label of what it read. Without a label it stays where all of that may lie."""
    found: dict[str, Inherited] = {}
    for cargo in inputs:
        for one in cargo.labels.inherited:
            known = found.setdefault(one.label, Inherited(one.label, (name, *one.chain)))
            found[one.label] = replace(known, brought_by=(*known.brought_by, cargo.name))
    homes = [set(cargo.home) for cargo in inputs if UNLABELLED in cargo.labels.names]
    home = tuple(sorted(set.intersection(*homes))) if homes else ()
    persons = [cargo.persons for cargo in inputs]
    return Cargo(
        name,
        Labels(tuple(found[label] for label in sorted(found)), earliest(*(c.labels.changes for c in inputs))),
        home,
        None if None in persons else max((count for count in persons if count is not None), default=None),
    )


def _store(policy: Policy, to: Destination) -> Place:
    known = policy.stores.get(StoreName(to.store))
    return known.site if known is not None else replace(NO_PLACE, name=to.store, kind=Kind.STORE)


def _logins(office: Office, cargo: list[Cargo], site: Place, tenant: Tenant | None) -> list[Hop]:
    """People who open a notebook see the data from where they sit. From where, somebody must vouch for."""
    countries: tuple[str | None, ...] = (None,)
    if tenant is not None and tenant.login_countries:
        countries = tenant.login_countries
    return [
        Hop(Flow.REMOTE_ACCESS, one, office.beside(site, "its people", Kind.PEOPLE, country, tenant), site)
        for country in countries
        for one in cargo
    ]


def _products(request: Request, cluster: ClusterPolicy, flavors: Iterable[FlavorName]) -> tuple[str, ...] | None:
    """The GPUs that the pods would use; of a job whose flavors are not known yet, all that the cluster has."""
    if not any(pod_set.per_pod.gpus() for pod_set in request.pod_sets):
        return ()
    named = tuple(dict.fromkeys(flavors))
    known = [cluster.flavors.get(name) for name in named] if named else list(cluster.flavors.values())
    if any(flavor is None for flavor in known):
        return None
    return tuple(sorted({str(f.product) for f in known if f is not None and f.product is not None}))


# --- the answer --------------------------------------------------------------------------------------------------


def ruling_on(
    request: Request,
    cluster: ClusterPolicy,
    policy: Policy,
    now: datetime,
    flavors: Iterable[FlavorName] = (),
    expected_end: datetime | None = None,
) -> Ruling:
    """Every verdict on every flow that placing the request there implies. `expected_end` counts only where the rules
    ask for it."""
    must_cover = policy.residency.settings.must_cover_expected_runtime
    plan = plan_of(request, cluster, policy, now, flavors, expected_end if must_cover else None)
    return _ruled(office_of(policy), plan, now)


def legality(
    request: Request,
    cluster: ClusterPolicy | None,
    policy: Policy,
    now: datetime,
    flavors: Iterable[FlavorName] = (),
    expected_end: datetime | None = None,
) -> Legality:
    """What the law says of a request on a cluster. A cluster that is not in the blueprint has no facts at all."""
    cluster = cluster or _UNKNOWN
    office = office_of(policy)
    site, said, flavors = cluster, request.declared, tuple(flavors)
    stores = tuple(to.store if to is not None else None for to in (said.outputs, said.checkpoint))
    about = (_class_of(request, policy), said.data, stores, _products(request, cluster, flavors))

    def answer() -> Legality:
        ruling = ruling_on(request, site, policy, now, flavors, expected_end)
        return Legality(_rejections(ruling), ruling.obligations, ruling.would, ruling.valid_until)

    return office.once(request, cluster, now, about, answer)


def _ruled(office: Office, plan: Plan, now: datetime) -> Ruling:
    return judge_plan(office.law, plan, now, office.memo.hear)


def _rejections(ruling: Ruling) -> tuple[Rejection, ...]:
    """One for each thing that stands in the way: the same clause on several flows of the same data is one thing."""
    flows: dict[tuple[object, ...], list[Verdict]] = {}
    for verdict in sorted(ruling.against, key=lambda v: (v.artefact in _MADE, v.artefact, v.label, _ORDER[v.flow])):
        why = verdict.because
        origin = verdict.chain[1] if verdict.artefact in _MADE and len(verdict.chain) > 1 else verdict.artefact
        key = (origin, verdict.label, verdict.answer, why.code, why.rule, why.clause, why.seen, why.duty)
        flows.setdefault(key, []).append(verdict)
    return tuple(_rejection(found[0], tuple(dict.fromkeys(v.flow.value for v in found))) for found in flows.values())


_ORDER = {flow: rank for rank, flow in enumerate(Flow)}


def _rejection(verdict: Verdict, flows: tuple[str, ...]) -> Rejection:
    why = verdict.because
    denied = verdict.answer is Answer.DENY
    owners = verdict.artefact in (UNNAMED, CHECKPOINTS, OUTPUTS)
    legal = LegalDetail(
        flows=flows,
        code=why.code.value,
        rule=why.rule,
        clause=why.clause,
        fact=why.fact,
        gap=why.gap.value if why.gap is not None else "",
        chain=verdict.chain,
        destination=verdict.destination,
        law=why.law,
        rule_line=str(why.at),
        duty=why.duty.value if why.duty is not None else "",
    )
    detail = Detail(
        subject=verdict.artefact,
        resource=why.fact or None,
        expected=why.expected,
        seen=why.seen,
        holder=verdict.label or None,
        line=str(why.clause_at if why.clause_at.file else why.at) or None,
        legal=legal,
    )
    reason = Reason.RESIDENCY if denied else Reason.RESIDENCY_INDETERMINATE
    return Rejection(reason, Resolver.OWNER if owners else Resolver.OPERATOR, detail)
