"""When dispatch looks again: rests between cycles, and pauses after a nomination that was not made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatcher.core.ids import WorkloadUid
from dispatcher.core.ports import IntentState, Nomination
from dispatcher.core.waiting import Phase
from dispatcher.loops.dispatch import SHARE
from dispatcher.loops.rhythm import LONGEST_REST_S, SHORTEST_REST_S, Retries, Throttle
from dispatcher.loops.writing import TRIES
from tests.loops.bench import Bench
from tests.loops.jobs import gang
from tests.unit.test_waiting import workload

T0 = datetime(2026, 8, 1, 8, 0, tzinfo=UTC)
JOB = workload(resource_version="7")


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def rests(cycles_s: Sequence[float]) -> list[float]:
    """How long dispatch rests after each of these cycles, one right after the other's rest."""
    throttle, now_s, found = Throttle(SHORTEST_REST_S, LONGEST_REST_S, SHARE), 1000.0, []
    for cycle_s in cycles_s:
        now_s += cycle_s
        found.append(throttle.rest_s(cycle_s, now_s))
        now_s += found[-1]
    return found


def test_around_one_reservation_on_an_idle_hub_it_hardly_rests() -> None:
    assert set(rests([0.003] * 10)) == {SHORTEST_REST_S}


def test_a_storm_of_events_costs_its_share_of_a_core_and_no_more() -> None:
    cycles_s = [0.004] * 500
    rested_s = rests(cycles_s)
    assert rested_s[0] == SHORTEST_REST_S, "the first that come are answered at once"
    assert sum(cycles_s) / (sum(cycles_s) + sum(rested_s)) == pytest.approx(SHARE, rel=0.1)


def test_a_long_cycle_delays_the_next_by_a_tenth_of_a_second_at_most() -> None:
    assert rests([5.0]) == [LONGEST_REST_S]


def test_what_a_storm_has_cost_is_forgotten_when_it_is_over() -> None:
    throttle = Throttle(SHORTEST_REST_S, LONGEST_REST_S, SHARE)
    assert throttle.rest_s(0.5, 1000.0) == LONGEST_REST_S
    assert throttle.rest_s(0.003, 1003.0) == SHORTEST_REST_S


def test_what_was_never_tried_is_decided_at_once() -> None:
    assert not Retries().leaves_alone(JOB, T0)


def test_after_a_conflict_it_waits_for_the_newer_version_and_no_longer() -> None:
    retries = Retries()
    retries.overtaken(JOB.uid, "7", T0)
    assert retries.leaves_alone(JOB, after(0.5)), "the view does not show yet what overtook us"
    assert not retries.leaves_alone(replace(JOB, resource_version="8"), after(0.001))
    assert not retries.leaves_alone(JOB, after(1.0)), "a view that does not move is not waited for for ever"


def test_other_failures_pause_for_longer_each_time_whatever_the_view_shows() -> None:
    retries, now = Retries(), T0
    for pause_s in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        retries.failed(JOB.uid, now)
        newer = replace(JOB, resource_version="8")
        assert retries.leaves_alone(newer, now + timedelta(seconds=pause_s - 0.1))
        now += timedelta(seconds=pause_s)
        assert not retries.leaves_alone(newer, now)


def test_a_hub_that_speaks_of_a_conflict_where_nothing_moved_is_asked_ever_more_rarely() -> None:
    """An admission policy denies with 422, which reads like a conflict: it must not become a try a second."""
    retries, now = Retries(), T0
    for pause_s in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        retries.overtaken(JOB.uid, "7", now)
        assert retries.leaves_alone(JOB, now + timedelta(seconds=pause_s - 0.1))
        now += timedelta(seconds=pause_s)
        assert not retries.leaves_alone(JOB, now)


def test_a_conflict_does_not_make_the_next_pause_longer() -> None:
    retries = Retries()
    retries.overtaken(JOB.uid, "7", T0)
    retries.failed(JOB.uid, T0)
    assert not retries.leaves_alone(JOB, after(1.0))


def test_what_was_made_or_is_gone_is_forgotten() -> None:
    retries, other = Retries(), replace(JOB, uid=WorkloadUid("other"))
    retries.failed(JOB.uid, T0)
    retries.failed(other.uid, T0)
    retries.made(JOB.uid)
    retries.keep({JOB.uid})
    assert not retries.leaves_alone(JOB, T0)
    assert not retries.leaves_alone(other, T0)


