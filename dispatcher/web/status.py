"""What a workload is doing, from evidence. "Running" is what a worker shows, with its age; the hub's Admitted is a
belief that may be hours old (field reports, FR-CLI-01).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dispatcher.core.ids import ClusterName
from dispatcher.core.snapshot import ClusterSnapshot, HubView, Link, Snapshot, WorkerCopy
from dispatcher.core.waiting import Phase, Standing, standing
from dispatcher.core.watchdog import OUT_OF_SYNC
from dispatcher.core.workload import HubWorkload
from dispatcher.web.codes import StateCode


@dataclass(frozen=True, slots=True)
class Sighting:
    """One cluster's evidence on one workload; `copy` None = the cluster shows no copy of it."""

    cluster: ClusterName
    link: Link
    observed_at: datetime | None
    copy: WorkerCopy | None


@dataclass(frozen=True, slots=True)
class State:
    code: StateCode
    since: datetime | None
    cluster: ClusterName | None = None
    sightings: tuple[Sighting, ...] = ()
    names: tuple[str, ...] = ()
    detail: str = ""


_BY_PHASE = {
    Phase.WAITING: StateCode.WAITING,
    Phase.NOMINATED: StateCode.NOMINATED,
    Phase.FINISHED: StateCode.FINISHED,
    Phase.DELETING: StateCode.DELETING,
    Phase.INACTIVE: StateCode.INACTIVE,
    Phase.EVICTING: StateCode.EVICTING,
    Phase.NO_QUOTA: StateCode.NO_QUOTA,
    Phase.OTHER_CHECKS: StateCode.OTHER_CHECKS,
    Phase.NOT_MULTIKUEUE: StateCode.NOT_OURS,
    Phase.CHECK_CLOSED: StateCode.EVICTING,
    Phase.SLICE_PINNED: StateCode.FOLLOWS_ANOTHER,
    Phase.FOLLOWS_COMPONENT: StateCode.FOLLOWS_ANOTHER,
    Phase.COMPONENTS_MISSING: StateCode.FOLLOWS_ANOTHER,
    Phase.UNREADABLE: StateCode.HELD,
    Phase.NO_OWNER: StateCode.HELD,
}


def state_of(workload: HubWorkload, hub: HubView, snapshot: Snapshot, *, has_problems: bool) -> State:
    """The state of one hub workload. `has_problems`: its own words keep it from being decided."""
    where = standing(workload, hub)
    if where.phase is Phase.PLACED and workload.cluster_name is not None:
        return _placed(workload, sighting(workload, workload.cluster_name, snapshot))
    code = _BY_PHASE.get(where.phase, StateCode.NOT_OURS)
    if code is StateCode.FINISHED and workload.finished_reason == OUT_OF_SYNC:
        code = StateCode.DISPATCH_FAILED
    if code is StateCode.WAITING and has_problems:
        code = StateCode.HELD
    return _elsewhere(workload, where, code, snapshot)


def sighting(workload: HubWorkload, cluster: ClusterName, snapshot: Snapshot) -> Sighting:
    """What `cluster` shows of the workload."""
    seen = snapshot.cluster(cluster)
    if seen is None or seen.worker is None:
        return Sighting(cluster, Link.BLIND, None, None)
    copy = seen.worker.copies.get((workload.namespace, workload.name))
    return Sighting(cluster, seen.link, seen.worker.observed_at, copy if copy is not None and copy.ours else None)


def _placed(workload: HubWorkload, seen: Sighting) -> State:
    def state(code: StateCode, since: datetime | None, detail: str = "") -> State:
        return State(code, since, seen.cluster, (seen,), detail=detail)

    copy = seen.copy
    if seen.link is not Link.CONNECTED:
        return state(StateCode.UNSEEN, seen.observed_at)
    if copy is None:
        return state(StateCode.MISSING_ON_WORKER, None)
    if copy.finished:
        return state(StateCode.FINISHING, None)
    if copy.evicted_at is not None:
        return state(StateCode.EVICTED_ON_WORKER, copy.evicted_at, copy.evicted_reason)
    if copy.admitted_at is not None:
        code = StateCode.RUNNING if copy.bound_pods > 0 else StateCode.STARTING
        return state(code, copy.admitted_at)
    if copy.quota_reserved_at is not None:
        return state(StateCode.STARTING, copy.quota_reserved_at)
    return state(StateCode.QUEUED_ON_WORKER, workload.quota_reserved_at, copy.quota_message)


