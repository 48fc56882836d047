"""The daemon's memory beside a fleet of 160,000 GPU pods, and beside a cache that keeps every object as decoded.

Each side is a process of its own and reads the same fleet over TLS from a process that makes it up (memory_server.py),
so that resident memory can be compared. The naive side reads a part of the workers and is multiplied: the whole of it
would not fit into an ordinary machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.memory_server import Server, Size
from bench.rows import Bar, Row

FLEET = Size(workers=20, nodes=1000, pods=8000, workloads=5000)
NAIVE_WORKERS = 2
MOST_MIB = Bar("value", "at most", 350)
PEER = f"every object kept as decoded, {NAIVE_WORKERS} of {FLEET.workers} workers x {FLEET.workers // NAIVE_WORKERS}"


def run(say: Callable[[str], None], fleet: Size = FLEET) -> Sequence[Row]:
    part = Size(min(NAIVE_WORKERS, fleet.workers), fleet.nodes, fleet.pods, 0)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with served(fleet, folder):
            ours = measured("entrepot", fleet, folder)
            say(json.dumps(ours))
            naive = measured("dicts", part, folder)
            say(json.dumps(naive))
    times = fleet.workers / part.workers
    grown = (naive["decided"]["steady"] - naive["started"]) * times
    whole = naive["started"] + grown
    return (
        Row("memory peak", ours["changed"]["peak"], "MiB", PEER, whole, MOST_MIB),
        Row("memory steady", ours["changed"]["steady"], "MiB", PEER, whole, MOST_MIB),
        Row("memory of the empty process", ours["started"], "MiB"),
        Row("memory with the fleet read", ours["reading"]["steady"], "MiB"),
        Row("fleet read and synced", ours["read_s"], "s"),
        Row("event loop away while reading, longest", ours["reading"]["longest_ms"], "ms"),
        Row("event loop away while reading, p99", ours["reading"]["p99_ms"], "ms"),
        Row("event loop away while deciding for the first time, longest", ours["decided"]["longest_ms"], "ms"),
    )


@contextlib.contextmanager
def served(fleet: Size, folder: Path) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_serve, args=(fleet, folder, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(60):
            raise RuntimeError("the fleet's server did not start")
        yield
    finally:
        process.terminate()
        process.join()


def _serve(fleet: Size, folder: Path, ready: Any) -> None:
    async def until_ended() -> None:
        await Server(fleet).start(folder)
        ready.set()
        await asyncio.get_running_loop().create_future()

    asyncio.run(until_ended())


def measured(how: str, size: Size, folder: Path) -> dict[str, Any]:
    """Run one side and read its figures. Its log goes nowhere: only figures are wanted."""

    async def ended() -> bytes:
        numbers = [str(n) for n in (size.workers, size.nodes, size.pods, size.workloads)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.memory_process", how, str(folder), *numbers, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"{how} ended with {process.returncode}")
        return out

    found: dict[str, Any] = json.loads(asyncio.run(ended()).splitlines()[-1])
    return found
