"""The errand of `blueprint diff`: the rendered objects of a blueprint against a hub and its workers, as they stand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.kubernetes import connect_hub_client, source_of
from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.objects import list_objects
from dispatcher.config.blueprint import Blueprint
from dispatcher.config.diff import OWNED_KINDS, ObjectDifference, diff
from dispatcher.config.render import Manifest, render
from dispatcher.core.errors import EntrepotError
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import Policy
from dispatcher.core.ports import Clock

HUB = "hub"
NOT_LOOKED_AT = "not looked at: its kubeconfig is a Secret of the hub"
CLUSTER_DEADLINE_S = 30.0
_ON_HUB = ("Namespace", *OWNED_KINDS)
_ON_WORKER = ("Namespace", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass")


@dataclass(frozen=True, slots=True)
class ClusterDiff:
    """One cluster against the blueprint. `error`: why it was not read at all; `unread`: kinds that were not."""

    name: str
    differences: tuple[ObjectDifference, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """`kubeconfig` None: the pod's own account. `only` None: all clusters of the blueprint."""

    kubeconfig: Path | None
    only: tuple[ClusterName, ...] | None = None


async def diff_fleet(
    options: DiffOptions, blueprint: Blueprint, policy: Policy, clock: Clock, progress: Callable[[str], None]
) -> tuple[ClusterDiff, ...]:
    """The hub, then the workers in the order of the blueprint; the workers are read side by side.

    What a cluster does is never raised: one that cannot be read says why. Workers are reached as the daemon does it;
    those whose kubeconfig is a Secret of the hub are not looked at where the hub does not answer.

    Raises:
        ValueError: `only` names a cluster that the blueprint does not have.
    """
    rendered = render(blueprint, only=options.only)
    hub = connect_hub_client(options.kubeconfig, clock)

    async def get_secret(namespace: str, name: str) -> Mapping[str, Any]:
        return await hub.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")

    clients = {
        name: ApiClient(name, source_of(policy.clusters[name].credentials, get_secret), clock)
        for name in rendered.workers
    }
    try:
        progress("reading the hub")
        first = await _read(HUB, hub, rendered.hub, _ON_HUB)
        lost = [name for name in clients if first.error is not None and policy.clusters[name].credentials.file is None]
        if open_ := [name for name in clients if name not in lost]:
            progress(f"reading {', '.join(open_)}")
        async with asyncio.TaskGroup() as group:
            tasks = {
                name: group.create_task(_read(name, clients[name], rendered.workers[name], _ON_WORKER))
                for name in open_
            }
        return (
            first,
            *(tasks[name].result() if name in tasks else ClusterDiff(name, error=NOT_LOOKED_AT) for name in clients),
        )
    finally:
        for client in (hub, *clients.values()):
            await client.close()


async def _read(name: str, client: ApiClient, wanted: Sequence[Manifest], kinds: Sequence[str]) -> ClusterDiff:
    try:
        async with asyncio.timeout(CLUSTER_DEADLINE_S):
            seen = await list_objects(client, kinds)
    except TimeoutError:
        return ClusterDiff(name, error=f"not read within {CLUSTER_DEADLINE_S:g} s")
    except EntrepotError as error:
        return ClusterDiff(name, error=str(error))
    unread = frozenset(kind for kind, _ in seen.unread)
    return ClusterDiff(name, diff(wanted, seen.objects, unread), seen.unread)
