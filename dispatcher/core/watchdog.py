"""What goes wrong between a nomination and the end of a job, read from the views: a hub that does not latch, a copy
that a worker refused, evicted or lost, a job that runs twice.

Pure: `look` folds the views of one instant into the memory of earlier ones. Memory is needed because a worker's
answer shows only for about a second: MultiKueue deletes an evicted or deactivated copy as soon as it sees it (measured
on Kueue v0.19.2, docs/any-hub.md), and a hub that evicts does not say which cluster it was. What is remembered is lost
with the process; what was concluded from it is kept (loops/lessons.py), so that nothing is started again because of a
restart.

Of a worker that is not connected nothing is concluded, and its last sightings are kept (design section 9).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from dispatcher.core.findings import OF_THE_LAW as OF_THE_LAW
from dispatcher.core.findings import Finding as Finding
from dispatcher.core.findings import FindingCode as FindingCode
from dispatcher.core.findings import FindingDetail as FindingDetail
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.snapshot import HubView, Link, WorkerCopy, WorkerView, link_of
from dispatcher.core.waiting import Peers, Phase, candidates_of, standing
from dispatcher.core.workload import HubWorkload

OUT_OF_SYNC = "OutOfSync"
"""Kueue's reason of a Finished that no pod ever saw: the copy's job differs from the Workload (FR-RAC-06)."""
EVICTED_BY_CHECK = "AdmissionCheck"
DEACTIVATED = "Deactivated"
REJECTED_BY_CHECK = "DeactivatedDueToAdmissionCheck"
EVICTED_BY_HUB = "DeactivatedDueToEvictedOnManagerCluster"
READY, RETRY, REJECTED = "Ready", "Retry", "Rejected"
TAKEN_BACK = "InCohort"
"""What Kueue's reasons begin with when it preempts for the sake of who lends, or of the shares of queues."""

