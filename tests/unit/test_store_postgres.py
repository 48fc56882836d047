"""What replicas ask of the store, on both databases; and what a PostgreSQL server does to its clients."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from dispatcher.core.errors import Conflict, EntrepotError, Fatal, Fenced, Refused, Transient
from dispatcher.core.ports import IntentState
from dispatcher.store import SqlStore, copy_store, is_postgres, open_records, open_store, shown
from tests.postgres import PASSWORD, PostgresServer, postgres_server
from tests.store_files import asked
from tests.unit.records import NOW, decision, hold_of, intent_of

pytestmark = pytest.mark.slow


@pytest.fixture
async def pair(target: str) -> AsyncIterator[tuple[SqlStore, SqlStore]]:
    """Two daemons' connections to one store."""
    first, second = await open_store(target), await open_store(target)
    yield first, second
    await first.close()
    await second.close()


# --- terms ---------------------------------------------------------------------------------------------------------


async def test_fr_rac_05_a_commit_of_an_older_term_is_refused_once_a_later_one_has_begun(
    pair: tuple[SqlStore, SqlStore],
) -> None:
    old, new = pair
    await old.lead(1, "one", NOW)
    kept = decision(1)
    await old.commit(kept, hold_of(kept), replace(intent_of(kept), term=1))
    await new.lead(2, "two", NOW)
    late = decision(2, key="n/late")
    with pytest.raises(Fenced, match="term 2 of two"):
        await old.commit(late, hold_of(late), replace(intent_of(late), term=1))
    assert await new.decision(late.id) is None
    assert [hold.decision for hold in await new.holds()] == [kept.id]
    assert [(i.decision, i.term) for i in await new.intents(IntentState.PLANNED)] == [(kept.id, 1)]


async def test_fr_rac_05_a_leader_of_before_closes_no_intent_and_drops_no_hold(pair: tuple[SqlStore, SqlStore]) -> None:
    """It slept between its last look and this write, and who leads now has promised something to the same workload."""
    old, new = pair
    await old.lead(1, "one", NOW)
    await new.lead(2, "two", NOW)
    made = decision(1)
    await new.commit(made, hold_of(made), replace(intent_of(made), term=2))
    with pytest.raises(Fenced, match="term 2 of two"):
        await old.release(made.workload, NOW, 1)
    with pytest.raises(Fenced, match="term 2 of two"):
        await old.mark(made.id, IntentState.ABANDONED, NOW, 1)
    assert [hold.decision for hold in await new.holds()] == [made.id]
    assert [i.decision for i in await new.intents(IntentState.PLANNED)] == [made.id]
    await new.mark(made.id, IntentState.WRITTEN, NOW, 2)
    await new.release(made.workload, NOW, 2)
    assert (await new.holds(), await new.intents(IntentState.PLANNED)) == ((), ())


TERMS: dict[str, tuple[int, str, bool]] = {
    "the same term by the same holder is a repeat": (3, "one", True),
    "the same term by another is refused": (3, "two", False),
    "an older term is refused": (2, "one", False),
    "a later term begins": (4, "two", True),
}


@pytest.mark.parametrize(("term", "holder", "begins"), TERMS.values(), ids=TERMS.keys())
async def test_terms_only_grow(target: str, term: int, holder: str, begins: bool) -> None:
    store = await open_store(target)
    await store.lead(3, "one", NOW)
    if begins:
        await store.lead(term, holder, NOW)
    else:
        with pytest.raises(Fenced):
            await store.lead(term, holder, NOW)
    assert await store.term() == (term if begins else 3)
    await store.close()


async def test_of_two_that_begin_the_same_term_at_once_one_does(pair: tuple[SqlStore, SqlStore]) -> None:
    found = await outcomes(*(lambda s=store, n=name: s.lead(7, n, NOW) for store, name in zip(pair, "ab", strict=True)))
    assert sorted(found) == ["Fenced", "done"]


# --- two writers ---------------------------------------------------------------------------------------------------


async def outcomes(*calls: Callable[[], object]) -> list[str]:
    """What became of calls made at once: "done" or the error's name."""

    async def outcome(call: Callable[[], object]) -> str:
        try:
            await call()  # type: ignore[misc]
        except EntrepotError as error:
            return type(error).__name__
        return "done"

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome(call)) for call in calls]
    return [task.result() for task in tasks]


async def test_two_daemons_cannot_both_commit_a_nomination_of_one_workload(pair: tuple[SqlStore, SqlStore]) -> None:
    """Also not when both decided at the same instant, on different clusters, without any term."""
    for number in range(12):
        one = decision(2 * number, key=f"n/w{number}", chosen="onprem-1")
        two = decision(2 * number + 1, key=f"n/w{number}", chosen="cloud-eu")
        found = await outcomes(
            *(
                lambda s=store, d=made: s.commit(d, hold_of(d), intent_of(d))
                for store, made in zip(pair, (one, two), strict=True)
            )
        )
        assert sorted(found) == ["Conflict", "done"]
    assert len(await pair[0].holds()) == len(await pair[0].intents(IntentState.PLANNED)) == 12


