"""What is done to the soaked fleet while it works: each fault with its cure, drawn in an order from a seed."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.soak_daemon import Soaked
from tests.fleet import LocalFleet
from tests.local.proxy import Proxies

Say = Callable[[str], None]
LOCKED_S = 8.0
"""Longer than one call waits for a file that another process has locked."""
AWAY_S = 15.0
READ_S = 15.0
"""How long a refused blueprint stays before it is mended."""


@dataclass(slots=True)
class Faults:
    fleet: LocalFleet
    soaked: Soaked
    proxies: Proxies
    dice: random.Random
    say: Say
    counts: Counter[str] = field(default_factory=Counter)
    ready_s: list[float] = field(default_factory=list)

    def one(self, name: str) -> None:
        """Let one fault happen and pass."""
        self.say(f"fault: {name}")
        self.counts[name] += 1
        getattr(self, name.replace(" ", "_"))()

    # Those that end the daemon's life.

    def daemon_killed(self) -> None:
        self.soaked.kill()
        self.ready_s.append(self.soaked.launch())

    def daemon_stopped(self) -> None:
        self.soaked.stop()
        self.ready_s.append(self.soaked.launch())

    # Those that it has to live through.

    def worker_apiserver_restarted(self) -> None:
        self.fleet.restart_apiserver(self._worker(), 120)

    def hub_apiserver_restarted(self) -> None:
        self.fleet.restart_apiserver("hub", 120)

    def worker_silent(self) -> None:
        name = self._worker()
        self.proxies[name].silence()
        time.sleep(AWAY_S)
        self.proxies[name].mend()

    def worker_reset(self) -> None:
        name = self._worker()
        self.proxies[name].cut()
        time.sleep(AWAY_S / 3)
        self.proxies[name].mend()

    def hub_slow(self) -> None:
        self.proxies["hub"].slow(1.0)
        time.sleep(AWAY_S)
        self.proxies["hub"].mend()

    def hub_reset(self) -> None:
        self.proxies["hub"].cut()
        time.sleep(AWAY_S / 3)
        self.proxies["hub"].mend()

    def blueprint_broken(self) -> None:
        with _Edited(self._file("fleet.yaml"), lambda text: text.replace("provider: northgrid", "providr: northgrid")):
            time.sleep(READ_S)

    def blueprint_edited(self) -> None:
        with _Edited(self._file("fleet.yaml"), lambda text: f"{text}\n# an edit that changes no meaning\n"):
            time.sleep(READ_S / 3)

    def policy_edited(self) -> None:
        with _Edited(
            self._file("fleet.yaml"), lambda text: text.replace("stranded_permille: 100", "stranded_permille: 50")
        ):
            time.sleep(READ_S)

    def store_locked(self) -> None:
        connection = sqlite3.connect(self.soaked.folder / "entrepot.db", timeout=30, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(LOCKED_S)
            connection.execute("ROLLBACK")
        finally:
            connection.close()

    def _worker(self) -> str:
        return self.dice.choice(sorted(self.fleet.workers))

    def _file(self, name: str) -> Path:
        return self.soaked.blueprint / name


SHORT_LIVES = ("daemon killed", "daemon stopped")
LONG_LIFE = (
    "worker apiserver restarted",
    "blueprint broken",
    "worker silent",
    "store locked",
    "hub apiserver restarted",
    "policy edited",
    "worker reset",
    "hub slow",
    "blueprint edited",
    "hub reset",
)


class _Edited:
    """A file with other content for a while; replaced in one step, as a mounted ConfigMap is."""

    def __init__(self, file: Path, edit: Callable[[str], str]) -> None:
        self._file = file
        self._before = file.read_text()
        self._edit = edit

    def __enter__(self) -> None:
        _replace(self._file, self._edit(self._before))

    def __exit__(self, *_: object) -> None:
        _replace(self._file, self._before)


def _replace(file: Path, text: str) -> None:
    part = file.with_suffix(".part")
    with suppress(FileNotFoundError):
        part.unlink()
    part.write_text(text)
    part.replace(file)