LATCH_LIMIT_S = 60
"""MultiKueue latches 1 to 2 s after a worker has admitted, later when hundreds wait for its 5 calls a second."""
OVERTAKEN_S = 10
"""A copy that was admitted so much earlier than one which has been latched is not merely waiting its turn."""
STUCK_LIMIT_S = 30
"""An eviction takes about a second once the last pod is gone."""
HUB_FIRST_S = 3
"""A copy that is well for so long after the hub's eviction was not its cause."""
GONE_LIMIT_S = 10
"""Kueue 0.19 answers the loss of a copy at once, 0.17.0 after workerLostTimeout."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A copy of ours as it was last seen. `ran`: pods of it were on nodes once; `fault`: what it answered, if bad."""

    copy: WorkerCopy
    seen_at: datetime
    ran: bool = False
    fault: Finding | None = None
    gone_at: datetime | None = None

    @property
    def looked_complete(self) -> bool:
        """It may well have ended by itself: it was Finished, or its pods had come and gone without an eviction."""
        return self.copy.finished or (self.ran and self.copy.bound_pods == 0 and self.copy.evicted_at is None)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is remembered of one workload: where it was latched last, and the copies seen since it was nominated.

    `by_hub`: the hub ended it (a preemption there, a move), so that what then becomes of the copy accuses nobody.
    `left` is a nomination that an eviction has left behind and that is still there.
    """

    placed: ClusterName | None = None
    by_hub: bool = False
    left: tuple[ClusterName, ...] = ()
    sightings: Mapping[ClusterName, Sighting] = field(default_factory=dict)


Memory = Mapping[WorkloadUid, Attempt]


@dataclass(frozen=True, slots=True)
class Views:
    """What one look sees."""

    hub: HubView
    workers: Mapping[ClusterName, WorkerView]
    silence_limit_s: int
    now: datetime

    def connected(self, cluster: ClusterName) -> WorkerView | None:
        view = self.workers.get(cluster)
        return view if link_of(view, self.silence_limit_s, self.now) is Link.CONNECTED else None


@dataclass(frozen=True, slots=True)
class Looked:
    """Findings that hold now, sorted, and what to remember for the next look."""

    findings: tuple[Finding, ...]
    memory: Memory


_BETWEEN = frozenset({Phase.WAITING, Phase.NO_QUOTA, Phase.OTHER_CHECKS})
"""No attempt is on its way; one may just have ended."""
_WATCHED = _BETWEEN | {Phase.NOMINATED, Phase.PLACED, Phase.EVICTING, Phase.CHECK_CLOSED}


def look(memory: Memory, views: Views) -> Looked:
    """One look at all workloads of the hub."""
    looking = look_steps(memory, views)
    while True:
        try:
            next(looking)
        except StopIteration as end:
            found: Looked = end.value
            return found


def look_steps(memory: Memory, views: Views) -> Generator[None, None, Looked]:
    """The same, a workload in each step: there may be thousands."""
    whole = Whole(_newest_latched(views), _children(views.hub))
    kept: dict[WorkloadUid, Attempt] = {}
    findings: list[Finding] = []
    peers = Peers(views.hub)
    for uid, workload in views.hub.workloads.items():
        yield
        phase = standing(workload, views.hub, peers).phase
        if phase is Phase.FINISHED:
            findings.extend(_booked_as_finished(workload, memory.get(uid)))
        if phase not in _WATCHED:
            continue
        seen = _see(workload, memory.get(uid, Attempt()), views)
        findings.extend(_of_workload(workload, phase, seen, views, whole))
        remembered = _remember(workload, phase, seen)
        if remembered.sightings or remembered.left or remembered.placed is not None:
            kept[uid] = remembered
    return Looked(tuple(sorted(findings, key=lambda f: f.identity)), kept)


@dataclass(frozen=True, slots=True)
class Whole:
    """What is true of all workloads together, worked out once a look.

    `latched`: when the youngest copy that the hub has latched was admitted. `children`: what jobs on the hub control
    there, by the job's uid.
    """

    latched: datetime | None
    children: Mapping[str, tuple[str, ...]]


def _children(hub: HubView) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for owner in hub.owners.values():
        if owner.controller_uid:
            found.setdefault(owner.controller_uid, []).append(f"{owner.kind} {owner.name}")
    return {uid: tuple(sorted(names)) for uid, names in found.items()}


def _newest_latched(views: Views) -> datetime | None:
    """When the youngest copy that the hub has latched was admitted: MultiKueue has come as far as this."""
    found: datetime | None = None
    for workload in views.hub.workloads.values():
        view = views.workers.get(workload.cluster_name) if workload.cluster_name is not None else None
        copy = view.copies.get((workload.namespace, workload.name)) if view is not None else None
        if copy is not None and copy.admitted_at is not None and (found is None or copy.admitted_at > found):
            found = copy.admitted_at
    return found


# --- seeing ------------------------------------------------------------------------------------------------------


def _see(workload: HubWorkload, attempt: Attempt, views: Views) -> Attempt:
    """The attempt with what the connected workers show of it now."""
    placed = workload.cluster_name or attempt.placed
    names = {*attempt.sightings, *workload.nominated, *((placed,) if placed is not None else ())}
    sightings: dict[ClusterName, Sighting] = {}
    for name in sorted(names):
        known, view = attempt.sightings.get(name), views.connected(name)
        copy = view.copies.get((workload.namespace, workload.name)) if view is not None else None
        if view is None:
            if known is not None:
                sightings[name] = known
        elif copy is not None and copy.ours:
            sightings[name] = _sighting(workload, name, copy, known, views)
        elif known is not None:
            sightings[name] = replace(known, gone_at=known.gone_at or views.now)
    sighting = sightings.get(placed) if placed is not None else None
    left = workload.nominated if workload.evicted_at is not None or workload.nominated == attempt.left else ()
    return Attempt(placed, attempt.by_hub or _ended_by_hub(workload, sighting, views.now), left, sightings)


def _ended_by_hub(workload: HubWorkload, sighting: Sighting | None, now: datetime) -> bool:
    """The hub has evicted and the copy is, or was a good while after, without a fault of its own.

    MultiKueue answers a lost or evicted copy within about a second, and the two watches are not in step.
    """
    if workload.evicted_at is None or sighting is None or sighting.gone_at is not None or sighting.fault is not None:
        return False
    stopped = not sighting.copy.active or sighting.copy.evicted_reason.startswith(DEACTIVATED)
    return stopped or (now - workload.evicted_at).total_seconds() > HUB_FIRST_S


def _sighting(
    workload: HubWorkload, cluster: ClusterName, copy: WorkerCopy, known: Sighting | None, views: Views
) -> Sighting:
    """A fault stays with the sighting when MultiKueue makes a new copy in the place of the faulty one."""
    same = known is not None and known.copy.uid == copy.uid
    ran = copy.bound_pods > 0 or (same and known is not None and known.ran)
    fault = _fault(workload, cluster, copy, views) or (_still(known.fault, copy) if known is not None else None)
    return Sighting(copy, views.now, ran, fault)


def _still(fault: Finding | None, copy: WorkerCopy) -> Finding | None:
    """A fault is over once the worker has admitted the copy, or the one in its place, after it."""
    if fault is None or fault.code is FindingCode.NAME_TAKEN:
        return None
    well = copy.admitted_at is not None and copy.evicted_at is None and copy.active
    over = well and (fault.since is None or (copy.admitted_at is not None and copy.admitted_at > fault.since))
    return None if over else fault


def _fault(workload: HubWorkload, cluster: ClusterName, copy: WorkerCopy, views: Views) -> Finding | None:
    """What the worker has against the copy. An eviction that the hub itself began is none of the worker's doing."""
    if copy.finished:
        bad = copy.finished_reason == OUT_OF_SYNC
        return _of_copy(FindingCode.COPY_OUT_OF_SYNC, workload, cluster, copy, reason=OUT_OF_SYNC) if bad else None
    for check in copy.checks:
        if check.state in (REJECTED, RETRY):
            code = FindingCode.COPY_REJECTED if check.state == REJECTED else FindingCode.PROVISIONING_FAILED
            return _of_copy(code, workload, cluster, copy, reason=check.state, check=check.name)
    stopped = not copy.active or copy.evicted_reason.startswith(DEACTIVATED)
    if stopped and (workload.evicted_at is not None or copy.evicted_reason == EVICTED_BY_HUB):
        return None  # a hub that evicts deactivates the remote copy
    if copy.evicted_reason.startswith(REJECTED_BY_CHECK):
        return _of_copy(FindingCode.COPY_REJECTED, workload, cluster, copy, reason=copy.evicted_reason)
    if stopped:
        return _of_copy(FindingCode.COPY_DEACTIVATED, workload, cluster, copy, reason=copy.evicted_reason)
    if copy.evicted_reason == EVICTED_BY_CHECK:
        return _of_copy(FindingCode.PROVISIONING_FAILED, workload, cluster, copy, reason=copy.evicted_reason)
    if copy.evicted_at is not None:
        taken_back = copy.preempted_by.startswith(TAKEN_BACK)
        code = FindingCode.COPY_RECLAIMED if taken_back else FindingCode.COPY_EVICTED
        return _of_copy(code, workload, cluster, copy, reason=copy.preempted_by or copy.evicted_reason)
    return _name_taken(workload, cluster, copy, views)


