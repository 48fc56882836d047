"""Promised capacity: from our decision until the worker shows it as its own, the amount is deducted (FR-SCO-01)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import Hold, WorkerView
from dispatcher.core.workload import Request


def hold_of(decision: Decision, request: Request, policy: Policy, now: datetime) -> Hold | None:
    """The capacity that a nomination promises; None when nothing was chosen.

    It lasts for the class's patience, since that long the nomination is trusted, and for `limits.hold_ttl_s` at least.
    """
    if decision.outcome is Outcome.WAIT or decision.chosen is None:
        return None
    candidate = decision.candidate(decision.chosen)
    if candidate is None or candidate.queue is None:
        return None
    per_pod = {pod_set.name: pod_set.per_pod for pod_set in request.pod_sets}
    plan = policy.classes.get(request.declared.workload_class) if request.declared.workload_class else None
    lasting_s = max(policy.limits.hold_ttl_s, plan.patience_s if plan else 0)
    return Hold(
        workload=request.uid,
        workload_key=request.key,
        cluster=candidate.cluster,
        queue=candidate.queue,
        decision=decision.id,
        usage=tuple((p.pod_set, p.pods, per_pod[p.pod_set], p.flavor) for p in candidate.placements),
        made_at=now,
        expires_at=now + timedelta(seconds=lasting_s),
        pod_sets=tuple(
            pod_set for pod_set in request.pod_sets if pod_set.selector or pod_set.terms or pod_set.tolerations
        ),
    )


def live_holds(
    holds: Iterable[Hold], workers: Mapping[ClusterName, WorkerView | None], now: datetime
) -> tuple[Hold, ...]:
    """The holds that still count, oldest first, each once.

    A hold ends when it expires or when its worker shows the reservation of our copy: from then on the worker's own
    numbers contain it, and to count both would deduct it twice.
    """
    seen: dict[tuple[str, str, str], Hold] = {}
    for hold in sorted(holds, key=_order):
        if hold.expires_at > now and not is_visible(hold, workers.get(hold.cluster)):
            seen[(hold.workload, hold.cluster, hold.decision)] = hold
    latest = {(hold.workload, hold.cluster): hold for hold in seen.values()}
    return tuple(sorted(latest.values(), key=_order))


def is_visible(hold: Hold, view: WorkerView | None) -> bool:
    """Whether the worker itself shows that our copy has reserved, or had: finished work holds nothing."""
    if view is None:
        return False
    namespace, _, name = hold.workload_key.partition("/")
    copy = view.copies.get((namespace, name))
    return copy is not None and copy.ours and (copy.quota_reserved_at is not None or copy.finished)


def _order(hold: Hold) -> tuple[datetime, str, str, str]:
    return (hold.made_at, hold.workload, hold.cluster, hold.decision)
