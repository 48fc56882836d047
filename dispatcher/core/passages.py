"""Passages: data of the catalog through places of the fleet, whoever's work it is. And data at rest.

What a change of rules opens or closes here matters before any job asks: a passage that opens is a widening even while
nobody uses it. Data sets that carry the same labels, lie in the same countries and hold as many people are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dispatcher.core.blame import blamed
from dispatcher.core.ids import DataSetName
from dispatcher.core.legality import Office, office_of
from dispatcher.core.policy import Policy
from dispatcher.core.touched import Touched
from residency.facts import Kind, Place, Question, Tenant
from residency.plans import Cargo
from residency.verdict import Verdict
from residency.vocabulary import Flow

AT_REST = (Flow.REPLICATE, Flow.PROCESS, Flow.REPLICATE_SEALED)
"""Data may lie where one of these is legal."""
_FLOWS: Mapping[Kind, tuple[Flow, ...]] = {
    Kind.CLUSTER: (Flow.PROCESS, Flow.CACHE),
    Kind.STORE: (Flow.REPLICATE, Flow.REPLICATE_SEALED, Flow.CHECKPOINT, Flow.OUTPUT),
}
Token = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Passage:
    """A flow of data sets to a place that turns from one answer to the other. `because` is what stands against it:
    under the old rules where it opens, under the new ones where it closes. `permits` open it. `tenants`: for whose
    work, where not for everybody's."""

    flow: Flow
    place: str
    data_sets: tuple[str, ...]
    because: Verdict | None
    permits: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rest:
    """A data set that lies where it might lie and would not."""

    data_set: str
    place: str
    because: Verdict


