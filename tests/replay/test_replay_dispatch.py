"""Everything that a daemon decides on the embedded fleet can be replayed: also after a restart and a new blueprint."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from dispatcher.core.decision import Outcome
from dispatcher.core.replay import Verdict, compare, replay
from dispatcher.store import open_records
from dispatcher.store.documents import replayed_digest
from tests.loops.bench import Bench
from tests.loops.jobs import B200, H100, gang, rollouts_and_learner

pytestmark = pytest.mark.slow

JOBS = tuple(f"train-{number}" for number in range(16))


async def verdicts(bench: Bench) -> list[Verdict | None]:
    """One for each recorded decision, newest first; None where the inputs are gone."""
    found: list[Verdict | None] = []
    for decision in await bench.store.recent(1000):
        record = await bench.store.record(decision.id)
        if record is None:
            found.append(None)
            continue
        again = replay(record.inputs)
        found.append(compare(record, again, replayed_digest(again)).verdict)
    return found


async def run(bench: Bench) -> None:
    for number, name in enumerate(JOBS):
        bench.fleet.submit(gang(name, pods=1 + number % 3, product=(H100, B200)[number % 2]))
    bench.fleet.submit(rollouts_and_learner("rollouts"))
    bench.fleet.submit(gang("too-large", pods=64))
    await bench.until(bench.finished(*JOBS, "rollouts"))


async def test_every_decision_of_a_run_replays_to_the_same_bytes_before_and_after_a_restart(bench: Bench) -> None:
    await run(bench)
    before = await verdicts(bench)
    assert len(before) > len(JOBS)
    assert set(before) == {Verdict.SAME}
    assert {d.outcome for d in await bench.store.recent(1000)} >= {Outcome.NOMINATE, Outcome.WAIT}
    await bench.restart()
    assert await verdicts(bench) == before


async def test_a_decision_replays_under_the_policy_that_it_was_made_under(bench: Bench) -> None:
    bench.fleet.submit(gang("old"))
    await bench.until(bench.finished("old"))
    prices = bench.state.policy.prices
    dearer = {key: replace(p, usd_micro_per_hour=p.usd_micro_per_hour * 2) for key, p in prices.compute.items()}
    bench.state.policy = replace(bench.state.policy, digest="edited", prices=replace(prices, compute=dearer))
    bench.fleet.submit(gang("new"))
    await bench.until(bench.finished("new"))
    assert {d.policy_digest for d in await bench.store.recent()} >= {"edited"}
    assert set(await verdicts(bench)) == {Verdict.SAME}


async def test_a_daemon_that_is_down_can_be_asked_too(bench: Bench) -> None:
    bench.fleet.submit(gang("one"))
    await bench.until(bench.finished("one"))
    (decision,) = await bench.store.recent(1)
    store = await open_records(bench.path)
    record = await store.record(decision.id)
    await store.close()
    assert record is not None
    assert replay(record.inputs) == decision


async def test_decisions_share_what_they_saw(bench: Bench) -> None:
    """A decision costs its own document and what changed since the last one, not the fleet."""
    await run(bench)
    raw = sqlite3.connect(bench.path)
    ((size, decisions),) = raw.execute("SELECT size, decisions FROM input_segments").fetchall()
    ((stored,),) = raw.execute(
        "SELECT (SELECT sum(length(content)) FROM input_pieces) + (SELECT sum(length(document)) FROM inputs)"
    ).fetchall()
    raw.close()
    # Commits side by side may each count a promise of one another that is stored once: never too few bytes, few too
    # many. The base of the fleet, which is most of it on a large one, is counted once: the first commit goes alone.
    assert stored <= size < stored * 1.6, "the segment knows its size, or it could not be bounded"
    assert size / decisions < 3000, f"{size / decisions:.0f} bytes a decision"
