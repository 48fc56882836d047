"""What the law says in full, for those who must act on it: of a request on a cluster, now, under a policy.

`legality.py` gives decisions what stands against a candidate. Here the whole ruling comes out, with what each rule
wants done about work that it makes illegal. Same plan, same judge, same memo.
"""

from __future__ import annotations

from datetime import datetime

from dispatcher.core.decision import Detail, Reason, Rejection, Resolver
from dispatcher.core.ids import ClusterName, RegionName
from dispatcher.core.legality import plan_of
from dispatcher.core.policy import ClusterPolicy, Credentials, Policy
from dispatcher.core.seal import PUBLIC, Standing, Trouble, standing
from dispatcher.core.workload import Request
from residency.facts import Place

_REASONS = {
    Trouble.MISSING: Reason.RULES_MISSING,
    Trouble.TOO_OLD: Reason.RULES_TOO_OLD,
    Trouble.EXPIRED: Reason.RULES_EXPIRED,
    Trouble.CLOCK: Reason.CLOCK_WRONG,
}
_NOWHERE = ClusterPolicy(ClusterName(""), "", RegionName(""), Place(""), {}, Credentials())
"""A cluster without facts: what a request carries does not depend on where it goes."""


def standing_of(policy: Policy, now: datetime) -> Standing | None:
    """What is wrong with the rules in force, apart from what they say."""
    return standing(policy.seal, policy.residency.settings.max_age_s, now)


def is_classified(request: Request, policy: Policy, now: datetime) -> bool:
    """Whether any label but `public` binds what the request reads. A job that names no data is what its queue's work
    usually is, else unlabelled, which is classified."""
    return labels_carried(request, policy, now) != {PUBLIC}


def labels_carried(request: Request, policy: Policy, now: datetime) -> frozenset[str]:
    """All labels of what the request reads, which bind what it makes as well."""
    hops = plan_of(request, _NOWHERE, policy, now).hops
    return frozenset(label for hop in hops for label in hop.cargo.labels.names)


def standing_rejections(request: Request, policy: Policy, now: datetime) -> tuple[Rejection, ...]:
    """Rules that may not be used now keep classified work where it is. Without any rules, public work goes on only
    where the daemon was told so."""
    found = standing_of(policy, now)
    if found is None:
        return ()
    open_to_public = found.trouble is not Trouble.MISSING or policy.seal.public_goes_on
    if open_to_public and not is_classified(request, policy, now):
        return ()
    seal = policy.seal
    times = tuple(at.isoformat(timespec="seconds") for at in (found.since, found.limit) if at is not None)
    subject = f"serial {seal.serial}" if seal.serial is not None else "the rules in force"
    return (Rejection(_REASONS[found.trouble], Resolver.OPERATOR, Detail(subject, seen=times, since=found.limit)),)
