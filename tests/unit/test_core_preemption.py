"""Whom the Kueue of a worker stops: its own lower priorities, borrowers of its cohort, as few as will do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dispatcher.core.preemption import Preemptor, holders_of
from dispatcher.core.quota import quota_tree
from dispatcher.core.snapshot import ClusterQueueView, CohortView, WorkerCopy, WorkerView
from tests.core_builders import FLAVOR, GPU, NOW, copy, nodes, queue, quota, worker

FR = (FLAVOR, GPU)
MINE, THEIRS, THIRD = "mine", "theirs", "third"
LOWER = {"preempts_lower_priority": True}
RECLAIM_ANY = {"reclaims_within_cohort": True, "reclaims_any": True}
RECLAIM_LOWER = {"reclaims_within_cohort": True}


def gpus(name: str, nominal: int, used: int = 0, cohort: str | None = "all", **over: Any) -> ClusterQueueView:
    limits = {key: over.pop(key) for key in ("borrow", "lend") if key in over}
    return queue(name, quota(nominal, used=used, **limits), cohort=cohort, **over)


def held(name: str, size: int, of: str = MINE, priority: int = 0, age_min: int = 10, **over: Any) -> WorkerCopy:
    reserved_at = NOW - timedelta(minutes=age_min)
    return replace(copy(name, size, queue_name=of, priority=priority), quota_reserved_at=reserved_at, **over)


def view(
    queues: Sequence[ClusterQueueView], copies: Sequence[WorkerCopy], cohorts: Sequence[CohortView] = ()
) -> WorkerView:
    return worker("w", nodes(8), queues, copies=copies, cohorts=cohorts)


def stopped(seen: WorkerView, need: int, priority: int = 100, of: str = MINE) -> list[str] | None:
    """Names of those who would be stopped, those who give back what they borrowed with a mark."""
    tree = quota_tree(seen)
    preemptor = Preemptor(tree, seen.queues[of], priority, holders_of(seen, tree))  # type: ignore[index]
    if not preemptor.may(FR, need):
        return None
    found = preemptor.targets({FR: need}, frozenset({FR}))
    return [f"{t.holder.copy.name}{'*' if t.reclaimed else ''}" for t in found] if found is not None else None


# --- in the queue itself -----------------------------------------------------------------------------------------

OWN = [held("old", 4, age_min=60), held("new", 4, age_min=5), held("dear", 4, priority=50)]


@pytest.mark.parametrize(
    ("need", "priority", "expected"),
    [
        pytest.param(4, 100, ["new"], id="among equals the one that reserved last goes"),
        pytest.param(8, 100, ["new", "old"], id="the lowest priority goes first"),
        pytest.param(12, 100, ["new", "old", "dear"], id="all of them where all are needed"),
        pytest.param(4, 50, ["new"], id="what is below goes"),
        pytest.param(12, 50, None, id="the same priority stays, so there is no room for all"),
        pytest.param(13, 100, None, id="nobody is stopped for more than the queue's own"),
    ],
)
def test_lower_priority_gives_way_in_the_queue(need: int, priority: int, expected: list[str] | None) -> None:
    seen = view([gpus(MINE, 12, 12, None, **LOWER)], OWN)
    assert stopped(seen, need, priority) == expected


def test_a_queue_that_preempts_nobody_stops_nobody() -> None:
    assert stopped(view([gpus(MINE, 12, 12, None)], OWN), 4) is None


def test_whoever_need_not_go_after_all_is_put_back() -> None:
    """The small one comes first in order; once the large one goes as well, the small one need not."""
    seen = view([gpus(MINE, 10, 10, None, **LOWER)], [held("small", 2, age_min=1), held("large", 8, age_min=9)])
    assert stopped(seen, 8) == ["large"]
    assert stopped(seen, 9) == ["small", "large"]


def test_who_is_leaving_already_is_not_stopped_again_and_what_it_holds_counts() -> None:
    leaving = held("leaving", 4, priority=90, evicted_at=NOW)
    seen = view([gpus(MINE, 12, 12, None, **LOWER)], [*OWN[:2], leaving])
    assert stopped(seen, 4) == []
    assert stopped(seen, 8) == ["new"]


def test_what_holds_none_of_what_is_short_is_left_alone() -> None:
    other = replace(held("other", 4, age_min=1), pod_sets=(("main", 1, OWN[0].pod_sets[0][2], None),))
    seen = view([gpus(MINE, 8, 8, None, **LOWER)], [other, held("old", 4)])
    assert stopped(seen, 4) == ["old"]


# --- in the cohort -----------------------------------------------------------------------------------------------

BORROWERS = [held("b1", 4, THEIRS, 500, 30), held("b2", 4, THEIRS, 500, 3), held("b3", 4, THEIRS, 900, 1)]


def cohort(mine: dict[str, Any], used: int = 0, copies: Sequence[WorkerCopy] = ()) -> WorkerView:
    """Two queues of eight GPUs; the other one has 12 of the 16, so it has borrowed four."""
    return view([gpus(MINE, 8, used, **mine), gpus(THEIRS, 8, 12)], [*BORROWERS, *copies])


@pytest.mark.parametrize(
    ("mine", "need", "priority", "expected"),
    [
        pytest.param(RECLAIM_ANY, 8, 1, ["b2*"], id="any priority gives back, the lowest and newest first"),
        pytest.param(RECLAIM_LOWER, 8, 501, ["b2*"], id="a lower one gives back where only lower ones do"),
        pytest.param(RECLAIM_LOWER, 8, 500, None, id="an equal one does not"),
        pytest.param({}, 8, 1000, None, id="without the right nobody gives back"),
        pytest.param(RECLAIM_ANY, 9, 1000, None, id="nobody gives back more than the queue's own"),
        pytest.param(LOWER, 8, 1000, None, id="a right over the own queue is none over others"),
    ],
)
def test_borrowers_give_back(mine: dict[str, Any], need: int, priority: int, expected: list[str] | None) -> None:
    assert stopped(cohort(mine), need, priority) == expected


def test_a_queue_is_taken_from_only_until_it_is_within_its_own() -> None:
    """Both others have borrowed: the second one is asked when the first is back within its quota."""
    queues = [gpus(MINE, 8, **RECLAIM_ANY), gpus(THEIRS, 4, 8), gpus(THIRD, 4, 8)]
    copies = [held("t1", 4, THEIRS, 0), held("t2", 4, THEIRS, 0, 5), held("u1", 4, THIRD, 50), held("u2", 4, THIRD, 60)]
    assert stopped(view(queues, copies), 8, 1) == ["t2*", "u1*"]


def test_borrowers_give_back_before_the_own_queue_gives_way() -> None:
    both = {**RECLAIM_ANY, **LOWER}
    seen = cohort(both, used=4, copies=[held("own", 4, MINE, 0)])
    assert stopped(seen, 4) == ["b2*"]
    assert stopped(seen, 8) == ["b2*", "own"]


def test_a_full_queue_makes_room_in_itself_only() -> None:
    both = {**RECLAIM_ANY, **LOWER}
    queues = [gpus(MINE, 8, 8, **both), gpus(THEIRS, 0, 4), gpus(THIRD, 4)]
    copies = [held("own", 8, MINE, 0), held("b1", 4, THEIRS, 0)]
    assert stopped(view(queues, copies), 8) == ["own"]


def test_what_is_never_lent_is_not_taken_back() -> None:
    """The others' guaranteed part is no borrowed quota: they are within their own."""
    queues = [gpus(MINE, 8, 4, **RECLAIM_ANY), gpus(THEIRS, 8, 8, lend=0)]
    assert stopped(view(queues, [held("own", 4), held("t", 8, THEIRS)]), 8) is None


