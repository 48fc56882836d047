"""Who is measured: two dispatchers that are Kueue's own, the smallest that anybody would write, and Entrepot."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bench.dispatch_fleet import write_blueprint
from tests.fleet import LocalFleet
from tests.fleet.kueue import DISPATCHER_NAME
from tests.local.daemon import daemon

ROOT = Path(__file__).resolve().parents[1]
BUILT_IN = "kueue.x-k8s.io/multikueue-dispatcher-"
Start = Callable[[LocalFleet, Path], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Contender:
    """A name, the dispatcher that the hub's Kueue is given, and what runs beside it with its files in a folder."""

    name: str
    dispatcher: str
    start: Start


def nothing(fleet: LocalFleet, folder: Path) -> AbstractContextManager[object]:
    return contextlib.nullcontext()


@contextlib.contextmanager
def minimal_nominator(fleet: LocalFleet, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.dispatch_nominator", str(fleet.directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the minimal nominator ended"
            yield
        finally:
            process.kill()


def entrepot(bound: int | None = None, name: str = "Entrepot") -> Contender:
    """The real daemon with the RBAC of `deploy/`, and a store of its own for each turn."""

    def start(fleet: LocalFleet, folder: Path) -> AbstractContextManager[object]:
        return daemon(fleet, folder / "daemon", write_blueprint(folder / "blueprint", bound))

    return Contender(name, DISPATCHER_NAME, start)


ALL_AT_ONCE = Contender("AllAtOnce", f"{BUILT_IN}all-at-once", nothing)
INCREMENTAL = Contender("Incremental", f"{BUILT_IN}incremental", nothing)
MINIMAL = Contender("minimal nominator", "bench.entrepot.dev/minimal", minimal_nominator)