def _elsewhere(workload: HubWorkload, where: Standing, code: StateCode, snapshot: Snapshot) -> State:
    sightings: tuple[Sighting, ...] = ()
    if where.phase is Phase.NOMINATED:
        sightings = tuple(sighting(workload, name, snapshot) for name in workload.nominated)
    ended = code in (StateCode.FINISHED, StateCode.DISPATCH_FAILED)
    detail = workload.finished_reason if ended else workload.problem or ""
    names = (where.phase.value,) if code in (StateCode.HELD, StateCode.NOT_OURS) else where.names
    cluster = workload.cluster_name if ended else None
    return State(code, where.since, cluster, sightings, names, detail)


def state_text(state: State, now: datetime) -> str:
    """The state in words. About the workload only; words about decisions are made in `core.explain`."""
    cluster, since = state.cluster or "", _ago(state.since, now)
    names, detail = ", ".join(state.names), f" ({state.detail})" if state.detail else ""
    texts = {
        StateCode.WAITING: f"waiting for a cluster{_for(state.since, now)}",
        StateCode.HELD: f"held until its input is corrected{detail}",
        StateCode.NO_QUOTA: f"waiting for quota on the hub{_for(state.since, now)}",
        StateCode.OTHER_CHECKS: f"waiting for other admission checks: {names}",
        StateCode.NOMINATED: f"nominated to {names}, not admitted there yet",
        StateCode.QUEUED_ON_WORKER: f"not running: queued on {cluster}{detail}",
        StateCode.STARTING: f"starting on {cluster}: admitted{since}, no pod on a node yet",
        StateCode.RUNNING: f"running on {cluster}{_for(state.since, now)}{_seen(state, now)}",
        StateCode.EVICTED_ON_WORKER: f"not running: evicted on {cluster}{since}{detail}",
        StateCode.MISSING_ON_WORKER: f"not running: the hub places it on {cluster}, which shows no copy of it",
        StateCode.UNSEEN: _unseen_text(state, now),
        StateCode.FINISHING: f"finished on {cluster}, the hub has not taken the result over yet",
        StateCode.FINISHED: f"finished{f' on {cluster}' if cluster else ''}{since}{detail}",
        StateCode.DISPATCH_FAILED: f"failed to dispatch to {cluster or 'its cluster'}{since}: nothing ran{detail}",
        StateCode.EVICTING: f"not running: evicted on the hub{since}, waiting to be placed again",
        StateCode.DELETING: "being deleted",
        StateCode.INACTIVE: "not running: deactivated (spec.active is false)",
        StateCode.FOLLOWS_ANOTHER: f"goes where another workload goes: {names}",
        StateCode.NOT_OURS: f"not dispatched by MultiKueue ({names})",
        StateCode.GONE: "no longer on the hub",
    }
    return texts[state.code]


def _unseen_text(state: State, now: datetime) -> str:
    last = state.sightings[0] if state.sightings else None
    if last is None or last.observed_at is None:
        return f"unknown: {state.cluster} has not been seen since the daemon started{_then(state)}"
    ran = last.copy is not None and last.copy.admitted_at is not None and last.copy.evicted_at is None
    was = "it was admitted there" if ran else "it was not admitted there"
    return f"unknown: {state.cluster} was last seen{_ago(last.observed_at, now)}; then {was}{_then(state)}"


def _then(state: State) -> str:
    """What is to become of work whose cluster is away: its queue's or class's `on_unreachable`."""
    return f". {state.detail}" if state.detail else ""


def _seen(state: State, now: datetime) -> str:
    seen = state.sightings[0].observed_at if state.sightings else None
    return f", seen{_ago(seen, now)}" if seen is not None else ""


def _ago(since: datetime | None, now: datetime) -> str:
    return f" {span(age_s(since, now))} ago" if since is not None else ""


def _for(since: datetime | None, now: datetime) -> str:
    return f" for {span(age_s(since, now))}" if since is not None else ""


def age_s(since: datetime, now: datetime) -> int:
    """Whole seconds, never below zero: another machine's clock may be a little ahead of ours."""
    return max(0, int((now - since).total_seconds()))


def span(seconds: int) -> str:
    """A duration in its largest one or two units: 45s, 12m, 3h05m, 2d04h."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes == 0:
        return f"{seconds}s"
    if hours == 0:
        return f"{minutes}m"
    if days == 0:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{days}d{hours % 24:02d}h"


def link_text(cluster: ClusterSnapshot, now: datetime) -> str:
    """How well we see a cluster, in words, with its error when there is one."""
    worker = cluster.worker
    error = f": {worker.error}" if worker is not None and worker.error else ""
    if worker is None or worker.observed_at is None:
        return f"never seen{error}"
    seen = f"seen {span(age_s(worker.observed_at, now))} ago"
    return seen if cluster.link is Link.CONNECTED and not error else f"{cluster.link.value}, {seen}{error}"
