"""Inputs in the store: shared, bounded by size and age, whole in each segment, never in the way of a decision."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import delete, func, select

from dispatcher.core.decide import decide
from dispatcher.core.decision import Decision
from dispatcher.core.errors import Refused
from dispatcher.core.policy import Policy
from dispatcher.core.replay import Inputs
from dispatcher.core.snapshot import Snapshot, WorkerView
from dispatcher.store import SqlStore, open_store
from dispatcher.store.database import rows_of, run_of, scalar_of
from dispatcher.store.inputs import InputLimits
from dispatcher.store.pieces import Packer
from dispatcher.store.tables import input_pieces, input_segments, inputs
from tests.core_builders import NOW, copy, hold, node, policy, request, seen, snapshot, worker

pytestmark = pytest.mark.slow

RULES = policy()
KIB = 1024


def fleet(nodes: int = 200, copies: int = 100, name: str = "onprem") -> WorkerView:
    return worker(name, [node(f"n{i:03d}") for i in range(nodes)], copies=[copy(f"c{i:03d}", 1) for i in range(copies)])


def inputs_on(view: WorkerView, number: int = 0, at: datetime = NOW, rules: Policy = RULES) -> Inputs:
    return Inputs(replace(request(f"job-{number}"), resource_version=str(number)), snapshot(view), rules, at)


def decided(found: Inputs) -> Decision:
    return decide(found.request, found.snapshot, found.policy, found.now)


async def keep(store: SqlStore, found: Inputs) -> Decision:
    decision = decided(found)
    await store.commit(decision, None, None, found)
    return decision


@asynccontextmanager
async def opened(target: str, limits: InputLimits | None = None) -> AsyncIterator[SqlStore]:
    store = await open_store(target)
    store.input_log.limits = limits or InputLimits()
    try:
        yield store
    finally:
        await store.close()


async def sizes(store: SqlStore) -> list[tuple[int, int, int]]:
    """(id, pieces, size as counted) of every segment."""
    rows = await store._database.read("a test", rows_of(select(input_segments).order_by(input_segments.c.id)))
    grouped = select(input_pieces.c.segment, func.count()).group_by(input_pieces.c.segment)
    counts = {row[0]: int(row[1]) for row in await store._database.read("a test", rows_of(grouped))}
    return [(row.id, counts.get(row.id, 0), row.size) for row in rows]


# --- sharing -----------------------------------------------------------------------------------------------------


def test_a_second_decision_on_the_same_views_adds_no_piece() -> None:
    packer, view = Packer(), fleet()
    first = packer.pack(decided(inputs_on(view)).id, inputs_on(view))
    packer.committed(first)
    second = packer.pack(decided(inputs_on(view, 1)).id, inputs_on(view, 1))
    assert len(first.new) > 10
    assert second.new == ()
    assert len(second.document) < KIB


def test_one_pod_that_moved_makes_one_new_piece_of_nodes_and_one_of_the_cluster() -> None:
    packer, view = Packer(), fleet()
    packer.committed(packer.pack(decided(inputs_on(view)).id, inputs_on(view)))
    nodes = list(view.nodes)
    nodes[77] = node("n077", used=3)
    moved = replace(view, nodes=tuple(nodes), generation=9, observed_at=NOW)
    assert len(packer.pack(decided(inputs_on(moved)).id, inputs_on(moved)).new) == 2


def test_a_node_more_moves_no_other_cut() -> None:
    packer, view = Packer(), fleet()
    packer.committed(packer.pack(decided(inputs_on(view)).id, inputs_on(view)))
    grown = replace(view, nodes=(node("a-new-one"), *view.nodes))
    assert len(packer.pack(decided(inputs_on(grown)).id, inputs_on(grown)).new) <= 3


def test_age_alone_makes_no_new_piece() -> None:
    packer, view = Packer(), fleet()
    packer.committed(packer.pack(decided(inputs_on(view)).id, inputs_on(view)))
    later = replace(view, observed_at=NOW + timedelta(seconds=9), generation=12)
    found = inputs_on(later, at=NOW + timedelta(seconds=10))
    assert packer.pack(decided(found).id, found).new == ()


def test_an_equal_view_of_other_objects_gives_the_same_pieces() -> None:
    packer = Packer()
    packer.committed(packer.pack(decided(inputs_on(fleet())).id, inputs_on(fleet())))
    assert packer.pack(decided(inputs_on(fleet())).id, inputs_on(fleet())).new == ()


# --- in the store, on both databases -----------------------------------------------------------------------------


async def test_what_was_stored_is_read_back_also_by_the_next_process(target: str) -> None:
    view = fleet()
    both = snapshot(view, seen(fleet(3, 0, "x"), worker=None), holds=[hold()])
    found = replace(inputs_on(view), snapshot=replace(both, wall_ahead_s=-90))
    async with opened(target) as store:
        decision = await keep(store, found)
        record = await store.record(decision.id)
        assert record is not None
        assert repr(record.inputs.snapshot) == repr(found.snapshot)
        assert (record.inputs, record.decision) == (found, decision)
    async with opened(target) as store:
        assert await store.record(decision.id) == record
        again = await keep(store, inputs_on(view, 2))
        assert await store.record(again.id) is not None
        assert len(await sizes(store)) == 2, "each process begins a segment: it cannot know what the last one holds"


async def test_a_decision_without_inputs_and_an_unknown_one_have_no_record(target: str) -> None:
    async with opened(target) as store:
        decision = decided(inputs_on(fleet(2, 0)))
        await store.commit(decision, None, None)
        assert await store.decision(decision.id) == decision
        assert await store.record(decision.id) is None
        assert await store.record("nothing") is None  # type: ignore[arg-type]


async def test_repeating_a_commit_changes_nothing(target: str) -> None:
    async with opened(target) as store:
        decision = await keep(store, inputs_on(fleet()))
        before = await sizes(store)
        await keep(store, inputs_on(fleet()))
        assert await sizes(store) == before
        assert await store.record(decision.id) is not None


async def test_the_size_is_bounded_and_what_is_left_can_be_replayed(target: str) -> None:
    """Each decision sees another fleet, so nothing is shared: the oldest segments go."""
    limits = InputLimits(max_bytes=40 * KIB, segments=4, least_decisions=2)
    made: list[Decision] = []
    async with opened(target, limits) as store:
        for number in range(40):
            view = worker("onprem", [node(f"n{number}-{i}", used=i % 8) for i in range(60)])
            made.append(await keep(store, inputs_on(view, number)))
            segments = await sizes(store)
            assert sum(size for _, _, size in segments) < limits.max_bytes * 1.5
        assert segments[0][0] > 1, "old segments were dropped"
        kept = [await store.record(decision.id) is not None for decision in made]
        assert kept == sorted(kept), "what is kept is the newest"
        assert 5 < sum(kept) < 40
        assert len(await store.recent(100)) == 40, "decisions outlive their inputs"
        pieces = await store._database.read("a test", rows_of(select(input_pieces.c.segment)))
        documents = await store._database.read("a test", rows_of(select(inputs.c.segment)))
        owners = {row.segment for row in (*pieces, *documents)}
        assert owners <= {segment for segment, _, _ in segments}, "nothing is left of a dropped segment"


async def test_a_new_segment_takes_over_what_the_newest_views_need(target: str) -> None:
    limits = InputLimits(max_bytes=40 * KIB, segments=8, least_decisions=3)
    view = fleet()
    async with opened(target, limits) as store:
        made = [await keep(store, inputs_on(view, number)) for number in range(9)]
        segments = await sizes(store)
        assert len(segments) >= 2
        assert len({pieces for _, pieces, _ in segments}) == 1, "every segment holds the whole view"
        assert await store.record(made[-1].id) is not None


async def test_inputs_end_with_their_age(target: str) -> None:
    limits = InputLimits(keep=timedelta(days=8), segments=4)
    async with opened(target, limits) as store:
        made = [await keep(store, inputs_on(fleet(4, 0), day, NOW + timedelta(days=day))) for day in range(0, 24, 2)]
        kept = [await store.record(decision.id) is not None for decision in made]
        assert kept == sorted(kept)
        assert 4 <= sum(kept) <= 6, kept
        await store.prune(NOW + timedelta(days=100))
        assert await store.record(made[0].id) is None


async def test_a_commit_that_failed_loses_no_piece(target: str) -> None:
    view = fleet()
    async with opened(target) as store:
        first = inputs_on(view)
        packed = await store.input_log.pack(decided(first).id, first)
        assert packed is not None
        # That one is never written, as when the database went away; the next must bring all pieces itself.
        decision = await keep(store, inputs_on(view, 1))
        record = await store.record(decision.id)
        assert record is not None
        assert record.inputs.snapshot == first.snapshot


async def test_a_segment_that_another_leader_dropped_costs_inputs_and_no_decision(target: str) -> None:
    async with opened(target) as store:
        await keep(store, inputs_on(fleet()))
        for table in (inputs, input_pieces, input_segments):
            await store._database.write("a test", run_of(delete(table)))
        lost = await keep(store, inputs_on(fleet(), 1))
        assert await store.decision(lost.id) == lost
        assert await store.record(lost.id) is None
        found = await keep(store, inputs_on(fleet(), 2))
        assert await store.record(found.id) is not None


async def test_a_missing_or_damaged_piece_is_told_and_not_guessed(target: str) -> None:
    async with opened(target) as store:
        decision = await keep(store, inputs_on(fleet()))
        gone = await store._database.read("a test", scalar_of(select(input_pieces.c.digest).limit(1)))
        await store._database.write("a test", run_of(delete(input_pieces).where(input_pieces.c.digest == gone)))
        with pytest.raises(Refused, match="not complete: 1 of"):
            await store.record(decision.id)


async def test_what_has_no_plain_form_is_left_out_and_the_decision_is_stored(target: str) -> None:
    view = fleet(2, 0)
    found = inputs_on(view)
    odd = replace(found, request=replace(found.request, created_at=NOW.replace(tzinfo=None)))
    async with opened(target) as store:
        decision = decided(found)
        await store.commit(decision, None, None, odd)
        assert await store.decision(decision.id) == decision
        assert await store.record(decision.id) is None


def test_failed_commits_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatcher.store.pieces._MOST_PENDING", 50)
    packer = Packer()
    for number in range(40):
        found = inputs_on(fleet(100, 0, f"w{number % 2}"), number)
        nodes = tuple(node(f"n{i}", used=number % 8) for i in range(100))
        found = replace(found, snapshot=Snapshot((seen(worker("w", nodes)),)))
        packer.pack(decided(found).id, found)
        assert len(packer.pending) < 150


def test_the_default_bounds_are_the_documented_ones() -> None:
    assert dataclasses.asdict(InputLimits()) == {
        "max_bytes": 512 * 2**20,
        "keep": timedelta(days=14),
        "segments": 8,
        "least_decisions": 64,
    }
