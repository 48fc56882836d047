"""Where a request is judged, and the rejections that quota and nodes have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatcher.core.decision import Detail, Reason, Rejection, Resolver
from dispatcher.core.ids import FlavorName
from dispatcher.core.index import ClusterIndex, Room
from dispatcher.core.policy import ClusterPolicy, Policy
from dispatcher.core.snapshot import ClusterQueueView, Hold, Taint
from dispatcher.core.workload import Request


@dataclass(frozen=True, slots=True)
class Broken:
    """GPUs that would be left over on nodes that were whole before: the stranded part of a placement."""

    flavor: FlavorName
    resource: str
    amount: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request is judged: the worker's index, its room after `holds`, and the queue that it would enter."""

    request: Request
    index: ClusterIndex
    holds: tuple[Hold, ...]
    room: Room
    queue: ClusterQueueView
    policy: Policy
    site: ClusterPolicy | None


def taint_rejection(pod_set: str, flavor: FlavorName, taint: Taint) -> Rejection:
    text = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
    return Rejection(Reason.TAINT, Resolver.OWNER, Detail(subject=pod_set, flavor=flavor, seen=(text,)))


def held_rejection(detail: Detail, flavor: FlavorName, holds: tuple[Hold, ...]) -> Rejection:
    """Capacity that is there but promised: names who it is promised to, the largest promise on the flavor first."""
    sizes = [
        (-sum(count * per_pod.gpus() for _, count, per_pod, f in hold.usage if f == flavor), hold.workload_key)
        for hold in holds
        if any(f == flavor for _, _, _, f in hold.usage)
    ]
    holder = min(sizes)[1] if sizes else None
    return Rejection(Reason.HELD, Resolver.WAIT, replace(detail, flavor=flavor, holder=holder))
