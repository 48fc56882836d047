"""Somebody sets the wall clock by hours while the daemon runs on real clusters: nothing that it timed notices."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import LocalFleet
from tests.local.daemon import ROOT, Hub, Running, environment, free_port, is_ready, wait_for
from tests.local.faulty import NAMESPACE, Bed, behind_proxies, made_once
from tests.loops.jobs import H100, H200, gang

pytestmark = pytest.mark.local
HOUR_S = 3600
WATCHED_S = 6.0
LEASE = "/apis/coordination.k8s.io/v1/namespaces/entrepot-system/leases/entrepot"


@pytest.fixture(scope="module")
def machine(local_fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bed, Path]]:
    """A daemon behind proxies that stands for election, on a wall clock of its own: the file says how it is set."""
    folder = tmp_path_factory.mktemp("clock")
    set_by = folder / "set-by"
    set_by.write_text("0")
    with local_fleet.hub.api() as api, contextlib.suppress(Exception):
        api.request("DELETE", LEASE)
    with behind_proxies(local_fleet, folder) as (found, kubeconfig, blueprint):
        listen = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "tests.local.jumping_clock", str(set_by), str(blueprint)]
        command += [str(folder / "entrepot.db"), listen, str(kubeconfig)]
        with (folder / "daemon.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=environment())
        running = Running(process, f"http://{listen}", folder)
        try:
            wait_for(lambda: is_ready(running), 60, lambda: running.log()[-3000:])
            bed = Bed(local_fleet, found, Hub(local_fleet), running, folder)
            bed.wait_connected(*local_fleet.workers)
            wait_for(lambda: bool(running.get("/healthz")["leader"]["leading"]), 40, bed.tell)
            yield bed, set_by
        finally:
            found.mend()
            running.stop()


def set_clock(set_by: Path, seconds: float) -> None:
    part = set_by.with_suffix(".part")
    part.write_text(str(seconds))
    part.replace(set_by)


def state(bed: Bed, job: str) -> dict[str, Any]:
    """What a jump must not change."""
    clusters = bed.running.get("/v1/clusters")["items"]
    return {
        "links": {c["name"]: c["link"] for c in clusters if c["name"] in bed.fleet.workers},
        "holds": {c["name"]: c["holds"] for c in clusters if c["holds"]},
        "ready": is_ready(bed.running),
        "term": bed.running.get("/healthz")["leader"]["term"],
        "placed": bed.placed(job),
        "attempts": bed.why(job)["decision"]["attempt"],
    }


@pytest.mark.parametrize("hours", [6, -3], ids=["six hours forwards", "three hours backwards"])
def test_no_hold_ends_no_cluster_ages_and_nobody_loses_patience_or_the_lease_when_it_jumps(
    machine: tuple[Bed, Path], hours: int
) -> None:
    bed, set_by = machine
    held, job = gang(f"clock-held{hours}", gpus=1, product=H100), f"clock-held{hours}"
    tag = f"clock-by{hours}".replace("-", "m")
    with bed.fleet.frozen("onprem-eu-kueue"):  # what is nominated there is not admitted: its hold stays
        bed.latencies([held])
        wait_for(lambda: state(bed, job)["holds"] == {"onprem-eu": 1}, 10, bed.tell)
        before = state(bed, job)
        set_clock(set_by, hours * HOUR_S)
        until = time.monotonic() + WATCHED_S
        while time.monotonic() < until:
            assert state(bed, job) == before
            time.sleep(0.2)
        jobs = [gang(f"{tag}-{n}", gpus=1, product=H200, duration="1s") for n in range(3)]
        bed.latencies(jobs)
        bed.proxies["cloud-c-us"].cut()
        lost_s = bed.wait_lost("cloud-c-us")
        bed.proxies["cloud-c-us"].mend()
        bed.wait_connected("cloud-c-us")
        assert state(bed, job)["placed"] == before["placed"]
    bed.settle([held, *jobs])
    set_clock(set_by, 0)
    print(f"\nset by {hours} h; a cluster that was then cut off was lost after {lost_s:.1f} s", file=sys.stderr)
    found = bed.hub.workloads(NAMESPACE)
    assert made_once(bed.fleet, [found[m["metadata"]["name"]]["metadata"]["name"] for m in (held, *jobs)]) == {}
    jumps = [json.loads(line) for line in bed.running.log().splitlines() if '"clock_jumped"' in line]
    assert any(abs(jump["wall_clock_ahead_s"] - hours * HOUR_S) < 60 for jump in jumps), jumps
