"""What hub and workers have in common: versions, clock, permissions, queues, flavors, nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TypeVar

from connectors.kubernetes import decode_nodes, decode_queues
from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.fields import Raw, child, children, condition, text, texts
from connectors.kubernetes.survey.kueue_config import CONFIG_MAP, configuration, floor_of, manager_of, version_of
from connectors.kubernetes.survey.permissions import KUEUE
from connectors.kubernetes.survey.reading import CALL_S, Listing, Reader
from dispatcher.core.doctor.facts import (
    WRITE_WORKLOADS,
    Active,
    ClusterFacts,
    KueueConfig,
    KueueVersion,
    QueueChecks,
    Skew,
    Verb,
)
from dispatcher.core.errors import EntrepotError
from dispatcher.core.ports import Clock
from dispatcher.core.snapshot import ClusterQueueView, NodeView

K = TypeVar("K")
V = TypeVar("V")

API = f"/apis/{KUEUE}/v1beta2"
_ONE_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to ask a cluster: `groups` whose kinds matter, whether nodes and namespaces do, and the permissions.

    Those of `optional` are nobody's fault to lack: whether they are missed is for the blueprint to say."""

    kueue_namespace: str
    verbs: tuple[Verb, ...]
    groups: tuple[str, ...] = ()
    with_nodes: bool = False
    optional: tuple[Verb, ...] = (WRITE_WORKLOADS,)


def listing(resource: str, group: str = KUEUE, version: str = "v1beta2") -> Listing:
    """A collection over all namespaces."""
    base = f"/apis/{group}/{version}" if group else "/api/v1"
    return Listing(Verb("list", group, resource), f"{base}/{resource}")


async def read_cluster(name: str, reader: Reader, wanted: Wanted, clock: Clock) -> ClusterFacts:
    """Everything that is read of every cluster.

    Raises:
        EntrepotError: the cluster cannot be reached, or does not know us; nothing else is an error.
    """
    client = reader.client
    await client.refresh()
    version = await client.get("/version", deadline_s=CALL_S)
    async with asyncio.TaskGroup() as group:
        skew = group.create_task(_skew(client, clock))
        identity = group.create_task(_identity(client))
        served = group.create_task(reader.get(f"{KUEUE}/v1beta2", API, quiet=True))
        account = group.create_task(reader.account())
        denied = group.create_task(reader.denied((*wanted.verbs, *wanted.optional)))
        kueue = group.create_task(_kueue(reader, wanted.kueue_namespace))
        kinds = group.create_task(_kinds(reader, wanted.groups))
        nodes = group.create_task(_nodes(reader)) if wanted.with_nodes else None
        spaces = group.create_task(_namespaces(reader)) if wanted.with_nodes else None
    installed, config = kueue.result()
    lacks = denied.result()
    facts = ClusterFacts(
        name=name,
        kubernetes=text(version, "gitVersion") or None,
        identity=identity.result(),
        kueue_served=served.result() is not None,
        kueue=installed,
        config=config,
        skew=skew.result(),
        denied=None if lacks is None else tuple(verb for verb in lacks if verb in wanted.verbs),
        not_granted=tuple(verb for verb in lacks or () if verb not in wanted.verbs),
        account=account.result(),
        kinds=kinds.result(),
        nodes=nodes.result() if nodes is not None else None,
        namespaces=spaces.result() if spaces is not None else None,
    )
    return await _with_queues(reader, facts) if facts.kueue_served else facts


async def _with_queues(reader: Reader, facts: ClusterFacts) -> ClusterFacts:
    async with asyncio.TaskGroup() as group:
        queues = group.create_task(reader.list(listing("clusterqueues"), _queue))
        cohorts = group.create_task(reader.list(listing("cohorts"), decode_queues.cohort))
        locals_ = group.create_task(reader.list(listing("localqueues"), decode_queues.local_queue))
        flavors = group.create_task(reader.list(listing("resourceflavors"), decode_queues.flavor))
    found = queues.result()
    return replace(
        facts,
        queues=None if found is None else {str(queue.name): queue for queue, _ in found},
        queue_checks={str(queue.name): checks for queue, checks in found or ()},
        cohorts=_by(lambda cohort: cohort.name, cohorts.result()),
        local_queues=_by(lambda local: (local.namespace, local.name), locals_.result()),
        flavors=_by(lambda flavor: str(flavor.name), flavors.result()),
    )


