"""What lies in the data cache of a cluster, or is on its way there, worked out from the decisions that sent work to it.

Nobody tells us what a cache holds. What is known: which work was sent to a cluster, what it reads, and how long that
takes to bring (ADR 25). From this follows what lies there as long as caches forget what was unused the longest; where a
step of it is not known, nothing is claimed, and the set is paid again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.holds import transfer_of
from dispatcher.core.ids import ClusterName, DataSetName, DecisionId, WorkloadUid
from dispatcher.core.snapshot import Cached, HubView
from dispatcher.core.waiting import Phase, standing
from dispatcher.core.workload import HubWorkload

VISITS = 256
"""Of how many newest decisions of a cluster its cache is worked out; those before count as never made."""


class Bringing(StrEnum):
    """What became of the data of one decision. ENDED: its attempt was over before the data could have been there."""

    ON_ITS_WAY = "on-its-way"
    THERE = "there"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Visit:
    """One decision that sent work to a cluster whose cache it reads through: `sets` with their sizes in bytes.

    `brings` are those of them that it would bring if nobody else had; all are there at `there_at`, `transfer_s` after
    its run may begin. None: how long that takes is not known, and it brings nothing that others may count on.
    """

    decision: DecisionId
    workload: WorkloadUid
    key: str
    cluster: ClusterName
    attempt: int
    at: datetime
    sets: tuple[tuple[DataSetName, int], ...]
    brings: frozenset[DataSetName]
    transfer_s: int
    there_at: datetime | None
    state: Bringing = Bringing.ON_ITS_WAY
    placed: bool = False
    """Whether the work was seen on the cluster."""

    @property
    def pending(self) -> bool:
        return self.there_at is not None and self.state is Bringing.ON_ITS_WAY


def visit_of(decision: Decision) -> Visit | None:
    """What a decision will do to the cache of the cluster that it chose; None where it leaves it alone."""
    found = decision.candidate(decision.chosen) if decision.chosen is not None else None
    if decision.outcome is Outcome.WAIT or found is None:
        return None
    incoming = found.incoming
    sets = tuple((coming.data_set, coming.size_bytes) for coming in incoming if coming.size_bytes is not None)
    if not sets:
        return None
    takes_s = transfer_of(incoming)
    return Visit(
        decision=decision.id,
        workload=decision.workload,
        key=decision.key,
        cluster=found.cluster,
        attempt=decision.attempt,
        at=decision.decided_at,
        sets=sets,
        brings=frozenset(coming.data_set for coming in incoming if coming.transfer_s is not None),
        transfer_s=takes_s or 0,
        there_at=decision.decided_at + timedelta(seconds=takes_s) if takes_s is not None else None,
    )


def in_order(visits: Iterable[Visit]) -> tuple[Visit, ...]:
    """The visits of a cluster, each once, oldest first; the newest `VISITS` of them."""
    known = {visit.decision: visit for visit in visits}
    return tuple(sorted(known.values(), key=lambda visit: (visit.at, visit.decision)))[-VISITS:]


def contents(visits: Iterable[Visit], cache_bytes: int) -> tuple[Cached, ...]:
    """What lies in a cache of this size after these visits, oldest first, or is on its way there; in name order.

    When it is full, what was unused the longest goes. A visit takes room whatever became of it: how much had come when
    it ended, nobody knows. A set of another size than before has other content, and what lay there is of no use.
    """
    kept: dict[DataSetName, tuple[int, list[Visit]]] = {}
    for visit in visits:
        for name, size in visit.sets:
            if not 0 < size <= cache_bytes:
                continue
            known, before = kept.pop(name, (size, []))
            kept[name] = (size, [*before, visit] if known == size else [visit])
            while sum(taken for taken, _ in kept.values()) > cache_bytes:
                del kept[next(iter(kept))]
    found = (_soonest(name, size, those) for name, (size, those) in sorted(kept.items()))
    return tuple(cached for cached in found if cached is not None)


def _soonest(name: DataSetName, size: int, visits: list[Visit]) -> Cached | None:
    """By whom a set is there first; None: nobody's bringing it can be counted on."""
    lasting = [
        (visit.state is not Bringing.THERE, visit.there_at, visit.decision, visit.key, visit.transfer_s)
        for visit in visits
        if visit.there_at is not None and visit.state is not Bringing.ENDED and name in visit.brings
    ]
    if not lasting:
        return None
    coming, there_at, decision, key, takes_s = min(lasting)
    begun_at = there_at - timedelta(seconds=takes_s)
    return Cached(name, size, key, decision, begun_at, there_at, there=not coming)


# --- what becomes of a visit -------------------------------------------------------------------------------------


def looked_at(visit: Visit, workload: HubWorkload | None, hub: HubView, now: datetime) -> Visit:
    """A visit after a look at the hub, which must be one that is synced and not silent. The attempt is the newest.

    The transfer begins with the run: where that was placed later than it was decided, the data is there later. An
    attempt of which nothing is seen any more ended nobody knows when, and counts as ended too early.
    """
    if not visit.pending or visit.there_at is None:
        return visit
    if workload is None:
        return replace(visit, state=Bringing.ENDED)
    found = standing(workload, hub)
    if found.phase is Phase.NOMINATED and visit.cluster in workload.nominated:
        return visit
    if found.phase is Phase.PLACED and workload.cluster_name == visit.cluster:
        began_at = max(found.since or visit.at, visit.at)
        there_at = began_at + timedelta(seconds=visit.transfer_s)
        return there(visit, now) if there_at <= now else replace(visit, there_at=there_at, placed=True)
    ended_at = found.since if found.phase in (Phase.FINISHED, Phase.EVICTING) else None
    was_here = visit.placed or workload.cluster_name == visit.cluster
    was_there = was_here and ended_at is not None and ended_at >= visit.there_at
    return there(visit, now) if was_there else replace(visit, state=Bringing.ENDED)


def there(visit: Visit, at: datetime) -> Visit:
    """A visit whose data is there, at the latest since `at`: since somebody has seen that it must be."""
    return replace(visit, there_at=at, state=Bringing.THERE, placed=True)
