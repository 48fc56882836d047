"""Which hub Workloads wait for a nomination, and what the others are doing instead.

No condition on the Workload says "waiting for a nomination", so it is derived (kueue-contract section 4): quota
reserved, no eviction in flight, the MultiKueue check Pending, every other check Ready, no cluster and no nomination.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.snapshot import MULTIKUEUE_CONTROLLER, HubView
from dispatcher.core.workload import CheckState, HubWorkload

PENDING = "Pending"
READY = "Ready"


class Phase(StrEnum):
    """What a hub Workload is doing, seen from dispatch. Only WAITING and NOMINATED are ever decided on."""

    WAITING = "waiting"
    NOMINATED = "nominated"
    PLACED = "placed"
    FINISHED = "finished"
    DELETING = "deleting"
    INACTIVE = "inactive"
    EVICTING = "evicting"
    NO_QUOTA = "no-quota"
    OTHER_CHECKS = "other-checks"
    NOT_MULTIKUEUE = "not-multikueue"
    CHECK_CLOSED = "check-closed"
    SLICE_PINNED = "slice-pinned"
    FOLLOWS_COMPONENT = "follows-component"
    COMPONENTS_MISSING = "components-missing"
    UNREADABLE = "unreadable"
    NO_OWNER = "no-owner"


@dataclass(frozen=True, slots=True)
class Standing:
    """The phase of one Workload; `names` are the checks or the workload that it waits for, `since` when known."""

    phase: Phase
    since: datetime | None = None
    names: tuple[str, ...] = ()


def multikueue_check(workload: HubWorkload, hub: HubView) -> CheckState | None:
    """The Workload's entry for a check that MultiKueue's controller answers; at most one per ClusterQueue."""
    for state in workload.checks:
        check = hub.checks.get(state.name)
        if check is not None and check.controller == MULTIKUEUE_CONTROLLER:
            return state
    return None


def candidates_of(workload: HubWorkload, hub: HubView) -> tuple[ClusterName, ...]:
    """The clusters of the MultiKueueConfig behind the Workload's check, in the config's order; empty if unknown."""
    state = multikueue_check(workload, hub)
    check = hub.checks.get(state.name) if state else None
    return hub.configs.get(check.config, ()) if check is not None and check.config is not None else ()


def standing(workload: HubWorkload, hub: HubView) -> Standing:
    """Where a Workload stands with dispatch."""
    return (
        _ended(workload)
        or _unusable(workload, hub)
        or _not_yet(workload, hub)
        or _kept_by_kueue(workload, hub)
        or _open(workload)
    )


def _ended(workload: HubWorkload) -> Standing | None:
    if workload.finished:
        return Standing(Phase.FINISHED, workload.finished_at)
    if workload.deleting:
        return Standing(Phase.DELETING)
    return None


def _unusable(workload: HubWorkload, hub: HubView) -> Standing | None:
    """What can never be dispatched as it is. Asked first: MultiKueue rejects an ownerless Workload at once, and its
    author has to hear of it even so."""
    if multikueue_check(workload, hub) is None:
        return None
    if workload.problem is not None:
        return Standing(Phase.UNREADABLE, workload.created_at)
    if workload.owner is None:
        return Standing(Phase.NO_OWNER, workload.created_at)
    return None


def _not_yet(workload: HubWorkload, hub: HubView) -> Standing | None:
    """Everything that must be over before MultiKueue would act on a nomination."""
    if not workload.active:
        return Standing(Phase.INACTIVE)
    if workload.evicted_at is not None:
        return Standing(Phase.EVICTING, workload.evicted_at)
    if workload.quota_reserved_at is None:
        return Standing(Phase.NO_QUOTA, workload.created_at)
    check = multikueue_check(workload, hub)
    if check is None:
        return Standing(Phase.NOT_MULTIKUEUE, workload.quota_reserved_at)
    if workload.cluster_name is not None:
        return Standing(Phase.PLACED, check.changed_at, (workload.cluster_name,))
    if check.state != PENDING:
        return Standing(Phase.CHECK_CLOSED, check.changed_at, (check.name,))
    others = tuple(c.name for c in workload.checks if c.name != check.name and c.state != READY)
    if others:
        return Standing(Phase.OTHER_CHECKS, workload.quota_reserved_at, others)
    return None


def _kept_by_kueue(workload: HubWorkload, hub: HubView) -> Standing | None:
    """Workloads that Kueue itself places next to another one."""
    if workload.replaces_slice is not None and _slice_cluster(workload, hub) is not None:
        # A resize stays where the slice that it replaces runs (FR-NOM-11).
        return Standing(Phase.SLICE_PINNED, workload.quota_reserved_at, (workload.replaces_slice,))
    return _component(workload, hub)


def _slice_cluster(workload: HubWorkload, hub: HubView) -> ClusterName | None:
    """The cluster of the slice that `workload` replaces. The annotation holds namespace/name."""
    wanted = workload.replaces_slice or ""
    namespace, _, name = wanted.rpartition("/")
    for other in hub.workloads.values():
        if other.name == name and other.namespace == (namespace or workload.namespace) and not other.finished:
            return other.cluster_name
    return None


def _component(workload: HubWorkload, hub: HubView) -> Standing | None:
    """Of a multi-workload owner only the lowest component is nominated, once all components exist."""
    if workload.group_key is None or workload.component_index is None:
        return None
    group = [
        w for w in hub.workloads.values() if w.group_key == workload.group_key and w.namespace == workload.namespace
    ]
    if workload.component_count is not None and len(group) < workload.component_count:
        return Standing(Phase.COMPONENTS_MISSING, workload.created_at, (f"{len(group)}/{workload.component_count}",))
    first = min(group, key=lambda w: (w.component_index if w.component_index is not None else 0, w.name))
    if first.uid != workload.uid:
        return Standing(Phase.FOLLOWS_COMPONENT, workload.created_at, (first.name,))
    return None


def _open(workload: HubWorkload) -> Standing:
    phase = Phase.NOMINATED if workload.nominated else Phase.WAITING
    return Standing(phase, workload.quota_reserved_at, tuple(workload.nominated))


def order_key(workload: HubWorkload) -> tuple[int, datetime, str]:
    """Who is decided first: higher priority, then the longer wait for a cluster, then a stable tie."""
    since = workload.quota_reserved_at or workload.created_at
    return (-workload.priority, since, workload.uid)


def in_phase(hub: HubView, phases: frozenset[Phase]) -> list[tuple[WorkloadUid, Standing]]:
    """Workloads in any of `phases`, in deciding order."""
    found = [(w, standing(w, hub)) for w in hub.workloads.values()]
    return [(w.uid, s) for w, s in sorted(found, key=lambda pair: order_key(pair[0])) if s.phase in phases]
