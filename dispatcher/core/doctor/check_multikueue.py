"""MultiKueue's own objects on the hub: checks, configs, clusters, and whose copies lie on the workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dispatcher.core.doctor.facts import (
    HUB,
    Active,
    AdmissionCheckFacts,
    CheckOn,
    FleetFacts,
    HubFacts,
    MultiKueueClusterFacts,
    Source,
)
from dispatcher.core.doctor.findings import Code, Finding, Where, found
from dispatcher.core.doctor.reach import DEFAULT_ORIGIN, seen_workers

MOST_CLUSTERS = 20
_OLD_COPY_S = 600
"""Garbage collection comes once a minute: a copy without its hub Workload that is older than this is nobody's."""
_NAMED_COPIES = 5

_CHECK_REASONS = {
    "NoUsableClusters": "none of its clusters is active",
    "BadConfig": "its parameters name no usable MultiKueueConfig",
}
_CLUSTER_REASONS = {
    "ClientConnectionFailed": (
        "the worker does not answer, or one of the kinds that the hub enables is not served there",
        "check the server's address and network from the hub; compare integrations.frameworks with the worker's CRDs",
    ),
    "BadKubeConfig": ("its kubeconfig is missing or cannot be used", "see the findings under Kubeconfigs"),
    "InsecureKubeConfig": (
        "its kubeconfig does not verify the worker, or names a file of tokens",
        "write certificate-authority-data and a token into it",
    ),
    "BadClusterProfile": ("its ClusterProfile cannot be used", "check spec.clusterSource.clusterProfileRef"),
    "BadRestConfig": (
        "no client can be made from its ClusterProfile",
        "check clusterProfile.credentialsProviders in Kueue's Configuration",
    ),
    "MultiKueueClusterProfileFeatureDisabled": (
        "it names a ClusterProfile, and the gate MultiKueueClusterProfile is off",
        "use a kubeconfig in a Secret, or turn the gate on",
    ),
}


def check_multikueue(facts: FleetFacts) -> Iterator[Finding]:
    hub = facts.hub
    if hub.checks is not None:
        for check in hub.checks.values():
            yield from _check(hub, check)
        if not any(check.controller == CheckOn.MULTIKUEUE for check in hub.checks.values()):
            yield found(Code.NO_MULTIKUEUE_CHECK, Where(HUB, "AdmissionCheck"), "no check has MultiKueue's controller")
    yield from _configs(hub)
    for cluster in (hub.clusters or {}).values():
        yield from _cluster(hub, cluster)
    yield from _origins(facts)


def _check(hub: HubFacts, check: AdmissionCheckFacts) -> Iterator[Finding]:
    where = Where(HUB, "AdmissionCheck", check.name)
    if not check.active.known:
        seen = f"no controller has ever set its condition: does the controller of {check.controller} run?"
        yield found(Code.CHECK_INACTIVE, where, seen, f"start the controller of {check.controller}")
    elif not check.active.holds:
        fix = f"kubectl describe admissionchecks.kueue.x-k8s.io {check.name}; mend what its message names"
        yield found(Code.CHECK_INACTIVE, where, _told(check.active, _CHECK_REASONS.get(check.active.reason, "")), fix)
    if check.controller != CheckOn.MULTIKUEUE or hub.configs is None:
        return
    if check.config is None:
        yield found(Code.CONFIG_MISSING, where, "spec.parameters names no MultiKueueConfig")
    elif check.config not in hub.configs:
        yield found(Code.CONFIG_MISSING, where, f"MultiKueueConfig {check.config} does not exist")


def _told(active: Active, meaning: str) -> str:
    """The reason, what it means, and what Kueue says."""
    parts = [part for part in (active.reason, meaning, active.message) if part]
    return ": ".join(parts) or "Active is not True"


def _configs(hub: HubFacts) -> Iterator[Finding]:
    for name, clusters in sorted((hub.configs or {}).items()):
        where = Where(HUB, "MultiKueueConfig", name)
        if len(clusters) > MOST_CLUSTERS:
            yield found(Code.CONFIG_TOO_MANY, where, f"it lists {len(clusters)} clusters")
        for cluster, times in sorted(Counter(clusters).items()):
            if times > 1:
                yield found(Code.CONFIG_DUPLICATE, where, f"it lists {cluster} {times} times")
            if hub.clusters is not None and cluster not in hub.clusters:
                seen = f"it lists {cluster}, and there is no such MultiKueueCluster"
                yield found(Code.CONFIG_UNKNOWN_CLUSTER, where, seen)


def _cluster(hub: HubFacts, cluster: MultiKueueClusterFacts) -> Iterator[Finding]:
    where = Where(HUB, "MultiKueueCluster", cluster.name)
    if cluster.deleting:
        yield found(Code.CLUSTER_DELETING, where, "it has a deletion mark")
    elif not cluster.active.known:
        seen = "no controller has ever set its condition: does Kueue run on the hub, with MultiKueue on?"
        yield found(Code.CLUSTER_INACTIVE, where, seen, "kubectl -n kueue-system get pods")
    elif not cluster.active.holds:
        meaning, fix = _CLUSTER_REASONS.get(cluster.active.reason, ("", ""))
        yield found(Code.CLUSTER_INACTIVE, where, _told(cluster.active, meaning), fix)
    if cluster.source is Source.PATH:
        yield found(Code.CLUSTER_BY_PATH, where, f"its kubeconfig is {cluster.location}")
    if hub.configs is not None and not any(cluster.name in names for names in hub.configs.values()):
        yield found(Code.CLUSTER_UNUSED, where, "no MultiKueueConfig lists it")


def _origins(facts: FleetFacts) -> Iterator[Finding]:
    hub = facts.hub
    if hub.workloads is None:
        return
    known = {(workload.namespace, workload.name) for workload in hub.workloads}
    config = hub.cluster.config
    ours = (config.origin if config is not None else None) or DEFAULT_ORIGIN
    for name, worker in seen_workers(facts).items():
        strange = [
            f"{copy.namespace}/{copy.name}"
            for copy in worker.copies or ()
            if copy.origin == ours
            and (copy.namespace, copy.name) not in known
            and copy.created is not None
            and (facts.seen_at - copy.created).total_seconds() > _OLD_COPY_S
        ]
        if strange:
            named = ", ".join(strange[:_NAMED_COPIES]) + (" ..." if len(strange) > _NAMED_COPIES else "")
            seen = f"{len(strange)} with origin {ours!r} that the hub does not have: {named}"
            yield found(Code.ORIGIN_SHARED, Where(name, "Workload"), seen)
