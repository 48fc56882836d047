"""What was learnt of copies is kept over restarts, told anew, over in time and forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from dispatcher.core.errors import Fenced
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.workload import Avoided
from dispatcher.store import SqlStore, open_store
from tests.unit.records import NOW

A, B = WorkloadUid("a"), WorkloadUid("b")
UNSEEN = Avoided(None, "outcome-unknown", NOW, None, excluded=True)
REFUSED = Avoided(ClusterName("w1"), "copy-rejected", NOW, NOW + timedelta(minutes=10), excluded=True)
DEARER = Avoided(ClusterName("w2"), "copy-evicted", NOW, NOW + timedelta(minutes=30), excluded=False)
TAKEN_BACK = replace(DEARER, code="copy-reclaimed", while_borrowing=True)


@pytest.fixture
async def store(target: str) -> AsyncIterator[SqlStore]:
    opened = await open_store(target)
    yield opened
    await opened.close()


async def test_what_was_learnt_comes_back_as_it_was_in_a_fixed_order(store: SqlStore) -> None:
    await store.lesson_log.keep([(B, REFUSED), (A, TAKEN_BACK)])
    await store.lesson_log.keep([(A, UNSEEN), (A, DEARER)])
    assert await store.lesson_log.recall(NOW) == ((A, UNSEEN), (A, DEARER), (A, TAKEN_BACK), (B, REFUSED))


async def test_of_a_cluster_and_a_cause_what_is_told_now_counts(store: SqlStore) -> None:
    longer = replace(REFUSED, since=NOW + timedelta(minutes=1), until=NOW + timedelta(minutes=21))
    for learnt in (REFUSED, longer, longer):
        await store.lesson_log.keep([(A, learnt)])
    assert await store.lesson_log.recall(NOW) == ((A, longer),)


async def test_what_is_over_is_not_recalled_and_what_has_no_end_never_is(store: SqlStore) -> None:
    await store.lesson_log.keep([(A, REFUSED), (B, UNSEEN)])
    assert await store.lesson_log.recall(NOW + timedelta(minutes=10)) == ((B, UNSEEN),)
    assert await store.lesson_log.recall(NOW + timedelta(days=400)) == ((B, UNSEEN),)


async def test_a_leader_of_before_teaches_nothing(store: SqlStore) -> None:
    await store.lead(2, "two", NOW)
    with pytest.raises(Fenced):
        await store.lesson_log.keep([(A, UNSEEN)], term=1)
    await store.lesson_log.keep([(B, UNSEEN)], term=2)
    assert await store.lesson_log.recall(NOW) == ((B, UNSEEN),)


async def test_retention_forgets_what_is_over_and_whose_workload_is_gone(store: SqlStore) -> None:
    young = replace(UNSEEN, since=NOW + timedelta(days=40))
    await store.lesson_log.keep([(A, UNSEEN), (A, REFUSED), (B, UNSEEN), (WorkloadUid("c"), young)])
    await store.prune(NOW + timedelta(days=30), [A])
    assert await store.lesson_log.recall(NOW) == ((A, UNSEEN), (WorkloadUid("c"), young))


async def test_nothing_learnt_is_no_transaction(store: SqlStore) -> None:
    await store.lesson_log.keep([])
    assert await store.lesson_log.recall(NOW) == ()
