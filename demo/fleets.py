"""The fleets that the demo can run on, behind one small interface: start a daemon on it, submit a manifest.

embedded   in memory, in this process; nothing else is needed
local      a real hub and three workers as plain processes on loopback (docs/fleets.md)
kind       the same in containers, for people with a container engine
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from connectors.embedded import FastClock
from demo.jobs import Manifest
from dispatcher.app.daemon import Daemon
from dispatcher.app.serve import embedded_fleet, embedded_surroundings, load_or_refuse
from dispatcher.config import LoadResult
from dispatcher.config.render import render
from dispatcher.core.ids import ClusterName
from dispatcher.runtime import SystemClock
from dispatcher.store import open_store
from tests.fleet import FleetCluster, FleetNode, LocalFleet
from tests.fleet.kind import commands
from tests.fleet.kind.render import HUB_NAME, daemon_kubeconfig_path, kubeconfig_path

SPEED = 5.0
LOCAL_WORKERS = ("onprem-eu", "cloud-a-fi", "cloud-c-us")
ROOT = Path(__file__).resolve().parents[1]
STOP_S = 20.0
GROUPS = {"Job": "apis/batch/v1", "JobSet": "apis/jobset.x-k8s.io/v1alpha2"}


Objects = list[Mapping[str, Any]]
Hub = tuple[Path, Callable[[Manifest], object]]


class Stage(Protocol):
    """A fleet with a daemon on it."""

    server: str

    async def submit(self, manifest: Manifest) -> None: ...


@dataclass(slots=True)
class EmbeddedStage:
    server: str
    fleet: Any

    async def submit(self, manifest: Manifest) -> None:
        self.fleet.submit(manifest)


@dataclass(slots=True)
class ClusterStage:
    """A hub with a real apiserver; `create` makes one object on it, as `kubectl create` does."""

    server: str
    create: Callable[[Manifest], object]

    async def submit(self, manifest: Manifest) -> None:
        await asyncio.to_thread(self.create, manifest)


@contextlib.asynccontextmanager
async def stage(fleet: str, blueprint: Path, state: Path, listen: str) -> AsyncIterator[Stage]:
    """Start the fleet and the daemon; both end with the context."""
    if fleet == "embedded":
        async with _embedded(blueprint, state, listen) as found:
            yield found
    else:
        async with _clusters(fleet, blueprint, state, listen) as real:
            yield real


@contextlib.asynccontextmanager
async def _embedded(blueprint: Path, state: Path, listen: str) -> AsyncIterator[Stage]:
    system = SystemClock()
    policy, first = load_or_refuse(blueprint, system)
    clock = FastClock(SPEED, system.now())
    fleet = embedded_fleet(first, clock)
    store = await open_store(state / "embedded.sqlite")
    try:
        daemon = Daemon(embedded_surroundings(fleet, blueprint, clock, first), policy, store, listen)
        assert daemon.server is not None
        async with asyncio.TaskGroup() as group:
            task = group.create_task(daemon.run())
            yield EmbeddedStage(f"http://{daemon.server.address}", fleet)
            task.cancel()
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def _clusters(kind: str, blueprint: Path, state: Path, listen: str) -> AsyncIterator[Stage]:
    """A fleet of real apiservers and the daemon as a process of its own, as an operator would run it."""
    _, first = load_or_refuse(blueprint, SystemClock())
    start = _local_fleet if kind == "local" else _kind_fleet
    async with (
        start(state / kind, *fleet_objects(first)) as (kubeconfig, create),
        _daemon_process(blueprint, state / f"{kind}.sqlite", kubeconfig, listen, state),
    ):
        yield ClusterStage(f"http://{listen}", create)


@contextlib.asynccontextmanager
async def _local_fleet(folder: Path, hub_objects: Objects, clusters: Sequence[FleetCluster]) -> AsyncIterator[Hub]:
    fleet = await asyncio.to_thread(LocalFleet.start, folder, hub_objects, clusters, log=_say)
    try:
        with fleet.hub.api() as api:
            yield fleet.daemon_kubeconfig_path, lambda manifest: api.request("POST", _path(manifest), manifest)
    finally:
        await asyncio.to_thread(fleet.stop)


@contextlib.asynccontextmanager
async def _kind_fleet(folder: Path, hub_objects: Objects, clusters: Sequence[FleetCluster]) -> AsyncIterator[Hub]:
    """Written for people with a container engine and never run here (docs/fleets.md)."""
    await asyncio.to_thread(commands.up, folder, hub_objects, clusters, _say)
    kubeconfig = kubeconfig_path(folder, HUB_NAME)
    try:
        yield daemon_kubeconfig_path(folder), lambda manifest: commands.create(kubeconfig, manifest)
    finally:
        await asyncio.to_thread(commands.down, folder, _say)


def _path(manifest: Manifest) -> str:
    """Where the apiserver takes objects of this kind."""
    kind, namespace = manifest["kind"], manifest["metadata"]["namespace"]
    return f"/{GROUPS[kind]}/namespaces/{namespace}/{kind.lower()}s"


def fleet_objects(first: LoadResult, only: Sequence[str] = LOCAL_WORKERS) -> tuple[Objects, list[FleetCluster]]:
    """What `render` makes of the blueprint for a hub and some of its workers, as the fleets take it."""
    assert first.blueprint is not None
    names = [ClusterName(name) for name in only]
    rendered = render(first.blueprint, only=names)
    clusters = [
        FleetCluster(
            name=name,
            objects=list(rendered.workers[name]),
            nodes=[
                FleetNode(name=n.name, labels=dict(n.labels), taints=list(n.taints), capacity=dict(n.capacity))
                for n in rendered.nodes[name]
            ],
        )
        for name in names
    ]
    return list(rendered.hub), clusters


@contextlib.asynccontextmanager
async def _daemon_process(
    blueprint: Path, store: Path, kubeconfig: Path, listen: str, state: Path
) -> AsyncIterator[None]:
    log = (state / "daemon.log").open("wb")
    command = [sys.executable, "-m", "dispatcher.cli.main", "serve", "--blueprint", str(blueprint)]
    command += ["--store", str(store), "--kubeconfig", str(kubeconfig), "--listen", listen]
    process = await asyncio.create_subprocess_exec(*command, stderr=log, stdout=log, cwd=ROOT, env=dict(os.environ))
    try:
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        log.close()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
