"""What each ended run used is on record once, whatever ended it and whenever the daemon was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from dispatcher.cli.main import run as command
from dispatcher.core.energy import EndedRun
from dispatcher.core.ports import WorkerPort
from dispatcher.core.resources import NOTHING
from dispatcher.core.shares import Run, Usage
from dispatcher.core.snapshot import WorkerView
from dispatcher.core.waiting import Phase
from dispatcher.loops.energy import drawn_now
from dispatcher.web.look import Look
from dispatcher.web.why import why
from tests.loops.bench import Bench, start
from tests.loops.jobs import gang
from tests.loops.test_shares_restart import FusedUses, Killed


@dataclass(frozen=True, slots=True)
class Shown:
    """A worker that shows one view."""

    only: WorkerView

    def view(self) -> WorkerView:
        return self.only


async def used(bench: Bench, job: str) -> Sequence[EndedRun]:
    return await bench.store.ended_runs(bench.workload(job).key, 10)


def by_hand(bench: Bench, found: EndedRun, gpus: int) -> int:
    """Watt-hours by the blueprint's own numbers."""
    site = bench.state.policy.clusters[found.drawn.cluster]
    watts = next(f.watts for f in site.flavors.values() if f.product == "h100-80gb")
    assert watts is not None
    assert site.energy_permille is not None
    return round(gpus * watts * site.energy_permille / 1000 * (found.ended_at - found.begun_at).total_seconds() / 3600)


async def test_a_finished_job_tells_what_it_used(bench: Bench) -> None:
    bench.fleet.submit(gang("train-a", 2, duration="3600s"))
    await bench.until(lambda: bench.phase("train-a") is Phase.PLACED)
    await bench.step()
    assert await used(bench, "train-a") == []
    await bench.step(3600)
    await bench.until(bench.finished("train-a"), 60)
    await bench.step()
    (found,) = await used(bench, "train-a")
    workload = bench.workload("train-a")
    assert (found.begun_at, found.ended_at) == (workload.admitted_at, workload.finished_at)
    assert 3590 <= found.lasted_s <= 3610
    assert (found.gpus, found.watt_hours) == (16, by_hand(bench, found, 16))
    told = await why(Look.at(bench.state), bench.store, workload)
    assert [(r.cluster, r.watt_hours, r.co2_grams) for r in told.runs] == [
        (found.drawn.cluster, found.watt_hours, found.co2_grams)
    ]
    assert "kWh" in told.runs[0].text


async def test_an_attempt_that_was_evicted_used_what_it_used_and_the_next_is_another_run(bench: Bench) -> None:
    bench.fleet.submit(gang("train-a", duration="600s"))
    await bench.until(lambda: bench.phase("train-a") is Phase.PLACED)
    await bench.step(120)
    bench.fleet.set_check(bench.workload("train-a").uid, "entrepot", "Retry")
    await bench.until(lambda: bench.phase("train-a") is not Phase.PLACED, 30)
    await bench.until(lambda: bench.phase("train-a") is Phase.PLACED, 60)
    await bench.step(600)
    await bench.until(bench.finished("train-a"), 60)
    await bench.step()
    newest, first = await used(bench, "train-a")
    assert 115 <= first.lasted_s <= 140
    assert newest.lasted_s >= 595
    assert all(found.watt_hours == by_hand(bench, found, 8) for found in (first, newest))


async def test_a_job_that_is_deleted_while_it_runs_used_something(bench: Bench) -> None:
    bench.fleet.submit(gang("train-a", duration="600s"))
    await bench.until(lambda: bench.phase("train-a") is Phase.PLACED)
    await bench.step(60)
    key = bench.workload("train-a").key
    bench.fleet.delete("Job", "autonomy", "train-a")
    for _ in range(3):
        await bench.step()
    (found,) = await bench.store.ended_runs(key, 10)
    assert found.watt_hours


@pytest.mark.parametrize("after", [False, True], ids=["before it took effect", "after it took effect"])
@pytest.mark.parametrize("at", [0, 1])
async def test_a_kill_at_any_step_leaves_one_record(tmp_path: Path, at: int, after: bool) -> None:
    """The begin and the end are kept in two writes; the process dies at one of them and another one goes on."""
    bench = await start(tmp_path)
    assert bench.dispatch.uses is not None
    bench.dispatch.uses = FusedUses(bench.dispatch.uses, at, after)
    bench.fleet.submit(gang("train-a", duration="300s"))
    killed = False
    for _ in range(90):
        try:
            await bench.step(5)
        except Killed:
            killed = True
            await bench.restart()
    assert killed
    assert bench.finished("train-a")()
    (found,) = await used(bench, "train-a")
    assert 290 <= found.lasted_s <= 310
    assert found.watt_hours == by_hand(bench, found, 8)
    await bench.store.close()


