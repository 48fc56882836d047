"""`python -m bench.soak --minutes 30`: churn and faults on a real fleet, judged by laws over the whole history.

Three acts: short lives (the daemon is killed and stopped again and again), one long life that has to live through
everything else, and a drain in which all that is left must end. Exits with 1 when a law is broken. Not part of
`make bench`: it takes its half hour whatever the machine.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import rows, tables
from bench.__main__ import keep
from bench.rows import Bar, Row
from bench.soak_churn import RAISED_PRODUCT, Churn
from bench.soak_daemon import Soaked, grown, slope_mib_per_hour
from bench.soak_faults import LONG_LIFE, SHORT_LIVES, Faults
from tests.fleet import LocalFleet
from tests.local import laws
from tests.local.faulty import behind_proxies
from tests.local.fleet_objects import example_fleet
from tests.local.observer import HUB, Change, Observer, PodSeen, WorkloadSeen

Say = Callable[[str], None]
SEED = 4
SHARE_OF_SHORT_LIVES = 0.2
FAULT_EVERY_S = 45.0
DRAIN_S = 600.0
MOST_GROWTH = 0.05
"""Of resident memory, from the first to the last quarter of the long life after its warm-up: more is no flat line."""
MOST_TASKS = 5
MOST_FILES = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was broken, in words; and the figures."""

    broken: Mapping[str, Sequence[str]]
    rows: Sequence[Row]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of churn; the drain comes on top")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--results", type=Path, default=rows.RESULTS, help="where the rows are kept")
    parser.add_argument("--keep", type=Path, help="a folder for logs and store, to look at afterwards")
    options = parser.parse_args()
    started_s = time.monotonic()

    def say(line: str) -> None:
        print(f"soak {time.monotonic() - started_s:7.1f} s  {line}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        verdict = soak(folder, options.minutes * 60, options.seed, say)
    keep("soak", verdict.rows, options.results)
    print(f"\n{tables.text([row for row in rows.load(options.results) if row['bench'] == 'soak'])}\n", flush=True)
    for law, found in verdict.broken.items():
        for line in found[:20]:
            print(f"broken: {law}: {line}", file=sys.stderr)
    return 1 if any(verdict.broken.values()) or any(row.holds is False for row in verdict.rows) else 0


def soak(folder: Path, length_s: float, seed: int, say: Say) -> Verdict:
    hub_objects, clusters = example_fleet()
    with (
        LocalFleet.start(folder / "fleet", hub_objects, clusters, log=say) as fleet,
        behind_proxies(fleet, folder) as (proxies, kubeconfig, blueprint),
        Observer(fleet) as observer,
    ):
        offer = laws.room(fleet)
        soaked = Soaked(fleet, folder / "daemon", blueprint, kubeconfig)
        churn = Churn(fleet, observer, seed)
        faults = Faults(fleet, soaked, proxies, random.Random(seed), say)
        soaked.begin()
        churn.start()
        try:
            _acts(faults, churn, length_s, say)
            drained_s = _drain(churn, say)
            observer.settle()
        finally:
            churn.stop()
            soaked.end()
        changes = observer.changes()
        say(f"{len(changes)} changes observed, {len(observer.gaps)} times a kind was listed anew after a restart")
    (folder / "history.txt").write_text("\n".join(map(repr, changes)))
    samples = [
        f"{n} {x.at_s:.0f} {x.rss_mib:.1f} {x.files} {x.tasks}"
        for n, life in enumerate(soaked.lives)
        for x in life.samples
    ]
    (folder / "samples.txt").write_text("\n".join(["life seconds MiB files tasks", *samples]))
    history = History(changes, observer.gaps, offer, drained_s)
    return _judge(history, churn, soaked, faults)


def _acts(faults: Faults, churn: Churn, length_s: float, say: Say) -> None:
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < length_s * SHARE_OF_SHORT_LIVES:
        _pause(faults, begun_s + length_s)
        faults.one(faults.dice.choice(SHORT_LIVES))
    faults.one("daemon killed")
    say("the long life begins")
    order: list[str] = []
    while time.monotonic() - begun_s < length_s:
        _pause(faults, begun_s + length_s)
        if not order:
            order = faults.dice.sample(LONG_LIFE, len(LONG_LIFE))
        faults.one(order.pop())
        say(f"{dict(sorted(churn.counts.items()))}, {len(churn.open())} open")


def _pause(faults: Faults, end_s: float) -> None:
    time.sleep(max(0.0, min(FAULT_EVERY_S * faults.dice.uniform(0.6, 1.4), end_s - time.monotonic())))


def _drain(churn: Churn, say: Say) -> float:
    """No more jobs: seconds until the last one has ended."""
    say(f"drain: {len(churn.open())} jobs are left")
    churn.creating.clear()
    begun_s = time.monotonic()
    while churn.open() and time.monotonic() - begun_s < DRAIN_S:
        time.sleep(1.0)
    return time.monotonic() - begun_s


# --- judging -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class History:
    changes: list[Change]
    gaps: list[tuple[int, int]]
    offer: laws.Room
    drained_s: float


def _judge(history: History, churn: Churn, soaked: Soaked, faults: Faults) -> Verdict:
    changes = history.changes
    classes = {fate.key[1]: fate.workload_class for fate in churn.fates.values()}
    plain = [c for c in changes if not (isinstance(c.seen, WorkloadSeen) and c.seen.product == RAISED_PRODUCT)]
    filling = laws.beyond_fit(plain, history.offer, laws.look_ahead(soaked.blueprint), classes, history.gaps)
    broken = {
        "every job ends": [f"{'/'.join(f.key)} {_last_seen(changes, f.key)}" for f in churn.open()],
        "one copy at a time": laws.doubled(changes),
        "one run at a time": running_twice(changes),
        "nominations only grow": laws.changed_in_flight(changes),
        "nothing beyond fit and look-ahead": filling.breaches,
        "no problem without a metric": soaked.unmeasured(),
    }
    life = soaked.longest()
    settled = life.settled() or life.samples
    rss = [sample.rss_mib for sample in settled]
    tasks = [float(sample.tasks) for sample in settled if sample.tasks is not None]
    files = [float(sample.files) for sample in settled]
    first = statistics.median(rss[: max(1, len(rss) // 4)])
    growth = grown(rss)
    counts = churn.counts
    figures = [
        Row("jobs created", counts["created"], "jobs"),
        Row("jobs that ended on the hub", counts["finished"], "jobs"),
        Row("jobs deleted, suspended, raised", counts["deleted"] + counts["suspended"] + counts["raised"], "jobs"),
        Row("evictions stuck in Kueue, mended as the finding says", counts["mended"], "jobs"),
        Row("nominations judged against fit and look-ahead", filling.judged, "nominations"),
        *(Row(f"fault: {name}", count, "times") for name, count in sorted(faults.counts.items())),
        Row("start to ready, median", statistics.median(faults.ready_s) if faults.ready_s else None, "s"),
        Row("the longest life", life.lasted_s / 60, "min"),
        Row("memory in its first quarter after warm-up", first, "MiB"),
        Row("growth to its last quarter", growth, "MiB", bar=Bar("value", "at most", MOST_GROWTH * first)),
        Row("slope of memory (Theil and Sen)", slope_mib_per_hour(settled), "MiB/h"),
        Row("tasks in its first quarter", statistics.median(tasks[: max(1, len(tasks) // 4)]) if tasks else None, ""),
        Row("growth of tasks", grown(tasks), "tasks", bar=Bar("value", "at most", MOST_TASKS)),
        Row("growth of open files", grown(files), "files", bar=Bar("value", "at most", MOST_FILES)),
        Row("drained after", history.drained_s, "s"),
    ]
    nothing = Bar("value", "at most", 0)
    figures += [Row(f"breaches: {law}", len(found), "", bar=nothing) for law, found in broken.items()]
    return Verdict(broken, figures)


def running_twice(changes: Sequence[Change]) -> list[str]:
    """Jobs whose pods were on nodes of two clusters at the same instant."""
    where: dict[tuple[str, str], dict[str, set[str]]] = {}
    known: dict[str, tuple[str, str]] = {}
    found: dict[str, None] = {}
    for change in changes:
        if change.kind != "pods" or change.cluster == HUB:
            continue
        seen = change.seen
        if isinstance(seen, PodSeen) and seen.job:
            known[change.uid] = (change.key[0], seen.job)
        job = known.get(change.uid)
        if job is None:
            continue
        pods = where.setdefault(job, {}).setdefault(change.cluster, set())
        lives = isinstance(seen, PodSeen) and bool(seen.node) and seen.phase not in ("Succeeded", "Failed")
        (pods.add if lives else pods.discard)(change.uid)
        clusters = sorted(cluster for cluster, uids in where[job].items() if uids)
        if len(clusters) > 1:
            found[f"{'/'.join(job)} on {' and '.join(clusters)}"] = None
    return list(found)


def _last_seen(changes: Sequence[Change], key: tuple[str, str]) -> str:
    last = [c for c in changes if isinstance(c.seen, WorkloadSeen) and (c.key[0], c.seen.job) == key]
    return "; ".join(f"{c.cluster}: {c.seen}" for c in last[-2:])


if __name__ == "__main__":
    sys.exit(main())
