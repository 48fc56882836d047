"""The store is full or gone, beside real clusters: no new commitment, running work left alone, and on it goes."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.builders import Manifest
from tests.fleet import LocalFleet
from tests.local.daemon import ROOT, Hub, Running, environment, free_port, is_ready, wait_for
from tests.local.faulty import NAMESPACE, made_once, tries
from tests.local.fleet_objects import CONFIG
from tests.loops.jobs import B200, H100, H200, gang
from tests.postgres import PASSWORD, PostgresServer

pytestmark = pytest.mark.local
AWAY_S = 5.0
DISK_MIB = 6


@dataclass(slots=True)
class Stored:
    """A daemon, and how its store is taken away and given back."""

    running: Running
    take: Callable[[], None]
    give: Callable[[], None]
    says: str
    """What of the database's own words must be in the log."""


def serve(fleet: LocalFleet, folder: Path, store: str, before: tuple[str, ...] = (), *more: str) -> Running:
    """`entrepot serve` on a store, by way of another program if `before` names one; ready on return."""
    folder.mkdir(parents=True, exist_ok=True)
    listen = f"127.0.0.1:{free_port()}"
    command = [*before, sys.executable, "-m", "dispatcher.cli.main", "serve", "--blueprint", str(CONFIG), *more]
    command += ["--listen", listen, "--kubeconfig", str(fleet.daemon_kubeconfig_path)]
    with (folder / "daemon.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=ROOT, env={**environment(), "ENTREPOT_STORE": store}
        )
    running = Running(process, f"http://{listen}", folder)
    wait_for(lambda: is_ready(running), 60, lambda: running.log()[-3000:])
    return running


@contextlib.contextmanager
def on_a_small_disk(fleet: LocalFleet, folder: Path, _: PostgresServer) -> Iterator[Stored]:
    disk = folder / "disk"
    disk.mkdir()
    mount = (sys.executable, "-I", str(Path(__file__).with_name("small_disk.py")), str(disk), str(DISK_MIB))
    running = serve(fleet, folder, str(disk / "entrepot.db"), mount)
    ballast = Path(f"/proc/{running.process.pid}/root{disk}/ballast")

    def fill() -> None:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)

    try:
        yield Stored(running, fill, ballast.unlink, "full")
    finally:
        running.stop()


@contextlib.contextmanager
def on_postgresql(fleet: LocalFleet, folder: Path, server: PostgresServer) -> Iterator[Stored]:
    running = serve(fleet, folder, server.database(), (), "--no-ha")
    try:
        yield Stored(running, server.stop, server.start, "connection")
    finally:
        if server.process is None:
            server.start()
        running.stop()


STORES = {"the disk under it is full": on_a_small_disk, "its PostgreSQL is stopped": on_postgresql}


def batch(prefix: str, count: int) -> list[Manifest]:
    return [gang(f"{prefix}-{n}", gpus=1, product=(H100, H200, B200)[n % 3], duration="1s") for n in range(count)]


def failures(running: Running) -> float:
    text = httpx.get(f"{running.server}/metrics", trust_env=False).text
    found = re.search(r"^entrepot_store_failures_total (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("on_store", STORES.values(), ids=STORES.keys())
def test_a_store_promises_nothing_touches_nothing_and_goes_on_afterwards_when(
    local_fleet: LocalFleet, postgres: PostgresServer, tmp_path: Path, on_store: Callable[..., object]
) -> None:
    tag, hub = list(STORES.values()).index(on_store), Hub(local_fleet)  # type: ignore[arg-type]
    runs = gang(f"store-runs-{tag}", gpus=1, product=H200, duration="600s")
    jobs = batch(f"store-waits-{tag}", 3)
    with on_store(local_fleet, tmp_path, postgres) as stored:  # type: ignore[attr-defined]
        running = stored.running
        hub.create(runs)
        name = runs["metadata"]["name"]
        wait_for(lambda: bool(status(hub, name).get("clusterName")), 60, lambda: running.log()[-3000:])
        placed = status(hub, name)["clusterName"]

        stored.take()
        before = failures(running)
        for manifest in jobs:
            hub.create(manifest)
        names = {m["metadata"]["name"] for m in jobs}
        wait_for(lambda: names <= hub.workloads(NAMESPACE).keys(), 20)
        workloads = [hub.workloads(NAMESPACE)[n]["metadata"]["name"] for n in sorted(names)]
        wait_for(lambda: failures(running) > before or "nomination_not_made" in running.log(), 30)
        time.sleep(AWAY_S)
        assert tries(local_fleet, workloads) == {name: [] for name in workloads}, "what is not stored is not promised"
        assert status(hub, name)["clusterName"] == placed
        assert running.process.poll() is None
        assert running.get("/healthz")["ok"]
        assert len(running.get("/v1/clusters")["items"]) >= 3
        lines = [line for line in running.log().splitlines() if '"store' in line or '"nomination_not_made"' in line]
        assert any(stored.says in line for line in lines), lines[-5:]
        assert len(lines) < 12 * len(jobs), "it says so, and does not shout"
        assert PASSWORD not in running.log()
        print(f"\n{len(lines)} lines, such as: {lines[-1][:300]}", file=sys.stderr)

        stored.give()
        back_s = wait_for(lambda: hub.finished(NAMESPACE, sorted(names)), 90, lambda: running.log()[-3000:])
        print(f"all finished {back_s:.1f} s after the store was back", file=sys.stderr)
        assert made_once(local_fleet, workloads) == {}
        assert status(hub, name)["clusterName"] == placed
        hub.delete(runs)
        wait_for(lambda: name not in hub.workloads(NAMESPACE), 60)


def status(hub: Hub, job: str) -> dict[str, object]:
    found: dict[str, object] = hub.workloads(NAMESPACE).get(job, {}).get("status", {})
    return found
