"""Two replicas whose leader is killed, again and again, while jobs arrive: none lost, none run twice, none changed.

Twice in `make test`, twelve times in a row in `make test-long`. Each hand-over is measured: from the kill until the
other leads, and until it has nominated work that came after the kill.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import psycopg
import pytest

from tests.fleet import LocalFleet
from tests.local.daemon import Hub, Running, decided, wait_for
from tests.local.observer import HUB, Observer, WorkloadSeen
from tests.local.test_ha_for_real import launch, leads, two_replicas
from tests.local.test_kills_for_real import NAMESPACE, judge
from tests.loops.jobs import B200, H100, H200, gang
from tests.postgres import PostgresServer

pytestmark = [pytest.mark.local, pytest.mark.timeout(1800)]
SEED = 20260802
WHOLE = os.environ.get("ENTREPOT_LONG") == "1"
KILLS = 12 if WHOLE else 2
LEASE = "15/10/2" if WHOLE else "8/5/1"
"""The default where it is measured, a short one where there is a minute for all."""
BEFORE, AFTER = 3, 2
"""Jobs that arrive before and after each kill."""
LONGEST_GAP_S = int(LEASE.partition("/")[0]) + 10.0
"""The lease's duration, a look every second, and what a busy machine takes on top."""
PROMPT_S = 20.0


class Moment(StrEnum):
    """When the leader dies."""

    DECIDING = "while it looks and decides"
    COMMITTED = "between commit and write"
    WRITTEN = "after a write"


@dataclass(frozen=True, slots=True)
class HandOver:
    """Seconds after the kill: `led_s` until the other leads, `nominated_s` until it has nominated what came since."""

    led_s: float
    nominated_s: float


@dataclass(slots=True)
class Killer:
    """Kills whoever leads, measures what follows, and puts a new process in the place of the dead one."""

    fleet: LocalFleet
    replicas: list[Running]
    observer: Observer
    url: str
    dice: random.Random = field(default_factory=lambda: random.Random(SEED))
    jobs: list[str] = field(default_factory=list)
    gaps: list[HandOver] = field(default_factory=list)

    def kill_leader(self, moment: Moment) -> None:
        self._replace_the_dead()
        leader, standby = sorted(self.replicas, key=leads, reverse=True)
        known = self._planned()
        first = self.submit(BEFORE)
        self._meet(moment, known, first)
        leader.kill()
        killed = time.monotonic()
        later = self.submit(AFTER)
        led_s = self._until(lambda: leads(standby), killed, standby)
        nominated_s = self._until(lambda: later <= self._nominated(), killed, standby)
        self.gaps.append(HandOver(led_s, nominated_s))

    def _replace_the_dead(self) -> None:
        for at, replica in enumerate(self.replicas):
            if replica.process.poll() is not None:
                self.replicas[at] = launch(self.fleet, replica.folder, self.url, LEASE)

    def _meet(self, moment: Moment, known: set[str], first: set[str]) -> None:
        if moment is Moment.DECIDING:
            time.sleep(self.dice.uniform(0.0, 1.0))
        until = time.monotonic() + PROMPT_S
        while moment is Moment.COMMITTED and self._planned() <= known and time.monotonic() < until:
            time.sleep(0.003)
        while moment is Moment.WRITTEN and not first & self._nominated() and time.monotonic() < until:
            time.sleep(0.003)

    def _until(self, done: Callable[[], bool], since: float, standby: Running) -> float:
        while not done():
            assert time.monotonic() - since < 3 * LONGEST_GAP_S, standby.log()[-3000:]
            time.sleep(0.05)
        return time.monotonic() - since

    def submit(self, count: int) -> set[str]:
        hub, names = Hub(self.fleet), set[str]()
        for _ in range(count):
            name = f"hands-{len(self.jobs):03d}"
            product = (H100, H200, B200)[len(self.jobs) % 3]
            hub.create(gang(name, gpus=self.dice.choice((1, 1, 2)), product=product))
            self.jobs.append(name)
            names.add(name)
        return names

    def _nominated(self) -> set[str]:
        """Jobs that the hub has ever shown with a nomination or a cluster."""
        seen = [change.seen for change in self.observer.changes() if change.cluster == HUB]
        return {s.job for s in seen if isinstance(s, WorkloadSeen) and (s.nominated or s.cluster)}

    def _planned(self) -> set[str]:
        """Open intents, read beside the daemons."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            rows = connection.execute("SELECT decision FROM intents WHERE state = 'planned'").fetchall()
        return {str(row[0]) for row in rows}


@pytest.fixture
def observer(local_fleet: LocalFleet) -> Iterator[Observer]:
    with Observer(local_fleet) as found:
        yield found


def moments(dice: random.Random) -> list[Moment]:
    """Every kind equally often, in an order drawn from the seed."""
    found = [list(Moment)[n % len(Moment)] for n in range(1, KILLS + 1)]
    dice.shuffle(found)
    return found


def test_a_leader_that_is_killed_again_and_again_loses_nothing_and_hands_over_each_time(
    local_fleet: LocalFleet, postgres: PostgresServer, observer: Observer, tmp_path: Path
) -> None:
    url = postgres.database()
    with two_replicas(local_fleet, tmp_path, url, LEASE) as replicas:
        killer = Killer(local_fleet, replicas, observer, url)
        for moment in moments(killer.dice):
            killer.kill_leader(moment)
        hub = Hub(local_fleet)
        wait_for(lambda: hub.finished(NAMESPACE, killer.jobs), 300, lambda: [r.log()[-2000:] for r in replicas])
        observer.settle()
        last = max(replicas, key=leads)
        attempts = {name: decided(last, NAMESPACE, name)["decision"]["attempt"] for name in killer.jobs}
    print(f"\n{told(killer)}", file=sys.stderr)
    judge(observer.changes(), killer.jobs)
    assert {name: count for name, count in attempts.items() if count != 1} == {}
    assert len(killer.gaps) == KILLS
    assert max(gap.led_s for gap in killer.gaps) <= LONGEST_GAP_S


def told(killer: Killer) -> str:
    led = [gap.led_s for gap in killer.gaps]
    nominated = [gap.nominated_s for gap in killer.gaps]
    return (
        f"{len(led)} hand-overs, {len(killer.jobs)} jobs: the other leads after {statistics.median(led):.1f} s "
        f"(longest {max(led):.1f}), has nominated what came after {statistics.median(nominated):.1f} s "
        f"(longest {max(nominated):.1f})"
    )
