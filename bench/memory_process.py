"""What the memory bench measures, as a process of its own: `python -m bench.memory_process HOW FOLDER SIZE`.

It prints its figures as JSON. `entrepot`: the daemon's connectors, state and dispatch, on a store of its own. `dicts`:
the naive way, every object kept as it was decoded. Both read the same fleet from the same server, page by page.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.memory_server import CHURN, PODS, Size, hub_collections, worker_collections
from connectors.kubernetes import connect_hub, connect_worker
from connectors.kubernetes.client import JSON, ApiClient
from connectors.kubernetes.credentials import FileSource
from connectors.kubernetes.watch import WatchSettings
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import Credentials, Policy
from dispatcher.core.ports import HubPort, WorkerPort
from dispatcher.loops import dispatch, notify
from dispatcher.loops.dispatch import DispatchLoop
from dispatcher.loops.notify import NoticeLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, SystemClock, Waker, calm_collector
from dispatcher.state import BlueprintStatus, FleetState
from dispatcher.store import open_store
from tests import core_builders as builders

LOOK_S = 0.01


@dataclass(slots=True)
class Heartbeat:
    """How long the event loop was away: it should come round every `LOOK_S`."""

    away_s: list[float] = field(default_factory=list)

    async def run(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.perf_counter()
            self.away_s.append(max(0.0, now - last - LOOK_S))
            last = now

    def take(self) -> dict[str, float]:
        """The figures since the last time, in milliseconds."""
        seen, self.away_s = sorted(self.away_s) or [0.0], []
        return {"longest_ms": seen[-1] * 1000, "p99_ms": seen[int(len(seen) * 0.99)] * 1000}


def memory_mib() -> dict[str, float]:
    """What the kernel counts as ours: resident now, and the most it ever was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return {"steady": kib["VmRSS"] / 1024, "peak": kib["VmHWM"] / 1024}


def policy_of(size: Size) -> Policy:
    """A blueprint that knows every worker, its price and its flavor."""
    sites = [builders.site(name) for name in size.names]
    return builders.policy(sites=sites)


async def until(done: Callable[[], bool], within_s: float = 900.0) -> float:
    started = time.monotonic()
    while not done():
        if time.monotonic() - started > within_s:
            raise SystemExit("the fleet was not read in time")
        await asyncio.sleep(1.0)
    return time.monotonic() - started


async def entrepot(size: Size, folder: Path) -> dict[str, Any]:
    calm_collector()
    clock, beat, figures = SystemClock(), Heartbeat(), dict[str, Any]()
    started = memory_mib()["steady"]
    hub = connect_hub(folder / "hub.kubeconfig", clock)
    workers: dict[ClusterName, WorkerPort] = {}
    for name in map(ClusterName, size.names):
        workers[name] = connect_worker(name, Credentials(file=str(folder / f"{name}.kubeconfig")), hub, clock)
    loop, state = await _dispatch(size, folder, hub, workers)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(beat.run()), group.create_task(hub.run(_ignore))]
        tasks += [group.create_task(worker.run(_ignore)) for worker in workers.values()]
        figures["read_s"] = await until(lambda: hub.view().synced and all(w.view().synced for w in workers.values()))
        figures["reading"] = {**memory_mib(), **beat.take()}
        _say(figures)
        decided = time.monotonic()
        await loop.turn()
        figures["decide_s"] = time.monotonic() - decided
        assert len(state.latest) == size.workloads, f"{len(state.latest)} decisions"
        figures["decided"] = {**memory_mib(), **beat.take()}
        _say(figures)
        await _churn(size, folder)
        await loop.turn()
        figures["changed"] = {**memory_mib(), **beat.take()}
        figures["started"] = started
        figures["nodes"] = sum(len(worker.view().nodes) for worker in workers.values())
        gc.collect()
        figures["at_rest"] = memory_mib()
        for task in tasks:
            task.cancel()
    return figures


async def _dispatch(
    size: Size, folder: Path, hub: HubPort, workers: dict[ClusterName, WorkerPort]
) -> tuple[DispatchLoop, FleetState]:
    clock, policy, metrics = SystemClock(), policy_of(size), Metrics()
    health = Health(clock)
    for name in (dispatch.LOOP, notify.LOOP):
        health.register(name, 1e9)
    state = FleetState(clock, policy, BlueprintStatus(policy.digest, clock.now()), hub, workers)
    notices = NoticeLoop(hub, clock, metrics, health, Waker(clock))
    store = await open_store(folder / "entrepot.db")
    return DispatchLoop(state, store, notices, metrics, health, Waker(clock)), state


async def _churn(size: Size, folder: Path) -> None:
    for name in size.names:
        client = ApiClient(name, FileSource(folder / f"{name}.kubeconfig"), SystemClock())
        await client.get(CHURN)
        await client.close()
    await asyncio.sleep(2.0)


def _ignore() -> None:
    pass


def _say(figures: dict[str, Any]) -> None:
    """Progress, for whoever waits: the figures so far."""
    print(json.dumps(figures), file=sys.stderr, flush=True)


async def dicts(size: Size, folder: Path) -> dict[str, Any]:
    """What a client library's cache holds: the decoded objects, by key."""
    beat, held, started = Heartbeat(), dict[tuple[str, str], dict[tuple[str, str], Any]](), memory_mib()["steady"]
    limit = str(WatchSettings().page_objects)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(beat.run())
        for cluster in ("hub", *size.names):
            client = ApiClient(cluster, FileSource(folder / f"{cluster}.kubeconfig"), SystemClock())
            paths = hub_collections(size) if cluster == "hub" else worker_collections(cluster, size)
            for path in paths:
                found = held[cluster, path] = {}
                token = ""
                while True:
                    page = await client.page(path, {"limit": limit, **({"continue": token} if token else {})}, JSON)
                    for raw in page["items"]:
                        found[raw["metadata"].get("namespace", ""), raw["metadata"]["name"]] = raw
                    if not (token := page["metadata"]["continue"]):
                        break
            await client.close()
        task.cancel()
    pods = sum(len(found) for (_, path), found in held.items() if path == PODS)
    return {"started": started, "decided": {**memory_mib(), **beat.take()}, "objects": pods}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=("entrepot", "dicts"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("size", type=int, nargs=4)
    options = parser.parse_args()
    measure = entrepot if options.how == "entrepot" else dicts
    print(json.dumps(asyncio.run(measure(Size(*options.size), options.folder))))


if __name__ == "__main__":
    main()