# --- while borrowing ---------------------------------------------------------------------------------------------

WHILE = {**RECLAIM_ANY, "preempts_while_borrowing": True}


@pytest.mark.parametrize(
    ("mine", "need", "priority", "expected"),
    [
        pytest.param(WHILE, 12, 1000, ["b2*"], id="lower priority gives back even what the queue then borrows"),
        pytest.param(WHILE, 12, 500, None, id="an equal one only gives back what is the queue's own"),
        pytest.param({**WHILE, "borrowing_threshold": 400}, 12, 1000, None, id="above the threshold nobody does"),
        pytest.param({**WHILE, "borrowing_threshold": 500}, 12, 1000, ["b2*"], id="the threshold itself does"),
    ],
)
def test_preemption_while_borrowing(mine: dict[str, Any], need: int, priority: int, expected: list[str] | None) -> None:
    lender = gpus(THIRD, 4)
    seen = view([gpus(MINE, 8, **mine), gpus(THEIRS, 8, 12), lender], BORROWERS)
    assert stopped(seen, need, priority) == expected


# --- cohorts of cohorts ------------------------------------------------------------------------------------------


def test_a_cohort_below_the_root_takes_back_what_is_its_own() -> None:
    """The request is more than the queue's own, yet within that of its cohort, from which others have borrowed."""
    queues = [
        gpus(MINE, 4, cohort="near", **RECLAIM_ANY),
        gpus("neighbour", 4, cohort="near"),
        gpus(THEIRS, 0, 8, cohort="far"),
    ]
    cohorts = [CohortView("near", "root"), CohortView("far", "root"), CohortView("root")]
    copies = [held("f1", 4, THEIRS, 900), held("f2", 4, THEIRS, 800)]
    assert stopped(view(queues, copies, cohorts), 8, 1) == ["f2*", "f1*"]
    assert stopped(view(queues, copies, cohorts), 9, 1) is None


def test_in_one_cohort_more_than_the_own_is_nobodys_to_take_back() -> None:
    queues = [gpus(MINE, 4, **RECLAIM_ANY), gpus("neighbour", 4), gpus(THEIRS, 0, 8)]
    assert stopped(view(queues, [held("f1", 8, THEIRS)]), 8, 1) is None
