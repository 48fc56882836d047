"""`decide`: what a decision with its full record costs on a large fleet, beside one that works everything out anew.

Times are of the process's own CPU (`process_time`), so that what else runs on the machine does not count.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from bench.decide_world import CLUSTERS, NODES, arrivals, clusters, rules, shapes, with_moved
from bench.rows import Bar, Row
from dispatcher.core.decide import decide, hold_of
from dispatcher.core.decision import Decision
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import Snapshot
from dispatcher.core.workload import Request
from tests.core_builders import NOW

DECISIONS, PROMISES, MOVED, NAIVE = 5000, 300, 100, 3


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
    warm, promised = [], 0
    for one in arrivals(dice, kinds, DECISIONS):
        decision, taken_s = _cost(one, snapshot, book, memo)
        warm.append(taken_s)
        hold = hold_of(decision, one, book, NOW)
        if hold is not None and promised < PROMISES:
            snapshot, promised = snapshot.with_hold(hold), promised + 1
    say(f"warm {_told(warm)}, {promised} promises on the way")
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
    for name, costs in (("on a shape never seen", cold), ("after one node of a cluster changed", after)):
        rows += [Row(f"decision {name}, p{at}", _quantile(costs, at) * 1000, "ms CPU", peer, slow) for at in (50, 99)]
    return [*rows, Row("first decision of a process, all views new", first_s * 1000, "ms CPU", peer, slow)]


def _cost(one: Request, snapshot: Snapshot, book: Policy, memo: CandidateMemo | None) -> tuple[Decision, float]:
    started_s = time.process_time()
    decision = decide(one, snapshot, book, NOW, memo)
    return decision, time.process_time() - started_s


def _told(seconds: Sequence[float]) -> str:
    return f"p50 {_quantile(seconds, 50) * 1000:.3f} ms, p99 {_quantile(seconds, 99) * 1000:.3f} ms"


def _quantile(seconds: Sequence[float], percent: int) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