def _hub_preempted(workload: HubWorkload, seen: Attempt) -> Iterator[Finding]:
    """The hub's own Kueue has taken its quota: for more urgent work, or for the queue whose quota it had borrowed.

    Kueue does all that follows; this only tells the owner why it stopped. It holds until it has quota again.
    """
    if workload.evicted_at is not None and workload.preempted_by:
        detail = FindingDetail(reason=workload.preempted_by)
        yield Finding(
            FindingCode.HUB_PREEMPTED, workload.uid, workload.key, seen.placed, since=workload.evicted_at, detail=detail
        )


def _name_taken(workload: HubWorkload, cluster: ClusterName, copy: WorkerCopy, views: Views) -> Finding | None:
    """Admitted, but the job cannot be made: one of that name stands there and is not ours (kueue#12404, FR-RAC-07).

    Only jobs that the worker's Kueue manages are seen; another one shows as a hub that does not latch.
    """
    owner, view = workload.owner, views.workers.get(cluster)
    if copy.admitted_at is None or copy.bound_pods or owner is None or view is None or workload.cluster_name:
        return None
    for other in view.copies.values():
        mine = other.namespace == workload.namespace and other.job_name == owner.name and other.job_kind == owner.kind
        if mine and not other.ours and not other.finished:
            return _of_copy(FindingCode.NAME_TAKEN, workload, cluster, copy, job=f"{owner.kind} {owner.name}")
    return None


def _of_copy(
    code: FindingCode, workload: HubWorkload, cluster: ClusterName, copy: WorkerCopy, **detail: str
) -> Finding:
    since = copy.evicted_at or copy.admitted_at or copy.quota_reserved_at
    found = FindingDetail(
        reason=detail.get("reason", ""),
        check=detail.get("check", ""),
        job=detail.get("job", ""),
        ran=copy.bound_pods > 0,
    )
    return Finding(code, workload.uid, workload.key, cluster, copy.uid, since, found)


