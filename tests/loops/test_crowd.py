"""A crowd on the embedded fleet, and kills drawn by hypothesis: the laws of the real runs, judged in seconds."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.ports import IntentState
from tests.examples import examples
from tests.local import laws
from tests.loops.bench import CONFIG, Bench, start
from tests.loops.history import History, example_room
from tests.loops.jobs import B200, H100, H200, gang
from tests.loops.test_crash import Fuse, FusedHub, FusedStore, killed

pytestmark = pytest.mark.slow
PRODUCTS = (H100, H200, B200)


def jobs(count: int, sizes: tuple[int, ...] = (1, 2, 1, 4, 1)) -> dict[str, dict[str, Any]]:
    names = [f"crowd-{n:03d}" for n in range(count)]
    return {
        name: gang(name, gpus=sizes[n % len(sizes)], product=PRODUCTS[n % 3], duration="10s")
        for n, name in enumerate(names)
    }


async def step(bench: Bench, history: History) -> None:
    """One step of the bench with a look between the world's move and the daemon's."""
    bench.clock.advance(1.0)
    bench.fleet.advance()
    history.look()
    await bench.dispatch.cycle()
    history.look()
    await bench.notices.drain()


async def test_ninety_jobs_at_once_are_never_nominated_beyond_fit_and_look_ahead(tmp_path: Path) -> None:
    bench, manifests, offer = await start(tmp_path), jobs(90, (8, 4, 8, 2, 8)), example_room()
    history = History(bench, manifests)
    for manifest in manifests.values():
        bench.fleet.submit(manifest)
    for _ in range(400):
        if bench.finished(*manifests)():
            break
        await step(bench, history)
    assert bench.finished(*manifests)()
    classes = dict.fromkeys(manifests, "training")
    filling = laws.beyond_fit(history.changes, offer, laws.look_ahead(CONFIG), classes)
    assert filling.breaches == []
    assert filling.judged == len(manifests)
    assert any(gpus >= offer.at(place) for place, gpus in filling.fullest.items()), "the crowd never filled a cluster"
    assert laws.doubled(history.changes) == []
    assert laws.changed_in_flight(history.changes) == []
    await bench.store.close()


kills = st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.integers(0, 3)), min_size=1, max_size=8)
"""Each life of the daemon: after how many durable steps it dies, whether that step took effect, jobs that arrive."""


@examples(12)
@given(kills)
def test_kills_at_drawn_moments_with_jobs_arriving_lose_and_double_nothing(lives: list[tuple[int, bool, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_live(Path(folder), lives))


async def _live(folder: Path, lives: list[tuple[int, bool, int]]) -> None:
    bench, manifests = await start(folder), jobs(4 + sum(arriving for _, _, arriving in lives))
    waiting, history = list(manifests.values()), History(bench, manifests)
    for manifest in waiting[:4]:
        bench.fleet.submit(manifest)
    del waiting[:4]
    for at, after, arriving in lives:
        fuse = Fuse(at, after)
        bench.dispatch.store = FusedStore(bench.store, fuse)
        bench.state.hub = FusedHub(bench.fleet.hub, fuse)
        bench.notices.hub = bench.state.hub
        for manifest in waiting[:arriving]:
            bench.fleet.submit(manifest)
        del waiting[:arriving]
        try:
            for _ in range(12):
                await step(bench, history)
        except BaseException as gone:
            if not killed(gone):
                raise
        await bench.restart()
    for _ in range(400):
        if bench.finished(*manifests)():
            break
        await step(bench, history)
    await step(bench, history)
    try:
        _judge(bench, history, manifests)
        assert not await bench.store.intents(IntentState.PLANNED)
        for name in manifests:
            newest = (await bench.store.decisions_of(bench.workload(name).key, 1))[0]
            assert newest.attempt == 1, name
    finally:
        await bench.store.close()


def _judge(bench: Bench, history: History, manifests: dict[str, dict[str, Any]]) -> None:
    assert bench.finished(*manifests)(), bench.phases()
    assert bench.state.holds == {}
    assert bench.fleet.refused_latches == 0
    assert laws.doubled(history.changes) == []
    assert laws.changed_in_flight(history.changes) == []
    classes = dict.fromkeys(manifests, "training")
    assert laws.beyond_fit(history.changes, example_room(), laws.look_ahead(CONFIG), classes).breaches == []
    copies = laws.runs(history.changes).copies
    assert {key: count for key, count in copies.items() if count != 1} == {}
    assert len(copies) == len(manifests)
