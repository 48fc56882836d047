"""What was learnt of copies outlasts the daemon: no kill makes a job run twice, or a refusal be tried again at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dispatcher.core.decision import Outcome, Reason
from dispatcher.core.errors import Fenced, Transient
from dispatcher.core.ids import ClusterName
from dispatcher.core.waiting import Phase
from dispatcher.core.watchdog import FindingCode
from dispatcher.loops.lessons import recollect
from dispatcher.loops.watch_copies import EXCLUSION_S
from tests.loops.bench import Bench, start
from tests.loops.jobs import H100
from tests.loops.test_crash import Fuse, Killed
from tests.loops.test_watch_copies import Watched, answer, nominated, watch


@dataclass
class FusedLessons:
    """The real log; the process dies at the fuse's step."""

    log: Any
    fuse: Fuse

    async def keep(self, *more: Any) -> None:
        self.fuse.before_step()
        await self.log.keep(*more)
        self.fuse.after_step()


async def ended_unseen(watched: Watched) -> ClusterName:
    """Its pods have ended on the worker, and job and copy are gone before the hub has read of it (FR-RAC-03)."""
    first = await watched.running("train-a", product=H100)
    worker, copy = watched.worker(first), watched.copy("train-a", first)
    worker._run_of[copy.uid].stop(lambda: None)
    await watched.step(0.1)
    worker.delete(copy)
    return first


async def restarted(bench: Bench) -> Watched:
    await bench.restart()
    return watch(bench)


WHEN = ("while the hub still counts its pods", "once it waits again", "twice")


@pytest.mark.parametrize("when", WHEN)
async def test_fr_rac_03_what_may_have_finished_unseen_is_not_started_by_a_restart_either(
    tmp_path: Path, when: str
) -> None:
    bench = await start(tmp_path)
    watched = watch(bench)
    first = await ended_unseen(watched)
    await watched.until(lambda: watched.counted(FindingCode.OUTCOME_UNKNOWN) == 1)
    if when != "once it waits again":
        watched = await restarted(bench)
    await watched.mend_hub_job("train-a")
    await watched.until(lambda: bench.phase("train-a") is Phase.WAITING)
    if when != "while the hub still counts its pods":
        watched = await restarted(bench)
    for _ in range(50):
        await watched.step()
    assert bench.seen_copies[bench.workload("train-a").key] == {first}
    assert bench.phase("train-a") is Phase.WAITING
    decision = bench.decision("train-a")
    assert decision.outcome is Outcome.WAIT
    assert {Reason.OUTCOME_UNKNOWN} <= {r.reason for c in decision.candidates for r in c.rejections}
    bench.fleet.delete("Job", "autonomy", "train-a")
    await watched.step()
    assert bench.state.avoided == {}, "of what is gone nothing is remembered"
    await bench.store.close()


async def test_a_kill_right_after_it_was_kept_loses_nothing(tmp_path: Path) -> None:
    bench = await start(tmp_path)
    watched = watch(bench)
    first = await ended_unseen(watched)
    watched.copies.lessons = FusedLessons(bench.store.lesson_log, Fuse(0, after=True))
    with pytest.raises(Killed):
        await watched.until(lambda: False)
    watched = await restarted(bench)
    await watched.mend_hub_job("train-a")
    for _ in range(50):
        await watched.step()
    assert bench.seen_copies[bench.workload("train-a").key] == {first}
    assert bench.phase("train-a") is Phase.WAITING
    await bench.store.close()


async def test_a_cluster_that_refused_is_still_left_out_after_a_restart_and_no_longer_than_said(tmp_path: Path) -> None:
    bench = await start(tmp_path)
    watched = watch(bench)
    first = await nominated(watched, "train-a")
    answer(watched, "train-a", first, "Rejected")
    while not bench.state.avoided:
        bench.clock.advance(0.02)
        bench.fleet.advance()
        await watched.copies.cycle()
    before = dict(bench.state.avoided)
    assert bench.workload("train-a").nominated == (first,), "nobody has decided since"
    watched = await restarted(bench)
    assert bench.state.avoided == before
    await watched.until(lambda: len(bench.workload("train-a").nominated) == 2, 15, 0.02)
    refused = bench.decision("train-a").candidate(first)
    assert refused is not None
    assert Reason.FAILED_HERE in {r.reason for r in refused.rejections}
    bench.clock.advance(EXCLUSION_S)
    await bench.restart()
    assert first not in {entry.cluster for entry in bench.state.avoided.get(bench.workload("train-a").uid, ())}
    await bench.store.close()


async def test_what_the_store_does_not_take_counts_all_the_same_and_is_kept_later(tmp_path: Path) -> None:
    class Away:
        async def keep(self, *more: object) -> None:
            raise Transient("store: gone")

    bench = await start(tmp_path)
    watched = watch(bench)
    log, watched.copies.lessons = watched.copies.lessons, Away()  # type: ignore[assignment]
    await ended_unseen(watched)
    uid = bench.workload("train-a").uid
    await watched.until(lambda: uid in bench.state.avoided)
    await watched.step()
    assert await bench.store.lesson_log.recall(bench.clock.now()) == ()
    watched.copies.lessons = log
    await watched.step()
    assert [found for found, _ in await bench.store.lesson_log.recall(bench.clock.now())] == [uid]
    await bench.store.close()


async def test_a_former_leader_that_would_keep_something_learns_that_it_leads_no_more(tmp_path: Path) -> None:
    class Leading:
        term = 1
        over = ""

        def may_write(self, now_s: float) -> bool:
            return not self.over

        def lost(self, why: str) -> None:
            self.over = why

    bench = await start(tmp_path)
    watched, leading = watch(bench), Leading()
    await ended_unseen(watched)
    await bench.store.lead(2, "another", bench.clock.now())
    watched.copies.leadership = leading  # type: ignore[assignment]
    for _ in range(100):
        bench.clock.advance(0.2)
        bench.fleet.advance()
        await watched.copies.cycle()
    assert "term 2 of another has begun" in leading.over
    assert await bench.store.lesson_log.recall(bench.clock.now()) == ()
    with pytest.raises(Fenced):
        await bench.store.lesson_log.keep([(bench.workload("train-a").uid, e) for e in _one(bench)], 1)
    await bench.store.close()


def _one(bench: Bench) -> list[Any]:
    return [entry for entries in bench.state.avoided.values() for entry in entries]


async def test_what_was_seen_here_since_stands_beside_what_the_store_knows(tmp_path: Path) -> None:
    bench = await start(tmp_path)
    watched = watch(bench)
    await ended_unseen(watched)
    uid = bench.workload("train-a").uid
    await watched.until(lambda: uid in bench.state.avoided)
    stored, before = await bench.store.lesson_log.recall(bench.clock.now()), dict(bench.state.avoided)
    recollect(bench.state, stored)
    assert bench.state.avoided == before
    bench.state.avoided.clear()
    recollect(bench.state, stored)
    assert bench.state.avoided == before
    await bench.store.close()