# --- judging -----------------------------------------------------------------------------------------------------


def _of_workload(workload: HubWorkload, phase: Phase, seen: Attempt, views: Views, whole: Whole) -> Iterator[Finding]:
    yield from (s.fault for s in seen.sightings.values() if s.fault is not None)
    yield from _left_behind(workload, seen, views)
    yield from _not_latched(workload, phase, seen, views, whole.latched)
    yield from _lost(workload, phase, seen, views)
    yield from _stuck(workload, phase, seen, views)
    yield from _twice(workload, views)
    yield from _hub_runs_it(workload, phase, whole)
    yield from _hub_preempted(workload, seen)
    yield from _cluster_gone(workload, phase, views)


def _left_behind(workload: HubWorkload, seen: Attempt, views: Views) -> Iterator[Finding]:
    """An eviction ended the attempt and the nomination is still there: it sends the next attempt to the old cluster
    before anybody decides (kueue-contract section 3.3).

    The hub may reserve quota again within 0.2 s. Then it is too late only where a copy has quota on its worker, or
    where that cannot be seen: that one may win (section 5, hazards).
    """
    if not seen.left:
        return
    if workload.evicted_at is None:
        for name in set(seen.left) & set(candidates_of(workload, views.hub)):
            view = views.connected(name)
            copy = view.copies.get((workload.namespace, workload.name)) if view is not None else None
            if view is None or (copy is not None and copy.quota_reserved_at is not None):
                return
    detail = FindingDetail(names=tuple(seen.left))
    yield Finding(FindingCode.LEFT_BEHIND, workload.uid, workload.key, since=workload.evicted_at, detail=detail)


def _not_latched(
    workload: HubWorkload, phase: Phase, seen: Attempt, views: Views, latched: datetime | None
) -> Iterator[Finding]:
    """A worker has admitted the copy and the hub does not take notice: the job may run where the hub knows nothing."""
    if phase is not Phase.NOMINATED:
        return
    for name, sighting in seen.sightings.items():
        copy, at = sighting.copy, sighting.copy.admitted_at
        if at is None or sighting.gone_at is not None or copy.evicted_at is not None or not copy.active:
            continue
        waited_s = (views.now - at).total_seconds()
        overtaken = latched is not None and (latched - at).total_seconds() > OVERTAKEN_S
        if waited_s > LATCH_LIMIT_S or (overtaken and waited_s > OVERTAKEN_S):
            detail = FindingDetail(ran=sighting.ran)
            yield Finding(FindingCode.NOT_LATCHED, workload.uid, workload.key, name, copy.uid, at, detail)


def _lost(workload: HubWorkload, phase: Phase, seen: Attempt, views: Views) -> Iterator[Finding]:
    """The latched copy is gone without a word of its worker.

    Where it looked complete, running it again may do its work twice, so that is told apart (FR-RAC-03).
    """
    placed = seen.placed
    sighting = seen.sightings.get(placed) if placed is not None else None
    if sighting is None or sighting.gone_at is None or sighting.fault is not None or seen.by_hub:
        return
    ended = phase is not Phase.PLACED
    if not ended and (views.now - sighting.gone_at).total_seconds() < GONE_LIMIT_S:
        return  # the hub's own watch may be a moment behind: it may show Finished next
    code = FindingCode.OUTCOME_UNKNOWN if sighting.looked_complete else FindingCode.COPY_VANISHED
    detail = FindingDetail(ran=sighting.ran, last_seen=sighting.seen_at)
    yield Finding(code, workload.uid, workload.key, placed, sighting.copy.uid, sighting.gone_at, detail)


def _stuck(workload: HubWorkload, phase: Phase, seen: Attempt, views: Views) -> Iterator[Finding]:
    """The hub waits for pods of a copy that is nowhere any more: the job's status there was never brought up to date.

    Seen on v0.19.2 whenever a copy or its job is deleted on the worker while pods run: the hub's job says active: 1
    for ever, and Kueue keeps the quota as long as it does.
    """
    evicted_at = workload.evicted_at
    if phase is not Phase.EVICTING or evicted_at is None or workload.quota_reserved_at is None:
        return
    if (views.now - evicted_at).total_seconds() <= STUCK_LIMIT_S:
        return
    for name in candidates_of(workload, views.hub):
        view = views.connected(name)
        if view is None or (workload.namespace, workload.name) in view.copies:
            return
    job = f"{workload.owner.kind} {workload.owner.name}" if workload.owner is not None else ""
    detail = FindingDetail(job=job)
    yield Finding(FindingCode.EVICTION_STUCK, workload.uid, workload.key, seen.placed, since=evicted_at, detail=detail)


