"""What stands between a request and a cluster beside capacity: who is on the way there already, who waits ahead, what
the hub takes.

A cluster where everything is taken may be given a little work all the same, so that its next free GPU does not idle for
as long as a nomination takes to arrive (`look_ahead`, docs/write-a-policy.md). Never beyond the class's number, never
past somebody ahead, and never on capacity that is promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256

from dispatcher.core.backfill import Opening, Reservation
from dispatcher.core.decision import IN_USE, NO_ROOM, Candidate, Detail, Fit, LookAhead, Reason, Rejection, Resolver
from dispatcher.core.ids import ClusterName, FlavorName, WorkloadUid


@dataclass(frozen=True, slots=True)
class Refusal:
    """The hub did not take a nomination: what it said, when, and when we ask again. `own`: it was this workload's."""

    message: str
    at: datetime
    again_at: datetime
    own: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """The nominations of a request's priority or above that have no cluster yet, and how many there may be."""

    outstanding: int
    limit: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Seen by one decision. The default is an empty road.

    `queued`: workloads by cluster and class that are nominated there and have no quota there yet. `claimed`: clusters
    and flavors whose next free capacity somebody ahead in the order waits for.
    """

    queued: Mapping[tuple[ClusterName, str], int] = field(default_factory=dict)
    claimed: tuple[tuple[ClusterName, FlavorName], ...] = ()
    bound: Bound | None = None
    refusal: Refusal | None = None
    reserved: tuple[Reservation, ...] = ()
    """What those ahead that cannot start keep free for their start, where that is in somebody's way."""
    openings: tuple[Opening, ...] = ()
    """When clusters that are full and cheaper are expected to have room, where waiting for them may pay."""

    def like(self, other: Traffic) -> bool:
        """Whether the road is the same, apart from what is reserved."""
        return self is other or (
            (self.queued, self.claimed) == (other.queued, other.claimed)
            and (self.bound, self.refusal) == (other.bound, other.refusal)
        )

    def keeps_back(self) -> Rejection | None:
        """Why nothing is nominated whatever fits; None: nothing is in the way."""
        if self.refusal is not None:
            said, at = (self.refusal.message,), self.refusal.at
            holder = None if self.refusal.own else "another workload"
            detail = Detail("hub", seen=said, since=at, holder=holder)
            return Rejection(Reason.NOMINATION_REFUSED, Resolver.OPERATOR, detail)
        if self.bound is not None and self.bound.outstanding >= self.bound.limit:
            detail = Detail("limits.outstanding_nominations", needed=self.bound.outstanding + 1, found=self.bound.limit)
            return Rejection(Reason.TOO_MANY_OUTSTANDING, Resolver.WAIT, detail)
        return None

    def may_queue(self, candidate: Candidate, workload_class: str, look_ahead: int) -> bool:
        """Whether one more workload of the class may be nominated to a cluster that is full."""
        claims = set(self.claimed)
        return self.queued.get((candidate.cluster, workload_class), 0) < look_ahead and not any(
            (candidate.cluster, placement.flavor) in claims for placement in candidate.placements
        )


EMPTY = Traffic()


def waits_for_others(candidate: Candidate) -> bool:
    """Whether all that stands against a cluster is what others use there now: the room of those who leave is enough."""
    return (
        candidate.fit is Fit.WHEN_OTHERS_LEAVE
        and candidate.total_usd_micro is not None
        and all(r.reason in IN_USE and r.resolver is Resolver.WAIT for r in candidate.rejections)
    )


def claims(candidates: Iterable[Candidate]) -> frozenset[tuple[ClusterName, FlavorName]]:
    """Where a request that waits would take the next free capacity."""
    found = set()
    for candidate in candidates:
        if candidate.placements and candidate.rejections and _is_full(candidate):
            found.update([(candidate.cluster, placement.flavor) for placement in candidate.placements])
    return frozenset(found)


def _is_full(candidate: Candidate) -> bool:
    return NO_ROOM.issuperset([rejection.reason for rejection in candidate.rejections])


def choose_ahead(
    uid: WorkloadUid, waiting: Iterable[Candidate], traffic: Traffic, workload_class: str, look_ahead: int
) -> tuple[ClusterName, LookAhead] | None:
    """The cheapest full cluster whose queue takes one more, by the same order as among fits; None: there is none."""
    open_ = [c for c in waiting if traffic.may_queue(c, workload_class, look_ahead)]
    if not open_:
        return None
    best = min(open_, key=lambda c: (c.total_usd_micro or 0, tie(uid, c.cluster), c.cluster)).cluster
    return best, LookAhead(traffic.queued.get((best, workload_class), 0), look_ahead)


def tie(uid: WorkloadUid, cluster: ClusterName) -> str:
    """Spreads equal candidates over clusters, always the same way for one workload."""
    return sha256(f"{uid}/{cluster}".encode()).hexdigest()
