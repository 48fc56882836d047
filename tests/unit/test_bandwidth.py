"""Measured bandwidth: it stands before the declared one while it is young enough, and a bill says which was used."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dispatcher.config.catalog import Answer
from dispatcher.config.files import read_folder
from dispatcher.config.loader import LoadResult, load_content
from dispatcher.core.decision import Line, TermKind
from dispatcher.core.policy import Measured, Policy
from dispatcher.core.window import window_of, window_until
from tests.core_builders import GB, NOW, data, decided, egress, on, policy, request, site, store, uses, worker
from tests.unit.blueprint_files import NOW as READ_AT
from tests.unit.blueprint_files import SMALL, texts, write
from tests.unit.test_catalog import DOGS, URL

DAY = 86_400


def rules(at: datetime | None, declared: int | None = 1000, mbit_s: int = 500) -> Policy:
    """100 GB lie far away; the route was measured `at`, and what that says counts for a day."""
    found = policy(
        [site("onprem")],
        data_sets=[data("d", 100 * GB, stores=["far"])],
        egress_prices=[egress("r-far", "r-onprem", 50_000, bandwidth=declared)],
        stores=[store("far", region="r-far")],
    )
    measured = {("r-far", "r-onprem"): Measured(mbit_s, at)} if at is not None else {}
    return replace(found, prices=replace(found.prices, measured=measured, measured_max_age_s=DAY))


def wait_of(book: Policy) -> Line:
    made = decided(request(data=uses("d")), worker(), rules=book)
    (line,) = next(term for term in on(made, "onprem").terms if term.kind is TermKind.WAITING).bill
    return line


HOUR_AGO, LONG_AGO = NOW - timedelta(hours=1), NOW - timedelta(days=1)
BANDWIDTHS = {
    "nothing measured: the declared one": (rules(None), 800, "transfer of d at 1000 Mbit/s, declared"),
    "measured of late: that": (rules(HOUR_AGO), 1600, "transfer of d at 500 Mbit/s, measured 2027-02-01T09:00:00Z"),
    "faster than declared: that, too": (
        rules(HOUR_AGO, mbit_s=4000),
        200,
        "transfer of d at 4000 Mbit/s, measured 2027-02-01T09:00:00Z",
    ),
    "measured too long ago: the declared one, and it says so": (
        rules(LONG_AGO),
        800,
        "transfer of d at 1000 Mbit/s, declared (measured 2027-01-31T10:00:00Z, too long ago)",
    ),
    "measured in the future: not yet": (
        rules(NOW + timedelta(hours=1)),
        800,
        "transfer of d at 1000 Mbit/s, declared",
    ),
    "measured where nothing is declared: known": (
        rules(HOUR_AGO, None),
        1600,
        "transfer of d at 500 Mbit/s, measured 2027-02-01T09:00:00Z",
    ),
    "too old, and nothing declared: not known": (
        rules(LONG_AGO, None),
        0,
        "transfer of d, bandwidth not known (measured 2027-01-31T10:00:00Z, too long ago)",
    ),
}


@pytest.mark.parametrize(("book", "seconds", "what"), BANDWIDTHS.values(), ids=BANDWIDTHS.keys())
def test_what_was_measured_of_late_stands_before_what_is_declared(book: Policy, seconds: int, what: str) -> None:
    line = wait_of(book)
    assert (line.quantity, line.what) == (seconds, what)


def test_a_peering_is_another_way_and_keeps_what_it_declares() -> None:
    book = rules(HOUR_AGO)
    far = book.stores["far"]  # type: ignore[index]
    here = book.clusters["onprem"]  # type: ignore[index]
    way = egress("r-far", "r-onprem", 0, bandwidth=2000)
    peerings = {(far.provider, "r-far", here.provider, "r-onprem"): way}
    assert wait_of(replace(book, prices=replace(book.prices, peerings=peerings))).quantity == 400


def test_a_measurement_begins_and_ceases_to_count_by_time_alone() -> None:
    """Candidates that are remembered are weighed anew then (core/window.py)."""
    book = rules(HOUR_AGO)
    end = HOUR_AGO + timedelta(seconds=DAY)
    assert window_until(book, end - timedelta(minutes=1)) == end
    assert window_of(book, end) != window_of(book, end - timedelta(seconds=1))
    assert window_of(book, HOUR_AGO) != window_of(book, HOUR_AGO - timedelta(seconds=1))


# --- files and the endpoint --------------------------------------------------------------------------------------


def row(measured: object = 900, at: str = "2026-11-29T11:00:00Z", **more: object) -> dict[str, object]:
    return {"from_region": "de-home", "to_region": "fi-north", "measured": measured, "at": at, **more}


def loaded(folder: Path, *rows: object, answered: object = None, more: str = "") -> LoadResult:
    """`rows` of the file, and what the endpoint answers."""
    file = f"{SMALL['data.yaml']}bandwidth: {json.dumps(rows)}\n{more}"
    answer = None
    if answered is not None:
        file += f"catalog: {{url: '{URL}', every: PT1M, max_age: PT1H}}\n"
        answer = Answer(URL, json.dumps({"data_sets": {"dogs": DOGS}, "bandwidth": answered}).encode(), READ_AT)
    write(folder, {**SMALL, "data.yaml": file})
    return load_content(replace(read_folder(folder), catalog=answer), folder, READ_AT)


def measured(found: LoadResult) -> dict[tuple[str, str], tuple[int, int]]:
    """Mbit/s and the hour, by route."""
    assert found.policy is not None, texts(found)
    return {pair: (m.mbit_s, m.at.hour) for pair, m in found.policy.prices.measured.items()}


ROUTE = ("de-home", "fi-north")


def test_rows_of_the_file_and_of_the_endpoint_stand_side_by_side_and_the_newest_counts(tmp_path: Path) -> None:
    ten = row(700, "2026-11-29T10:00:00Z")
    assert measured(loaded(tmp_path / "file", ten, row())) == {ROUTE: (900, 11)}
    assert measured(loaded(tmp_path / "answer", answered=[row()])) == {ROUTE: (900, 11)}
    assert measured(loaded(tmp_path / "newer", ten, answered=[row()])) == {ROUTE: (900, 11)}
    assert measured(loaded(tmp_path / "older", row(), answered=[ten])) == {ROUTE: (900, 11)}
    assert measured(loaded(tmp_path / "none")) == {}


def test_how_long_a_measurement_counts_is_the_operators_to_say(tmp_path: Path) -> None:
    default = loaded(tmp_path / "default", row()).policy
    weekly = loaded(tmp_path / "week", row(), more="bandwidth_max_age: P7D\n").policy
    assert default is not None
    assert weekly is not None
    assert (default.prices.measured_max_age_s, weekly.prices.measured_max_age_s) == (DAY, 7 * DAY)
    assert default.digest != weekly.digest


WRONG = {
    "a region that the fleet does not have": (row(to_region="fi-nroth"), "did you mean 'fi-north'?"),
    "from a region to itself": (row(to_region="de-home"), "a route from a region to itself"),
    "no speed": (row(0), "zero, where one or more is expected"),
    "an instant without a zone": (row(at="2026-11-29T11:00:00"), "not an instant"),
    "an instant at the end of time": (row(at="9999-12-31T23:59:59Z"), "far ahead"),
    "a key that is none": (row(mbit=3), "unknown key"),
}


@pytest.mark.parametrize(("wrong", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_row_that_is_wrong_is_told_with_its_place_whoever_says_it(
    tmp_path: Path, wrong: dict[str, object], said: str
) -> None:
    for found in (loaded(tmp_path / "file", wrong), loaded(tmp_path / "answer", answered=[wrong])):
        assert found.policy is None
        (error,) = [text for text in texts(found) if "error" in text]
        assert said in error
    assert error.startswith("catalog#/bandwidth/0")


def told(found: LoadResult) -> list[str]:
    return [problem.text() for problem in found.problems]


def test_lint_names_what_does_not_count(tmp_path: Path) -> None:
    old, soon = row(at="2026-11-20T11:00:00Z"), row(at="2026-12-20T11:00:00Z")
    assert any("older than bandwidth_max_age" in text for text in told(loaded(tmp_path / "old", old)))
    assert any("measured in the future" in text for text in told(loaded(tmp_path / "soon", soon)))
    fine = told(loaded(tmp_path / "fine", old, row()))
    assert not any("bandwidth" in text or "measured" in text for text in fine), "there is a newer one"
