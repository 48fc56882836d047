"""Work as the law sees it: everything of the hub that waits, stands nominated or runs, each as the request that a
decision would see, with where it is. Taken together with the policy in force it is all that a preview of other rules
needs (`impact.py`), offline too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from dispatcher.core.history import NO_HISTORY, Usual, usual_of
from dispatcher.core.ids import ClusterName, FlavorName, WorkloadUid
from dispatcher.core.illegal import Sight, flavors_on
from dispatcher.core.order import Turn
from dispatcher.core.policy import Policy
from dispatcher.core.request import attempt_of, build_request
from dispatcher.core.waiting import Phase, order_key, standing
from dispatcher.core.workload import Avoided, HubWorkload, Request


class Stage(StrEnum):
    QUEUED = "queued"
    NOMINATED = "nominated"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Work:
    """One workload. `places`: the clusters where it stands, with the flavors that it has or would have there (empty =
    not known); none while it is queued."""

    request: Request
    stage: Stage
    places: tuple[tuple[ClusterName, tuple[FlavorName, ...]], ...] = ()

    @property
    def key(self) -> str:
        return self.request.key


@dataclass(frozen=True, slots=True)
class Workbook:
    """All work of a hub at an instant (by which dates are judged), with the policy then in force. `unread` names
    workloads of which nothing can be said, since what they declare cannot be understood: whoever previews must hear of
    them."""

    taken_at: datetime
    policy: Policy
    work: tuple[Work, ...]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lore:
    """What a daemon knows of those that wait beside the views: whose turn it is, for how long such work usually runs,
    and what earlier attempts speak against. Without it a preview stands in another order than the line."""

    turns: Mapping[WorkloadUid, Turn] = field(default_factory=dict)
    usual: Usual = field(default_factory=lambda: NO_HISTORY)
    avoided: Mapping[WorkloadUid, tuple[Avoided, ...]] = field(default_factory=dict)


NO_LORE = Lore()

_STAGES = {
    Phase.PLACED: Stage.RUNNING,
    Phase.NOMINATED: Stage.NOMINATED,
    **dict.fromkeys(
        (
            Phase.WAITING,
            Phase.NO_QUOTA,
            Phase.EVICTING,
            Phase.OTHER_CHECKS,
            Phase.CHECK_CLOSED,
            Phase.SLICE_PINNED,
            Phase.FOLLOWS_COMPONENT,
            Phase.COMPONENTS_MISSING,
        ),
        Stage.QUEUED,
    ),
}
_UNREAD = frozenset({Phase.UNREADABLE, Phase.NO_OWNER})


def workbook(sight: Sight, lore: Lore = NO_LORE) -> Workbook:
    """Everything that is not finished and that dispatch has to do with, in deciding order."""

    def place(workload: HubWorkload) -> tuple[int, datetime, datetime, str]:
        turn = lore.turns.get(workload.uid)
        return turn.key if turn is not None else order_key(workload)

    work: list[Work] = []
    unread: list[str] = []
    for workload in sorted(sight.hub.workloads.values(), key=place):
        phase = standing(workload, sight.hub).phase
        stage = _STAGES.get(phase)
        found = work_of(workload, stage, sight) if stage is not None else None
        if found is not None:
            work.append(_known(found, sight, lore) if stage is Stage.QUEUED else found)
        elif stage is not None or phase in _UNREAD:
            unread.append(workload.key)
    return Workbook(sight.dated, sight.policy, tuple(work), tuple(unread))


def _known(work: Work, sight: Sight, lore: Lore) -> Work:
    """One that waits, as dispatch would decide on it next."""
    request = work.request
    attempt = attempt_of(request, sight.latest.get(request.uid))
    known = replace(
        request, attempt=attempt, avoided=lore.avoided.get(request.uid, ()), usual=usual_of(request, lore.usual)
    )
    return replace(work, request=known)


def work_of(workload: HubWorkload, stage: Stage, sight: Sight) -> Work | None:
    """One workload where it stands; None where what it declares cannot be understood."""
    owner = sight.hub.owners.get(workload.owner.uid) if workload.owner is not None else None
    request = build_request(workload, owner, sight.hub, sight.policy)
    if not isinstance(request, Request):
        return None
    names: tuple[ClusterName, ...] = ()
    if stage is Stage.NOMINATED:
        names = workload.nominated
    elif stage is Stage.RUNNING and workload.cluster_name is not None:
        names = (workload.cluster_name,)
    return Work(request, stage, tuple((name, flavors_on(workload, name, sight)) for name in names))


def stage_of(workload: HubWorkload, sight: Sight) -> Stage | None:
    """Where a workload stands; None for what dispatch has nothing to do with (any more)."""
    return _STAGES.get(standing(workload, sight.hub).phase)
