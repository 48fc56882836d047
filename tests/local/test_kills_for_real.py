"""kill -9 of the daemon, over and over with jobs arriving: none lost, none run twice, no nomination changed.

Fifteen times in `make test`, fifty times in `make test-long`.

The moments are drawn from a seed, in five kinds, so that every phase of a daemon's life is hit: before it has seen
the hub, while it decides, between the store's commit and the hub's write, after a write, and while it shuts down.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest

from tests.fleet import LocalFleet
from tests.local import laws
from tests.local.daemon import Hub, Running, decided, is_ready, spawn, wait_for
from tests.local.observer import HUB, Change, Observer, WorkloadSeen
from tests.loops.jobs import B200, H100, H200, gang

pytestmark = [pytest.mark.local, pytest.mark.timeout(1800)]
SEED = 20260801
KILLS = 50 if os.environ.get("ENTREPOT_LONG") == "1" else 15
BURST = 3
NAMESPACE = "autonomy"
PROMPT_S = 20.0
"""How long a moment is waited for; a slow machine gets its kill all the same."""


class Moment(StrEnum):
    STARTING = "before the first sync"
    READY = "while it looks and decides"
    COMMITTED = "between commit and write"
    WRITTEN = "after a write"
    STOPPING = "during shutdown"


@dataclass(slots=True)
class Executioner:
    """Starts the daemon over and over on one store, gives it work, and kills it at moments drawn from a seed."""

    fleet: LocalFleet
    folder: Path
    observer: Observer
    dice: random.Random = field(default_factory=lambda: random.Random(SEED))
    jobs: list[str] = field(default_factory=list)
    hits: Counter[str] = field(default_factory=Counter)
    started_s: list[float] = field(default_factory=list)

    def kill_once(self, moment: Moment) -> None:
        running = spawn(self.fleet, self.folder)
        begun = time.monotonic()
        try:
            if moment is Moment.STARTING:
                time.sleep(self.dice.uniform(0.0, 1.0) * self._usual_start_s())
                self.submit(1)
            else:
                wait_for(lambda: is_ready(running), 60, lambda: running.log()[-3000:])
                self.started_s.append(time.monotonic() - begun)
                self._meet(moment, running)
        finally:
            running.kill()
        self.hits[moment] += 1
        for state, count in self.left_open().items():
            self.hits[state] += count

    def _usual_start_s(self) -> float:
        return sorted(self.started_s)[len(self.started_s) // 2] if self.started_s else 2.0

    def _meet(self, moment: Moment, running: Running) -> None:
        mark = len(self.observer.changes())
        self.submit(BURST)
        if moment is Moment.READY:
            time.sleep(self.dice.uniform(0.0, 1.5))
        elif moment is Moment.COMMITTED:
            known = self._planned()
            _spin(lambda: not self._planned() <= known)
        elif moment is Moment.WRITTEN:
            _spin(lambda: any(_nominates(change) for change in self.observer.changes()[mark:]))
        elif moment is Moment.STOPPING:
            time.sleep(self.dice.uniform(0.0, 0.8))
            running.process.send_signal(signal.SIGTERM)
            time.sleep(self.dice.uniform(0.0, 0.25))

    def submit(self, count: int) -> None:
        hub = Hub(self.fleet)
        for _ in range(count):
            name = f"kills-{len(self.jobs):03d}"
            product = (H100, H200, B200)[len(self.jobs) % 3]
            hub.create(gang(name, gpus=self.dice.choice((1, 1, 2)), product=product))
            self.jobs.append(name)

    def left_open(self) -> Counter[str]:
        """What the store says of nominations on their way, beside what the hub says of the same Workloads."""
        found: Counter[str] = Counter()
        on_hub = {w["metadata"]["uid"]: w.get("status", {}) for w in Hub(self.fleet).workloads(NAMESPACE).values()}
        for uid in self._planned():
            status = on_hub.get(uid, {})
            written = bool(status.get("nominatedClusterNames") or status.get("clusterName"))
            found["intents left: nomination written" if written else "intents left: nothing written"] += 1
        return found

    def _planned(self) -> set[str]:
        """Workloads with an open intent, read beside the daemon."""
        store = self.folder / "entrepot.db"
        if not store.exists():
            return set()
        connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=1.0)
        try:
            return {row[0] for row in connection.execute("SELECT workload FROM intents WHERE state = 'planned'")}
        except sqlite3.OperationalError:
            return set()
        finally:
            connection.close()


def _nominates(change: Change) -> bool:
    return change.cluster == HUB and isinstance(change.seen, WorkloadSeen) and bool(change.seen.nominated)


def _spin(happened: Callable[[], bool]) -> None:
    """As close to the instant as a process beside the daemon can come."""
    until = time.monotonic() + PROMPT_S
    while not happened() and time.monotonic() < until:
        time.sleep(0.005)


def moments(dice: random.Random) -> list[Moment]:
    """Every kind equally often, in an order drawn from the seed."""
    found = [list(Moment)[n % len(Moment)] for n in range(KILLS)]
    dice.shuffle(found)
    return found


@pytest.fixture
def observer(local_fleet: LocalFleet) -> Iterator[Observer]:
    with Observer(local_fleet) as found:
        yield found


def test_kills_at_any_moment_lose_nothing_run_nothing_twice_and_change_no_nomination(
    local_fleet: LocalFleet, observer: Observer, tmp_path: Path
) -> None:
    executioner = Executioner(local_fleet, tmp_path / "daemon", observer)
    for moment in moments(executioner.dice):
        executioner.kill_once(moment)
    told = ", ".join(f"{count} {what}" for what, count in sorted(executioner.hits.items()))
    starts = sorted(executioner.started_s)
    print(f"\nkills: {told}; ready {starts[len(starts) // 2]:.1f} s after start (median)", file=sys.stderr)
    assert sum(executioner.hits[moment] for moment in Moment) == KILLS
    assert executioner.hits["intents left: nothing written"] >= 1, "no kill came between commit and write"
    assert executioner.hits["intents left: nomination written"] >= 1, "no kill came after a write"

    last = spawn(local_fleet, executioner.folder)
    try:
        hub = Hub(local_fleet)
        wait_for(lambda: hub.finished(NAMESPACE, executioner.jobs), 300, lambda: last.log()[-3000:])
        observer.settle()
        judge(observer.changes(), executioner.jobs)
        assert executioner.left_open() == {}
        for name in executioner.jobs:
            assert decided(last, NAMESPACE, name)["decision"]["attempt"] == 1, name
    finally:
        last.stop()


def judge(changes: list[Change], jobs: list[str]) -> None:
    """Over the whole run, not at its end only."""
    keys = [(NAMESPACE, name) for name in jobs]
    assert laws.doubled(changes) == []
    assert laws.changed_in_flight(changes) == []
    runs = laws.runs(changes)
    for what, counts in (("copies", runs.copies), ("Jobs", runs.jobs), ("pods", runs.pods)):
        assert {key: counts.get(key, 0) for key in keys if counts.get(key, 0) != 1} == {}, what
    nominated = laws.nominated_once(changes)
    assert {key: nominated.get(key) for key in keys if len(nominated.get(key, ())) != 1} == {}
