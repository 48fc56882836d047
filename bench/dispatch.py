"""Dispatch, side by side: the same backlog for every contender, on one real fleet, in one run (see README.md)."""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import dispatch_fleet as the_fleet
from bench.dispatch_contenders import ALL_AT_ONCE, INCREMENTAL, MINIMAL, Contender, entrepot
from bench.dispatch_figures import PLACED, Idle, Turn, percentile
from bench.dispatch_observer import Observer, requests_of
from bench.dispatch_rows import rows_of
from bench.rows import Row
from tests.fleet import LocalFleet
from tests.fleet.processes import wait_until

Say = Callable[[str], None]
JOBS = int(os.environ.get("BENCH_DISPATCH_JOBS", "160"))
"""Jobs of a backlog. Fewer only to try the bench out: the figures of record are of 160."""
URGENT_AT_S = (10.0, 15.0, 20.0)
"""When an urgent job arrives behind the backlog."""
BOUNDS = (64, 24, 8)
"""Bounds on outstanding nominations that are measured beside none."""
IDLE_JOBS, IDLE_PAUSE_S = min(50, JOBS), 2.0
"""Long enough that the last job's copy is removed and every controller is at rest before the next one comes."""
SUBMITTERS = 8
SETTLE_S = 3.0
TURN_S = 600.0
ENTREPOT = entrepot()
ORDER: Sequence[Contender] = (MINIMAL, ENTREPOT, ALL_AT_ONCE, INCREMENTAL, ENTREPOT, MINIMAL)
"""Mirrored where the bar is close, so that a machine that slows down or speeds up favours nobody."""


def run(say: Say) -> Sequence[Row]:
    turns: dict[str, list[Turn]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="bench-dispatch-") as name:
        folder = Path(name)
        blueprint = the_fleet.write_blueprint(folder / "blueprint", None)
        with the_fleet.start(folder / "fleet", blueprint, say) as fleet:
            idle = {one.name: idle_turn(fleet, one, folder / f"idle-{one.name}", say) for one in (MINIMAL, ENTREPOT)}
            for number, contender in enumerate(ORDER):
                turns[contender.name].append(turn(fleet, contender, folder / f"turn-{number}", say))
            trade = [trade_turn(fleet, bound, folder / f"bound-{bound}", say) for bound in BOUNDS]
    return rows_of(turns, dict(zip(BOUNDS, trade, strict=True)), idle)


def idle_turn(fleet: LocalFleet, contender: Contender, folder: Path, say: Say) -> Idle:
    """One job after the other, each once the last is finished."""
    the_fleet.use_dispatcher(fleet, contender.dispatcher)
    names = [f"idle-{number:03d}" for number in range(IDLE_JOBS)]
    with contender.start(fleet, folder), Observer(fleet) as observer, fleet.hub.api() as api:
        time.sleep(SETTLE_S)
        for name in names:
            the_fleet.submit(api, [name])
            wait_until(lambda n=name: observer.count([n], "finished") == 1, 60, f"{name} to finish")  # type: ignore[misc]
            time.sleep(IDLE_PAUSE_S)
        found = Idle(tuple(observer.of(names)))
    the_fleet.clear(fleet)
    of_quota, of_both = found.reserved_to_nominated_s, found.waiting_to_nominated_s
    say(
        f"{contender.name} on an idle hub: quota to nominated p50 {_ms(of_quota, 50)}, p99 {_ms(of_quota, 99)}; "
        f"quota and open check to nominated p50 {_ms(of_both, 50)}, p99 {_ms(of_both, 99)}"
    )
    return found


def turn(fleet: LocalFleet, contender: Contender, folder: Path, say: Say, *, half: bool = False) -> Turn:
    """One backlog through one contender, from an empty fleet with a fresh Kueue to an empty fleet again.

    `half`: only until half of it and the urgent jobs are on a cluster, which is enough for the trade.
    """
    the_fleet.use_dispatcher(fleet, contender.dispatcher)
    backlog = [f"job-{number:03d}" for number in range(JOBS)]
    urgent = [f"urgent-{number}" for number in range(len(URGENT_AT_S))]
    with contender.start(fleet, folder), Observer(fleet) as observer:
        time.sleep(SETTLE_S)
        before, started_s = requests_of(fleet), time.monotonic()
        _submit_side_by_side(fleet, backlog)
        with fleet.hub.api() as api:
            for name, at_s in zip(urgent, URGENT_AT_S, strict=True):
                time.sleep(max(0.0, started_s + at_s - time.monotonic()))
                the_fleet.submit(api, [name], "urgent")

        def over() -> bool:
            if half:
                placed = observer.count(backlog, *PLACED) * 2 >= JOBS
                return placed and observer.count(urgent, *PLACED) == len(urgent)
            return observer.count([*backlog, *urgent], "finished") == JOBS + len(urgent)

        wait_until(over, TURN_S, f"{contender.name} to work off its backlog", 0.25)
        requests = requests_of(fleet)
        requests.subtract(before)
        done = Turn(
            contender.name,
            started_s,
            tuple(observer.of(backlog)),
            tuple(observer.of(urgent)),
            sum(observer.copies.values()),
            requests,
        )
    the_fleet.clear(fleet)
    say(_told(done))
    return done


def trade_turn(fleet: LocalFleet, bound: int, folder: Path, say: Say) -> Turn:
    return turn(fleet, entrepot(bound, f"Entrepot, at most {bound} outstanding"), folder, say, half=True)


def _submit_side_by_side(fleet: LocalFleet, names: Sequence[str]) -> None:
    """Faster than one after another, so that the backlog is there before MultiKueue has worked off much of it."""

    def some(share: Sequence[str]) -> None:
        with fleet.hub.api() as api:
            the_fleet.submit(api, share)

    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(some, [names[first::SUBMITTERS] for first in range(SUBMITTERS)]))


def _told(done: Turn) -> str:
    figures: Mapping[str, float | None] = {
        "to a cluster/s": done.to_cluster_per_s,
        "first half/s": done.half_to_cluster_per_s,
        "finished/s": done.to_finished_per_s,
        "reserved to cluster p50 s": percentile(done.reserved_to_cluster_s, 50),
        "p99 s": percentile(done.reserved_to_cluster_s, 99),
        "urgent p50 s": percentile(done.urgent_wait_s, 50),
        "copies": done.copies_per_job,
        "looks": done.looks_per_job(len(the_fleet.WORKERS)),
        "hub writes": done.writes_per_job(on_hub=True),
        "worker writes": done.writes_per_job(on_hub=False),
    }
    known = ", ".join(f"{name} {value:.2f}" for name, value in figures.items() if value is not None)
    return f"{done.contender}: {known}"


def _ms(values: Sequence[float], percent: int) -> str:
    found = percentile(values, percent)
    return "unknown" if found is None else f"{found * 1000:.0f} ms"
