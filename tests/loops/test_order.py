"""Who goes first and who may pass, as a whole daemon does it on the embedded fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from dispatcher.cli.main import run as cli
from dispatcher.core.backfill import SHOWN
from dispatcher.core.decision import Outcome, Reason
from dispatcher.core.explain import sentence
from dispatcher.core.explain_order import beyond_text
from dispatcher.core.order import OrderRules
from dispatcher.core.units import span
from dispatcher.core.waiting import Phase
from dispatcher.web.look import Look
from tests.builders import job, pod_template
from tests.loops.bench import Bench, example, start
from tests.loops.jobs import RTX, gang
from tests.unit.api_world import Vitals, api_of, served

FIRST_COME = OrderRules(ageing_s=0, share_weight_s=0)
PLACED = (Phase.PLACED, Phase.FINISHED)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    found = await start(tmp_path)
    yield found
    await found.store.close()


def by(bench: Bench, rules: OrderRules) -> None:
    """No look-ahead: only what fits is nominated, so that it is the order alone that counts."""
    policy, _ = example()
    classes = {name: replace(plan, look_ahead=0) for name, plan in policy.classes.items()}
    bench.state.policy = replace(policy, classes=classes, order=rules)


def declared(seconds: int) -> str:
    """What an owner says of work that takes so long here: the cards run simulations at 1.6 times the declared speed."""
    return f"PT{-(-seconds * 16 // 10)}S"


def small(name: str, gpus: int = 1, seconds: int = 8, **labels: str) -> dict[str, Any]:
    said = {"expected-duration": declared(seconds)}
    manifest = gang(name, gpus=gpus, product=RTX, namespace="simulation", duration=f"{seconds}s", says=said)
    named = manifest["metadata"].setdefault("labels", {})
    named.update({f"entrepot.dev/{key}": value for key, value in labels.items()})
    return manifest


def big(name: str = "big", pods: int = 2, seconds: int = 8) -> dict[str, Any]:
    """Pods that take a whole node each; there are four."""
    said = {"expected-duration": declared(seconds)}
    return gang(name, pods=pods, gpus=8, product=RTX, namespace="simulation", duration=f"{seconds}s", says=said)


async def stream(bench: Bench, seconds: int, seconds_each: int = 8) -> float | None:
    """Two small jobs a second, so that nothing is ever left over, and after some of them a big one. After how long
    that is placed; None: not within the time."""
    for at in range(seconds):
        for each in range(2):
            bench.fleet.submit(small(f"small-{at:03d}-{each}", gpus=2, seconds=seconds_each))
        if at == 10:
            bench.fleet.submit(big())
        await bench.step()
        if bench.find("big") is not None and bench.phase("big") in PLACED:
            return at - 10
    return None


@pytest.mark.parametrize("reservations", [1, 4])
async def test_fr_sco_18_a_stream_of_small_jobs_does_not_starve_the_big_gang(bench: Bench, reservations: int) -> None:
    by(bench, replace(FIRST_COME, reservations=reservations))
    placed_s = await stream(bench, 40)
    assert placed_s is not None
    assert placed_s <= 24, "one run of those before it, its way there, and the way of those that were on theirs"


async def test_without_a_reservation_it_would_starve(bench: Bench) -> None:
    """So the test above shows something."""
    by(bench, replace(FIRST_COME, reservations=0))
    assert await stream(bench, 40) is None


def of_cores(name: str, cpus: int, seconds: int = 8) -> dict[str, Any]:
    """One pod without a GPU, for one cluster."""
    said = {"expected-duration": f"PT{seconds}S", "clusters": "cloud-a-fi"}
    return job(
        name,
        queue="curation",
        in_namespace="flywheel",
        template=pod_template({"cpu": cpus, "memory": "1Gi"}, f"{seconds}s"),
        annotations={f"entrepot.dev/{key}": value for key, value in said.items()},
    )


@pytest.mark.parametrize("reservations", [0, 4])
async def test_fr_sco_18_a_stream_of_small_pods_does_not_starve_one_of_many_cores(
    bench: Bench, reservations: int
) -> None:
    """Nothing of this has a GPU. Without a reservation it would starve, so the test shows something."""
    by(bench, replace(FIRST_COME, reservations=reservations))
    placed_s = None
    for at in range(60):
        for each in range(4):
            bench.fleet.submit(of_cores(f"small-{at:03d}-{each}", 48))
        if at == 10:
            bench.fleet.submit(of_cores("big", 150))
        await bench.step()
        if bench.find("big") is not None and bench.phase("big") in PLACED:
            placed_s = at - 10
            break
    assert (placed_s is None) == (reservations == 0), placed_s


async def test_who_is_kept_back_is_told_for_whom_and_until_when(bench: Bench) -> None:
    by(bench, FIRST_COME)
    for at in range(24):
        bench.fleet.submit(small(f"first-{at}", seconds=30 if at < 12 else 60))
    for _ in range(4):
        await bench.step()
    bench.fleet.submit(big(pods=3, seconds=60))
    await bench.step()
    bench.fleet.submit(small("late", seconds=3600))
    bench.fleet.submit(small("soon", seconds=5))
    for _ in range(3):
        await bench.step()
    late = bench.decision("late")
    there = next(c for c in late.candidates if c.cluster == "onprem-eu")
    assert (late.outcome, [r.reason for r in there.rejections]) == (Outcome.WAIT, [Reason.RESERVED])
    assert bench.workload("big").key in sentence(late)
    assert "by what owners declare" in sentence(late)
    assert bench.phase("soon") in (Phase.NOMINATED, *PLACED), "what ends before may pass"
    assert bench.state.expected is not None
    expected = bench.state.expected(bench.state.snapshot(bench.clock.now()))[bench.workload("big").uid]
    assert (expected.cluster, expected.reserved, expected.overdue) == ("onprem-eu", True, False)
    assert 0 < (expected.start - bench.clock.now()).total_seconds() <= 60
    await bench.until(lambda: bench.phase("big") in PLACED, within_s=90)
    await bench.until(lambda: bench.phase("late") in PLACED, within_s=120)


async def test_beyond_the_first_that_wait_for_room_a_start_is_said_to_be_worked_out_for_nobody(bench: Bench) -> None:
    by(bench, replace(FIRST_COME, reservations=0))
    for at in range(4 + SHOWN + 2):
        bench.fleet.submit(small(f"one-{at:02d}", gpus=8, seconds=3600))
    for _ in range(5):
        await bench.step()
    assert bench.state.expected is not None
    expected = bench.state.expected(bench.state.snapshot(bench.clock.now()))
    look = Look.at(bench.state)
    told = [look.summary(workload) for workload in look.workloads() if workload.uid in look.order]
    assert [each.expected is not None for each in told] == [True] * SHOWN + [False] * 2
    assert len(expected) == SHOWN
    assert [each.expected_unknown for each in told] == [None] * SHOWN + [beyond_text()] * 2
    assert beyond_text() == "not worked out: beyond the first 16 that wait for room"


async def test_of_two_teams_that_which_had_less_goes_first(bench: Bench) -> None:
    by(bench, OrderRules(ageing_s=0, share_half_life_s=600, share_weight_s=3600, reservations=0))
    for at in range(32):
        bench.fleet.submit(small(f"many-{at}", seconds=120, team="simulation"))
    for _ in range(90):
        await bench.step()
    bench.fleet.submit(small("more-of-many", gpus=8, team="simulation"))
    await bench.step()
    bench.fleet.submit(small("of-few", gpus=8, team="autonomy"))
    await bench.step()
    turns = {name: bench.state.turns[bench.workload(name).uid] for name in ("more-of-many", "of-few")}
    assert turns["of-few"].share_ppm == 0 < turns["more-of-many"].share_ppm
    assert turns["of-few"].key < turns["more-of-many"].key
    line = sorted(bench.state.turns.values(), key=lambda turn: turn.key)
    assert [turn.bid.team for turn in line] == ["autonomy", "simulation"]


async def test_cheap_waiting_is_passed_within_the_ageing_and_not_after(bench: Bench) -> None:
    by(bench, OrderRules(ageing_s=60, share_weight_s=0, reservations=0))
    for at in range(4):
        bench.fleet.submit(small(f"first-{at}", gpus=8, seconds=100))
    await bench.step()
    bench.fleet.submit(small("long", gpus=8, seconds=36_000))
    await bench.step(5)
    bench.fleet.submit(small("soon-after", seconds=60))
    await bench.step(60)
    bench.fleet.submit(small("late", seconds=60))
    await bench.step()
    line = [turn.bid.uid for turn in sorted(bench.state.turns.values(), key=lambda turn: turn.key)]
    names = {bench.workload(name).uid: name for name in ("long", "soon-after", "late")}
    assert [names[uid] for uid in line if uid in names] == ["soon-after", "long", "late"]


async def crowded(bench: Bench) -> None:
    """One team has had the cards for a while and asks for more; another has had none; a third waits behind both."""
    by(bench, OrderRules(ageing_s=0, share_half_life_s=600, share_weight_s=3600))
    for at in range(32):
        bench.fleet.submit(small(f"many-{at}", seconds=120, team="simulation"))
    for _ in range(90):
        await bench.step()
    bench.fleet.submit(small("more-of-many", gpus=8, team="simulation"))
    bench.fleet.submit(small("of-few", gpus=8, team="autonomy"))
    for _ in range(2):
        await bench.step()


async def test_a_teams_share_and_the_expected_start_are_told_by_api_and_command_line(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    await crowded(bench)
    with served(api_of(bench.state, bench.store, Vitals())) as url:
        (had,) = await answers(url, "more-of-many")
        (few,) = await answers(url, "of-few")
        queue, more, less = [
            await shown(capsys, *command, "--server", url)
            for command in (("queue",), ("why", "more-of-many"), ("why", "of-few"))
        ]
    turn, expected = had["turn"], had["expected"]
    assert (turn["team"], turn["dominant"]) == ("simulation", "nvidia.com/gpu")
    assert 10_000 <= turn["share_ppm"] < 1_000_000
    assert turn["handicap_s"] == 3600 * turn["share_ppm"] // 1_000_000 > 0
    assert few["turn"]["share_ppm"] == few["turn"]["handicap_s"] == 0
    share = f"{turn['share_ppm'] // 10_000}%"
    assert f"team simulation has had {share} of nvidia.com/gpu: {span(turn['handicap_s'])} back" in more
    assert "team autonomy has had next to nothing" in less
    assert "its team has had less" in more, "who is before it, and why"
    start_s = int((datetime.fromisoformat(expected["start"]) - bench.clock.now()).total_seconds())
    assert 0 < start_s <= 60
    assert expected["cluster"] == "onprem-eu"
    assert f"expected to start {expected['text']}" in more
    assert expected["text"].startswith(f"in {span(start_s)} on onprem-eu")
    rows = {row.split()[1]: row for row in queue.splitlines() if "of-" in row}
    assert f" {share} " in rows["simulation/more-of-many"]
    assert f" in {start_s}s " in rows["simulation/more-of-many"]
    assert " 0% " in rows["simulation/of-few"]


async def answers(url: str, job: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=url) as client:
        listed = (await client.get("/v1/workloads")).json()
    return [item for item in listed["items"] if (item["job"] or {}).get("name") == job]


async def shown(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """What a command prints: the server's loop is another thread's, so this one may wait."""
    assert await asyncio.to_thread(cli, list(command)) == 0
    return capsys.readouterr().out
