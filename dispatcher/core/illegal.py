"""Work that the law no longer allows where it is: found in the views, with what each rule wants done about it.

Nothing here is a withdrawal. A nomination within a living attempt is only ever added to (kueue-contract section 5,
hazards): taking a cluster off the list while its worker admits the copy leaves a job that runs and can never be
latched. What waits is ended as a whole, by the hub, or stays; what runs follows its rule's `on_change`; where we cannot
look, or a fact is merely unknown, it stays and somebody is told (residency.md section 4.10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from dispatcher.core.blame import deciding
from dispatcher.core.decision import Decision
from dispatcher.core.ids import ClusterName, FlavorName, WorkloadUid
from dispatcher.core.instants import earlier, later
from dispatcher.core.legality import ruling_on
from dispatcher.core.policy import Policy
from dispatcher.core.request import build_request
from dispatcher.core.snapshot import HubView, Link, WorkerCopy, WorkerView, link_of
from dispatcher.core.waiting import PENDING, READY, Phase, multikueue_check, standing
from dispatcher.core.workload import HubWorkload, Request
from residency.plans import Ruling
from residency.verdict import Verdict
from residency.vocabulary import Answer, Flow, Queued, Running


class Course(StrEnum):
    """What becomes of it. Stable codes: they are in the audit log and in metrics."""

    KEEP = "keep"
    """It runs to its end: the rule says so. On record, and nobody is paged."""
    HOLD = "hold"
    """It stays as it is, and somebody is told what is awaited."""
    END = "end"
    """Its attempt is ended through the hub; it is queued again, and goes only where that is legal now."""


class Awaits(StrEnum):
    """What holds it in place, where something does."""

    NOTHING = ""
    RULE = "rule-says-hold"
    MOVE = "move"
    """Its rule says drain: to a legal cluster, by way of a legal checkpoint store. Nothing moves work yet."""
    STORE = "legal-checkpoint-store"
    """It may not even write its checkpoint where it does: nothing is copied to save progress."""
    FACT = "fact"
    """Whether it is illegal depends on a fact that nobody knows: a person must find it out."""
    SIGHT = "sight"
    """Its cluster cannot be seen: nothing that may run there is touched."""
    FLAVOR = "flavor"
    """On which GPUs it runs is not known, and on others it would be legal."""
    CLOCK = "clock"
    """Two clocks disagree, and by one of them it is legal still: a wrong clock ends nothing that runs."""


Stand = tuple[WorkloadUid, ClusterName, bool]
"""A workload where it waits (True) with a nomination, or runs."""


@dataclass(frozen=True, slots=True)
class Illegal:
    """One workload on one cluster. `because` is the verdict that decides; `since` is when we first saw it so."""

    workload: HubWorkload
    cluster: ClusterName
    waits: bool
    course: Course
    awaits: Awaits
    ruling: Ruling
    because: Verdict
    since: datetime
    deadline: datetime | None = None

    @property
    def identity(self) -> Stand:
        return (self.workload.uid, self.cluster, self.waits)


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look sees. `placed` is where decisions put each workload, with the flavors that they counted on."""

    hub: HubView
    workers: Mapping[ClusterName, WorkerView]
    policy: Policy
    latest: Mapping[WorkloadUid, Decision]
    now: datetime
    wall_ahead_s: int = 0

    @property
    def dated(self) -> datetime:
        """By what dates are judged (instants.py)."""
        return later(self.now, self.wall_ahead_s)

    @property
    def surely(self) -> datetime:
        """What is over by then is over for certain."""
        return earlier(self.now, self.wall_ahead_s)

    def link(self, cluster: ClusterName) -> Link:
        return link_of(self.workers.get(cluster), self.policy.limits.silence_limit_s, self.now)

    def copy(self, workload: HubWorkload, cluster: ClusterName) -> WorkerCopy | None:
        view = self.workers.get(cluster)
        found = view.copies.get((workload.namespace, workload.name)) if view is not None else None
        return found if found is not None and found.ours else None


Seen = Mapping[Stand, datetime]
"""Since when each thing has been illegal."""
Ended = frozenset[tuple[WorkloadUid, ClusterName]]
"""Waiting attempts that we have asked the hub to end."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What is illegal of a workload now, what was judged and is legal, and until when (exclusive) these answers hold;
    None: no bound of their own. What is being ended, or cannot be judged, is neither legal nor illegal."""

    found: tuple[Illegal, ...] = ()
    legal: tuple[Stand, ...] = ()
    valid_until: datetime | None = None


