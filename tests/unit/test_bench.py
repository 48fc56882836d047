"""The bench's own arithmetic: rows, bars, what is kept of earlier runs, and the tables of its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command
from bench import rows, tables
from bench.rows import Bar, Row

ENOUGH = Bar("ratio", "at least", 1.5)
QUICK = Bar("value", "at most", 50)


@pytest.mark.parametrize(
    ("row", "ratio", "holds"),
    [
        pytest.param(Row("a", 3.0, "1/s"), None, None, id="a figure alone has no ratio and no verdict"),
        pytest.param(Row("a", 3.0, "1/s", "b", 2.0), 1.5, None, id="a peer without a bar informs"),
        pytest.param(Row("a", 3.0, "1/s", "b", 2.0, ENOUGH), 1.5, True, id="a bar is met when reached"),
        pytest.param(Row("a", 2.9, "1/s", "b", 2.0, ENOUGH), 1.45, False, id="less than the bar misses it"),
        pytest.param(Row("a", 51, "ms", bar=QUICK), None, False, id="more than a limit misses it"),
        pytest.param(Row("a", 50, "ms", bar=QUICK), None, True, id="a limit may be reached"),
        pytest.param(Row("a", None, "ms", bar=QUICK), None, False, id="unknown never holds"),
        pytest.param(Row("a", 2, "ms", "b", 0, ENOUGH), None, False, id="no ratio to nothing"),
    ],
)
def test_a_row_judges_itself(row: Row, ratio: float | None, holds: bool | None) -> None:
    assert row.ratio == ratio
    assert row.holds == holds


def test_the_verdict_is_on_what_was_measured_not_on_what_is_shown() -> None:
    record = Row("a", 1.49996, "x", bar=Bar("value", "at least", 1.5)).record("b", "now")
    assert record["value"] == 1.5
    assert record["holds"] is False
    assert record["bar"] == "value at least 1.5"


@pytest.mark.parametrize(
    ("figure", "shown"), [(None, None), (3.0, 3), (12345.678, 12350), (0.00123456, 0.001235), (160, 160)]
)
def test_figures_keep_the_digits_that_mean_something(figure: float | None, shown: float | None) -> None:
    assert repr(rows.rounded(figure)) == repr(shown)


def record(bench: str, name: str, value: float) -> dict[str, Any]:
    return Row(name, value, "x").record(bench, "a day")


def test_a_run_replaces_its_own_rows_and_keeps_the_others_in_a_stable_order(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    old = [record("memory", "m", 1), record("decide", "z", 1), record("decide", "gone", 1)]
    rows.save(rows.merged([], "memory", old), path)
    again = rows.merged(rows.load(path), "decide", [record("decide", "z", 2), record("decide", "a", 3)])
    rows.save(again, path)
    assert [(r["bench"], r["name"], r["value"]) for r in rows.load(path)] == [
        ("decide", "z", 2),
        ("decide", "a", 3),
        ("memory", "m", 1),
    ]
    before = path.read_bytes()
    rows.save(rows.load(path), path)
    assert path.read_bytes() == before


def test_the_page_shows_the_rows_of_each_bench_between_its_marks() -> None:
    page = "before\n<!-- rows: decide -->\nstale\n<!-- end -->\nafter <!-- rows: memory -->\n<!-- end -->\n"
    shown = tables.with_tables(page, [record("decide", "p99", 1234)])
    assert "| p99 | 1,234 | x |  |  |  |  |  |" in shown
    assert "stale" not in shown
    assert "Measured a day." in shown
    assert shown.count("Not measured yet.") == 1
    assert tables.with_tables(shown, [record("decide", "p99", 1234)]) == shown


def test_the_tables_of_the_repository_are_those_of_its_rows() -> None:
    page = tables.README.read_text()
    assert page == tables.with_tables(page, rows.load()), "run `python -m bench.tables`"


def test_every_bench_has_one_place_on_the_page() -> None:
    marked = [found["bench"] for found in tables.MARKED.finditer(tables.README.read_text())]
    assert sorted(marked) == sorted({*command.BENCHES, *command.APART})