def _by(key: Callable[[V], K], values: Iterable[V] | None) -> Mapping[K, V] | None:
    return None if values is None else {key(value): value for value in values}


def active_of(raw: Raw) -> Active:
    """The condition Active of any Kueue object."""
    found = condition(raw, "Active")
    return Active(found.holds, bool(found.status), found.reason, found.message)


def _queue(raw: Raw) -> tuple[ClusterQueueView, QueueChecks]:
    strategy = child(raw, "spec", "admissionChecksStrategy")
    checks = [(text(entry, "name"), texts(entry, "onFlavors")) for entry in children(strategy, "admissionChecks")]
    selector = decode_queues.namespace_selector(raw)
    return decode_queues.cluster_queue(raw), QueueChecks(active_of(raw), tuple(checks), selector)


async def _skew(client: ApiClient, clock: Clock) -> Skew | None:
    """The Date header says when the answer was made, to the second; it was made between our two looks at the clock."""
    before = clock.now()
    try:
        headers = await client.headers("/version")
    except EntrepotError:
        return None
    after = clock.now()
    value = next((value for key, value in headers.items() if key.lower() == "date"), "")
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    low, high = date - after, date + _ONE_SECOND - before
    return Skew(round(low.total_seconds() * 1000), round(high.total_seconds() * 1000))


async def _identity(client: ApiClient) -> str | None:
    try:
        return await client.identity()
    except EntrepotError:
        return None


async def _kueue(reader: Reader, namespace: str) -> tuple[KueueVersion, KueueConfig | None]:
    """Version and configuration, as far as the account may see them; the served API gives a version's lower bound."""
    deployments = await reader.list(
        Listing(Verb("list", "apps", "deployments", namespace), f"/apis/apps/v1/namespaces/{namespace}/deployments"),
        lambda raw: raw,
    )
    manager = manager_of(deployments or ())
    version = version_of(manager)
    if version.exact is None:
        openapi = await reader.get("OpenAPI of Kueue", f"/openapi/v3{API}", quiet=True)
        version = replace(version, floor=floor_of(openapi or {}))
    what = f"ConfigMap {namespace}/{CONFIG_MAP}"
    config_map = await reader.get(what, f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}")
    return version, configuration(config_map, manager) if config_map is not None else None


async def _kinds(reader: Reader, groups: tuple[str, ...]) -> frozenset[tuple[str, str]] | None:
    """(group, kind) of what is served in those groups, in any version."""
    listed = await reader.get("/apis", "/apis")
    if listed is None:
        return None
    found: set[tuple[str, str]] = set()
    for entry in children(listed, "groups"):
        name = text(entry, "name")
        if name not in groups:
            continue
        for version in children(entry, "versions"):
            path = f"/apis/{text(version, 'groupVersion')}"
            resources = await reader.get(path, path)
            if resources is None:
                return None
            found |= {(name, text(resource, "kind").lower()) for resource in children(resources, "resources")}
    return frozenset(found)


async def _nodes(reader: Reader) -> tuple[NodeView, ...] | None:
    return await reader.list(listing("nodes", "", "v1"), decode_nodes.node)


async def _namespaces(reader: Reader) -> dict[str, dict[str, str]] | None:
    wanted = replace(listing("namespaces", "", "v1"), metadata_only=True)
    listed = await reader.list(wanted, decode_nodes.namespace)
    if listed is None:
        return None
    found = {each.name: dict(each.labels) for each in listed if each is not None}
    return {name: found[name] for name in sorted(found)}