@dataclass(slots=True)
class _Answers:
    """One policy's answers on passages, each worked out once."""

    office: Office
    now: datetime
    places: dict[str, Place] = field(default_factory=dict)
    products: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The GPUs of each cluster: whatever work it is, it may get any of them."""

    def __post_init__(self) -> None:
        policy = self.office.policy
        for store in policy.stores.values():
            self.places[store.site.name] = store.site
        for cluster in policy.clusters.values():
            name, flavors = cluster.site.name, cluster.flavors.values()
            self.places[name] = cluster.site
            self.products[name] = tuple(sorted({str(f.product) for f in flavors if f.product is not None}))

    def cargo(self, name: str) -> Cargo:
        return self.office.cargo(name, self.now)

    def on(self, cargo: Cargo, flow: Flow, place: Place, tenant: Tenant | None) -> tuple[Verdict, ...]:
        """One verdict a label."""
        question = Question(
            flow=flow,
            now=self.now,
            destination=place,
            source=place,
            tenant=tenant,
            home=cargo.home,
            products=self.products.get(place.name, ()),
            persons=cargo.persons,
            queue=tenant.queues[0] if tenant is not None and tenant.queues else "",
            data_sets=(cargo.name,),
        )
        return tuple(self.office.memo.judge(question, label) for label in cargo.labels.names)


def passages(base: Policy, head: Policy, now: datetime) -> tuple[tuple[Passage, ...], tuple[Passage, ...]]:
    """Those that open and those that close. Data sets that only one of the policies knows are left out: they are new or
    gone, and no rule did that. A place that is new is one to which nothing went before."""
    before, after = _Answers(office_of(base), now), _Answers(office_of(head), now)
    tenants = _tenants(base, head)
    opened: dict[tuple[object, ...], list[tuple[str, str]]] = {}
    closed: dict[tuple[object, ...], list[tuple[str, str]]] = {}
    touched = Touched(base, head)
    for names in _alike(before, after):
        if not any(touched.label(label) for label in before.cargo(names[0]).labels.names):
            continue
        for turn, tenant in _turns(before, after, names[0], tenants):
            flow, place, because, permits = turn
            into = opened if permits else closed
            into.setdefault((flow, place, because, permits), []).extend((name, tenant) for name in names)
    everybody = tuple(sorted(tenants))
    return _listed(opened, everybody), _listed(closed, everybody)


_Turn = tuple[Flow, str, Verdict | None, tuple[str, ...]]


def _turns(
    before: _Answers, after: _Answers, name: str, tenants: Mapping[str, tuple[Tenant | None, Tenant | None]]
) -> Iterator[tuple[_Turn, str]]:
    was, new, old = before.cargo(name), after.cargo(name), before.places
    for place_name, place in after.places.items():
        known = old.get(place_name)
        for flow in _FLOWS.get(place.kind, ()):
            for tenant, (theirs, ours) in tenants.items():
                earlier = before.on(was, flow, known, theirs) if known is not None else ()
                later = after.on(new, flow, place, ours)
                legal = (bool(earlier) and _all(earlier), _all(later))
                if legal == (False, True):
                    permits = tuple(sorted({p for v in later for p in (*v.exceptions, *v.permits)}))
                    yield (flow, place_name, _against(earlier), permits), tenant
                elif legal == (True, False):
                    yield (flow, place_name, _closed_by(later, earlier), ()), tenant


def _tenants(base: Policy, head: Policy) -> dict[str, tuple[Tenant | None, Tenant | None]]:
    """Whose work it may be, under both policies; "" where neither names any."""
    old = {tenant.name: tenant for tenant in base.residency.tenants}
    new = {tenant.name: tenant for tenant in head.residency.tenants}
    return {name: (old.get(name), new.get(name)) for name in sorted({*old, *new})} or {"": (None, None)}


def _alike(before: _Answers, after: _Answers) -> list[list[str]]:
    """Data sets of both policies, those together of which the law sees the same. A data set that an exception names is
    like no other."""
    named = {
        name
        for office in (before.office, after.office)
        for one in office.law.bundle.exceptions
        for name in one.scope.data_sets
    }
    found: dict[Token, list[str]] = {}
    for name in sorted(set(before.office.catalog) & set(after.office.catalog)):
        token = (_token(before.cargo(name)), _token(after.cargo(name)), name if name in named else "")
        found.setdefault(token, []).append(name)
    return list(found.values())


def _token(cargo: Cargo) -> Token:
    return (cargo.labels.names, cargo.home, cargo.persons)


def _listed(
    found: Mapping[tuple[object, ...], list[tuple[str, str]]], everybody: tuple[str, ...]
) -> tuple[Passage, ...]:
    listed = []
    for (flow, place, because, permits), pairs in found.items():
        assert isinstance(flow, Flow)
        assert isinstance(place, str)
        assert isinstance(permits, tuple)
        assert because is None or isinstance(because, Verdict)
        tenants = tuple(sorted({tenant for _, tenant in pairs}))
        names = tuple(sorted({name for name, _ in pairs}))
        listed.append(Passage(flow, place, names, because, permits, () if tenants == everybody else tenants))
    return tuple(sorted(listed, key=lambda one: (one.place, _ORDER[one.flow], one.data_sets, one.tenants)))


_ORDER = {flow: rank for rank, flow in enumerate(Flow)}


def _all(verdicts: Sequence[Verdict]) -> bool:
    return all(verdict.allowed for verdict in verdicts)


def _against(verdicts: Sequence[Verdict]) -> Verdict | None:
    return next((verdict for verdict in verdicts if not verdict.allowed), None)


def _closed_by(later: Sequence[Verdict], earlier: Sequence[Verdict]) -> Verdict | None:
    against = _against(later)
    if against is None:
        return None
    return blamed(against, next((verdict for verdict in earlier if verdict.label == against.label), None))


def rests(base: Policy, head: Policy, now: datetime) -> tuple[Rest, ...]:
    """Data of both catalogs that lies where, by the new rules, it must not any more."""
    before, after = _Answers(office_of(base), now), _Answers(office_of(head), now)
    found = []
    for name in sorted(set(before.office.catalog) & set(after.office.catalog)):
        lies = set(_replicas(base, name)) & set(_replicas(head, name))
        for place in sorted(lies):
            because = _may_not_lie(after, name, place)
            if because is not None and _may_not_lie(before, name, place) is None:
                was = before.on(before.cargo(name), because.flow, before.places[place], None)
                earlier = next((verdict for verdict in was if verdict.label == because.label), None)
                found.append(Rest(name, place, blamed(because, earlier)))
    return tuple(found)


def _replicas(policy: Policy, name: str) -> tuple[str, ...]:
    known = policy.data_sets[DataSetName(name)]
    return (*known.replica_clusters, *known.replica_stores)


def _may_not_lie(answers: _Answers, name: str, where: str) -> Verdict | None:
    """What stands against it; None where some flow at rest is legal for each label, or the place is not known."""
    place = answers.places.get(where)
    if place is None:
        return None
    cargo = answers.cargo(name)
    asked = [answers.on(cargo, flow, place, None) for flow in AT_REST]
    for at in range(len(cargo.labels.names)):
        if not any(verdicts[at].allowed for verdicts in asked):
            return asked[0][at]
    return None
