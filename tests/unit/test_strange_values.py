"""What anybody may write into a job, a data set or a catalog's answer, and what must come of it: a word about that one,
and never a process that hangs or stops deciding for all the others."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

import pytest

from dispatcher.core.decide import decide, hold_of
from dispatcher.core.decision import Basis, Estimate, Reason
from dispatcher.core.declaration import KEYS, MOST_CHARACTERS, PREFIX, parse_declaration
from dispatcher.core.explain import problem_text, sentence
from dispatcher.core.instants import LONGEST_S
from dispatcher.core.keeping import run_s
from dispatcher.core.literals import LiteralError, parse_milliseconds, parse_size
from dispatcher.core.resources import QuantityError, parse_quantity
from dispatcher.core.workload import WorkloadClass
from tests.core_builders import (
    FLAVOR,
    GB,
    NOW,
    compute,
    data,
    decided,
    detail_of,
    egress,
    flavor_policy,
    policy,
    request,
    site,
    snapshot,
    store,
    uses,
    worker,
)

STRANGE = (
    "", "\x00", "²", "1٢", "NaN", "-1", "1e999999999", "1e-999999999", "9" * 4000, "9" * 4000 + "ms", "9" * 5000,
    "9" * 5000 + "ms", "P" + "9" * 4000 + "D", "x" * 200_000, "x," * 100_000 + "x", "radar:" + "9" * 4000,
    "lake/" + "a" * 200_000, "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "\ud800",
)  # fmt: skip
RULES = policy(data_sets=[data(f"radar-{at}") for at in range(100)], stores=[store("lake")])


@pytest.mark.parametrize("key", sorted(KEYS))
def test_whatever_a_key_says_it_is_read_or_told_at_once_and_in_few_words(key: str) -> None:
    for value in STRANGE:
        began = time.process_time()
        _, problems = parse_declaration(((PREFIX + key, value),), RULES)
        assert time.process_time() - began < 1.0, f"{key} took long over {value[:20]!r}"
        assert sum(len(problem_text(problem)) for problem in problems) < 4 * MOST_CHARACTERS


def test_a_value_that_nobody_would_read_to_its_end_is_told_with_its_length() -> None:
    _, problems = parse_declaration(((f"{PREFIX}team", "x" * (MOST_CHARACTERS + 1)),), RULES)
    assert [problem.rule for problem in problems] == ["4097 characters, where at most 4096 are read"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("1e999999999", "an exponent of at most two digits", id="a power that would take an hour"),
        pytest.param("1e-999999999", "an exponent of at most two digits", id="a part that would take an hour"),
        pytest.param("1e99", "larger than an API quantity", id="the largest exponent that is worked out"),
        pytest.param("1٢", "a number such as 8", id="digits of another script"),
        pytest.param("1e", "unknown suffix 'e'", id="an exponent without a number"),
    ],
)
def test_a_quantity_beyond_measure_is_refused_at_once(text: str, why: str) -> None:
    began = time.process_time()
    with pytest.raises(QuantityError, match=why):
        parse_quantity(text)
    assert time.process_time() - began < 0.5


def test_numbers_beyond_measure_are_literal_errors_and_no_others() -> None:
    for read, text in ((parse_size, "1e999999999"), (parse_milliseconds, "9" * 5000 + "ms")):
        with pytest.raises(LiteralError):
            read(text)


# --- what lies beyond the calendar -------------------------------------------------------------------------------


def test_a_transfer_that_ends_after_the_last_date_is_promised_within_a_hundred_years() -> None:
    """Nine exabytes over a megabit: whoever declares it must not end the dispatch of everything else."""
    cached = replace(site("onprem"), cache_bytes=10**19)
    rules = policy(
        [cached],
        [compute("onprem", 1)],
        [egress("r-store", "r-onprem", 1, 1)],
        [data("d", 9 * 10**18, clusters=(), stores=["s"])],
        stores=[store("s")],
    )
    seen = snapshot(worker("onprem"))
    wanted = request(data=uses("d"))
    decision = decide(wanted, seen, rules, NOW)
    held = hold_of(decision, wanted, rules, NOW, seen)
    assert sentence(decision)
    assert held is not None
    assert held.incoming == (("d", NOW + timedelta(seconds=LONGEST_S)),)


def test_a_run_of_ten_years_at_a_thousandth_of_the_speed_ends_within_a_hundred_years() -> None:
    slow = site("onprem", flavors=[flavor_policy(speed=1)])
    ten_years = Estimate(10 * 366 * 86_400, Basis.DECLARED)
    assert run_s(ten_years, [FLAVOR], slow, WorkloadClass.TRAINING) == LONGEST_S


def test_a_chain_of_thousands_of_data_sets_that_lie_nowhere_is_told_like_a_short_one() -> None:
    versions = [data(f"v{at}", GB, derived_from=[f"v{at + 1}"]) for at in range(3000)]
    rules = policy(data_sets=[*versions, data("v3000", GB, clusters=["onprem"])])
    decision = decided(request(data=uses("v0")), worker("onprem"), rules=rules)
    assert detail_of(decision, "onprem", Reason.DATA_MISSING).expected == ("v3000 in onprem",)
