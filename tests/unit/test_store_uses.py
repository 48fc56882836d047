"""What teams had of the fleet is kept, told anew, read within bounds and forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from dispatcher.core.energy import Drawn, EndedRun
from dispatcher.core.errors import Fenced
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.resources import Resources
from dispatcher.core.shares import Run, Usage
from dispatcher.store import SqlStore, open_store
from dispatcher.store.database import run_of
from dispatcher.store.tables import uses
from tests.unit.records import NOW

EIGHT = Resources.of({"nvidia.com/gpu": 8, "cpu": 64_000})


def run(name: str, begun_h: int, ended_h: int | None = None, team: str = "autonomy") -> Run:
    """Hours ago."""
    ended_at = NOW - timedelta(hours=ended_h) if ended_h is not None else None
    return Run(WorkloadUid(name), Usage(team, EIGHT, NOW - timedelta(hours=begun_h, microseconds=7), ended_at))


@pytest.fixture
async def store(target: str) -> AsyncIterator[SqlStore]:
    opened = await open_store(target)
    yield opened
    await opened.close()


async def recalled(store: SqlStore, since_h: int = 100, most: int = 10) -> list[Run]:
    return list(await store.use_log.recall(NOW - timedelta(hours=since_h), most))


async def test_what_was_kept_comes_back_what_goes_on_first_and_then_the_newest_end(store: SqlStore) -> None:
    told = [run("old", 50, 40), run("going", 30), run("new", 20, 10), run("younger", 5)]
    await store.use_log.keep(told)
    assert [r.workload for r in await recalled(store)] == ["younger", "going", "new", "old"]
    assert sorted(await recalled(store), key=str) == sorted(told, key=str)


async def test_a_run_that_is_told_again_is_what_is_told_now_and_another_attempt_is_another_run(store: SqlStore) -> None:
    await store.use_log.keep([run("a", 10)])
    await store.use_log.keep([run("a", 10, 3), run("a", 2), run("a", 2, team="simulation")])
    assert await recalled(store) == [run("a", 2, team="simulation"), run("a", 10, 3)]


async def test_only_what_still_counts_is_read_and_never_more_than_is_asked_for(store: SqlStore) -> None:
    await store.use_log.keep([run(f"w{hour:02d}", hour + 1, hour) for hour in range(20)])
    assert len(await recalled(store, since_h=5)) == 6
    assert [r.workload for r in await recalled(store, most=2)] == ["w00", "w01"]
    await store.use_log.keep([run("going", 90), run("also", 91), run("too", 92)])
    assert [r.workload for r in await recalled(store, most=2)] == ["going", "also"]


def drawn(draw_mw: int | None = 6_000_000, grid: int | None = 300) -> Drawn:
    return Drawn("team/a", ClusterName("onprem"), draw_mw, grid)


async def test_what_a_run_draws_stays_as_it_was_told_until_it_is_told_anew(store: SqlStore) -> None:
    begun, over = run("a", 10), run("a", 10, 3)
    key = (begun.workload, begun.usage.begun_at)
    await store.use_log.keep([begun, run("b", 9)], {key: drawn()})
    assert list(await store.ended_runs("team/a", 5)) == [], "it goes on"
    await store.use_log.keep([over])
    await store.use_log.keep([over])
    assert over.usage.ended_at is not None
    expected = EndedRun(over.workload, over.usage.begun_at, over.usage.ended_at, 8, drawn())
    assert list(await store.ended_runs("team/a", 5)) == [expected]
    await store.use_log.keep([over], {key: drawn(None)})
    assert [found.watt_hours for found in await store.ended_runs("team/a", 5)] == [None]
    assert await recalled(store) == [run("b", 9), over]


async def test_a_guess_is_kept_where_nothing_is_known_and_replaces_nothing_that_is(store: SqlStore) -> None:
    """At its end the worker's copy is often gone, and its cluster may be out of the blueprint."""
    guess = replace(drawn(1, None), guessed=True)
    over, other = run("a", 10, 3), run("b", 9, 2)
    keys = [(each.workload, each.usage.begun_at) for each in (over, other)]
    await store.use_log.keep([run("a", 10)], {keys[0]: drawn()})
    await store.use_log.keep([over, other], dict.fromkeys(keys, guess))
    assert [found.drawn for found in await store.ended_runs("team/a", 5)] == [guess, drawn()]
    await store.use_log.keep([other], {keys[1]: drawn()})
    assert [found.drawn for found in await store.ended_runs("team/a", 5)] == [drawn(), drawn()]


async def test_what_is_told_as_not_known_is_not_known_any_more(store: SqlStore) -> None:
    over = run("a", 10, 3)
    key = (over.workload, over.usage.begun_at)
    await store.use_log.keep([run("a", 10)], {key: drawn()})
    await store.use_log.keep([over], {key: None})
    assert list(await store.ended_runs("team/a", 5)) == []
    assert await recalled(store) == [over]


async def test_a_leader_of_before_changes_no_row(store: SqlStore) -> None:
    """Stopped between its last look and this write; a run that has ended would go on for ever."""
    await store.lead(1, "one", NOW)
    await store.use_log.keep([run("a", 10)], term=1)
    await store.lead(2, "two", NOW)
    await store.use_log.keep([run("a", 10, 3)], term=2)
    with pytest.raises(Fenced):
        await store.use_log.keep([run("a", 10)], term=1)
    assert await recalled(store) == [run("a", 10, 3)]


async def test_a_run_of_which_nobody_knows_where_it_ran_is_none_that_used_anything(store: SqlStore) -> None:
    await store.use_log.keep([run("a", 10, 3)])
    assert list(await store.ended_runs("team/a", 5)) == []


async def test_a_row_that_cannot_be_read_costs_itself_alone(store: SqlStore) -> None:
    await store.use_log.keep([run("good", 2), run("bad", 1)])
    broken = update(uses).where(uses.c.workload == "bad").values(amounts="[8]")
    await store._database.write("breaking a row", run_of(broken))
    assert await recalled(store) == [run("good", 2)]


async def test_retention_forgets_what_ended_and_never_what_goes_on(store: SqlStore) -> None:
    await store.use_log.keep([run("old", 50, 40), run("new", 50, 10), run("going", 99)])
    await store.prune(NOW - timedelta(hours=20))
    assert [r.workload for r in await recalled(store)] == ["going", "new"]


async def test_nothing_to_keep_is_no_transaction(store: SqlStore) -> None:
    await store.use_log.keep([])
    assert await recalled(store) == []
