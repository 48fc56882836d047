"""Jobs that lie in dispatched queues: TTLs, managedBy, pods on the hub, names taken on workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dispatcher.core.doctor.facts import HUB, FleetFacts, HubFacts, JobFacts
from dispatcher.core.doctor.findings import Code, Finding, Severity, Where, found
from dispatcher.core.doctor.reach import clusters_of, dispatched_local_queues, lost_timeout_s, seen_workers
from dispatcher.core.doctor.versions import FOREIGN_FIXED

MANAGER = "kueue.x-k8s.io/multikueue"
SYNC_ALLOWANCE_S = 90
"""How late a worker's state may reach a busy hub: clients of 5 QPS, p99 of a transition 89 s (section 1)."""


def check_jobs(facts: FleetFacts) -> Iterator[Finding]:
    jobs = _dispatched_jobs(facts.hub)
    grace_s = lost_timeout_s(facts.hub) + SYNC_ALLOWANCE_S
    for job, _ in jobs:
        yield from _ttl(job, grace_s)
        if job.managed_by != MANAGER and not job.finished:
            seen = f"managedBy is {job.managed_by}" if job.managed_by else "managedBy is not set"
            yield found(Code.NOT_MANAGED, _where(job), seen)
    yield from _hub_pods(facts.hub, [job for job, _ in jobs])
    yield from _taken(facts, jobs)


def _dispatched_jobs(hub: HubFacts) -> list[tuple[JobFacts, str]]:
    """Jobs in dispatched LocalQueues, each with its ClusterQueue."""
    queues = {(local.namespace, local.name): str(local.cluster_queue) for local in dispatched_local_queues(hub)}
    return [(job, queues[(job.namespace, job.queue)]) for job in hub.jobs or () if (job.namespace, job.queue) in queues]


def _where(job: JobFacts) -> Where:
    return Where(HUB, job.kind, job.name, job.namespace)


def _ttl(job: JobFacts, grace_s: int) -> Iterator[Finding]:
    if job.ttl_s is None or job.ttl_s >= grace_s or job.finished:
        return
    code = Code.TTL_SHORT if job.ttl_s < SYNC_ALLOWANCE_S else Code.TTL_RISKY
    seen = f"ttlSecondsAfterFinished is {job.ttl_s}; the hub may need {grace_s} s to see the end"
    yield found(code, _where(job), seen, f"set ttlSecondsAfterFinished to {grace_s} or more, or remove it")


def _hub_pods(hub: HubFacts, jobs: list[JobFacts]) -> Iterator[Finding]:
    """Pods on nodes of the hub that belong to a job which runs elsewhere."""
    elsewhere: dict[tuple[str, str], str | None] = {
        (workload.namespace, f"{workload.owner_kind}/{workload.owner_name}"): workload.cluster
        for workload in hub.workloads or ()
        if workload.cluster is not None and workload.owner_name
    }
    for job in jobs:
        if job.managed_by == MANAGER:
            elsewhere.setdefault((job.namespace, f"{job.kind}/{job.name}"), None)
    running: dict[tuple[str, str], list[str]] = {}
    for namespace, pod, owners in hub.bound_pods or ():
        for owner in owners:
            if (namespace, owner) in elsewhere:
                running.setdefault((namespace, owner), []).append(pod)
    for (namespace, owner), pods in sorted(running.items()):
        kind, _, name = owner.partition("/")
        cluster = elsewhere[(namespace, owner)]
        there = f"it is dispatched to {cluster}" if cluster else "it is managed by MultiKueue"
        seen = f"{there}, and {len(pods)} of its pods sit on nodes of the hub ({sorted(pods)[0]})"
        yield found(Code.HUB_RUNS_PODS, Where(HUB, kind, name, namespace), seen)


def _taken(facts: FleetFacts, jobs: list[tuple[JobFacts, str]]) -> Iterator[Finding]:
    version = facts.hub.cluster.kueue.exact
    deletes = version is not None and version < FOREIGN_FIXED
    workers = seen_workers(facts)
    for job, queue in jobs:
        if job.finished:
            continue
        for cluster in clusters_of(facts.hub, queue):
            foreign = (workers[cluster].foreign_jobs or ()) if cluster in workers else ()
            if any((one.kind, one.namespace, one.name) == (job.kind, job.namespace, job.name) for one in foreign):
                seen = "the hub has a job of this name, and this one has no MultiKueue origin"
                finding = found(Code.NAME_TAKEN, Where(cluster, job.kind, job.name, job.namespace), seen)
                yield replace(finding, severity=Severity.ERROR) if deletes else finding
