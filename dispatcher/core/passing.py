"""Who waits behind a reservation: clusters that are closed to a request since it would delay somebody ahead of it.

A cluster on which it fits, and where it would still be when a gang ahead has reserved its start, is rejected like any
other that will not do, with the holder, the start and the estimate that this start stands on (backfill.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from dispatcher.core.backfill import Reservation
from dispatcher.core.context import Setting
from dispatcher.core.decision import Candidate, Detail, Estimate, Reason, Rejection, Resolver
from dispatcher.core.ids import FlavorName
from dispatcher.core.keeping import charge, parts_of, run_s
from dispatcher.core.policy import Policy
from dispatcher.core.slate import Slate
from dispatcher.core.snapshot import digest_of
from dispatcher.core.workload import PodSet, WorkloadClass


def open_to(slate: Slate, setting: Setting, reserved: Sequence[Reservation]) -> Slate:
    """The slate with every eligible candidate rejected on which the request would delay a reservation.

    Where there is none, it is the same: reservations that are in nobody's way are no part of what was decided.
    """
    closed = {c.cluster: found for c in slate.eligible if (found := _closed(c, setting, reserved)) is not None}
    if not closed:
        return slate
    return replace(
        slate,
        candidates=tuple(
            replace(c, rejections=(*c.rejections, closed[c.cluster])) if c.cluster in closed else c
            for c in slate.candidates
        ),
        eligible=tuple(c for c in slate.eligible if c.cluster not in closed),
        candidates_digest=digest_of((slate.candidates_digest, tuple(sorted(closed.items())))),
    )


def _closed(candidate: Candidate, setting: Setting, reserved: Sequence[Reservation]) -> Rejection | None:
    kind = setting.plan.workload_class
    until = ends_at(candidate, setting.estimate, setting.policy, setting.now, kind)
    kept = delayed(candidate, setting.request.pod_sets, until, reserved)
    return _rejection(kept, candidate, setting.request.pod_sets, until) if kept is not None else None


def ends_at(
    candidate: Candidate, estimate: Estimate, policy: Policy, now: datetime, workload_class: WorkloadClass | None
) -> datetime:
    """When it would have ended there if it started now: it takes what it has also while its data comes."""
    site = policy.clusters.get(candidate.cluster)
    flavors = [placed.flavor for placed in candidate.placements]
    return now + timedelta(seconds=candidate.held_s + run_s(estimate, flavors, site, workload_class))


def delayed(
    candidate: Candidate, pod_sets: Sequence[PodSet], until: datetime, reserved: Sequence[Reservation]
) -> Reservation | None:
    """The first reservation that work would delay which starts there now and runs until then."""
    parts = parts_of(candidate, pod_sets)
    there = (each for each in reserved if each.cluster == candidate.cluster)
    return next((r for r in there if not r.lets_pass(charge(r, candidate.queue, parts), until)), None)


def once_started(
    candidate: Candidate, pod_sets: Sequence[PodSet], until: datetime, reserved: Sequence[Reservation]
) -> tuple[Reservation, ...]:
    """The reservations once such work has started there."""
    parts = parts_of(candidate, pod_sets)
    return tuple(
        each.after(charge(each, candidate.queue, parts), until) if each.cluster == candidate.cluster else each
        for each in reserved
    )


def _rejection(kept: Reservation, candidate: Candidate, pod_sets: Sequence[PodSet], until: datetime) -> Rejection:
    """`expected` is when it would have to end, `seen` when it would; `subject` is what the start stands on."""
    amounts = charge(kept, candidate.queue, parts_of(candidate, pod_sets))
    pool = next(pool for pool, amount in sorted(amounts.items()) if amount > kept.spare.get(pool, 0))
    detail = Detail(
        subject="overdue" if kept.overdue else kept.basis.value,
        resource=pool[3] if pool[0] == "quota" else pool[2],
        flavor=FlavorName(pool[2] if pool[0] == "quota" else pool[1]),
        needed=amounts[pool],
        found=max(0, kept.spare[pool]),
        expected=(kept.start.isoformat(),),
        seen=(until.isoformat(),),
        holder=kept.holder_key,
    )
    return Rejection(Reason.RESERVED, Resolver.WAIT, detail)
