"""What backfill (backfill.py) counts with on a real cluster: pools, what is free of them, and when more comes back.

Two things run out: room on the nodes of a flavor, and the quota of a queue with everything that it may borrow. Room on
nodes is counted in *grains*, the accelerators of one pod: a pod of eight GPUs has no room on eight nodes with one free
GPU each. What comes back is counted as if it came back together; a start is an estimate in this too.

Pods that must lie together need that room in one domain of a topology (nodes.py), so each of these is a pool as well,
where somebody waits who requires one. There it counts on which nodes pods are: what lies elsewhere gives nothing back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from dispatcher.core.backfill import Amounts, Calendar, Option, Pool, Release, Reservation, calendar_of, expected_end
from dispatcher.core.decision import NO_ROOM, Candidate, Estimate, Fit, Resolver
from dispatcher.core.ids import FlavorName, QueueName
from dispatcher.core.index import ClusterIndex
from dispatcher.core.instants import LONGEST_S
from dispatcher.core.nodes import Demand, Domains, NodeTable
from dispatcher.core.nodeset import NO_NODES, Nodes, members
from dispatcher.core.policy import ClusterPolicy
from dispatcher.core.resources import CPU, Resources
from dispatcher.core.snapshot import Hold, Lying
from dispatcher.core.topology import Topology, TopologyWish
from dispatcher.core.workload import PodSet, WorkloadClass

MOST_STEPS = 64
"""Ends of a cluster that are told apart; where there are more, some are taken to come with the next one."""
_NODES, _QUOTA, _DOMAIN = "nodes", "quota", "domain"


class Part(NamedTuple):
    """Equal pods on one flavor and what each takes of its main resource: accelerators, else CPU. `nodes`: on how many
    nodes they lie, 0 where that is not known."""

    flavor: FlavorName
    resource: str
    pods: int
    per_pod: int
    nodes: int = 0
    level: str | None = None
    """The level of a topology of which one domain must hold them all."""
    group: str = ""
    """Those of one group share that domain."""

    @property
    def amount(self) -> int:
        return self.pods * self.per_pod

    def broken(self, grain: int) -> int:
        """What they take where pods of that size count: smaller ones may break one on each of their nodes."""
        return self.amount if self.per_pod >= grain else max(self.amount, self.nodes * grain)


@dataclass(frozen=True, slots=True)
class Taker:
    """Something that runs on a cluster, or is promised there, with what is known of its end (None: nothing is)."""

    queue: QueueName | None
    parts: tuple[Part, ...]
    begun_at: datetime
    estimate: Estimate | None
    key: tuple[str, str] = ("", "")
    """The namespace and name of what runs."""
    lies: Lying = ()
    """Where its pods are, as far as that is seen."""


@dataclass(frozen=True, slots=True)
class Grounds:
    """The pools that count on one cluster: those that somebody who reserves there would take of.

    `grains` are (flavor, resource, size of a pod), `quotas` (queue, the queues that share its quota, flavor, resource).
    """

    grains: tuple[tuple[FlavorName, str, int], ...]
    quotas: tuple[tuple[QueueName, tuple[QueueName, ...], FlavorName, str], ...]
    domains: tuple[tuple[FlavorName, str, int, str], ...] = ()
    """(flavor, resource, size of a pod, level): room in each domain of the level is a pool."""

    def taken(self, queue: QueueName | None, parts: Iterable[Part], *, coming_back: bool = False) -> Amounts:
        """What work of a queue takes of each pool, or gives back when it ends; of which domain nobody says."""
        found: dict[Pool, int] = {}
        for part in parts:
            for flavor, resource, grain in self.grains:
                if (flavor, resource) == (part.flavor, part.resource):
                    _add(found, _node_pool(flavor, resource, grain), part.amount if coming_back else part.broken(grain))
            for holder, sharers, flavor, resource in self.quotas:
                if (flavor, resource) == (part.flavor, part.resource) and queue in sharers:
                    _add(found, _quota_pool(holder, flavor, resource), part.amount)
        return found


def _add(found: dict[Pool, int], pool: Pool, amount: int) -> None:
    found[pool] = found.get(pool, 0) + amount


def _node_pool(flavor: FlavorName, resource: str, grain: int) -> Pool:
    return (_NODES, flavor, resource, str(grain))


def _domain_pools(flavor: FlavorName, resource: str, grain: int, level: str) -> Pool:
    """What the pools of all domains of a level begin with."""
    return (_DOMAIN, flavor, resource, str(grain), level)


def _quota_pool(queue: QueueName, flavor: FlavorName, resource: str) -> Pool:
    return (_QUOTA, queue, flavor, resource)


# --- what somebody takes -----------------------------------------------------------------------------------------


def parts_of(candidate: Candidate, pod_sets: Sequence[PodSet]) -> tuple[Part, ...]:
    """What a workload would take on a cluster, pod set by pod set."""
    known = {pod_set.name: pod_set for pod_set in pod_sets}
    main = {placed.pod_set: placed for placed in reversed(candidate.placements)}
    found = [
        _part(placed.flavor, placed.pods, known[name].per_pod, placed.nodes, known[name].topology)
        for name, placed in sorted(main.items())
        if name in known
    ]
    return tuple(part for part in found if part is not None)


def parts_of_usage(usage: Sequence[tuple[str, int, Resources, FlavorName | None]]) -> tuple[Part, ...]:
    """What the pod sets of a copy, or of a promise, have. Of two flavors of one the first is that of its accelerators,
    as a decision places it."""
    main = {name: (flavor, count, per_pod) for name, count, per_pod, flavor in reversed(usage) if flavor is not None}
    found = [_part(flavor, count, per_pod, 0) for _, (flavor, count, per_pod) in sorted(main.items())]
    return tuple(part for part in found if part is not None)


def _part(
    flavor: FlavorName, pods: int, per_pod: Resources, nodes: int, wish: TopologyWish | None = None
) -> Part | None:
    resource = per_pod.gpu_resource() or CPU
    amount = per_pod.get(resource)
    if amount <= 0:
        return None
    level, group = (wish.required, wish.group) if wish is not None else (None, "")
    return Part(flavor, resource, pods, amount, nodes, level, group)


def lacks_only_room(candidate: Candidate) -> bool:
    """Whether nothing stands against a cluster but that others have what is needed there now."""
    return (
        candidate.fit is Fit.WHEN_OTHERS_LEAVE
        and candidate.total_usd_micro is not None
        and bool(candidate.rejections)
        and all(r.reason in NO_ROOM and r.resolver is Resolver.WAIT for r in candidate.rejections)
    )


def run_s(
    estimate: Estimate, flavors: Iterable[FlavorName], site: ClusterPolicy | None, workload_class: WorkloadClass | None
) -> int:
    """How long work of a class runs on these flavors of a cluster: as long as on the slowest of them; `LONGEST_S` at
    most."""
    return min(estimate.duration_s * 1000 // _slowest(flavors, site, workload_class), LONGEST_S)


def reference_s(
    taken_s: int, flavors: Iterable[FlavorName], site: ClusterPolicy | None, workload_class: WorkloadClass | None
) -> int:
    """How long a run would have taken at speed 1000 that took `taken_s` on these flavors; the reverse of `run_s`.
    A flavor of which nothing is known counts as of that speed."""
    return min(taken_s * _slowest(flavors, site, workload_class) // 1000, LONGEST_S)


def _slowest(flavors: Iterable[FlavorName], site: ClusterPolicy | None, workload_class: WorkloadClass | None) -> int:
    known = site.flavors if site is not None else {}
    return max(1, min((known[flavor].speed(workload_class) for flavor in flavors if flavor in known), default=1000))


# --- what there is -----------------------------------------------------------------------------------------------


def grounds_of(takers: Iterable[tuple[QueueName, tuple[Part, ...]]], index: ClusterIndex) -> Grounds:
    """The pools on a cluster that matter to those who would reserve there."""
    grains, quotas = set(), set()
    domains: set[tuple[FlavorName, str, int, str]] = set()
    known: dict[QueueName, tuple[QueueName, ...]] = {}
    for queue, parts in takers:
        if queue not in known:
            known[queue] = tuple(sorted(index.base.quota.cohort_members(queue)))
        for part in parts:
            grains.add((part.flavor, part.resource, part.per_pod))
            quotas.add((queue, known[queue], part.flavor, part.resource))
        domains.update(
            (part.flavor, part.resource, part.per_pod, part.level)
            for part in held_together(parts)[:1]
            if part.level is not None
        )
    return Grounds(tuple(sorted(grains)), tuple(sorted(quotas)), tuple(sorted(domains)))


def held_together(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Those that need a domain: the largest part that requires a level, first, and what must lie beside it.

    Of several that require one each, the largest is looked at alone: the others are taken to find theirs.
    """
    asking = [part for part in parts if part.level is not None]
    if not asking:
        return ()
    first = max(asking, key=lambda part: (part.amount, part.per_pod, part))
    same = (first.flavor, first.resource, first.level, first.group)
    others = [p for p in asking if p is not first and (p.flavor, p.resource, p.level, p.group) == same]
    return (first, *(others if first.group else ()))


