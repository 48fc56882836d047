"""`decide`: what a decision with its full record costs on a large fleet, beside one that works everything out anew.

Times are of the process's own CPU (`process_time`), so that what else runs on the machine does not count.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench import decide_replan
from bench.decide_world import CLUSTERS, NODES, arrivals, clusters, rules, shapes, with_moved
from bench.rows import Bar, Row
from dispatcher.core.decide import decide, hold_of
from dispatcher.core.decision import Decision
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import Snapshot
from dispatcher.core.workload import Request
from tests.core_builders import NOW

PASSES, STREAM, MOVED, NAIVE = 25, 100, 40, 3


def run(say: Callable[[str], None]) -> Sequence[Row]:
    dice = random.Random(7)
    book, snapshot, kinds = rules(), Snapshot(clusters(dice)), shapes(dice)
    say(f"{CLUSTERS} clusters x {NODES} nodes, {len(kinds)} shapes")
    memo = CandidateMemo()
    _, first_s = _cost(kinds[0], snapshot, book, memo)
    say(f"first decision, all views read for the first time: {first_s * 1000:.0f} ms")
    naive = [_cost(kinds[at], snapshot, book, None)[1] for at in range(NAIVE)]
    say(f"naive {naive[0] * 1000:.0f} ms")
    cold = [_cost(one, snapshot, book, memo)[1] for one in kinds[1:]]
    say(f"cold {_told(cold)}")
    warm: list[float] = []
    for at in range(PASSES):
        snapshot = _pass(kinds, snapshot, book, memo, warm, at)
    say(f"{PASSES} passes over all kinds, a promise before each: {_told(warm)}")
    stream = []
    for one in arrivals(dice, kinds, STREAM):
        decision, taken_s = _cost(one, snapshot, book, memo)
        stream.append(taken_s)
        hold = hold_of(decision, one, book, NOW)
        snapshot = snapshot.with_hold(hold) if hold is not None else snapshot
    say(f"kinds at random, each with its promise: {_told(stream)}")
    after = []
    for one in arrivals(dice, kinds, MOVED):
        snapshot = with_moved(dice, snapshot)
        after.append(_cost(one, snapshot, book, memo)[1])
    say(f"after a view changed {_told(after)}")
    peer, slow = "everything worked out anew for each decision", _quantile(naive, 50) * 1000
    rows = [
        Row("decision p50", _quantile(warm, 50) * 1000, "ms CPU", peer, slow),
        Row("decision p99", _quantile(warm, 99) * 1000, "ms CPU", peer, slow, Bar("value", "at most", 2.0)),
    ]
    others = {
        "on a kind never seen": cold,
        "on a kind last seen many promises ago": stream,
        "on a kind last seen many changes of nodes ago": after,
    }
    for name, costs in others.items():
        rows += [Row(f"decision {name}, p{at}", _quantile(costs, at) * 1000, "ms CPU", peer, slow) for at in (50, 99)]
    rows.append(Row("first decision of a process, all views new", first_s * 1000, "ms CPU", peer, slow))
    del memo, snapshot
    return [*rows, *_replan(say, sum(naive) / len(naive))]


def _replan(say: Callable[[str], None], naive_s: float) -> list[Row]:
    """The naive way decides on all that wait anew, in one go: its time is a decision's, scaled."""
    found, waiting = decide_replan.measure(say), decide_replan.WAITING
    peer, slow_s = f"each of {waiting} decided anew in one go (scaled from {NAIVE})", naive_s * waiting
    return [
        Row("re-plan of 10,000 after a change", max(found.totals), "s CPU", peer, slow_s, Bar("value", "at most", 1.0)),
        Row(
            "re-plan, longest block of the loop",
            max(found.blocks) * 1000,
            "ms CPU",
            peer,
            slow_s * 1000,
            Bar("value", "at most", 50.0),
        ),
        Row("re-plan by the clock on a shared machine", max(found.walls), "s", peer, slow_s),
        Row("cycle with views that are only younger", found.idle_total, "s CPU", peer, slow_s),
        Row("cycle after one of those that wait has gone", found.one_less_total, "s CPU", peer, slow_s),
        Row("first cycle, all views and shapes new", found.first_total, "s CPU", peer, slow_s),
        Row("first cycle, longest block of the loop", found.first_block * 1000, "ms CPU", peer, slow_s * 1000),
    ]


def _pass(
    kinds: Sequence[Request], snapshot: Snapshot, book: Policy, memo: CandidateMemo, costs: list[float], number: int
) -> Snapshot:
    """The rhythm of a re-plan: everything that waits is decided on, one of each kind; then one is promised a place."""
    made = None
    for one in kinds:
        asked = replace(one, uid=WorkloadUid(f"uid-{number}-{len(costs)}"), name=f"job-{number}", resource_version="1")
        decision, taken_s = _cost(asked, snapshot, book, memo)
        costs.append(taken_s)
        made = made or hold_of(decision, asked, book, NOW)
    return snapshot.with_hold(made) if made is not None else snapshot


def _cost(one: Request, snapshot: Snapshot, book: Policy, memo: CandidateMemo | None) -> tuple[Decision, float]:
    started_s = time.process_time()
    decision = decide(one, snapshot, book, NOW, memo)
    return decision, time.process_time() - started_s


def _told(seconds: Sequence[float]) -> str:
    return f"p50 {_quantile(seconds, 50) * 1000:.3f} ms, p99 {_quantile(seconds, 99) * 1000:.3f} ms"


def _quantile(seconds: Sequence[float], percent: int) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
