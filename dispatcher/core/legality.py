"""Bridge from the catalog and the site facts to the law of `residency/`: which labels, which site, which rules."""

from __future__ import annotations

from datetime import datetime

from dispatcher.core.decision import Detail, Reason, Rejection, Resolver
from dispatcher.core.ids import CountryCode, DataLabel, DataSetName
from dispatcher.core.policy import UNLABELLED, ClusterPolicy, DataSet, Policy
from dispatcher.core.workload import Request
from residency.law import Answer, Gap, Rule, Site, Verdict, judge

UNNAMED = "unnamed data"
"""The subject of a verdict on a job that names no data sets; its owner can lift it by naming them."""


def lineage(name: DataSetName, policy: Policy) -> tuple[DataSet, ...]:
    """The data set and everything that it is derived from, in name order; a ring ends where it closes."""
    found: dict[DataSetName, DataSet] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        data_set = policy.data_sets.get(current)
        if data_set is not None and current not in found:
            found[current] = data_set
            waiting += data_set.derived_from
    return tuple(found[key] for key in sorted(found))


def labels_of(name: DataSetName, policy: Policy) -> tuple[DataLabel, ...]:
    """All labels that bind a data set: its own and those it inherits; `unlabelled` where it starts without one."""
    found: set[DataLabel] = set()
    for data_set in lineage(name, policy):
        found.update(data_set.labels or (() if data_set.derived_from else (UNLABELLED,)))
    return tuple(sorted(found))


def assumed_labels(request: Request, policy: Policy) -> tuple[DataLabel, ...]:
    """What binds a job that names no data: that is not "no data", but what its queue's work usually is, else unlabelled
    (residency.md section 4.3)."""
    plan = policy.queues.get(request.hub_queue)
    return plan.default_labels if plan is not None and plan.default_labels else (UNLABELLED,)


def home_of(name: DataSetName, policy: Policy) -> tuple[CountryCode, ...]:
    """The countries where a data set lies already. Replicas whose country is not known add none."""
    data_set = policy.data_sets.get(name)
    if data_set is None:
        return ()
    sites = (policy.clusters.get(cluster) for cluster in data_set.replica_clusters)
    stores = (policy.stores.get(store) for store in data_set.replica_stores)
    countries = {site.site.country for site in sites if site is not None} | {s.country for s in stores if s is not None}
    return tuple(sorted(country for country in countries if country is not None))


def site_of(cluster: ClusterPolicy | None, now: datetime) -> Site:
    """What is attested of a cluster's place at `now`; an attestation counts through its last day."""
    if cluster is None:
        return Site(None, attested=False)
    vouched = cluster.site.attested
    return Site(cluster.site.country, attested=vouched is not None and vouched.until >= now.date())


def residency_rejections(
    request: Request, cluster: ClusterPolicy | None, policy: Policy, now: datetime
) -> tuple[Rejection, ...]:
    """Every verdict on every data set that does not allow processing on the cluster."""
    site = site_of(cluster, now)
    rules = {str(label): Rule(label, rule.allowed_countries, rule.line) for label, rule in policy.labels.items()}
    judged = [
        (
            str(use.data_set),
            Resolver.OPERATOR,
            judge(labels_of(use.data_set, policy), home_of(use.data_set, policy), site, rules),
        )
        for use in request.declared.data
    ]
    if not judged:
        judged = [(UNNAMED, Resolver.OWNER, judge(assumed_labels(request, policy), (), site, rules))]
    return tuple(
        _rejection(subject, resolver, verdict, cluster)
        for subject, resolver, verdicts in judged
        for verdict in verdicts
        if verdict.answer is not Answer.ALLOW
    )


def _rejection(subject: str, resolver: Resolver, verdict: Verdict, cluster: ClusterPolicy | None) -> Rejection:
    denied = verdict.answer is Answer.DENY
    seen = () if verdict.country is None else (verdict.country,)
    if verdict.gap is Gap.ATTESTATION and cluster is not None and cluster.site.attested is not None:
        seen = (*seen, cluster.site.attested.until.isoformat())
    detail = Detail(
        subject=subject,
        resource=verdict.gap.value if verdict.gap else None,
        expected=verdict.allowed,
        seen=seen,
        holder=verdict.label or None,
        line=verdict.line or None,
    )
    reason = Reason.RESIDENCY if denied else Reason.RESIDENCY_INDETERMINATE
    return Rejection(reason, resolver, detail)