def _twice(workload: HubWorkload, views: Views) -> Iterator[Finding]:
    """Running copies of one workload, summed over clusters, are at most one (FR-RAC-10). `cluster` has the surplus one:
    the newest that the hub has not latched. What it has latched is the one whose end it will read."""
    running: list[tuple[datetime, ClusterName, WorkerCopy]] = []
    for name in candidates_of(workload, views.hub):
        view = views.connected(name)
        copy = view.copies.get((workload.namespace, workload.name)) if view is not None else None
        if copy is not None and copy.ours and copy.bound_pods > 0 and not copy.finished:
            running.append((copy.admitted_at or views.now, name, copy))
    if len(running) > 1:
        unlatched = [entry for entry in running if entry[1] != workload.cluster_name]
        since, surplus, copy = max(unlatched, key=lambda entry: entry[:2])
        detail = FindingDetail(names=tuple(sorted(name for _, name, _ in running)), ran=True)
        code = FindingCode.TWO_COPIES_RUNNING
        yield Finding(code, workload.uid, workload.key, surplus, copy.uid, since, detail)


def _hub_runs_it(workload: HubWorkload, phase: Phase, whole: Whole) -> Iterator[Finding]:
    """A dispatched job has children on the hub: its own controller there does not obey managedBy (FR-RAC-11)."""
    if phase is not Phase.PLACED or workload.owner is None or not workload.owner.uid:
        return
    names = whole.children.get(workload.owner.uid, ())
    if names:
        detail = FindingDetail(names=names, job=f"{workload.owner.kind} {workload.owner.name}")
        yield Finding(FindingCode.HUB_RUNS_IT, workload.uid, workload.key, workload.cluster_name, detail=detail)


def _cluster_gone(workload: HubWorkload, phase: Phase, views: Views) -> Iterator[Finding]:
    """It was sent to a cluster that the hub no longer has: no MultiKueueCluster, or not in the check's config.

    FR-WAT-03. A config that lists nothing, or is away itself, says nothing of a cluster. A name stays while our own
    view of its cluster shows a copy with quota: should it come back, that copy wins (kueue-contract section 5).
    """
    listed = candidates_of(workload, views.hub)

    def gone(name: ClusterName) -> bool:
        return name not in views.hub.clusters or (bool(listed) and name not in listed)

    def may_win(name: ClusterName) -> bool:
        view = views.connected(name)
        copy = view.copies.get((workload.namespace, workload.name)) if view is not None else None
        return copy is not None and copy.ours and copy.quota_reserved_at is not None

    if phase is Phase.NOMINATED:
        names = tuple(name for name in workload.nominated if gone(name) and not may_win(name))
        if names:
            detail = FindingDetail(names=names)
            yield Finding(FindingCode.CLUSTER_GONE, workload.uid, workload.key, detail=detail)
    elif phase is Phase.PLACED and workload.cluster_name is not None and gone(workload.cluster_name):
        detail = FindingDetail(names=(workload.cluster_name,))
        yield Finding(FindingCode.CLUSTER_GONE, workload.uid, workload.key, workload.cluster_name, detail=detail)


def _booked_as_finished(workload: HubWorkload, attempt: Attempt | None) -> Iterator[Finding]:
    """Finished is success only with a reason of success: Kueue before 0.17.8 copies OutOfSync to the hub as it is."""
    if workload.finished_reason == OUT_OF_SYNC:
        placed = workload.cluster_name or (attempt.placed if attempt is not None else None)
        detail = FindingDetail(reason=OUT_OF_SYNC)
        code = FindingCode.COPY_OUT_OF_SYNC
        yield Finding(code, workload.uid, workload.key, placed, since=workload.finished_at, detail=detail)


# --- remembering -------------------------------------------------------------------------------------------------


def _remember(workload: HubWorkload, phase: Phase, seen: Attempt) -> Attempt:
    """A new attempt begins empty; while one is on its way or just over, everything seen of it is kept."""
    if phase is Phase.NOMINATED:
        kept = {name: s for name, s in seen.sightings.items() if name in workload.nominated}
        return Attempt(left=seen.left, sightings=kept)
    if phase in _BETWEEN:
        return Attempt()
    return seen
