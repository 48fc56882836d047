"""A bounded memory that keeps what is asked now (residency/recent.py)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from residency.recent import Recent


def test_a_round_of_questions_that_crosses_the_bound_is_known_the_next_time() -> None:
    """What a memory that forgets everything when full gets wrong: after a long preview each round began anew."""
    recent: Recent[int, int] = Recent(100)
    for other in range(1000, 1070):
        recent.put(other, other)
    for _ in range(2):
        missed = [asked for asked in range(90) if recent.get(asked) is None]
        for asked in missed:
            recent.put(asked, asked)
    assert not missed


def test_it_holds_no_more_than_two_generations() -> None:
    recent: Recent[int, int] = Recent(10)
    for number in range(1000):
        recent.put(number, number)
    assert len(recent) <= 20
    assert recent.get(999) == 999
    assert recent.get(0) is None


@given(st.integers(1, 8), st.lists(st.integers(0, 20), max_size=60))
def test_the_last_so_many_asked_are_known_and_every_answer_is_the_one_put(most: int, asked: list[int]) -> None:
    recent: Recent[int, str] = Recent(most)
    for at, number in enumerate(asked):
        known = recent.get(number)
        lately = set(list(dict.fromkeys(reversed(asked[:at])))[:most])
        assert known == str(number) if number in lately else known in (None, str(number))
        if known is None:
            recent.put(number, str(number))
        assert len(recent) <= 2 * most
