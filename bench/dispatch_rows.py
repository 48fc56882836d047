"""The rows of the dispatch bench: each figure of Entrepot beside the same figure of each peer, and the bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.dispatch_figures import Idle, Turn, mean, percentile
from bench.dispatch_fleet import WORKERS
from bench.rows import Bar, Row

Figure = Callable[[Turn], float | None]
ENTREPOT, ALL_AT_ONCE, MINIMAL = "Entrepot", "AllAtOnce", "minimal nominator"
FIGURES: Mapping[str, tuple[str, Figure]] = {
    "to a cluster": ("workloads/s", lambda turn: turn.to_cluster_per_s),
    "first half to a cluster": ("workloads/s", lambda turn: turn.half_to_cluster_per_s),
    "to Finished": ("workloads/s", lambda turn: turn.to_finished_per_s),
    "quota reserved to cluster, p50": ("s", lambda turn: percentile(turn.reserved_to_cluster_s, 50)),
    "quota reserved to cluster, p99": ("s", lambda turn: percentile(turn.reserved_to_cluster_s, 99)),
    "remote copies": ("per job", lambda turn: turn.copies_per_job),
    "API writes on the hub": ("per job", lambda turn: turn.writes_per_job(on_hub=True)),
    "API writes on the workers": ("per job", lambda turn: turn.writes_per_job(on_hub=False)),
    "MultiKueue's looks (a GET on each worker)": ("per job", lambda turn: turn.looks_per_job(len(WORKERS))),
    "urgent job behind the backlog to its cluster": ("s", lambda turn: percentile(turn.urgent_wait_s, 50)),
}
BARS: Mapping[tuple[str, str], Bar] = {
    ("to a cluster", ALL_AT_ONCE): Bar("ratio", "at least", 1.5),
    ("to a cluster", MINIMAL): Bar("ratio", "at least", 0.97),
    ("to Finished", ALL_AT_ONCE): Bar("ratio", "at least", 1.3),
    ("remote copies", MINIMAL): Bar("value", "at most", 1.0),
}
NOMINATION_MS = 50
BARRED = ("quota reserved to nominated", 99)
TRADED = ("first half to a cluster", "urgent job behind the backlog to its cluster")


def rows_of(turns: Mapping[str, Sequence[Turn]], trade: Mapping[int, Turn], idle: Mapping[str, Idle]) -> list[Row]:
    """Means over the repeats of each contender; everything from one run."""
    return [*_side_by_side(turns), *_idle(idle[ENTREPOT], idle[MINIMAL]), *_trade(turns[ENTREPOT], trade)]


def _side_by_side(turns: Mapping[str, Sequence[Turn]]) -> Iterator[Row]:
    for name, (unit, figure) in FIGURES.items():
        own = mean([figure(turn) for turn in turns[ENTREPOT]])
        for peer, of_peer in turns.items():
            if peer != ENTREPOT:
                value = mean([figure(turn) for turn in of_peer])
                yield Row(f"{name}, beside {peer}", own, unit, peer, value, BARS.get((name, peer)))


def _idle(own: Idle, minimal: Idle) -> Iterator[Row]:
    """Beside the smallest nominator that there is: what it takes is the hub's and the machine's own time."""
    measured = {
        "quota reserved to nominated": (own.reserved_to_nominated_s, minimal.reserved_to_nominated_s),
        "quota reserved and check open to nominated": (own.waiting_to_nominated_s, minimal.waiting_to_nominated_s),
    }
    for name, of_both in measured.items():
        for percent in (50, 99):
            value, floor = (percentile(of_one, percent) for of_one in of_both)
            bar = Bar("value", "at most", NOMINATION_MS) if (name, percent) == BARRED else None
            yield Row(f"{name}, idle hub, p{percent}", _ms(value), "ms", MINIMAL, _ms(floor), bar)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _trade(unbounded: Sequence[Turn], trade: Mapping[int, Turn]) -> Iterator[Row]:
    for name in TRADED:
        unit, figure = FIGURES[name]
        without = mean([figure(turn) for turn in unbounded])
        for bound, turn in trade.items():
            yield Row(f"{name}, at most {bound} outstanding", figure(turn), unit, "no bound", without)
