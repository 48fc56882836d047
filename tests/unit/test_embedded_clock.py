"""The embedded fleet's clocks: one that stands still until it is told to move, one that runs fast."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from connectors.embedded import FastClock, ManualClock
from tests.builders import START


async def sleeper(clock: ManualClock, seconds: float, woken: list[tuple[float, float]]) -> None:
    await clock.sleep(seconds)
    woken.append((seconds, clock.monotonic_s()))


async def test_a_manual_clock_wakes_each_sleeper_at_the_instant_it_asked_for() -> None:
    clock, woken = ManualClock(START), list[tuple[float, float]]()
    async with asyncio.TaskGroup() as group:
        for seconds in (3.0, 1.0, 2.0):
            group.create_task(sleeper(clock, seconds, woken))
        await clock.run_for(10)
    assert woken == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]
    assert clock.now() == START + timedelta(seconds=10)
    assert clock.monotonic_s() == 10


async def test_a_task_that_sleeps_again_is_woken_within_the_same_run() -> None:
    clock, beats = ManualClock(START), list[float]()

    async def beat() -> None:
        for _ in range(3):
            await clock.sleep(2)
            beats.append(clock.monotonic_s())

    async with asyncio.TaskGroup() as group:
        group.create_task(beat())
        await clock.run_for(7)
    assert beats == [2, 4, 6]


async def test_a_manual_clock_does_not_move_by_itself_and_a_cancelled_sleeper_does_no_harm() -> None:
    clock = ManualClock(START)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await clock.sleep(1)
    assert clock.now() == START
    clock.advance(5)
    assert clock.monotonic_s() == 5


async def test_sleeping_for_nothing_lets_others_run() -> None:
    await ManualClock(START).sleep(0)


async def test_a_fast_clock_runs_as_many_times_faster_as_it_was_told() -> None:
    clock = FastClock(1000, START)
    await clock.sleep(5)
    passed = clock.monotonic_s()
    assert passed >= 5
    assert clock.now() - START >= timedelta(seconds=passed)


def test_a_fast_clock_that_would_stand_still_is_refused() -> None:
    with pytest.raises(ValueError, match="more than zero"):
        FastClock(0, START)
