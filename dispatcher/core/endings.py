"""Attempts that are to end as a whole, whatever their worker says: an approval that was taken back, a preemption that
does not come, a cluster that is away for longer than its work may wait.

Nothing is ever withdrawn from a living attempt (kueue-contract section 5, hazards): a name that is taken off the list
while its worker admits the copy leaves a job that runs and can never be latched. The hub ends it, by one guarded write
that sets the MultiKueue check to Retry. What the law ends is found by `illegal.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from dispatcher.core.decision import Decision
from dispatcher.core.findings import Finding, FindingCode, FindingDetail
from dispatcher.core.footing import Footing
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.policy import Away, Policy, Unreachable
from dispatcher.core.waiting import PENDING, Phase, multikueue_check, standing
from dispatcher.core.watchdog import Views
from dispatcher.core.workload import HubWorkload, WorkloadClass

_CLASSES = {known.value: known for known in WorkloadClass}


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known beside the views: the rules, the newest decisions, what may be concluded from silence, and the
    clusters whose preemption was waited for in vain."""

    policy: Policy
    latest: Mapping[WorkloadUid, Decision]
    footing: Footing
    in_vain: Mapping[WorkloadUid, ClusterName]


def endings(views: Views, known: Standing) -> Iterator[Finding]:
    """What is to end, and what somebody is to decide on, in the order of the hub's Workloads."""
    for workload in views.hub.workloads.values():
        phase = standing(workload, views.hub).phase
        if phase is Phase.OTHER_CHECKS and workload.nominated:
            yield from _revoked(workload, views)
        elif phase is Phase.NOMINATED:
            yield from _in_vain(workload, views, known.in_vain.get(workload.uid))
        elif phase is Phase.PLACED and workload.cluster_name is not None:
            yield from _away(workload, workload.cluster_name, views, known)


def ends(finding: Finding) -> bool:
    """Whether a finding is acted on by ending the attempt."""
    if finding.code is FindingCode.CLUSTER_AWAY:
        return finding.detail.awaits == Away.MOVE.value
    return finding.code in (FindingCode.APPROVAL_REVOKED, FindingCode.PREEMPTION_IN_VAIN)


def _revoked(workload: HubWorkload, views: Views) -> Iterator[Finding]:
    """A check beside MultiKueue's was Ready when it was nominated, and is Pending now: nobody approves of it any more
    (FR-NOM-02). Retry and Rejected are answers that Kueue itself acts on.

    MultiKueue dispatches nothing more while that is so, and takes nothing back either: a copy that is there already may
    be admitted at any moment.
    """
    mine = multikueue_check(workload, views.hub)
    others = [check for check in workload.checks if mine is None or check.name != mine.name]
    pending = [check for check in others if check.state == PENDING]
    if mine is None or not pending or any(check.state not in (PENDING, "Ready") for check in others):
        return
    since = max((check.changed_at for check in pending if check.changed_at is not None), default=None)
    detail = FindingDetail(check=pending[0].name, names=tuple(workload.nominated))
    yield Finding(FindingCode.APPROVAL_REVOKED, workload.uid, workload.key, since=since, detail=detail)


def _in_vain(workload: HubWorkload, views: Views, cluster: ClusterName | None) -> Iterator[Finding]:
    """It was to make room for itself on one cluster, did not within its patience, and could go elsewhere (FR-NOM-07).

    Preemptions are tried one after the other: of two clusters that evict somebody for it only one would run it. A copy
    that has its quota by now has come through, and of a cluster that is not seen nothing is concluded.
    """
    if cluster is None or tuple(workload.nominated) != (cluster,):
        return
    view = views.connected(cluster)
    copy = view.copies.get((workload.namespace, workload.name)) if view is not None else None
    if view is None or (copy is not None and copy.quota_reserved_at is not None):
        return
    uid = copy.uid if copy is not None else ""
    yield Finding(FindingCode.PREEMPTION_IN_VAIN, workload.uid, workload.key, cluster, uid)


def _away(workload: HubWorkload, cluster: ClusterName, views: Views, known: Standing) -> Iterator[Finding]:
    """It runs where nobody can look. Whether it may stay is its queue's or its class's to say (FR-RAC-12)."""
    lost_s = known.footing.lost_for_s(cluster, views.now)
    if lost_s is None:
        return
    rule = tolerance(workload, known.policy, known.latest.get(workload.uid))
    if rule.course is Away.STAY or (rule.course is Away.MOVE and lost_s < rule.after_s):
        return
    since = views.now - timedelta(seconds=lost_s)
    detail = FindingDetail(awaits=rule.course.value)
    yield Finding(FindingCode.CLUSTER_AWAY, workload.uid, workload.key, cluster, since=since, detail=detail)


def tolerance(workload: HubWorkload, policy: Policy, decision: Decision | None) -> Unreachable:
    """What is to become of a workload whose cluster cannot be reached: as its queue says, else its class."""
    queue = policy.queues.get(workload.cluster_queue) if workload.cluster_queue is not None else None
    if queue is not None and queue.on_unreachable is not None:
        return queue.on_unreachable
    named = _CLASSES.get(decision.workload_class) if decision is not None else None
    if named is None and queue is not None:
        named = queue.default_class
    plan = policy.classes.get(named) if named is not None else None
    return plan.on_unreachable if plan is not None else Unreachable()
