"""The store keeps what was committed, once, whole, and says plainly when it cannot."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from dispatcher.core.decision import Outcome
from dispatcher.core.errors import Fatal, Refused, Transient
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.ports import IntentState, Store
from dispatcher.store import SqlStore, decode_decision, open_records, open_store
from dispatcher.store.database import run_of
from dispatcher.store.tables import decisions
from tests.store_files import asked, limit_pages
from tests.unit.records import NOW, decision, hold_of, intent_of, no_nodes, priced, rejected


@pytest.fixture
async def store(target: str) -> AsyncIterator[SqlStore]:
    opened = await open_store(target)
    yield opened
    await opened.close()


@pytest.fixture
async def file_store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    """What concerns SQLite's file alone."""
    opened = await open_store(tmp_path / "store.db")
    yield opened
    await opened.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def copied(folder: Path, to: Path) -> Path:
    """The files as a kill would leave them."""
    found = contents(folder)
    to.mkdir()
    for name, content in found.items():
        (to / name).write_bytes(content)
    return to


async def test_what_was_committed_is_there_after_a_restart(target: str) -> None:
    made = decision()
    first: Store = await open_store(target)
    await first.commit(made, hold_of(made), intent_of(made))
    await first.close()

    again = await open_store(target)
    assert await again.decision(made.id) == made
    assert list(await again.holds()) == [hold_of(made)]
    assert list(await again.intents(IntentState.PLANNED)) == [intent_of(made)]
    await again.close()


async def test_committing_twice_changes_nothing_even_after_the_hold_was_released(store: SqlStore) -> None:
    made = decision()
    await store.commit(made, hold_of(made), intent_of(made))
    await store.release(made.workload, NOW)
    await store.mark(made.id, IntentState.WRITTEN, NOW)

    await store.commit(made, hold_of(made), intent_of(made))

    assert await store.holds() == ()
    assert await store.intents(IntentState.PLANNED) == ()
    assert len(await store.recent()) == 1


async def test_abandoning_an_intent_drops_the_hold_of_that_decision_only(store: SqlStore) -> None:
    one, two = decision(1), decision(2, key="team-a/job-other", chosen="cloud-eu")
    for made in (one, two):
        await store.commit(made, hold_of(made), intent_of(made))
    await store.mark(one.id, IntentState.ABANDONED, NOW)
    assert [hold.decision for hold in await store.holds()] == [two.id]
    assert [intent.decision for intent in await store.intents(IntentState.ABANDONED)] == [one.id]
    assert [intent.decision for intent in await store.intents(IntentState.PLANNED)] == [two.id]


async def test_marking_an_intent_that_was_never_committed_is_refused(store: SqlStore) -> None:
    with pytest.raises(Refused, match="no intent"):
        await store.mark(DecisionId("nobody"), IntentState.WRITTEN, NOW)


async def test_a_hold_of_another_decision_is_refused_and_nothing_is_recorded(store: SqlStore) -> None:
    with pytest.raises(Refused, match="cannot be committed"):
        await store.commit(decision(1), hold_of(decision(2)), None)
    assert await store.recent() == ()


@pytest.mark.slow
async def test_the_newest_decision_of_many_workloads_is_read_in_few_queries(store: SqlStore) -> None:
    live = [WorkloadUid(f"uid-{n}") for n in range(250)]
    for number, uid in enumerate(live[:240]):
        for age in range(2 if number % 50 == 0 else 1):
            made = decision(number * 10 + age, at=NOW + timedelta(seconds=age))
            await store.commit(replace(made, workload=uid), None, None)
    await store.commit(replace(decision(9999), workload=WorkloadUid("gone")), None, None)
    found = await store.newest_of(live)
    assert sorted(one.workload for one in found) == sorted(live[:240])
    for one in found:
        number = live.index(one.workload)
        assert one.decided_at == NOW + timedelta(seconds=1 if number % 50 == 0 else 0), one.workload
    assert await store.newest_of([]) == []


