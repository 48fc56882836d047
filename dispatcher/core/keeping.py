"""What backfill (backfill.py) counts with on a real cluster: pools, what is free of them, and when more comes back.

Two things run out: room on the nodes of a flavor, and the quota of a queue with everything that it may borrow. Room on
nodes is counted in *grains*, the accelerators of one pod: a pod of eight GPUs has no room on eight nodes with one free
GPU each. Which pods lie on which node nobody tells us, so what comes back is counted as if it came back together; a
start is an estimate in this too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from dispatcher.core.backfill import Amounts, Calendar, Option, Pool, Release, Reservation, calendar_of, expected_end
from dispatcher.core.decision import NO_ROOM, Candidate, Estimate, Fit, Resolver
from dispatcher.core.ids import FlavorName, QueueName
from dispatcher.core.index import ClusterIndex
from dispatcher.core.instants import LONGEST_S
from dispatcher.core.policy import ClusterPolicy
from dispatcher.core.resources import CPU, Resources
from dispatcher.core.snapshot import Hold
from dispatcher.core.workload import PodSet, WorkloadClass

MOST_STEPS = 64
"""Ends of a cluster that are told apart; where there are more, some are taken to come with the next one."""
_NODES, _QUOTA = "nodes", "quota"


class Part(NamedTuple):
    """Equal pods on one flavor and what each takes of its main resource: accelerators, else CPU. `nodes`: on how many
    nodes they lie, 0 where that is not known."""

    flavor: FlavorName
    resource: str
    pods: int
    per_pod: int
    nodes: int = 0

    @property
    def amount(self) -> int:
        return self.pods * self.per_pod


@dataclass(frozen=True, slots=True)
class Taker:
    """Something that runs on a cluster, or is promised there, with what is known of its end (None: nothing is)."""

    queue: QueueName | None
    parts: tuple[Part, ...]
    begun_at: datetime
    estimate: Estimate | None


@dataclass(frozen=True, slots=True)
class Grounds:
    """The pools that count on one cluster: those that somebody who reserves there would take of.

    `grains` are (flavor, resource, size of a pod), `quotas` (queue, the queues that share its quota, flavor, resource).
    """

    grains: tuple[tuple[FlavorName, str, int], ...]
    quotas: tuple[tuple[QueueName, tuple[QueueName, ...], FlavorName, str], ...]

    def taken(self, queue: QueueName | None, parts: Iterable[Part], *, coming_back: bool = False) -> Amounts:
        """What work of a queue takes of each pool, or gives back when it ends.

        A pod that is smaller than a grain may break one on each of its nodes.
        """
        found: dict[Pool, int] = {}
        for part in parts:
            for flavor, resource, grain in self.grains:
                if (flavor, resource) == (part.flavor, part.resource):
                    whole = 0 if coming_back or part.per_pod >= grain else part.nodes * grain
                    _add(found, _node_pool(flavor, resource, grain), max(part.amount, whole))
            for holder, sharers, flavor, resource in self.quotas:
                if (flavor, resource) == (part.flavor, part.resource) and queue in sharers:
                    _add(found, _quota_pool(holder, flavor, resource), part.amount)
        return found


def _add(found: dict[Pool, int], pool: Pool, amount: int) -> None:
    found[pool] = found.get(pool, 0) + amount


def _node_pool(flavor: FlavorName, resource: str, grain: int) -> Pool:
    return (_NODES, flavor, resource, str(grain))


def _quota_pool(queue: QueueName, flavor: FlavorName, resource: str) -> Pool:
    return (_QUOTA, queue, flavor, resource)


# --- what somebody takes -----------------------------------------------------------------------------------------


def parts_of(candidate: Candidate, pod_sets: Sequence[PodSet]) -> tuple[Part, ...]:
    """What a workload would take on a cluster, pod set by pod set."""
    per_pod = {pod_set.name: pod_set.per_pod for pod_set in pod_sets}
    main = {placed.pod_set: placed for placed in reversed(candidate.placements)}
    found = [
        _part(placed.flavor, placed.pods, per_pod[name], placed.nodes)
        for name, placed in sorted(main.items())
        if name in per_pod
    ]
    return tuple(part for part in found if part is not None)


def parts_of_usage(usage: Sequence[tuple[str, int, Resources, FlavorName | None]]) -> tuple[Part, ...]:
    """What the pod sets of a copy, or of a promise, have. Of two flavors of one the first is that of its accelerators,
    as a decision places it."""
    main = {name: (flavor, count, per_pod) for name, count, per_pod, flavor in reversed(usage) if flavor is not None}
    found = [_part(flavor, count, per_pod, 0) for _, (flavor, count, per_pod) in sorted(main.items())]
    return tuple(part for part in found if part is not None)


def _part(flavor: FlavorName, pods: int, per_pod: Resources, nodes: int) -> Part | None:
    resource = per_pod.gpu_resource() or CPU
    amount = per_pod.get(resource)
    return Part(flavor, resource, pods, amount, nodes) if amount > 0 else None


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
    known: dict[QueueName, tuple[QueueName, ...]] = {}
    for queue, parts in takers:
        if queue not in known:
            known[queue] = tuple(sorted(index.base.quota.cohort_members(queue)))
        for part in parts:
            grains.add((part.flavor, part.resource, part.per_pod))
            quotas.add((queue, known[queue], part.flavor, part.resource))
    return Grounds(tuple(sorted(grains)), tuple(sorted(quotas)))


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
    return free


def calendar(grounds: Grounds, free: Amounts, takers: Iterable[Taker], now: datetime) -> Calendar:
    """When how much is free. `takers` is everything that runs or is promised there; that of which no end is known
    never comes back."""
    releases = []
    for taker in takers:
        amounts = grounds.taken(taker.queue, taker.parts, coming_back=True) if taker.estimate is not None else {}
        if amounts and taker.estimate is not None:
            at, overdue = expected_end(taker.begun_at, taker.estimate.duration_s, now)
            releases.append(Release(at, amounts, taker.estimate.basis, overdue))
    until = min((release.at for release in releases), default=None)
    return replace(calendar_of(free, _in_steps(releases), now), until=until)


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
    taken = grounds.taken(queue, parts)
    return Option(candidate.cluster, taken, max(1, duration_s), candidate.total_usd_micro or 0, queue, sharers)


def charge(reservation: Reservation, queue: QueueName | None, parts: Sequence[Part]) -> Amounts:
    """What work of a queue would take of what a reservation leaves over."""
    grains, quotas = [], []
    for pool in reservation.spare:
        if pool[0] == _NODES:
            grains.append((FlavorName(pool[1]), pool[2], int(pool[3])))
        elif reservation.queue == pool[1]:
            quotas.append((QueueName(pool[1]), reservation.sharers, FlavorName(pool[2]), pool[3]))
    return Grounds(tuple(grains), tuple(quotas)).taken(queue, parts)