async def test_a_second_nomination_on_the_same_version_is_refused_also_when_the_first_was_written(
    pair: tuple[SqlStore, SqlStore],
) -> None:
    first, second = pair
    one, stale = decision(1), decision(2, chosen="cloud-eu")
    await first.commit(one, hold_of(one), intent_of(one))
    await first.mark(one.id, IntentState.WRITTEN, NOW)
    with pytest.raises(Conflict):
        await second.commit(stale, hold_of(stale), intent_of(stale))
    later = replace(decision(3, chosen="cloud-eu"), resource_version="42")
    await second.commit(later, hold_of(later), intent_of(later))


async def test_after_an_abandoned_nomination_the_same_version_may_be_decided_again(target: str) -> None:
    store = await open_store(target)
    one, again = decision(1), decision(2)
    await store.commit(one, hold_of(one), intent_of(one))
    await store.mark(one.id, IntentState.ABANDONED, NOW)
    await store.commit(again, hold_of(again), intent_of(again))
    assert [i.decision for i in await store.intents(IntentState.PLANNED)] == [again.id]
    await store.close()


async def test_the_same_commit_by_both_is_recorded_once(pair: tuple[SqlStore, SqlStore]) -> None:
    made = decision()
    found = await outcomes(*(lambda s=store: s.commit(made, hold_of(made), intent_of(made)) for store in pair))
    assert found == ["done", "done"]
    assert len(await pair[0].recent()) == 1


async def test_a_standby_follows_what_the_leader_records(pair: tuple[SqlStore, SqlStore]) -> None:
    leader, standby = pair
    made = [decision(n, key=f"n/w{n}", at=NOW + timedelta(seconds=n)) for n in range(5)]
    for record in made[:3]:
        await leader.commit(record, None, None)
    position, found = await standby.newer(0)
    assert list(found) == made[:3]
    for record in made[3:]:
        await leader.commit(record, None, None)
    position, found = await standby.newer(position)
    assert list(found) == made[3:]
    assert await standby.newer(position) == (position, ())


# --- a server that stops, hangs, refuses ----------------------------------------------------------------------------


async def test_a_database_that_goes_away_is_transient_and_serves_again_when_it_is_back() -> None:
    with postgres_server() as server:
        store = await open_store(server.database(), deadline_s=5.0)
        kept = decision(1)
        await store.commit(kept, hold_of(kept), intent_of(kept))
        server.stop()
        lost = decision(2, key="n/lost")
        for call in (
            lambda: store.commit(lost, hold_of(lost), intent_of(lost)),
            store.holds,
            store.term,
            lambda: store.mark(kept.id, IntentState.WRITTEN, NOW),
        ):
            with pytest.raises(Transient) as caught:
                await call()
            assert PASSWORD not in str(caught.value)
        server.start()
        assert list(await store.recent()) == [kept]
        await store.commit(lost, hold_of(lost), intent_of(lost))
        server.stop(signal.SIGKILL)
        server.start()
        assert {d.id for d in await store.recent()} == {kept.id, lost.id}
        await store.close()


async def test_a_server_that_says_nothing_costs_a_deadline_and_not_the_daemon(postgres: PostgresServer) -> None:
    url = postgres.database()
    store = await open_store(url, deadline_s=1.0)
    await store.recent()
    frozen = postgres.freeze(url.rpartition("/")[2])
    assert frozen
    started = time.monotonic()
    try:
        with pytest.raises(Transient, match="did not end within"):
            await store.commit(decision(), None, None)
        assert time.monotonic() - started < 20.0
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    await store.commit(decision(2), None, None)
    await store.close()