async def test_what_ended_while_nobody_looked_used_nobody_knows_what(bench: Bench) -> None:
    """It ran for a minute, was deleted, and the daemon came back five hours later: not five hours of energy."""
    bench.fleet.submit(gang("train-a", duration="36000s"))
    bench.fleet.submit(gang("train-b", duration="36000s"))
    await bench.until(lambda: all(bench.phase(job) is Phase.PLACED for job in ("train-a", "train-b")))
    await bench.step(60)
    keys = [bench.workload(job).key for job in ("train-a", "train-b")]
    bench.fleet.delete("Job", "autonomy", "train-a")
    bench.clock.advance(5 * 3600)
    bench.fleet.advance()
    await bench.restart()
    for _ in range(3):
        await bench.step()
    assert list(await bench.store.ended_runs(keys[0], 10)) == []
    bench.fleet.delete("Job", "autonomy", "train-b")
    for _ in range(3):
        await bench.step()
    (seen,) = await bench.store.ended_runs(keys[1], 10)
    assert 5 * 3600 <= seen.lasted_s <= 5 * 3600 + 90


@pytest.mark.parametrize("again", [False, True], ids=["waits again", "is deleted"])
async def test_what_was_evicted_while_nobody_led_used_what_it_used_until_then(bench: Bench, again: bool) -> None:
    """Kueue shows on the hub when it took back what it had admitted, and no other run can have begun since."""
    bench.fleet.submit(gang("train-a", duration="36000s"))
    await bench.until(lambda: bench.phase("train-a") is Phase.PLACED)
    await bench.step(600)
    key, uid = bench.workload("train-a").key, bench.workload("train-a").uid
    bench.fleet.set_check(uid, "entrepot", "Retry")
    bench.clock.advance(10)
    bench.fleet.advance()
    if again:
        bench.fleet.delete("Job", "autonomy", "train-a")
    bench.clock.advance(3600)
    bench.fleet.advance()
    await bench.restart()
    for _ in range(3):
        await bench.step()
    found = await bench.store.ended_runs(key, 10)
    if again:
        assert list(found) == [], "whose Workload is gone, of that nobody knows when"
        return
    (run,) = found
    assert 600 <= run.lasted_s <= 615
    assert run.watt_hours == by_hand(bench, run, 8)


async def test_a_run_that_was_admitted_with_fewer_pods_draws_for_those(bench: Bench) -> None:
    bench.fleet.submit(gang("train-a", 4, duration="600s"))
    await bench.until(lambda: bench.phase("train-a") is Phase.PLACED)
    workload, state = bench.workload("train-a"), bench.state
    assert workload.cluster_name is not None
    assert workload.admitted_at is not None
    run = Run(workload.uid, Usage("team", NOTHING, workload.admitted_at))
    (whole,) = drawn_now([run], state).values()
    view = state.worker_views()[workload.cluster_name]
    copy = view.copies[workload.namespace, workload.name]
    (name, pods, per_pod, flavor) = copy.pod_sets[0]
    assert pods == 4
    fewer = replace(copy, pod_sets=((name, 3, per_pod, flavor),))
    seen = replace(view, copies={**view.copies, (copy.namespace, copy.name): fewer})
    shown = cast(WorkerPort, Shown(seen))
    (part,) = drawn_now([run], replace(state, workers={workload.cluster_name: shown})).values()
    assert whole is not None
    assert part is not None
    assert whole.draw_mw is not None
    assert part.draw_mw == whole.draw_mw * 3 // 4


async def test_a_cluster_that_leaves_the_blueprint_while_a_job_runs_used_what_was_declared(bench: Bench) -> None:
    bench.fleet.submit(gang("train-a", duration="600s"))
    await bench.until(lambda: bench.phase("train-a") is Phase.PLACED)
    for _ in range(3):
        await bench.step()
    where, policy = bench.workload("train-a").cluster_name, bench.state.policy
    left = {name: cluster for name, cluster in policy.clusters.items() if name != where}
    bench.state.policy = replace(policy, digest="less", clusters=left)
    await bench.step(600)
    await bench.until(bench.finished("train-a"), 60)
    await bench.step()
    bench.state.policy = policy
    (found,) = await used(bench, "train-a")
    assert found.watt_hours == by_hand(bench, found, 8)


async def test_a_blueprint_that_declares_no_watts_leaves_it_unknown_and_why_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the records alone, as the command reads them while the daemon is down."""
    bench = await start(tmp_path)
    bare = {name: replace(cluster, energy_permille=None) for name, cluster in bench.state.policy.clusters.items()}
    prices = replace(bench.state.policy.prices, carbon=None)  # with a price, what is not known is not chosen
    bench.state.policy = replace(bench.state.policy, digest="bare", clusters=bare, prices=prices)
    bench.fleet.submit(gang("train-a", duration="60s"))
    await bench.until(bench.finished("train-a"), 120)
    await bench.step()
    (found,) = await used(bench, "train-a")
    assert (found.watt_hours, found.co2_grams) == (None, None)
    await bench.store.close()
    asked = ["why", "autonomy/train-a", "--server", "http://127.0.0.1:9", "--store", str(bench.path)]
    assert await asyncio.to_thread(command, asked) == 0
    shown = capsys.readouterr().out
    assert "What it used" in shown
    assert "energy not known (fleet.yaml: energy_factor, watts)" in " ".join(shown.split())
