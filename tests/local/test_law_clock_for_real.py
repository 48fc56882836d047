"""Somebody sets the wall clock while an exception counts, on real clusters: nothing starts after its end by that clock,
and nothing that runs is ended for what one clock alone says."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import LocalFleet
from tests.local.daemon import ROOT, Hub, Running, environment, free_port, is_ready, wait_for
from tests.local.fleet_objects import CONFIG
from tests.local.test_faults_clock_for_real import LEASE, set_clock
from tests.loops.jobs import H100, gang

pytestmark = pytest.mark.local
PATIENCE_S = 120.0
HOUR_S = 3600
WATCHED_S = 8.0
RUNS, LATE = "clock-law-runs", "clock-law-late"


def law() -> str:
    """Internal data may be used nowhere, but for two hours by an exception on one cluster."""
    now = datetime.now(UTC)
    since, until = (f"{now + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}" for hours in (-1, 1))
    return (
        "rules:\n  nowhere:\n    labels: [internal]\n    flows: [process, cache]\n    effect: forbid\n"
        "    when:\n      destination.country: {in: [DE, FI, FR, US]}\n"
        "    exceptable: {approvers: [data-office]}\n    on_change: {running: stop_now, queued: requeue}\n"
        "exceptions:\n  for-two-hours:\n    rules: [nowhere]\n"
        "    scope: {queues: [autonomy-training], clusters: [onprem-eu]}\n    reason: A test.\n    ticket: T-1\n"
        "    requested_by: asker\n    approved_by: granter\n    approver_role: data-office\n"
        f"    valid: {{from: {since}, until: {until}}}\n"
    )


@dataclass(slots=True)
class Machine:
    """A daemon on a wall clock of its own: the file says how it is set."""

    running: Running
    set_by: Path

    def set_clock(self, hours: int) -> None:
        set_clock(self.set_by, hours * HOUR_S)

    def tell(self) -> str:
        return self.running.log()[-3000:]

    def why(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.running.get(f"/v1/why/autonomy/{job}")
        return found


@pytest.fixture
def machine(local_fleet: LocalFleet, tmp_path: Path) -> Iterator[Machine]:
    shutil.copytree(CONFIG, tmp_path / "blueprint")
    (tmp_path / "blueprint" / "residency" / "for-now.yaml").write_text(law())
    set_by = tmp_path / "set-by"
    set_by.write_text("0")
    with local_fleet.hub.api() as api, contextlib.suppress(Exception):
        api.request("DELETE", LEASE)
    listen = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "tests.local.jumping_clock", str(set_by), str(tmp_path / "blueprint")]
    command += [str(tmp_path / "entrepot.db"), listen, str(local_fleet.daemon_kubeconfig_path)]
    with (tmp_path / "daemon.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=environment())
    found = Machine(Running(process, f"http://{listen}", tmp_path), set_by)
    try:
        wait_for(lambda: is_ready(found.running), PATIENCE_S, found.tell)
        wait_for(lambda: bool(found.running.get("/healthz")["leader"]["leading"]), PATIENCE_S, found.tell)
        yield found
    finally:
        found.running.stop()


def cluster_of(hub: Hub, job: str) -> str:
    return str(hub.workloads("autonomy").get(job, {}).get("status", {}).get("clusterName") or "")


def test_an_exception_ends_by_the_wall_clock_for_what_would_start_and_by_both_for_what_runs(
    machine: Machine, local_fleet: LocalFleet
) -> None:
    hub = Hub(local_fleet)
    runs, late = (
        gang(name, gpus=1, product=H100, duration="600s", says={"datasets": "radar-2026"}) for name in (RUNS, LATE)
    )
    hub.create(runs)
    wait_for(lambda: cluster_of(hub, RUNS) == "onprem-eu", PATIENCE_S, machine.tell)
    machine.set_clock(hours=2)
    wait_for(lambda: bool(machine.why(RUNS)["findings"]), PATIENCE_S, machine.tell)
    (finding,) = machine.why(RUNS)["findings"]
    assert (finding["code"], finding["cluster"]) == ("illegal-running", "onprem-eu")
    assert "the wall clock was set" in finding["text"]
    hub.create(late)
    wait_for(lambda: LATE in hub.workloads("autonomy"), PATIENCE_S, machine.tell)
    until = time.monotonic() + WATCHED_S
    while time.monotonic() < until:
        assert (cluster_of(hub, RUNS), cluster_of(hub, LATE)) == ("onprem-eu", "")
        time.sleep(0.5)
    decided = machine.why(LATE)["decision"]
    assert decided["chosen"] is None
    onprem = next(c for c in decided["candidates"] if c["cluster"] == "onprem-eu")
    assert {r["reason"] for r in onprem["rejections"]} >= {"residency"}
    machine.set_clock(hours=0)
    wait_for(lambda: cluster_of(hub, LATE) == "onprem-eu", PATIENCE_S, machine.tell)
    wait_for(lambda: machine.why(RUNS)["findings"] == [], PATIENCE_S, machine.tell)
    assert cluster_of(hub, RUNS) == "onprem-eu"
    for manifest in (runs, late):
        hub.delete(manifest)
