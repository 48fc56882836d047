"""Rows: one measured figure each, beside a peer's and against a bar, and the file that keeps the newest of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

RESULTS = Path(__file__).with_name("results.json")
DIGITS = 4
"""Significant digits kept: a figure of a noisy machine has no more."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What a figure must reach: `Bar("ratio", "at least", 1.5)` is one and a half times the peer's."""

    of: Literal["value", "ratio"]
    sense: Literal["at least", "at most"]
    limit: float

    def __str__(self) -> str:
        return f"{self.of} {self.sense} {self.limit:g}"

    def holds(self, figure: float | None) -> bool:
        """Unknown never holds."""
        if figure is None:
            return False
        return figure >= self.limit if self.sense == "at least" else figure <= self.limit


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `peer` says in words what `peer_value` was measured of, in the same run and unit."""

    name: str
    value: float | None
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    bar: Bar | None = None

    @property
    def ratio(self) -> float | None:
        """Value by the peer's value; None where one of them is unknown or the peer's is 0."""
        if self.value is None or not self.peer_value:
            return None
        return self.value / self.peer_value

    @property
    def holds(self) -> bool | None:
        """Whether the bar is met; None where there is none. Judged on what was measured, not on what is printed."""
        if self.bar is None:
            return None
        return self.bar.holds(self.value if self.bar.of == "value" else self.ratio)

    def record(self, bench: str, measured: str) -> dict[str, Any]:
        """The row as `results.json` keeps it."""
        return {
            "bench": bench,
            "name": self.name,
            "value": rounded(self.value),
            "unit": self.unit,
            "peer": self.peer,
            "peer_value": rounded(self.peer_value),
            "ratio": rounded(self.ratio),
            "bar": str(self.bar) if self.bar is not None else None,
            "holds": self.holds,
            "measured": measured,
        }


def rounded(figure: float | None) -> float | None:
    """A figure to the digits that mean something; whole numbers stay whole."""
    if figure is None or figure == int(figure):
        return None if figure is None else int(figure)
    short = float(f"{figure:.{DIGITS}g}")
    return int(short) if short == int(short) else short


def merged(old: Sequence[dict[str, Any]], bench: str, new: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The old rows with those of one bench replaced: benches in order of their names, rows in the order they were
    returned. A row that a bench no longer returns is gone."""
    rows = [row for row in old if row["bench"] != bench] + list(new)
    return sorted(rows, key=lambda row: str(row["bench"]))


def load(path: Path = RESULTS) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return rows


def save(rows: Sequence[dict[str, Any]], path: Path = RESULTS) -> None:
    """One row a line, so that a change of one figure is a change of one line."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")