def examine(workload: HubWorkload, sight: Sight, seen: Seen, ended: Ended) -> Examined:
    """Judge a workload where it stands. What slipped through to a start although we `ended` it while it waited is ended
    as well: it began when it was illegal already."""
    phase = standing(workload, sight.hub).phase
    if phase not in (Phase.NOMINATED, Phase.PLACED):
        return Examined()
    owner = sight.hub.owners.get(workload.owner.uid) if workload.owner is not None else None
    request = build_request(workload, owner, sight.hub, sight.policy)
    if not isinstance(request, Request):
        return Examined()  # its owner is told what cannot be understood; nothing is concluded from it
    waits = phase is Phase.NOMINATED
    places = workload.nominated if waits else (workload.cluster_name,)
    found: list[Illegal] = []
    legal: list[Stand] = []
    ends: list[datetime] = []
    for cluster in places:
        site = sight.policy.clusters.get(cluster) if cluster is not None else None
        if cluster is None or site is None:
            continue
        flavors = flavors_on(workload, cluster, sight)
        ruling = ruling_on(request, site, sight.policy, sight.dated, flavors)
        if ruling.valid_until is not None:
            ends.append(ruling.valid_until)
        stand = (workload.uid, cluster, waits)
        if ruling.allowed:
            legal.append(stand)
            continue
        slipped_through = (workload.uid, cluster) in ended
        known = (seen.get(stand, sight.now), bool(flavors), slipped_through)
        one = _judged(workload, cluster, ruling, sight, known)
        if one.course is Course.END and not waits and sight.wall_ahead_s:
            allowed = ruling_on(request, site, sight.policy, sight.surely, flavors).allowed
            one = replace(one, course=Course.HOLD, awaits=Awaits.CLOCK) if allowed else one
        found.append(one)
    return Examined(tuple(found), tuple(legal), min(ends, default=None))


def flavors_on(workload: HubWorkload, cluster: ClusterName, sight: Sight) -> tuple[FlavorName, ...]:
    """On which flavors it is, or would be, there: as its copy says, else as it was decided; empty = not known."""
    copy = sight.copy(workload, cluster)
    named = tuple(dict.fromkeys(f for *_, f in copy.pod_sets if f is not None)) if copy is not None else ()
    if named:
        return named
    decision = sight.latest.get(workload.uid)
    candidate = decision.candidate(cluster) if decision is not None else None
    return tuple(dict.fromkeys(p.flavor for p in candidate.placements)) if candidate is not None else ()


def _judged(
    workload: HubWorkload,
    cluster: ClusterName,
    ruling: Ruling,
    sight: Sight,
    known: tuple[datetime, bool, bool],
) -> Illegal:
    since, flavors_known, slipped_through = known
    waits = workload.cluster_name is None
    because = deciding(ruling)
    course, awaits = _waiting(ruling) if waits or slipped_through else _running(ruling, because)
    if course is Course.END:
        if not flavors_known:
            course, awaits = Course.HOLD, Awaits.FLAVOR
        elif sight.link(cluster) is not Link.CONNECTED:
            course, awaits = Course.HOLD, Awaits.SIGHT
    grace_s = because.on_change.grace_s
    deadline = since + timedelta(seconds=grace_s) if awaits in (Awaits.MOVE, Awaits.STORE) and grace_s else None
    return Illegal(workload, cluster, waits, course, awaits, ruling, because, since, deadline)


def _waiting(ruling: Ruling) -> tuple[Course, Awaits]:
    """It has not begun, so ending it loses nothing; what is not known keeps it from starting just as well."""
    if all(verdict.on_change.queued is Queued.HOLD for verdict in ruling.against):
        return Course.HOLD, Awaits.RULE
    return Course.END, Awaits.NOTHING


def _running(ruling: Ruling, because: Verdict) -> tuple[Course, Awaits]:
    """Only a denial ends what runs: a fact that went missing says nothing against the work itself."""
    if because.answer is not Answer.DENY:
        return Course.HOLD, Awaits.FACT
    if because.on_change.running is Running.STOP_NOW:
        return Course.END, Awaits.NOTHING
    if because.on_change.running is Running.KEEP:
        return Course.KEEP, Awaits.NOTHING
    may_write = all(verdict.flow is not Flow.CHECKPOINT for verdict in ruling.against)
    return Course.HOLD, Awaits.MOVE if may_write else Awaits.STORE


def may_end(workload: HubWorkload, hub: HubView) -> str | None:
    """The check by which an attempt may be ended now; None while the hub is at it already, or has no such check.

    A check that is Retry is an eviction on its way, and asking twice would end the next attempt as well.
    """
    check = multikueue_check(workload, hub)
    if check is None or workload.evicted_at is not None or not workload.resource_version:
        return None
    return check.name if check.state in (PENDING, READY) else None
