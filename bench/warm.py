"""Warm again after a start: a hub with 5,000 Workloads, a store that has decided on all of them, and one new job."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.rows import Bar, Row
from bench.warm_objects import WORKLOADS, Made, State, make, make_one, remember, silence_kueue
from dispatcher.core.errors import EntrepotError
from dispatcher.store import open_records
from tests.fleet import LocalFleet
from tests.local.daemon import ROOT, environment, free_port
from tests.local.fleet_objects import CONFIG, example_fleet
from tests.loops.jobs import H100, gang

Say = Callable[[str], None]
COUNT = int(os.environ.get("BENCH_WARM_WORKLOADS", "5000"))
STARTS = 5
BAR_S = 5.0
MIX = (*(State.FINISHED,) * 12, *(State.PLACED,) * 5, *(State.NOMINATED,) * 2, State.WAITING)
"""Of twenty Workloads; those that wait are decided on anew at each start, since no record says that they still do."""
NAIVE_SHARE = 10
"""The naive start is timed on every tenth Workload and taken ten times: it only waits for one answer after another."""


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of the process."""

    ready_s: float
    nominated_s: float
    cpu_s: float
    """CPU time of the process until then."""
    rss_mib: float


def run(say: Say) -> Sequence[Row]:
    with tempfile.TemporaryDirectory(prefix="bench-warm-") as name:
        folder = Path(name)
        hub_objects, clusters = example_fleet()
        with LocalFleet.start(folder / "fleet", hub_objects, clusters, log=say) as fleet:
            silence_kueue(fleet)
            states = [MIX[number % len(MIX)] for number in range(COUNT)]
            made = make(fleet, states, "warm")
            say(f"{len(made)} Workloads with their Jobs made")
            store = folder / "entrepot.db"
            asyncio.run(remember(store, made))
            say(f"a store of {store.stat().st_size / 2**20:.0f} MiB made")
            starts = [_start(fleet, folder, number, say) for number in range(STARTS)]
            naive_s = _naive_s(fleet, store, made)
            say(f"naive: {naive_s:.1f} s")
    return _rows(starts, naive_s)


def _rows(starts: Sequence[Start], naive_s: float) -> list[Row]:
    def median(of: Callable[[Start], float]) -> float:
        return statistics.median(of(start) for start in starts)

    peer, bar = "one read a Workload and a decision", Bar("value", "at most", BAR_S)
    return [
        Row("process start to ready", median(lambda s: s.ready_s), "s", peer, naive_s, bar),
        Row("process start to a new job's nomination", median(lambda s: s.nominated_s), "s", peer, naive_s, bar),
        Row("the slowest of these starts", max(s.nominated_s for s in starts), "s"),
        Row("CPU time until the nomination", median(lambda s: s.cpu_s), "s"),
        Row("resident memory then", median(lambda s: s.rss_mib), "MiB"),
        Row("Workloads on the hub", COUNT, "workloads"),
    ]


def _start(fleet: LocalFleet, folder: Path, number: int, say: Say) -> Start:
    """One start with a job waiting, killed when that has its nomination."""
    manifest = gang(f"new-{number}", gpus=1, product=H100)
    with fleet.hub.api() as api, httpx.Client(timeout=5.0, trust_env=False) as asking:
        new = make_one(api, f"new-{number}", State.WAITING, manifest)
        listen = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "dispatcher.cli.main", "serve", "--blueprint", str(CONFIG)]
        command += ["--store", str(folder / "entrepot.db"), "--listen", listen]
        command += ["--kubeconfig", str(fleet.daemon_kubeconfig_path)]
        with (folder / f"daemon-{number}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=environment())
        started_s = time.monotonic()
        try:
            ready_s = _until(lambda: _answers(asking, listen), process, started_s)
            path = f"{WORKLOADS.format(new.namespace)}/{new.name}"
            nominated_s = _until(
                lambda: api.request("GET", path)["status"].get("nominatedClusterNames"), process, started_s
            )
            found = Start(ready_s, nominated_s, _cpu_s(process.pid), _rss_mib(process.pid))
        finally:
            process.kill()
            process.wait()
    say(f"start {number}: ready {found.ready_s:.2f} s, nominated {found.nominated_s:.2f} s, CPU {found.cpu_s:.2f} s")
    return found


def _answers(asking: httpx.Client, listen: str) -> bool:
    """By a client that is made once: to make one takes as long as to wait for the next question."""
    with suppress(httpx.HTTPError):
        return asking.get(f"http://{listen}/readyz").status_code == 200
    return False


def _until(happened: Callable[[], object], process: subprocess.Popen[bytes], started_s: float) -> float:
    while not happened():
        assert process.poll() is None, "the daemon ended"
        assert time.monotonic() - started_s < 300, "the daemon does not get warm"
        time.sleep(0.05)
    return time.monotonic() - started_s


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _naive_s(fleet: LocalFleet, store: Path, made: Sequence[Made]) -> float:
    """What a start costs that asks for each Workload, and for its newest decision, by name."""
    part = made[::NAIVE_SHARE]

    async def decisions() -> None:
        records = await open_records(store)
        try:
            for one in part:
                with suppress(EntrepotError):
                    await records.decisions_of(f"{one.namespace}/{one.name}", 1)
        finally:
            await records.close()

    started_s = time.monotonic()
    with fleet.hub.api() as api:
        for one in part:
            api.request("GET", f"{WORKLOADS.format(one.namespace)}/{one.name}")
    asyncio.run(decisions())
    return (time.monotonic() - started_s) * len(made) / len(part)
