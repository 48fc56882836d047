"""Can everything be reached and read, do clocks agree, and is each cluster itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from dispatcher.core.doctor.facts import HUB, READ_TOPOLOGIES, ClusterFacts, FleetFacts, Skew, Verb
from dispatcher.core.doctor.findings import Code, Finding, Severity, Where, found

READER = "entrepot-reader"
"""The role that deploy/worker gives the daemon's account."""
SKEW_LIMIT_MS = 5_000
"""Beyond this a lease of 15 s and a TTL of a minute are no longer what they say."""


def check_access(facts: FleetFacts) -> Iterator[Finding]:
    clusters = [facts.hub.cluster, *(worker.cluster for worker in facts.workers)]
    for cluster in clusters:
        yield from _reach(cluster)
        yield from _permissions(cluster)
        yield from _topologies(cluster)
        yield from _skew(cluster)
    yield from _between(clusters)
    yield from _identities(clusters)


def _reach(cluster: ClusterFacts) -> Iterator[Finding]:
    where = Where(cluster.name, "cluster")
    if cluster.error is not None:
        yield found(Code.UNREACHABLE, where, cluster.error)
        return
    denied = {verb.text() for verb in (*(cluster.denied or ()), *cluster.not_granted)}
    missed: dict[str, list[str]] = {}
    for unread in sorted(cluster.unread, key=lambda each: (each.why, each.what)):
        if unread.what not in denied:
            missed.setdefault(unread.why, []).append(unread.what)
    if missed:
        seen = "; ".join(f"{why}: {', '.join(whats)}" for why, whats in missed.items())
        yield found(Code.NOT_LOOKED, where, seen)


def _permissions(cluster: ClusterFacts) -> Iterator[Finding]:
    if not cluster.denied:
        return
    folder, role = ("deploy/hub", "entrepot") if cluster.name == HUB else ("deploy/worker", READER)
    fix = f"kubectl apply -k {folder} on {cluster.name}, or add the rules {rules_text(cluster.denied)}"
    yield found(Code.RBAC_MISSING, Where(cluster.name, "ClusterRole", role), _may_not(cluster, cluster.denied), fix)


def _topologies(cluster: ClusterFacts) -> Iterator[Finding]:
    """A daemon reads such a worker without them: the label that a job requires then tells domains apart (ADR 27)."""
    lacks = tuple(verb for verb in READ_TOPOLOGIES if verb in cluster.not_granted)
    if lacks:
        fix = f"kubectl apply -k deploy/worker on {cluster.name}: the role of an earlier release lacks them"
        where = Where(cluster.name, "ClusterRole", READER)
        yield found(Code.TOPOLOGIES_NOT_READ, where, _may_not(cluster, lacks), fix)


def _may_not(cluster: ClusterFacts, verbs: tuple[Verb, ...]) -> str:
    account = cluster.account or "the account of this kubeconfig"
    return f"{account} may not " + ", ".join(verb.text() for verb in verbs)


def rules_text(denied: tuple[Verb, ...]) -> str:
    """RBAC rules that grant what is missing, in YAML's flow form."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for verb in denied:
        verbs.setdefault((verb.group, verb.resource, verb.name), []).append(verb.verb)
    rules = []
    for (group, resource, name), allowed in sorted(verbs.items()):
        named = f", resourceNames: [{name}]" if name else ""
        rules.append(f'{{apiGroups: ["{group}"], resources: [{resource}]{named}, verbs: [{", ".join(allowed)}]}}')
    return "[" + ", ".join(rules) + "]"


def _skew(cluster: ClusterFacts) -> Iterator[Finding]:
    skew = cluster.skew
    if skew is None:
        return
    where = Where(cluster.name, "cluster")
    if skew.low_ms > SKEW_LIMIT_MS:
        yield found(Code.CLOCK_SKEW, where, f"its clock is at least {_seconds(skew.low_ms)} ahead of ours")
    if skew.high_ms < -SKEW_LIMIT_MS:
        yield found(Code.CLOCK_SKEW, where, f"its clock is at least {_seconds(-skew.high_ms)} behind ours")


def _between(clusters: list[ClusterFacts]) -> Iterator[Finding]:
    """Only the pair that differs most: with one clock wrong, every pair that it is in says the same."""
    pairs = [
        (_apart(one.skew, other.skew), one.name, other.name)
        for one, other in combinations(clusters, 2)
        if one.skew is not None and other.skew is not None
    ]
    worst = max(pairs, default=(0, "", ""), key=lambda pair: (pair[0], pair[1], pair[2]))
    if worst[0] > SKEW_LIMIT_MS:
        seen = f"the clocks of {worst[1]} and {worst[2]} are at least {_seconds(worst[0])} apart"
        yield found(Code.CLOCKS_DIFFER, Where(worst[1], "cluster", worst[2]), seen)


def _apart(one: Skew, other: Skew) -> int:
    return max(one.low_ms - other.high_ms, other.low_ms - one.high_ms, 0)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000} s"


def _identities(clusters: list[ClusterFacts]) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for cluster in clusters:
        if cluster.identity is None:
            continue
        if cluster.identity not in first:
            first[cluster.identity] = cluster.name
            continue
        twin = first[cluster.identity]
        seen = f"{twin} and {cluster.name} are one cluster: kube-system has UID {cluster.identity} in both"
        finding = found(Code.SAME_CLUSTER_TWICE, Where(cluster.name, "cluster", twin), seen)
        # A hub that is its own worker is a set-up that upstream documents for trials; it is never one for work.
        yield replace(finding, severity=Severity.WARNING) if twin == HUB else finding
