"""Run the demo. With `--once` it runs to the end without a terminal and prints one JSON object as its last line."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.live import Live

from demo.fleets import ROOT, Stage, stage
from demo.jobs import manifests, name_of
from demo.screen import Answer, Picture, job_name, look, render
from dispatcher import logs

LOOK_EVERY_S = 0.5
READY_S = 60.0
LIMIT_S = 240.0
QUIET_S = 4.0
OVER = {"finished", "held"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--fleet", choices=("embedded", "local", "kind"), default="embedded")
    parser.add_argument("--once", action="store_true", help="run to the end, print one JSON object, exit")
    parser.add_argument("--blueprint", type=Path, default=ROOT / "config")
    parser.add_argument("--listen", default="127.0.0.1:8383", help="where the daemon's API listens")
    parser.add_argument("--state", type=Path, help="folder for store and logs (default: a new one)")
    options = parser.parse_args()
    logs.configure("error")
    with tempfile.TemporaryDirectory(prefix="entrepot-demo-") as fresh:
        state = options.state or Path(fresh)
        state.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(KeyboardInterrupt):
            return asyncio.run(_run(options, state))
    return 0


async def _run(options: argparse.Namespace, state: Path) -> int:
    console = Console()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with (
        stage(options.fleet, options.blueprint, state, options.listen) as found,
        httpx.AsyncClient(base_url=found.server, timeout=10.0, trust_env=False) as client,
    ):
        await _ready(client, stop)
        names = await _submit(found)
        print(f"{len(names)} jobs submitted; ask with: entrepot why JOB --server {found.server}", file=sys.stderr)
        show = _shower(console, live=console.is_terminal and not options.once)
        with show as update:
            picture = await _watch(client, names, update, stop, once=options.once)
    if options.once:
        print(json.dumps(summary(picture, names)))
    return 0


async def _ready(client: httpx.AsyncClient, stop: asyncio.Event) -> None:
    """Wait until the daemon may dispatch. Raises TimeoutError."""
    async with asyncio.timeout(READY_S):
        while not stop.is_set():
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get("/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.2)


async def _submit(found: Stage) -> list[str]:
    names = []
    for manifest in manifests():
        await found.submit(manifest)
        names.append(name_of(manifest))
    return names


@contextlib.contextmanager
def _shower(console: Console, *, live: bool) -> Any:
    """How a picture is shown: redrawn in place on a terminal, a line per change elsewhere."""
    if live:
        with Live(console=console, auto_refresh=False, screen=True) as screen:
            yield lambda picture: screen.update(render(picture), refresh=True)
        return
    seen: dict[str, str] = {}
    yield lambda picture: _print_changes(picture, seen)


def _print_changes(picture: Picture, seen: dict[str, str]) -> None:
    for workload in picture.workloads:
        name, state = job_name(workload), workload["state"]
        line = f"{state['code']:<18} {state['cluster'] or '-':<12} {name:<32} {workload['reason']}"
        if seen.get(name) != state["code"]:
            print(line, flush=True)
        seen[name] = state["code"]


async def _watch(
    client: httpx.AsyncClient,
    names: list[str],
    update: Callable[[Picture], None],
    stop: asyncio.Event,
    *,
    once: bool,
) -> Picture:
    """Show until stopped; with `once` until every job is over or nothing has moved for a while."""
    started = moved = time.monotonic()
    before: object = None
    picture = Picture([], [], [])
    while not stop.is_set():
        with contextlib.suppress(httpx.HTTPError):
            picture = await look(client)
            update(picture)
        states = {job_name(w): w["state"]["code"] for w in picture.workloads}
        if states != before:
            before, moved = states, time.monotonic()
        over = len(states) == len(names) and all(_is_over(w) for w in picture.workloads)
        quiet_s = time.monotonic() - moved
        if once and ((over and quiet_s > 1.0) or quiet_s > QUIET_S * 5 or time.monotonic() - started > LIMIT_S):
            break
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                await stop.wait()
    return picture


def _is_over(workload: Answer) -> bool:
    """Finished, held, or waiting for something that time alone does not bring."""
    if workload["state"]["code"] in OVER:
        return True
    return workload["state"]["code"] == "waiting" and workload.get("decision_id") is not None


def summary(picture: Picture, names: list[str]) -> dict[str, Any]:
    """The last line of `ONCE=1`: what was submitted, dispatched, finished, and what is held and why."""
    states = {job_name(w): w for w in picture.workloads}
    dispatched = {f"{d['namespace']}/{d['job']['name']}" for d in picture.decisions if d["chosen"]}
    finished = [n for n in names if n in states and states[n]["state"]["code"] == "finished"]
    held = {n: states[n]["reason"] if n in states else "not seen by the daemon" for n in names if n not in finished}
    return {"submitted": len(names), "dispatched": len(dispatched), "finished": len(finished), "held": held}


if __name__ == "__main__":
    sys.exit(main())
