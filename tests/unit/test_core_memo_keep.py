"""What a memo forgets: a daemon runs for a year, and most of what it has decided on is gone."""

from __future__ import annotations

import pytest

from dispatcher.core import fit as of_fit
from dispatcher.core import memo as of_memo
from dispatcher.core.decide import decide
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.workload import Request
from tests.core_builders import NOW, pods, policy, request, snapshot, worker

WORLD, RULES = snapshot(worker("onprem"), worker("cloud")), policy()


def asked(memo: CandidateMemo, count: int, begin: int = 0) -> list[Request]:
    """So many requests of as many shapes, each decided on."""
    made = [request(f"job-{n}", pods(1, 1), expected_duration_s=3600 + n) for n in range(begin, begin + count)]
    for each in made:
        assert decide(each, WORLD, RULES, NOW, memo) == decide(each, WORLD, RULES, NOW)
    return made


def test_thousands_of_jobs_that_came_and_went_leave_no_more_than_the_newest_shapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_memo, "SPARE", 20)
    memo = CandidateMemo()
    for day in range(5):
        asked(memo, 30, begin=30 * day)
        memo.keep(set())
    assert memo._asked == {}
    assert [shape.declared.expected_duration_s for shape in memo._fields] == [3600 + n for n in range(140, 150)]


def test_what_is_still_there_is_kept_however_much_it_is() -> None:
    memo = CandidateMemo()
    there = asked(memo, 40)
    memo.keep({each.uid for each in there} | {WorkloadUid("another")})
    assert memo._asked.keys() == {each.uid for each in there}
    assert all(memo.unchanged(each) for each in there)


def test_who_was_forgotten_and_asks_again_is_told_the_same() -> None:
    memo = CandidateMemo()
    (one,) = asked(memo, 1)
    memo.keep(set())
    assert not memo.unchanged(one)
    assert decide(one, WORLD, RULES, NOW, memo) == decide(one, WORLD, RULES, NOW)
    assert memo.unchanged(one)


def test_of_a_view_that_stays_the_same_only_the_newest_shapes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_fit, "SHAPES", 5)
    memo = CandidateMemo()
    for gpus in range(1, 9):
        each = request(f"of-{gpus}", pods(1, gpus))
        assert decide(each, WORLD, RULES, NOW, memo) == decide(each, WORLD, RULES, NOW)
    index = memo.views.of(WORLD.clusters[0])
    assert index is not None
    assert [key[0][0].per_pod.gpus() for key in index.fits] == [4, 5, 6, 7, 8]  # type: ignore[index]
