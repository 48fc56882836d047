"""Queues: what makes a ClusterQueue inactive, whether workers have what the hub's jobs name, and quota that fits."""

from __future__ import annotations

from collections.abc import Iterator

from dispatcher.core.doctor.facts import HUB, CheckOn, ClusterFacts, FleetFacts, HubFacts
from dispatcher.core.doctor.findings import Code, Finding, Where, found
from dispatcher.core.doctor.reach import (
    clusters_of,
    dispatched_local_queues,
    dispatched_queues,
    multikueue_checks_of,
    seen_workers,
)
from dispatcher.core.ids import ClusterName, FlavorName, QueueName
from dispatcher.core.quota import quota_tree
from dispatcher.core.resources import CPU
from dispatcher.core.selectors import requirement_holds
from dispatcher.core.snapshot import ClusterQueueView, LocalQueueView, StopPolicy, WorkerView

MOST_CHECKS = 8
NAME_LABEL = "kubernetes.io/metadata.name"
_EXPLAINED = {
    "MultipleMultiKueueAdmissionChecks",
    "MultiKueueAdmissionCheckAppliedPerFlavor",
    "MultiKueueWithProvisioningRequest",
    "AdmissionCheckNotFound",
    "AdmissionCheckInactive",
    "FlavorNotFound",
    "Stopped",
}
"""Reasons of an inactive hub queue that have a finding of their own, with the cause."""


def check_queues(facts: FleetFacts) -> Iterator[Finding]:
    hub = facts.hub
    for name in sorted(hub.cluster.queues or {}):
        yield from _constraints(hub, name)
        yield from _hub_queue(hub, name)
    for name in dispatched_queues(hub):
        yield from _quota(facts, name)
    workers = seen_workers(facts)
    for local in dispatched_local_queues(hub):
        if local.stop_policy is not StopPolicy.NONE:
            where = Where(HUB, "LocalQueue", local.name, local.namespace)
            yield found(Code.HUB_QUEUE_HELD, where, f"stopPolicy is {local.stop_policy}")
        yield from _selected(hub.cluster, local)
        for cluster in clusters_of(hub, str(local.cluster_queue)):
            if cluster in workers:
                yield from _on_worker(workers[cluster].cluster, local)


# --- the hub -----------------------------------------------------------------------------------------------------


def _constraints(hub: HubFacts, name: str) -> Iterator[Finding]:
    """What excludes each other on one hub ClusterQueue (section 10)."""
    if hub.checks is None or name not in hub.cluster.queue_checks:
        return
    where = Where(HUB, "ClusterQueue", name)
    rules = hub.cluster.queue_checks[name].checks
    ours = multikueue_checks_of(hub, name)
    if len(ours) > 1:
        yield found(Code.TWO_MULTIKUEUE_CHECKS, where, f"it names {', '.join(ours)}")
    for check, flavors in rules:
        if check in ours and flavors:
            yield found(Code.CHECK_PER_FLAVOR, where, f"{check} is limited to {', '.join(flavors)}")
        if check not in hub.checks:
            yield found(Code.CHECK_NOT_FOUND, where, f"AdmissionCheck {check} does not exist")
        elif ours and hub.checks[check].controller == CheckOn.PROVISIONING:
            yield found(Code.CHECK_WITH_PROVISIONING, where, f"{check} stands beside {ours[0]}")
    if len(rules) > MOST_CHECKS:
        yield found(Code.TOO_MANY_CHECKS, where, f"it names {len(rules)} checks")


def _hub_queue(hub: HubFacts, name: str) -> Iterator[Finding]:
    queue = (hub.cluster.queues or {})[name]
    where = Where(HUB, "ClusterQueue", name)
    if queue.stop_policy is not StopPolicy.NONE:
        yield found(Code.HUB_QUEUE_HELD, where, f"stopPolicy is {queue.stop_policy}")
    rules = hub.cluster.queue_checks.get(name)
    if rules is None or queue.active or rules.active.reason in _EXPLAINED:
        return
    said = f"{rules.active.reason}: {rules.active.message}" if rules.active.known else "Kueue has not looked at it"
    fix = f"kubectl describe clusterqueues.kueue.x-k8s.io {name}; mend what its condition names"
    yield found(Code.HUB_QUEUE_INACTIVE, where, said, fix)


def _quota(facts: FleetFacts, name: str) -> Iterator[Finding]:
    """The hub's quota of a queue against the nominal quotas of the worker queues that it feeds, by resource."""
    if (facts.hub.cluster.queues or {})[name].cohort and facts.hub.cluster.cohorts is None:
        return  # what the cohort adds is not known
    offered = _offered(facts, name)
    hub_has = _potential(facts.hub.cluster, name)
    where = Where(HUB, "ClusterQueue", name)
    for resource, amount in sorted(offered.items()):
        if amount == 0:
            continue
        if resource not in hub_has:
            seen = f"workers offer {_amount(resource, amount)} {resource}, and the hub queue does not cover it"
            yield found(Code.HUB_QUOTA_UNCOVERED, where, seen)
        elif hub_has[resource] < amount:
            has, needs = _amount(resource, hub_has[resource]), _amount(resource, amount)
            seen = f"{resource}: {has} on the hub, {needs} on its workers together"
            fix = f"set nominalQuota of {resource} in ClusterQueue {name} on the hub to {needs} or more"
            yield found(Code.HUB_QUOTA_SMALL, where, seen, fix)


def _amount(resource: str, amount: int) -> str:
    return (
        f"{amount // 1000}"
        if resource == CPU and amount % 1000 == 0
        else f"{amount}m"
        if resource == CPU
        else str(amount)
    )


