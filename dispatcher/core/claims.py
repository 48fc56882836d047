"""What a job's persistent volume claims hold, cluster by cluster.

A claim is a name in a namespace, and each cluster has a volume of its own behind it: the same name may hold one data
set here, another there, and nothing elsewhere (FR-SCO-17). So a name says nothing by itself. data.yaml says what it
holds where (`claims`); a job that mounts a claim reads what it holds, and goes only where that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from dispatcher.core.decision import Detail, Reason, Rejection, Resolver
from dispatcher.core.ids import ClusterName, DataSetName
from dispatcher.core.policy import Claim, Policy
from dispatcher.core.workload import DataUse, Request

MOST_TOLD = 8


def reads_of(claims: Sequence[str], declared: Sequence[DataUse], policy: Policy) -> tuple[DataUse, ...]:
    """Everything that a job reads: what it names, and what its claims hold where that is one data set for certain."""
    reads = list(declared)
    for name in claims:
        meant = _meant(policy.claims.get(name), [use.data_set for use in declared])
        if len(meant) == 1 and meant[0] in policy.data_sets and meant[0] not in [use.data_set for use in reads]:
            reads.append(DataUse(meant[0]))
    return tuple(reads)


def against(request: Request, cluster: ClusterName, policy: Policy) -> tuple[Rejection, ...]:
    """What the claims of a request have against a cluster; the first MOST_TOLD of it, since pods may name thousands."""
    found = (_against(name, request, cluster, policy) for name in request.claims)
    return tuple(islice((rejection for rejection in found if rejection is not None), MOST_TOLD))


def _against(name: str, request: Request, cluster: ClusterName, policy: Policy) -> Rejection | None:
    claim = policy.claims.get(name)
    if claim is None:
        if policy.unbound_claims_allowed:
            return None
        return Rejection(Reason.CLAIM_UNBOUND, Resolver.OPERATOR, Detail(name))
    meant = _meant(claim, [use.data_set for use in request.declared.data])
    if len(meant) > 1:  # nobody says which; the owner can
        sets = tuple(str(data_set) for data_set in meant)
        return Rejection(Reason.CLAIM_UNBOUND, Resolver.OWNER, Detail(name, expected=sets, line=claim.line))
    there = claim.holds.get(cluster)
    if cluster in claim.holds and (not meant or there == meant[0]):
        return None
    wanted, seen = tuple(map(str, meant)), (str(there),) if there is not None else ()
    return Rejection(
        Reason.CLAIM_ELSEWHERE, Resolver.OPERATOR, Detail(name, expected=wanted, seen=seen, line=claim.line)
    )


def _meant(claim: Claim | None, named: Sequence[DataSetName]) -> list[DataSetName]:
    """The data sets that a job may mean by a claim: those that it names, else whatever the claim holds anywhere. None:
    it holds nothing of the catalog."""
    held = sorted({held for held in claim.holds.values() if held is not None}) if claim is not None else []
    return [data_set for data_set in held if data_set in named] or held
