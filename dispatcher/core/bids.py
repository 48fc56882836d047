"""What a workload brings to the line, and what it has of the fleet, read off the hub and its owner's words.

Read before, and whether or not, all that the owner declares can be understood: a workload that is held by its input
stands in line as well. What cannot be read counts as not said; `build_request` is who tells the owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from dispatcher.core.decision import Estimate
from dispatcher.core.declaration import PREFIX
from dispatcher.core.history import NO_HISTORY, Usual, estimated
from dispatcher.core.ids import QueueName
from dispatcher.core.literals import LiteralError, parse_duration
from dispatcher.core.order import HOUR_S, Bid, gpu_milli
from dispatcher.core.policy import ClassPolicy, Policy
from dispatcher.core.resources import Resources
from dispatcher.core.shares import Usage
from dispatcher.core.snapshot import WorkerView
from dispatcher.core.workload import HubWorkload, OwnerMeta, WorkloadClass

_CLASS, _DURATION, _TEAM = f"{PREFIX}workload-class", f"{PREFIX}expected-duration", f"{PREFIX}team"
_CLASSES = {known.value: known for known in WorkloadClass}


def bid_of(workload: HubWorkload, owner: OwnerMeta | None, policy: Policy, usual: Usual = NO_HISTORY) -> Bid:
    """Where nothing says what class it is of, waiting costs nothing and it is taken to run for an hour."""
    keys = keys_of(workload, owner)
    plan = plan_of(workload, keys, policy)
    return Bid(
        uid=workload.uid,
        priority=workload.priority,
        created_at=workload.created_at,
        waiting_since=workload.quota_reserved_at or workload.created_at,
        team=_team(workload, keys),
        gpu_milli=gpu_milli(workload.pod_sets),
        estimate=_estimate(workload, keys, plan, usual),
        delay_price_usd_micro_per_hour=plan.delay_price_usd_micro_per_hour if plan is not None else 0,
    )


def usage_of(workload: HubWorkload, owner: OwnerMeta | None) -> Usage | None:
    """What it holds of the fleet since its admission, or held until it finished; None where it has none now."""
    begun_at = workload.admitted_at
    if begun_at is None or workload.cluster_name is None:
        return None
    amounts = Resources.total(pod_set.per_pod.times(pod_set.count) for pod_set in workload.pod_sets)
    ended_at = (workload.finished_at or begun_at) if workload.finished else None
    return Usage(_team(workload, keys_of(workload, owner)), amounts, begun_at, ended_at)


def capacity_of(views: Iterable[WorkerView]) -> Resources:
    """What the workers' queues have to give away, all together: their nominal quotas."""
    found: dict[str, int] = {}
    for view in views:
        of_queues = [quota for queue in view.queues.values() for quota in queue.quotas]
        of_cohorts = [quota for cohort in view.cohorts.values() for quota in cohort.quotas]
        for quota in (*of_queues, *of_cohorts):
            found[quota.resource] = found.get(quota.resource, 0) + quota.nominal
    return Resources.of(found)


def keys_of(workload: HubWorkload, owner: OwnerMeta | None) -> Mapping[str, str]:
    """What the owner says, the job object's word before that of its pod templates."""
    return dict((*workload.template_keys, *(owner.keys if owner is not None else ())))


def _team(workload: HubWorkload, keys: Mapping[str, str]) -> str:
    """Who pays: the team that is named, else everybody in the queue together."""
    return keys.get(_TEAM, "").strip() or workload.cluster_queue or workload.namespace


def plan_of(workload: HubWorkload, keys: Mapping[str, str], policy: Policy) -> ClassPolicy | None:
    """The class that it names, else its queue's; None where neither is known."""
    return plan_for(class_said(keys), workload.cluster_queue, policy)


def class_said(keys: Mapping[str, str]) -> WorkloadClass | None:
    """The class that an owner names, where there is one of that name."""
    return _CLASSES.get(keys.get(_CLASS, "").strip())


def plan_for(named: WorkloadClass | None, queue: QueueName | None, policy: Policy) -> ClassPolicy | None:
    """The plan of a class that was named, else that of the queue's class; None where neither is known."""
    if named is None and queue is not None and queue in policy.queues:
        named = policy.queues[queue].default_class
    return policy.classes.get(named) if named is not None else None


def _estimate(workload: HubWorkload, keys: Mapping[str, str], plan: ClassPolicy | None, usual: Usual) -> Estimate:
    declared_s = None
    if (written := keys.get(_DURATION)) is not None:
        with suppress(LiteralError):  # the owner is told by build_request
            declared_s = parse_duration(written)
    if plan is None:
        return estimated(declared_s, None, HOUR_S)
    queue = workload.cluster_queue
    found = usual.get((queue, plan.workload_class)) if queue is not None else None
    return estimated(declared_s, found, plan.default_duration_s)