def _offered(facts: FleetFacts, name: str) -> dict[str, int]:
    """Sum of nominal quotas of the worker queues behind a hub queue's LocalQueues, each counted once."""
    workers = seen_workers(facts)
    found_queues: set[tuple[str, str]] = set()
    for local in dispatched_local_queues(facts.hub):
        if str(local.cluster_queue) != name:
            continue
        for cluster in clusters_of(facts.hub, name):
            remote = (
                (workers[cluster].cluster.local_queues or {}).get((local.namespace, local.name))
                if cluster in workers
                else None
            )
            if remote is not None:
                found_queues.add((cluster, str(remote.cluster_queue)))
    sums: dict[str, int] = {}
    for cluster, queue_name in sorted(found_queues):
        queue = (workers[cluster].cluster.queues or {}).get(queue_name)
        for quota in queue.quotas if queue is not None else ():
            sums[quota.resource] = sums.get(quota.resource, 0) + quota.nominal
    return sums


def _potential(hub: ClusterFacts, name: str) -> dict[str, int]:
    """What a hub queue could hold, by resource over its flavors: its own quota and what its cohort would lend."""
    queues = {QueueName(key): queue for key, queue in (hub.queues or {}).items()}
    view = WorkerView(ClusterName(HUB), synced=True, observed_at=None, queues=queues, cohorts=dict(hub.cohorts or {}))
    tree = quota_tree(view)
    queue: ClusterQueueView = queues[QueueName(name)]
    sums: dict[str, int] = {}
    for quota in queue.quotas:
        most = tree.potential(QueueName(name), (FlavorName(quota.flavor), quota.resource))
        sums[quota.resource] = sums.get(quota.resource, 0) + most
    return sums


# --- workers -----------------------------------------------------------------------------------------------------


def _on_worker(worker: ClusterFacts, local: LocalQueueView) -> Iterator[Finding]:
    """What a copy from this hub LocalQueue needs on one worker."""
    if worker.namespaces is not None and local.namespace not in worker.namespaces:
        fix = f"kubectl create namespace {local.namespace} on {worker.name}, then the LocalQueue {local.name} in it"
        where = Where(worker.name, "Namespace", local.namespace)
        yield found(Code.NAMESPACE_MISSING, where, f"the hub's LocalQueue {local.name} is in it", fix)
        return
    if worker.local_queues is None:
        return
    where = Where(worker.name, "LocalQueue", local.name, local.namespace)
    remote = worker.local_queues.get((local.namespace, local.name))
    if remote is None:
        fix = (
            f"on {worker.name}: kubectl apply -f - <<< '{{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, "
            f"metadata: {{namespace: {local.namespace}, name: {local.name}}}, "
            f"spec: {{clusterQueue: {local.cluster_queue}}}}}'"
        )
        yield found(Code.LOCAL_QUEUE_MISSING, where, f"the hub has it, {worker.name} does not", fix)
        return
    yield from _worker_queue(worker, remote, where)


def _worker_queue(worker: ClusterFacts, remote: LocalQueueView, where: Where) -> Iterator[Finding]:
    if remote.stop_policy is not StopPolicy.NONE:
        yield found(Code.WORKER_QUEUE_HELD, where, f"stopPolicy is {remote.stop_policy}")
    if worker.queues is None:
        return
    name = str(remote.cluster_queue)
    queue = worker.queues.get(name)
    if queue is None:
        yield found(Code.WORKER_QUEUE_MISSING, where, f"it names ClusterQueue {name}, which does not exist")
        return
    yield from _selected(worker, remote)
    at_queue = Where(worker.name, "ClusterQueue", name)
    if queue.stop_policy is not StopPolicy.NONE:
        yield found(Code.WORKER_QUEUE_HELD, at_queue, f"stopPolicy is {queue.stop_policy}")
    elif not queue.active:
        rules = worker.queue_checks.get(name)
        said = f"{rules.active.reason}: {rules.active.message}" if rules and rules.active.known else "not active"
        fix = f"kubectl describe clusterqueues.kueue.x-k8s.io {name} on {worker.name}; mend what its condition names"
        yield found(Code.WORKER_QUEUE_INACTIVE, at_queue, said, fix)
    elif not remote.active and remote.stop_policy is StopPolicy.NONE:
        yield found(Code.WORKER_QUEUE_INACTIVE, where, "the LocalQueue is not active although its ClusterQueue is")


# --- both ----------------------------------------------------------------------------------------------------------


def _selected(cluster: ClusterFacts, local: LocalQueueView) -> Iterator[Finding]:
    """Whether the ClusterQueue behind a LocalQueue takes work of its namespace. The apiserver puts the namespace's name
    on it as a label, so that much is known also where namespaces were not read."""
    queue = str(local.cluster_queue)
    rules = cluster.queue_checks.get(queue)
    if rules is None:
        return
    labels, where = (cluster.namespaces or {}).get(local.namespace), Where(cluster.name, "ClusterQueue", queue)
    fix = f"set spec.namespaceSelector of ClusterQueue {queue} on {cluster.name} so that it selects {local.namespace}"
    if rules.selector is None:
        seen = f"it has no namespaceSelector, so it takes no work of {local.namespace}, nor of any other namespace"
        yield found(Code.NAMESPACE_NOT_SELECTED, where, seen, f"{fix}, or to {{}} for all")
        return
    judged = [each for each in rules.selector if labels is not None or each.key == NAME_LABEL]
    missed = [each for each in judged if not requirement_holds(each, labels or {NAME_LABEL: local.namespace})]
    if missed:
        asked = "; ".join(f"{each.key} {each.operator} {', '.join(each.values)}".rstrip() for each in missed)
        seen = f"it selects namespaces by {asked}, which {local.namespace} of LocalQueue {local.name} does not meet"
        yield found(Code.NAMESPACE_NOT_SELECTED, where, seen, fix)