class Meanwhile:
    """The real store; while it commits a decision, something happens to the hub Workload, once."""

    def __init__(self, bench: Bench, state: str) -> None:
        self._bench, self._state, self._left = bench, state, 1
        self._store = bench.dispatch.store
        bench.dispatch.store = self

    async def commit(self, *arguments: Any) -> None:
        await self._store.commit(*arguments)
        if self._left:
            self._left -= 1
            self._bench.fleet.set_check(arguments[0].workload, "entrepot", self._state, "written meanwhile")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_what_kueue_writes_after_the_quota_does_not_cost_a_quick_nomination_another_round(bench: Bench) -> None:
    Meanwhile(bench, "Pending")
    bench.fleet.submit(gang("train-a"))
    await bench.until(lambda: "train-a" in {d.job_name for d in bench.state.latest.values()})
    decision = bench.decision("train-a")
    assert bench.workload("train-a").nominated == (decision.chosen,)
    assert bench.workload("train-a").resource_version != decision.resource_version, "guarded by the newer version"
    assert bench.metrics.nominations.labels("written")._value.get() == 1
    assert bench.metrics.nominations.labels("overtaken")._value.get() == 0


async def test_what_changes_the_answer_cancels_the_write(bench: Bench) -> None:
    Meanwhile(bench, "Ready")
    bench.fleet.submit(gang("train-a"))
    await bench.until(lambda: bench.metrics.nominations.labels("overtaken")._value.get() == 1)
    assert bench.workload("train-a").nominated == ()
    assert bench.phase("train-a") is not Phase.NOMINATED


class Overtaking:
    """The real hub; just before it takes a nomination, Kueue writes to the Workload, some times over."""

    def __init__(self, bench: Bench, states: Sequence[str]) -> None:
        self._bench, self._states = bench, list(states)
        self._port = bench.state.hub
        self.asked: list[str] = []
        bench.state.hub = self  # type: ignore[assignment]

    async def nominate(self, nomination: Nomination) -> str:
        self.asked.append(nomination.resource_version)
        if self._states:
            message = f"written meanwhile, {len(self._states)}"
            self._bench.fleet.set_check(nomination.uid, "entrepot", self._states.pop(0), message)
        return await self._port.nominate(nomination)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


async def decisions_on(bench: Bench, job: str) -> int:
    return len(await bench.store.decisions_of(f"{bench.workload(job).namespace}/{job}"))


async def test_a_conflict_with_what_changes_nothing_is_written_again_at_once_and_decided_once(bench: Bench) -> None:
    hub = Overtaking(bench, ["Pending", "Pending"])
    bench.fleet.submit(gang("train-a"))
    await bench.until(lambda: bench.metrics.nominations.labels("written")._value.get() == 1)
    assert len(hub.asked) == len(set(hub.asked)) == 3, "each on a newer version"
    assert bench.workload("train-a").nominated == (bench.decision("train-a").chosen,)
    assert await decisions_on(bench, "train-a") == 1
    assert bench.metrics.nominations.labels("conflict")._value.get() == 0


async def test_a_conflict_with_what_changes_the_answer_is_not_written_again(bench: Bench) -> None:
    hub = Overtaking(bench, ["Ready"])
    bench.fleet.submit(gang("train-a"))
    await bench.until(lambda: bench.metrics.nominations.labels("conflict")._value.get() == 1)
    assert len(hub.asked) == 1
    assert bench.workload("train-a").nominated == ()
    assert bench.state.holds == {}
    assert not await bench.store.intents(IntentState.PLANNED)


async def test_a_workload_that_is_always_overtaken_is_left_to_the_next_cycle(bench: Bench) -> None:
    hub = Overtaking(bench, ["Pending"] * TRIES)
    bench.fleet.submit(gang("train-a"))
    await bench.until(lambda: bench.metrics.nominations.labels("conflict")._value.get() == 1)
    assert len(hub.asked) == TRIES
    await bench.until(bench.finished("train-a"))
    assert list(bench.seen_copies.values()) == [{bench.decision("train-a").chosen}]
