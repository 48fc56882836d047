"""The audit chain: verified from its bytes, on both databases, through retention and exports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dispatcher.core.audit import (
    AuditKind,
    Entry,
    Head,
    Row,
    checkpoint,
    entry_of,
    export_line,
    imported,
    link,
    refusal_entry,
    verify,
)
from dispatcher.store import open_store
from tests.builders import START
from tests.loops.bench import example
from tests.stores import new_store


def entry(number: int, at_s: int = 0) -> Entry:
    return Entry(f"e/{number}", AuditKind.VERDICT, START + timedelta(seconds=at_s), "unsigned", "b", answer="allow")


def chain(count: int) -> list[Row]:
    rows: list[Row] = []
    for number in range(count):
        head = Head(rows[-1].seq, rows[-1].digest) if rows else Head()
        rows.append(link(head, entry(number)))
    return rows


def head_of(rows: list[Row]) -> Head:
    return Head(rows[-1].seq, rows[-1].digest)


def changed(row: Row) -> Row:
    return replace(row, body=row.body.replace(b"allow", b"deny!"))


def resealed(row: Row, previous: str) -> Row:
    """A row that somebody chained anew, who does not have the rows after it."""
    return link(Head(row.seq - 1, previous), entry_of(changed(row).body))


@pytest.mark.parametrize(
    ("harm", "seq"),
    [
        (lambda rows: [*rows[:3], changed(rows[3]), *rows[4:]], 4),
        (lambda rows: [*rows[:3], *rows[4:]], 4),
        (lambda rows: [*rows[:2], rows[3], rows[2], *rows[4:]], 3),
        (lambda rows: rows[:-2], 9),
        (lambda rows: rows[2:], 3),
        (lambda rows: [*rows[:3], resealed(rows[3], rows[2].digest), *rows[4:]], 5),
        (lambda rows: [], 1),
    ],
    ids=[
        "one row changed",
        "one row left out",
        "two rows changed places",
        "the end cut off",
        "the beginning cut off",
        "one row changed and chained anew",
        "everything gone",
    ],
)
def test_the_first_row_that_does_not_hold_is_named(harm: Callable[[list[Row]], list[Row]], seq: int) -> None:
    rows = chain(10)
    assert verify(rows, head_of(rows)) is None
    broken = verify(harm(rows), head_of(rows))
    assert broken is not None
    assert broken.seq == seq


def test_a_chain_whose_beginning_was_dropped_holds_by_its_checkpoint_alone() -> None:
    rows = chain(10)
    rows.append(link(head_of(rows), checkpoint(rows[5], START)))
    assert verify(rows[6:], head_of(rows)) is None
    assert verify(rows[7:], head_of(rows)) is not None, "one row more is missing than the checkpoint accounts for"
    assert verify(rows[6:-1]) is not None


def test_an_export_is_verified_without_the_store() -> None:
    rows = chain(5)
    lines = [export_line(row) for row in rows]
    assert verify([imported(line) for line in lines]) is None
    assert json.loads(lines[0])["entry"]["answer"] == "allow"
    assert verify([imported(line.replace("unsigned", "somebody")) for line in lines]) is not None


def test_of_a_wrong_file_only_the_place_is_kept() -> None:
    policy, _ = example()
    row = refusal_entry(("residency/exceptions/x.yaml:3:5: error: 'jane.doe@example.com': not a role",), policy, START)
    assert row.detail == (("why", "residency/exceptions/x.yaml:3:5: error"),)


# --- in the store ------------------------------------------------------------------------------------------------


async def test_the_same_event_is_written_once_and_a_reopened_store_goes_on_with_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "entrepot.sqlite"
    store = await open_store(path)
    assert await store.audit_log.add([entry(1), entry(2)]) == 2
    assert await store.audit_log.add([entry(2), entry(3), entry(3)]) == 1
    await store.close()
    store = await open_store(path)
    assert await store.audit_log.add([entry(4)]) == 1
    rows = [row async for row in store.audit_log.rows()]
    assert [entry_of(row.body).event for row in rows] == ["e/1", "e/2", "e/3", "e/4"]
    assert verify(rows, await store.audit_log.head()) is None
    await store.close()


async def test_retention_drops_from_the_front_and_the_chain_verifies_after_each_time(target: str) -> None:
    store = await open_store(target)
    for number in range(40):
        await store.audit_log.add([entry(number, at_s=number)])
    assert await store.audit_log.trim(START + timedelta(seconds=10), START) == 10
    assert await store.audit_log.trim(START + timedelta(seconds=20), START) == 10
    rows = [row async for row in store.audit_log.rows()]
    assert (rows[0].seq, verify(rows, await store.audit_log.head())) == (21, None)
    await store.audit_log.trim(START - timedelta(days=1), START, most=5)
    rows = [row async for row in store.audit_log.rows()]
    assert len(rows) <= 7
    assert verify(rows, await store.audit_log.head()) is None
    await store.close()


async def test_writers_side_by_side_make_one_chain(target: str) -> None:
    """Two processes, many tasks: where a database lets writers run beside each other, they queue at the head."""
    stores = [await open_store(target), await open_store(target)]
    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(stores[number % 2].audit_log.add([entry(number), entry(number % 7)]))
    rows = [row async for row in stores[0].audit_log.rows()]
    assert verify(rows, await stores[1].audit_log.head()) is None
    assert sorted({entry_of(row.body).event for row in rows}) == sorted({f"e/{n}" for n in range(40)})
    assert len(rows) == 40
    for store in stores:
        await store.close()


async def test_an_old_log_keeps_its_newest_row(tmp_path: Path) -> None:
    store = await new_store(tmp_path / "entrepot.sqlite")
    await store.audit_log.add([entry(1), entry(2)])
    await store.audit_log.trim(START + timedelta(days=999), START)
    rows = [row async for row in store.audit_log.rows()]
    assert [entry_of(row.body).kind for row in rows] == [AuditKind.VERDICT, AuditKind.CHECKPOINT]
    assert verify(rows, await store.audit_log.head()) is None
    await store.close()


async def test_what_ruled_is_known_after_a_restart(tmp_path: Path) -> None:
    store = await new_store(tmp_path / "entrepot.sqlite")
    signed = replace(entry(1), event="bundle/b/signed/7/tree-7/K/t", kind=AuditKind.BUNDLE, serial=7)
    await store.audit_log.ruled(signed, "tree-7", START)
    old = replace(signed, event="bundle/b/signed/3/tree-3/K/t", serial=3)
    await store.audit_log.ruled(old, "tree-3", START + timedelta(seconds=5))
    record = await store.audit_log.bundle_record()
    assert (record.serial, record.tree, record.unsigned) == (7, "tree-7", None)
    assert record.newest_at == START
    await store.close()