def free_of(grounds: Grounds, index: ClusterIndex, holds: tuple[Hold, ...]) -> Amounts:
    """What is free of each pool now, promises deducted."""
    room = index.room(holds)
    free: dict[Pool, int] = {}
    for flavor, resource, grain in grounds.grains:
        known = index.view.flavors.get(flavor)
        nodes = room.nodes.flavored(known.labels if known is not None else ()) & room.nodes.present
        whole = sum(max(0, left) // grain * grain * count for left, count in room.nodes.amounts(nodes, resource))
        free[_node_pool(flavor, resource, grain)] = whole
    for queue, _, flavor, resource in grounds.quotas:
        free[_quota_pool(queue, flavor, resource)] = room.quota.available(queue, (flavor, resource))
    return free | _free_of_domains(grounds, index, room.nodes)


def bare_of(grounds: Grounds, index: ClusterIndex) -> Amounts:
    """What is free now of the pools of domains by what is on the nodes alone, nothing that is to come deducted."""
    return _free_of_domains(grounds, index, index.on_nodes)


def _free_of_domains(grounds: Grounds, index: ClusterIndex, table: NodeTable) -> dict[Pool, int]:
    free: dict[Pool, int] = {}
    for ground in grounds.domains:
        _, resource, grain, _ = ground
        domains, place = _domains_of(ground, index), table.frame.place_of(resource)
        there = _everywhere(domains)
        vectors = table.free.items() if place is not None else ()
        rooms = domains.sums((nodes & there, vector[place or 0] // grain * grain) for vector, nodes in vectors)
        prefix = _domain_pools(*ground)
        free |= {(*prefix, *name): left for (name, _), left in zip(domains.parts, rooms, strict=True)}
    return free


def _domains_of(ground: tuple[FlavorName, str, int, str], index: ClusterIndex) -> Domains:
    """The domains of a level, of all nodes of a flavor that are present."""
    flavor, _, _, level = ground
    known = index.view.flavors.get(flavor)
    topology = known.topology if known is not None else None
    domain = (topology or Topology("")).domain(level)
    demand = Demand(known.labels if known is not None else (), any_taint=True, domain=domain)
    return index.base.nodes.frame.domains(demand)


def _everywhere(domains: Domains) -> Nodes:
    found = NO_NODES
    for _, nodes in domains.parts:
        found |= nodes
    return found


Shelves = Mapping[str, tuple[tuple[Pool, str], ...]]
"""By node: the domains that it stands in, each as a pool with the resource that it counts."""


def shelves_of(grounds: Grounds, index: ClusterIndex) -> Shelves:
    """In which pools of domains what lies on a node comes back."""
    found: dict[str, tuple[tuple[Pool, str], ...]] = {}
    names = index.base.nodes.frame.marks.names
    for ground in grounds.domains:
        prefix = _domain_pools(*ground)
        for name, nodes in _domains_of(ground, index).parts:
            for at in members(nodes):
                found[names[at]] = (*found.get(names[at], ()), ((*prefix, *name), ground[1]))
    return found


def with_places(
    takers: Sequence[Taker], promised: Sequence[Taker], index: ClusterIndex, holds: tuple[Hold, ...]
) -> list[Taker]:
    """What runs and what is promised with the nodes on which its pods are, or where room was taken for them."""
    coming = index.laid_as_coming()
    found = [replace(t, lies=(*t.lies, *coming[t.key])) if t.key in coming else t for t in takers]
    return [*found, *(replace(t, lies=lies) for t, lies in zip(promised, index.laid(holds), strict=True))]


def calendar(
    grounds: Grounds, free: Amounts, takers: Iterable[Taker], now: datetime, shelves: Shelves | None = None
) -> Calendar:
    """When how much is free. `takers` is everything that runs or is promised there; that of which no end is known
    never comes back, and in a domain nothing of which it is not known where it lies."""
    releases = []
    for taker in takers:
        amounts: Amounts = {}
        if taker.estimate is not None:
            amounts = grounds.taken(taker.queue, taker.parts, coming_back=True)
        if taker.estimate is not None and shelves:
            amounts = {**amounts, **_given_back(taker.lies, shelves)}
        if amounts and taker.estimate is not None:
            at, overdue = expected_end(taker.begun_at, taker.estimate.duration_s, now)
            releases.append(Release(at, amounts, taker.estimate.basis, overdue))
    until = min((release.at for release in releases), default=None)
    return replace(calendar_of(free, _in_steps(releases), now), until=until)


def _given_back(lies: Lying, shelves: Shelves) -> Amounts:
    found: dict[Pool, int] = {}
    for node, per_pod, pods in lies:
        for pool, resource in shelves.get(node, ()):
            _add(found, pool, per_pod.get(resource) * pods)
    return found


def _in_steps(releases: list[Release]) -> list[Release]:
    """At most MOST_STEPS different ends: those between two of them come with the later one, which delays a start a
    little and promises nothing that is not there."""
    ends = sorted({release.at for release in releases})
    if len(ends) <= MOST_STEPS:
        return releases
    size = -(-len(ends) // MOST_STEPS)
    last = {at: ends[min(len(ends) - 1, place // size * size + size - 1)] for place, at in enumerate(ends)}
    return [Release(last[r.at], r.amounts, r.basis, r.overdue) for r in releases]


def option_of(candidate: Candidate, parts: tuple[Part, ...], duration_s: int, grounds: Grounds) -> Option | None:
    """What a workload, one of those by whom the grounds were made, would take of the pools; None where it has no queue
    or takes nothing that is counted."""
    queue = candidate.queue
    if queue is None or not parts:
        return None
    sharers = next(sharers for of, sharers, _, _ in grounds.quotas if of == queue)
    taken, together = grounds.taken(queue, parts), held_together(parts)
    option = Option(candidate.cluster, taken, max(1, duration_s), candidate.total_usd_micro or 0, queue, sharers)
    if not together or together[0].level is None:
        return option
    first = together[0]
    needed = sum(part.broken(first.per_pod) for part in together)
    pools = _domain_pools(first.flavor, first.resource, first.per_pod, first.level or "")
    return replace(option, within=pools, together=needed)


def charge(reservation: Reservation, queue: QueueName | None, parts: Sequence[Part]) -> Amounts:
    """What work of a queue would take of what a reservation leaves over."""
    grains, quotas, found = [], [], dict[Pool, int]()
    for pool in reservation.spare:
        if pool[0] == _NODES:
            grains.append((FlavorName(pool[1]), pool[2], int(pool[3])))
        elif pool[0] == _DOMAIN:
            # In which domain it would come nobody knows: in this one it can take what is free there now, and no more.
            taken = sum(part.broken(int(pool[3])) for part in parts if (part.flavor, part.resource) == pool[1:3])
            found[pool] = min(taken, reservation.exposed.get(pool, 0))
        elif reservation.queue == pool[1]:
            quotas.append((QueueName(pool[1]), reservation.sharers, FlavorName(pool[2]), pool[3]))
    return {**Grounds(tuple(grains), tuple(quotas)).taken(queue, parts), **found}
