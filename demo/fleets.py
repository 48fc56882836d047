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
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx

from connectors.embedded import FastClock
from demo.jobs import Manifest
from dispatcher.app.daemon import Daemon
from dispatcher.app.serve import embedded_fleet, embedded_surroundings, load_or_refuse
from dispatcher.config.render import render
from dispatcher.runtime import SystemClock
from dispatcher.store import open_store

SPEED = 5.0
LOCAL_WORKERS = ("onprem-eu", "cloud-a-fi", "cloud-c-us")
ROOT = Path(__file__).resolve().parents[1]
STOP_S = 20.0
PLURALS = {"Job": "apis/batch/v1", "JobSet": "apis/jobset.x-k8s.io/v1alpha2"}


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
    """A hub with a real apiserver."""

    server: str
    hub: httpx.AsyncClient

    async def submit(self, manifest: Manifest) -> None:
        kind, namespace = manifest["kind"], manifest["metadata"]["namespace"]
        path = f"/{PLURALS[kind]}/namespaces/{namespace}/{kind.lower()}s"
        answer = await self.hub.post(path, json=manifest)
        answer.raise_for_status()


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
    from tests.fleet import LocalFleet
    from tests.fleet.kind import KindFleet

    _, first = load_or_refuse(blueprint, SystemClock())
    hub_objects, clusters = fleet_objects(first)
    starter = KindFleet if kind == "kind" else LocalFleet
    fleet = await asyncio.to_thread(starter.start, state / kind, hub_objects, clusters, log=_say)
    try:
        server = f"http://{listen}"
        async with (
            _daemon_process(blueprint, state / f"{kind}.sqlite", fleet.hub.kubeconfig_path, listen, state),
            httpx.AsyncClient(
                base_url=fleet.hub.server_url,
                headers={"Authorization": f"Bearer {fleet.hub.token}"},
                verify=_trust(fleet.hub.ca_pem),
                timeout=20.0,
                trust_env=False,
            ) as hub,
        ):
            yield ClusterStage(server, hub)
    finally:
        await asyncio.to_thread(fleet.stop)


def fleet_objects(first: Any, only: tuple[str, ...] = LOCAL_WORKERS) -> tuple[list[Mapping[str, Any]], list[Any]]:
    """What `render` makes of the blueprint for a hub and some of its workers, as the fleets take it."""
    from tests.fleet import FleetCluster, FleetNode

    rendered = render(first.blueprint, only=only)
    clusters = [
        FleetCluster(
            name=name,
            objects=list(rendered.workers[name]),
            nodes=[
                FleetNode(name=n.name, labels=dict(n.labels), taints=list(n.taints), capacity=dict(n.capacity))
                for n in rendered.nodes[name]
            ],
        )
        for name in only
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


def _trust(ca_pem: bytes) -> Any:
    import ssl

    return ssl.create_default_context(cadata=ca_pem.decode())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