async def test_history_is_found_by_workload_key_and_by_job_newest_first(store: SqlStore) -> None:
    made = [decision(n, at=NOW + timedelta(seconds=n)) for n in range(3)]
    other = decision(9, key="team-b/job-train-9", job="train")
    for record in [*made, other]:
        await store.commit(record, None, None)
    newest_first = list(reversed(made))
    assert list(await store.decisions_of("team-a/job-train-1f3a")) == newest_first
    assert list(await store.decisions_of("team-a/train", limit=2)) == newest_first[:2]
    assert await store.decisions_of("team-a/unknown") == ()
    assert list(await store.keys_named("train")) == ["team-a/job-train-1f3a", "team-b/job-train-9"]
    assert list(await store.keys_named("job-train-9")) == ["team-b/job-train-9"]


async def test_ids_are_found_by_their_beginning_in_order(store: SqlStore) -> None:
    for number in (12, 11, 3):
        await store.commit(decision(number, key=f"team-a/job-{number}"), None, None)
    assert list(await store.ids_like("d00000000000001")) == ["d000000000000011", "d000000000000012"]
    assert list(await store.ids_like("d0", limit=2)) == ["d000000000000003", "d000000000000011"]
    assert list(await store.ids_like("d000000000000003")) == ["d000000000000003"]
    assert list(await store.ids_like("d%")) == list(await store.ids_like("d_0")) == []


async def test_recent_narrows_by_cluster_and_by_outcome(store: SqlStore) -> None:
    onprem, cloud, wait = decision(1), decision(2, chosen="cloud-eu"), decision(3, chosen=None)
    for record in (onprem, cloud, wait):
        await store.commit(record, None, None)
    assert list(await store.recent()) == [wait, cloud, onprem]
    assert list(await store.recent(cluster=ClusterName("cloud-eu"))) == [cloud]
    assert list(await store.recent(outcome=Outcome.WAIT)) == [wait]
    assert list(await store.recent(limit=1)) == [wait]


async def test_a_week_of_equal_waits_keeps_the_first_and_the_newest_record(store: SqlStore) -> None:
    waits = [
        decision(
            n,
            chosen=None,
            at=NOW + timedelta(minutes=n),
            candidates=(rejected("onprem-1", no_nodes(free=n % 3)),),
        )
        for n in range(30)
    ]
    for record in waits:
        await store.commit(record, None, None)
    assert list(await store.decisions_of(waits[0].key)) == [waits[29], waits[0]]
    assert await asked(store, "SELECT repeats FROM decisions ORDER BY seq DESC LIMIT 1") == 28


async def test_a_wait_for_another_reason_starts_a_new_run(store: SqlStore) -> None:
    def wait(number: int, *names: str) -> None:
        made.append(
            decision(
                number,
                chosen=None,
                at=NOW + timedelta(minutes=number),
                candidates=tuple(rejected(name, no_nodes()) for name in names),
            )
        )

    made: list = []
    wait(1, "a")
    wait(2, "a", "b")
    wait(3, "a")
    wait(4, "a")
    wait(5, "a")
    for record in made:
        await store.commit(record, None, None)
    numbers = [record.id for record in await store.decisions_of(made[0].key)]
    assert numbers == [made[4].id, made[2].id, made[1].id, made[0].id]


async def test_choices_are_never_thinned(store: SqlStore) -> None:
    for number in range(5):
        await store.commit(decision(number, at=NOW + timedelta(minutes=number)), None, None)
    assert len(await store.recent()) == 5


async def test_pruning_keeps_promises_and_the_reason_why_a_live_job_is_where_it_is(store: SqlStore) -> None:
    old = NOW - timedelta(days=90)
    held = decision(1, key="n/held", at=old)
    planned = decision(2, key="n/planned", at=old)
    closed = decision(3, key="n/closed", at=old)
    placed = decision(4, key="n/live", at=old)
    waited = decision(5, key="n/live", chosen=None, at=old + timedelta(days=1))
    earlier = decision(6, key="n/live", at=old - timedelta(days=1))
    recent = decision(7, key="n/recent", at=NOW)
    await store.commit(held, hold_of(held), intent_of(held))
    await store.mark(held.id, IntentState.WRITTEN, NOW)
    await store.commit(planned, None, intent_of(planned))
    await store.commit(closed, None, intent_of(closed))
    await store.mark(closed.id, IntentState.WRITTEN, NOW)
    for record in (placed, waited, earlier, recent):
        await store.commit(record, None, None)

    assert await store.prune(NOW - timedelta(days=30), live=[placed.workload]) == 2

    left = {record.id for record in await store.recent()}
    assert left == {held.id, planned.id, placed.id, waited.id, recent.id}
    assert await store.intents(IntentState.WRITTEN) != ()
    assert [i.decision for i in await store.intents(IntentState.PLANNED)] == [planned.id]
    assert await store.prune(NOW - timedelta(days=30), live=[placed.workload]) == 0


