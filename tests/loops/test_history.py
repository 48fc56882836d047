"""Run times that nobody declares are learnt from runs that ended well, and are known after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dispatcher.core.decision import Basis, Estimate
from dispatcher.core.history import LEAST
from dispatcher.core.ids import QueueName
from dispatcher.core.replay import replay
from dispatcher.core.workload import WorkloadClass
from dispatcher.loops.history import RunBook
from tests.loops.bench import Bench, start
from tests.loops.jobs import RTX, gang

KIND = (QueueName("simulation"), WorkloadClass.SIMULATION)
SECONDS = 600
"""How long they run here, on cards that run simulations at 1.6 times the reference."""
LEARNT_S = 16 * 60
"""So long they would at the reference."""


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    found = await start(tmp_path)
    yield found
    await found.store.close()


def rollout(name: str, **says: str) -> dict[str, Any]:
    return gang(name, gpus=1, product=RTX, namespace="simulation", duration=f"{SECONDS}s", says=says)


async def run_some(bench: Bench, count: int) -> None:
    names = [f"run-{at}" for at in range(count)]
    for name in names:
        bench.fleet.submit(rollout(name))
    while not bench.finished(*names)():
        await bench.step(30)


async def test_what_nobody_declares_is_learnt_from_what_ended(bench: Bench) -> None:
    bench.fleet.submit(rollout("first"))
    await bench.until(lambda: bench.find("first") is not None and bench.workload("first").uid in bench.state.latest)
    assert bench.decision("first").estimate.basis is Basis.CLASS_DEFAULT, "nothing is known, which is not 0"

    await run_some(bench, LEAST)
    bench.fleet.submit(rollout("next"))
    bench.fleet.submit(rollout("told", **{"expected-duration": "PT5M"}))
    await bench.until(
        lambda: all(bench.find(n) and bench.workload(n).uid in bench.state.latest for n in ("next", "told"))
    )
    learnt = bench.decision("next").estimate
    assert (learnt.basis, learnt.runs >= LEAST) == (Basis.HISTORY, True)
    assert LEARNT_S <= learnt.duration_s <= LEARNT_S + 2 * 60, "at the reference speed, steps of a test included"
    assert bench.decision("told").estimate == Estimate(300, Basis.DECLARED)

    record = await bench.store.record(bench.decision("next").id)
    assert record is not None
    assert replay(record.inputs) == record.decision, "what was learnt is part of what the decision saw"


async def test_a_restart_knows_what_the_hub_still_shows(bench: Bench) -> None:
    await run_some(bench, LEAST)
    await bench.step()
    before = dict(bench.state.usual)
    assert before
    await bench.restart()
    assert not bench.state.usual
    await bench.step()
    assert dict(bench.state.usual) == before, "with the flavors of each run, from the store"


async def test_only_what_ended_well_teaches_and_only_once(bench: Bench) -> None:
    await run_some(bench, LEAST)
    ended = [(workload, None) for workload in bench.state.hub_view().workloads.values() if workload.finished]
    failed = [(replace(workload, finished_reason="Failed"), owner) for workload, owner in ended]
    bench.state.usual, book = {}, RunBook(bench.state)
    assert not await book.note(failed, bench.store)
    assert not bench.state.usual
    assert await book.note(ended, bench.store)
    assert bench.state.usual[KIND].runs == LEAST
    assert not await book.note(ended, bench.store), "what is told again is no other run"
