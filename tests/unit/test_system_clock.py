"""The machine's clock as the daemon takes it: a wall clock that is set must not age or rejuvenate anything."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from dispatcher.core.instants import later
from dispatcher.core.lease import LeaseTiming, Role, Tenure
from dispatcher.runtime import FOLLOW, SystemClock

START = datetime(2026, 8, 1, 8, 0, tzinfo=UTC)
HOUR = 3600.0


@dataclass(slots=True)
class Machine:
    """Seconds since start, and how far somebody has set the wall clock."""

    elapsed_s: float = 1000.0
    set_by_s: float = 0.0

    def clock(self) -> SystemClock:
        return SystemClock(self.wall, lambda: self.elapsed_s)

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.elapsed_s - 1000.0 + self.set_by_s)


@pytest.mark.parametrize("jump_s", [6 * HOUR, -6 * HOUR, 90.0, -90.0], ids=lambda s: f"set by {s:+.0f} s")
def test_what_was_timed_before_a_jump_keeps_its_age(jump_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    before = clock.now()
    machine.elapsed_s += 10
    machine.set_by_s = jump_s
    for _ in range(6):
        machine.elapsed_s += 10
        age_s = (clock.now() - before).total_seconds()
        assert age_s == pytest.approx(machine.elapsed_s - 1000.0, rel=FOLLOW + 0.001)


@pytest.mark.parametrize("jump_s", [HOUR, -HOUR], ids=["forwards", "backwards"])
def test_a_wall_clock_that_was_set_right_is_followed_in_the_end(jump_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.set_by_s = jump_s
    last = clock.now()
    for _ in range(21 * 60):
        machine.elapsed_s += 60
        assert clock.now() > last, "it never goes back"
        last = clock.now()
    assert last == machine.wall()


def test_an_ordinary_clock_is_the_wall_clock() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(100):
        machine.elapsed_s += 0.3
        assert abs((clock.now() - machine.wall()).total_seconds()) < 0.001


def test_a_jump_is_told_once_and_its_end_too() -> None:
    machine = Machine()
    clock = machine.clock()
    with capture_logs() as logs:
        for set_by_s in (0, 0, HOUR, HOUR, HOUR, 0, 0):
            machine.set_by_s = set_by_s
            machine.elapsed_s += 5
            clock.now()
    told = [entry["wall_clock_ahead_s"] for entry in logs if entry["event"] == "clock_jumped"]
    assert [round(ahead_s, -2) for ahead_s in told] == [3600, 0]


@pytest.mark.parametrize("jump_s", [HOUR, -HOUR], ids=["set forwards", "set backwards"])
def test_how_far_the_two_disagree_shrinks_as_the_jump_is_followed(jump_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock.wall_ahead_s() == 0
    machine.set_by_s = jump_s
    assert clock.wall_ahead_s() == jump_s
    machine.elapsed_s += 600
    left_s = clock.wall_ahead_s()
    assert left_s == pytest.approx(jump_s * (1 - 600 * FOLLOW / HOUR), abs=1)
    assert later(clock.now(), left_s) >= machine.wall(), "a date that the wall clock says is over, is"
    machine.elapsed_s += 21 * HOUR
    assert clock.wall_ahead_s() == 0


@pytest.mark.parametrize(
    ("set_by_s", "told"), [(0.9, 0), (1.1, 2), (-0.9, 0), (-1.1, -2)], ids=lambda value: f"{value:+}"
)
def test_less_than_a_second_is_no_disagreement_and_more_is_told_in_full(set_by_s: float, told: int) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.set_by_s = set_by_s
    assert clock.wall_ahead_s() == told


def test_a_leader_that_slept_with_its_machine_knows_that_its_time_is_over() -> None:
    machine = Machine()
    clock = machine.clock()
    tenure = Tenure("me", LeaseTiming(15, 10.0, 2.0), Role.LEADING, sent_at_s=clock.monotonic_s())
    assert tenure.may_write(clock.monotonic_s())
    machine.elapsed_s += 3600
    assert not tenure.may_write(clock.monotonic_s())