async def test_pruning_works_through_more_than_one_batch(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatcher.store.sql._PRUNE_BATCH", 3)
    for number in range(10):
        await store.commit(decision(number, key=f"n/w{number}", at=NOW - timedelta(days=9)), None, None)
    live = [decision(key="n/w4").workload, decision(key="n/w5").workload, decision(key="n/w9").workload]
    assert await store.prune(NOW, live=live) == 7
    assert len(await store.recent()) == 3


async def test_a_batch_of_commits_at_once_is_recorded_whole_while_others_read(store: SqlStore) -> None:
    made = [decision(number, key=f"n/w{number}") for number in range(32)]
    async with asyncio.TaskGroup() as group:
        for record in made:
            group.create_task(store.commit(record, hold_of(record), intent_of(record)))
            group.create_task(store.recent())
    assert {record.id for record in await store.recent()} == {record.id for record in made}
    assert len(await store.holds()) == len(await store.intents(IntentState.PLANNED)) == 32


async def test_a_commit_that_is_cancelled_leaves_the_store_usable(store: SqlStore) -> None:
    made = decision()
    task = asyncio.create_task(store.commit(made, hold_of(made), intent_of(made)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.commit(made, hold_of(made), intent_of(made))
    assert list(await store.recent()) == [made]
    assert list(await store.holds()) == [hold_of(made)]


async def test_a_lock_held_elsewhere_is_transient_and_nothing_half_is_written(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = await open_store(file, busy_s=0.02)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    made = decision()
    with pytest.raises(Transient, match="locked"):
        await store.commit(made, hold_of(made), intent_of(made))
    other.execute("ROLLBACK")
    other.close()
    assert await store.recent() == ()
    await store.commit(made, hold_of(made), intent_of(made))
    assert list(await store.recent()) == [made]
    await store.close()


async def test_a_call_that_outlives_its_deadline_is_transient_and_the_store_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = await open_store(file, deadline_s=0.05, busy_s=0.3)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Transient, match="did not end within"):
        await store.commit(decision(), None, None)
    other.execute("ROLLBACK")
    other.close()
    await store.close()
    store = await open_store(file)
    await store.commit(decision(), None, None)
    assert len(await store.recent()) == 1
    await store.close()


async def test_a_full_disk_is_transient_and_what_was_there_stays_readable(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "store.db")
    kept = decision(1)
    await store.commit(kept, hold_of(kept), intent_of(kept))
    limit_pages(store, await asked(store, "PRAGMA page_count"))
    big = decision(2, candidates=tuple(priced(f"cluster-{n}", n) for n in range(60)))
    with pytest.raises(Transient, match="full"):
        await store.commit(big, hold_of(big), intent_of(big))
    assert list(await store.recent()) == [kept]
    assert [hold.decision for hold in await store.holds()] == [kept.id]
    await store.close()


@pytest.mark.parametrize(
    "content",
    [b"this is a note, no database" * 100, b"SQLite format 3\x00" + b"\xff" * 8000],
    ids=["a text file", "a damaged header"],
)
async def test_a_file_that_is_no_database_stops_the_start_with_the_fix(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "store.db"
    file.write_bytes(content)
    with pytest.raises(Fatal) as caught:
        await open_store(file)
    assert str(file) in str(caught.value)
    assert "backup" in caught.value.fix
    assert file.read_bytes() == content


async def test_damage_inside_the_file_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = await open_store(file)
    for number in range(20):
        await store.commit(decision(number, at=NOW + timedelta(seconds=number)), None, None)
    await store.close()
    content = bytearray(file.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 : page * 4096 + 200] = b"\xee" * 200
    file.write_bytes(content)
    with pytest.raises(Fatal, match=r"damaged|malformed"):
        await open_store(file)


async def test_a_folder_that_cannot_be_written_stops_the_start_with_the_fix(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(Fatal) as caught:
        await open_store(blocked / "store.db")
    assert "--store" in caught.value.fix


async def test_a_new_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "store.db")
    assert (tmp_path / "store.db").stat().st_mode & 0o777 == 0o600
    await store.close()


async def test_commits_are_flushed_through_a_write_ahead_log(file_store: SqlStore) -> None:
    assert await asked(file_store, "PRAGMA journal_mode") == "wal"
    assert await asked(file_store, "PRAGMA synchronous") == 2  # FULL


async def test_records_of_a_daemon_that_is_down_are_read_without_changing_a_file(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    made = decision()
    store = await open_store(file)
    await store.commit(made, hold_of(made), intent_of(made))
    await store.close()
    before = contents(tmp_path)

    records = await open_records(file)
    assert list(await records.decisions_of("team-a/train")) == [made]
    with pytest.raises(Refused, match="reading only"):
        await records.commit(decision(2), None, None)
    await records.close()

    assert contents(tmp_path) == before


async def test_records_of_a_killed_daemon_include_what_only_its_log_holds(tmp_path: Path) -> None:
    file, made = tmp_path / "store.db", decision()
    store = await open_store(file)
    await store.commit(made, None, None)
    crashed = copied(tmp_path, tmp_path / "crashed")
    await store.close()
    assert (crashed / "store.db-wal").stat().st_size > 0
    records = await open_records(crashed / "store.db")
    assert list(await records.recent()) == [made]
    await records.close()


async def test_records_that_do_not_exist_are_named_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="does not exist") as caught:
        await open_records(tmp_path / "nothing.db")
    assert "--store" in caught.value.fix
    empty = tmp_path / "empty.db"
    sqlite3.connect(empty).close()
    with pytest.raises(Fatal, match="no records"):
        await open_records(empty)


async def test_an_unreadable_record_is_named_and_the_others_stay_readable(store: SqlStore) -> None:
    good, bad = decision(1), decision(2, key="n/other")
    for record in (good, bad):
        await store.commit(record, None, None)
    spoil = update(decisions).where(decisions.c.id == bad.id).values(document=b'{"id": 3}')
    await store._database.write("spoiling a record", run_of(spoil))
    with pytest.raises(Refused, match=f"decision {bad.id}, written by version 0.1.0"):
        await store.decision(bad.id)
    assert await store.decision(good.id) == good


def test_a_datetime_without_a_zone_is_refused_before_it_is_written() -> None:
    from dispatcher.store import encode_decision

    with pytest.raises(ValueError, match="no time zone"):
        encode_decision(replace(decision(), decided_at=NOW.replace(tzinfo=None)))


def test_a_record_of_the_first_version_is_readable_for_ever() -> None:
    """Never change this text: it lies in stores. A field added to the vocabulary needs a default."""
    document = (
        '{"id":"d1","workload":"u1","key":"n/w","job_kind":"Job","job_name":"j","attempt":1,'
        '"decided_at":"2026-03-02T09:30:00Z","waiting_since":"2026-03-02T09:18:00Z","outcome":"wait","chosen":null,'
        '"already_nominated":[],"workload_class":"training","estimate":{"duration_s":3600,"basis":"class-default"},'
        '"candidates":[{"cluster":"a","fit":"never","rejections":[{"reason":"residency","resolver":"operator",'
        '"detail":{"subject":"radar","resource":null,"flavor":null,"needed":null,"found":null,'
        '"largest_node_free":null,"expected":["DE"],"seen":["US"],"holder":null,"line":"data.yaml:3:5",'
        '"since":null}}],"terms":[{"kind":"run","amount_usd_micro":5,"bill":[{"what":"h100","quantity":1,'
        '"unit":"gpu-hour","unit_price_usd_micro":5,"amount_usd_micro":5,"source":"book"}],"unknown":null}],'
        '"total_usd_micro":5,"queue":"q","placements":[{"pod_set":"main","flavor":"f","pods":1,"nodes":1}],'
        '"observed_at":"2026-03-02T09:29:59.500000Z","view_digest":"v"}],"request_digest":"r",'
        '"snapshot_digest":"s","policy_digest":"p","resource_version":"7","code_version":"0.1.0"}'
    )
    read = decode_decision(document.encode())
    assert read.outcome is Outcome.WAIT
    assert read.candidates[0].rejections[0].detail.line == "data.yaml:3:5"