async def test_a_lock_held_by_another_session_is_ended_by_the_server_itself(postgres: PostgresServer) -> None:
    url = postgres.database()
    first = await open_store(url, deadline_s=1.0)
    with psycopg.connect(url) as session:
        session.execute("LOCK TABLE decisions IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Transient, match=r"statement timeout|did not end within"):
            await first.commit(decision(), None, None)
    await first.commit(decision(), None, None)
    await first.close()


async def test_a_wrong_password_and_a_missing_database_are_told_without_the_password(postgres: PostgresServer) -> None:
    wrong = postgres.url("postgres", password="wrong-but-secret")
    for url in (wrong, postgres.url("no_such_database")):
        with pytest.raises(Transient) as caught:
            await open_store(url)
        assert "postgresql://entrepot@127.0.0.1" in str(caught.value)
        assert "secret" not in str(caught.value)
        assert PASSWORD not in repr(caught.value.__cause__)


NAMES = {
    "postgresql://u:p%40ss@db.example:5433/entrepot?sslmode=require": "postgresql://u@db.example:5433/entrepot",
    "postgresql://u@h1:1,h2:2/entrepot?password=hidden": "postgresql://u@h1,h2:1,2/entrepot",
    "postgres:///entrepot": "postgresql:///entrepot",
    "postgresql://u:p@[bad/entrepot": "postgresql://(unreadable)",
    "/var/lib/entrepot/entrepot.db": "/var/lib/entrepot/entrepot.db",
}


@pytest.mark.parametrize(("target", "expected"), NAMES.items(), ids=NAMES.values())
def test_a_store_is_named_without_its_password(target: str, expected: str) -> None:
    assert shown(target) == expected
    assert is_postgres(target) is target.startswith("postgres")


async def test_a_url_that_cannot_be_read_stops_the_start_with_the_form() -> None:
    with pytest.raises(Fatal) as caught:
        await open_store("postgresql://u:hidden@[bad/entrepot")
    assert "postgresql://USER" in caught.value.fix
    assert "hidden" not in str(caught.value)


async def test_records_of_a_database_are_read_and_never_written(postgres: PostgresServer) -> None:
    url = postgres.database()
    with pytest.raises(Fatal, match="no records"):
        await open_records(url)
    store = await open_store(url)
    await store.commit(decision(), None, None)
    await store.close()
    records = await open_records(url)
    assert list(await records.recent()) == [decision()]
    with pytest.raises(Refused, match="reading only"):
        await records.commit(decision(2), None, None)
    await records.close()


# --- retention, backup, restore -------------------------------------------------------------------------------------


async def test_a_pruned_file_gives_its_room_back_while_it_is_written_to(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = await open_store(file)
    for number in range(300):
        await store.commit(decision(number, key=f"n/w{number}", at=NOW - timedelta(days=40)), None, None)
    await store.prune(NOW)
    async with asyncio.TaskGroup() as group:
        compacting = group.create_task(store.compact(step_pages=8))
        for number in range(300, 310):
            group.create_task(store.commit(decision(number, key=f"n/w{number}"), None, None))
    assert compacting.result() > 0
    assert len(await store.recent()) == 10
    await store.close()
    raw = sqlite3.connect(file)
    assert raw.execute("PRAGMA freelist_count").fetchone()[0] <= 8
    raw.close()


async def test_compacting_postgresql_is_left_to_the_server(postgres: PostgresServer) -> None:
    store = await open_store(postgres.database())
    assert await store.compact() == 0
    await store.close()


async def test_a_file_made_before_compaction_can_be_compacted_after_one_start(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    await (await open_store(file)).close()
    raw = sqlite3.connect(file)
    raw.execute("PRAGMA auto_vacuum=0")
    raw.execute("VACUUM")
    raw.close()
    store = await open_store(file)
    assert await asked(store, "PRAGMA auto_vacuum") == 2
    await store.close()


async def test_a_copy_taken_while_the_daemon_writes_is_whole_and_opens(tmp_path: Path) -> None:
    file, copy = tmp_path / "store.db", tmp_path / "backup.db"
    store = await open_store(file)
    made = [decision(n, key=f"n/w{n}") for n in range(60)]
    for record in made[:20]:
        await store.commit(record, hold_of(record), intent_of(record))
    async with asyncio.TaskGroup() as group:
        group.create_task(copy_store(file, copy))
        for record in made[20:]:
            group.create_task(store.commit(record, hold_of(record), intent_of(record)))
    await store.close()
    restored = await open_store(copy)
    found = {d.id for d in await restored.recent(1000)}
    assert {d.id for d in made[:20]} <= found
    assert {h.decision for h in await restored.holds()} == found, "no decision without its hold"
    assert {i.decision for i in await restored.intents(IntentState.PLANNED)} == found
    await restored.close()
    assert copy.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Refused, match="exists already"):
        await copy_store(file, copy)


async def test_a_copy_of_nothing_is_refused_and_postgresql_is_referred_to_its_own_tool(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="does not exist"):
        await copy_store(tmp_path / "none.db", tmp_path / "copy.db")
    with pytest.raises(Refused, match="pg_dump"):
        await copy_store("postgresql://u:hidden@h/db", tmp_path / "copy.db")
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


async def test_a_dump_of_postgresql_restores_to_the_same_records(postgres: PostgresServer, tmp_path: Path) -> None:
    """The commands of docs/operate.md."""
    url, dump = postgres.database(), tmp_path / "entrepot.dump"
    store = await open_store(url)
    await store.lead(4, "one", NOW)
    made = [decision(n, key=f"n/w{n}") for n in range(5)]
    for record in made:
        await store.commit(record, hold_of(record), replace(intent_of(record), term=4))
    dump.write_bytes(postgres.run("pg_dump", "--format=custom", "--no-owner", "--dbname", url))
    await store.close()

    fresh = postgres.database()
    postgres.run("pg_restore", "--exit-on-error", "--no-owner", "--dbname", fresh, str(dump))
    restored = await open_store(fresh)
    assert {d.id for d in await restored.recent()} == {d.id for d in made}
    assert await restored.term() == 4
    late = decision(9, key="n/w9")
    with pytest.raises(Fenced):
        await restored.commit(late, None, replace(intent_of(late), term=3))
    again = decision(10, key="n/w1")
    with pytest.raises(Conflict):
        await restored.commit(again, hold_of(again), replace(intent_of(again), term=4))
    await restored.close()
