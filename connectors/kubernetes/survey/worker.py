"""A worker's part of the survey: copies by origin, jobs of its own, and what MultiKueue's account may do there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.credentials import Source
from connectors.kubernetes.decode import ORIGIN_LABEL
from connectors.kubernetes.fields import Raw, child, children, instant, text
from connectors.kubernetes.kubeconfig import Access, BadKubeconfig, parse
from connectors.kubernetes.survey.cluster import Wanted, listing, read_cluster
from connectors.kubernetes.survey.reading import Reader
from dispatcher.core.doctor.facts import CopyFacts, RemoteJob, Verb, WorkerFacts
from dispatcher.core.ports import Clock


@dataclass(frozen=True, slots=True)
class Given:
    """A kubeconfig that was already read from a Secret."""

    content: bytes

    async def read(self) -> Access:
        return parse(self.content)


async def read_worker(name: str, client: ApiClient, wanted: Wanted, clock: Clock) -> WorkerFacts:
    """Survey one worker. Raises EntrepotError when it cannot be reached."""
    reader = Reader(client)
    cluster = await read_cluster(name, reader, replace(wanted, with_nodes=True), clock)
    async with asyncio.TaskGroup() as group:
        workloads = group.create_task(
            reader.list(replace(listing("workloads"), metadata_only=True, absent_is_empty=True), _workload)
        )
        jobs = group.create_task(_foreign(reader, "Job", "jobs", "batch", "v1"))
        sets = group.create_task(_foreign(reader, "JobSet", "jobsets", "jobset.x-k8s.io", "v1alpha2"))
    seen = workloads.result()
    local = [owner for found in seen or () for owner in found[1]]
    listed = [*(jobs.result() or ()), *(sets.result() or ())]
    blind = seen is None and jobs.result() is None and sets.result() is None
    return WorkerFacts(
        cluster=replace(cluster, unread=tuple(reader.unread)),
        copies=None if seen is None else tuple(copy for copy, _ in seen if copy is not None),
        foreign_jobs=None if blind else tuple(dict.fromkeys([*local, *listed])),
    )


def _workload(raw: Raw) -> tuple[CopyFacts | None, tuple[RemoteJob, ...]]:
    """A copy with its origin, or the jobs that own a Workload of the worker itself."""
    meta = child(raw, "metadata")
    namespace, origin = text(meta, "namespace"), text(child(meta, "labels"), ORIGIN_LABEL)
    if origin:
        created = instant(meta.get("creationTimestamp"))
        return CopyFacts(namespace, text(meta, "name"), origin, created), ()
    owners = children(meta, "ownerReferences")
    return None, tuple(RemoteJob(text(owner, "kind"), namespace, text(owner, "name")) for owner in owners)


async def _foreign(reader: Reader, kind: str, plural: str, group: str, version: str) -> tuple[RemoteJob, ...] | None:
    """Job objects without an origin. The daemon's account may not list them: its view knows those with Workloads."""
    wanted = replace(
        listing(plural, group, version), metadata_only=True, label_selector=f"!{ORIGIN_LABEL}", absent_is_empty=True
    )
    return await reader.list(wanted, lambda raw: _remote(raw, kind))


def _remote(raw: Raw, kind: str) -> RemoteJob:
    meta = child(raw, "metadata")
    return RemoteJob(kind, text(meta, "namespace"), text(meta, "name"))


async def denied_to(name: str, content: bytes, verbs: tuple[Verb, ...], clock: Clock) -> tuple[Verb, ...]:
    """What the account of a kubeconfig may not do; empty also when it cannot be asked: that has a finding already."""
    source: Source = Given(content)
    try:
        await source.read()
    except BadKubeconfig:
        return ()
    client = ApiClient(name, source, clock)
    try:
        return await Reader(client).denied(verbs) or ()
    finally:
        await client.close()
