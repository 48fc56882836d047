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


class Peers:
    """The Workloads that Kueue places next to another one, found by what ties them; worked out when first asked."""

    __slots__ = ("_groups", "_hub", "_slices")

    def __init__(self, hub: HubView) -> None:
        self._hub = hub
        self._slices: dict[tuple[str, str], HubWorkload] | None = None
        self._groups: dict[tuple[str, str], list[HubWorkload]] | None = None

    def slice(self, namespace: str, name: str) -> HubWorkload | None:
        """The Workload of that name, while it has not finished."""
        if self._slices is None:
            self._slices = {(w.namespace, w.name): w for w in self._hub.workloads.values() if not w.finished}
        return self._slices.get((namespace, name))

    def group(self, namespace: str, key: str) -> list[HubWorkload]:
        """The components of one owner."""
        if self._groups is None:
            self._groups = {}
            for workload in self._hub.workloads.values():
                if workload.group_key is not None:
                    self._groups.setdefault((workload.namespace, workload.group_key), []).append(workload)
        return self._groups.get((namespace, key), [])


def stands_alone(workload: HubWorkload) -> bool:
    """Whether where it stands depends on no other Workload."""
    return workload.replaces_slice is None and workload.group_key is None


def standing(workload: HubWorkload, hub: HubView, peers: Peers | None = None) -> Standing:
    """Where a Workload stands with dispatch. `peers` of the same view saves looking for them again."""
    return (
        _ended(workload)
        or _unusable(workload, hub)
        or _not_yet(workload, hub)
        or _kept_by_kueue(workload, peers or Peers(hub))
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
    if workload.idle_ending:
        return Standing(Phase.EVICTING, check.changed_at)  # about to be set inactive: nothing sends it anywhere again
    if check.state != PENDING:
        return Standing(Phase.CHECK_CLOSED, check.changed_at, (check.name,))
    others = tuple(c.name for c in workload.checks if c.name != check.name and c.state != READY)
    if others:
        return Standing(Phase.OTHER_CHECKS, workload.quota_reserved_at, others)
    return None


def _kept_by_kueue(workload: HubWorkload, peers: Peers) -> Standing | None:
    """Workloads that Kueue itself places next to another one."""
    if workload.replaces_slice is not None and _slice_cluster(workload, peers) is not None:
        # A resize stays where the slice that it replaces runs (FR-NOM-11).
        return Standing(Phase.SLICE_PINNED, workload.quota_reserved_at, (workload.replaces_slice,))
    return _component(workload, peers)


def _slice_cluster(workload: HubWorkload, peers: Peers) -> ClusterName | None:
    """The cluster of the slice that `workload` replaces. The annotation holds namespace/name."""
    wanted = workload.replaces_slice or ""
    namespace, _, name = wanted.rpartition("/")
    other = peers.slice(namespace or workload.namespace, name)
    return other.cluster_name if other is not None else None


def _component(workload: HubWorkload, peers: Peers) -> Standing | None:
    """Of a multi-workload owner only the lowest component is nominated, once all components exist."""
    if workload.group_key is None or workload.component_index is None:
        return None
    group = peers.group(workload.namespace, workload.group_key)
    if workload.component_count is not None and len(group) < workload.component_count:
        return Standing(Phase.COMPONENTS_MISSING, workload.created_at, (f"{len(group)}/{workload.component_count}",))
    first = min(group, key=lambda w: (w.component_index if w.component_index is not None else 0, w.name))
    if first.uid != workload.uid:
        return Standing(Phase.FOLLOWS_COMPONENT, workload.created_at, (first.name,))
    return None


def _open(workload: HubWorkload) -> Standing:
    phase = Phase.NOMINATED if workload.nominated else Phase.WAITING
    return Standing(phase, workload.quota_reserved_at, tuple(workload.nominated))


def order_key(workload: HubWorkload) -> tuple[int, datetime, datetime, str]:
    """By priority, then the longer wait for a cluster, then a stable tie: for lists of work that need not be in line.
    Of two that are, `order.py` says whose turn it is; its keys and these can be compared."""
    since = workload.quota_reserved_at or workload.created_at
    return (-workload.priority, since, workload.created_at, workload.uid)


def in_phase(hub: HubView, phases: frozenset[Phase]) -> list[tuple[WorkloadUid, Standing]]:
    """Workloads in any of `phases`, in deciding order."""
    peers = Peers(hub)
    found = [(w, standing(w, hub, peers)) for w in hub.workloads.values()]
    return [(w.uid, s) for w, s in sorted(found, key=lambda pair: order_key(pair[0])) if s.phase in phases]
