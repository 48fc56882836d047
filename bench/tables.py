"""The rows as tables for people: on the terminal, and between the marks of README.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

README = Path(__file__).with_name("README.md")
COLUMNS = ("figure", "value", "unit", "peer", "its value", "ratio", "bar", "holds")
MARKED = re.compile(r"(<!-- rows: (?P<bench>[a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """One row as the strings of its table line."""
    numbers = {key: _number(row[key]) for key in ("value", "peer_value", "ratio")}
    holds = {True: "yes", False: "NO", None: ""}[row["holds"]]
    return (
        row["name"], numbers["value"], row["unit"], row["peer"] or "", numbers["peer_value"], numbers["ratio"],
        row["bar"] or "", holds,
    )  # fmt: skip


def _number(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:,}" if isinstance(figure, int) else f"{figure:,g}"


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table, with the day and machine of each set of rows under it."""
    lines = [" | ".join(COLUMNS), " | ".join("---" for _ in COLUMNS), *(" | ".join(cells(row)) for row in rows)]
    measured = dict.fromkeys(str(row["measured"]) for row in rows)
    return "\n".join(f"| {line} |" for line in lines) + f"\n\nMeasured {'; '.join(measured)}.\n"


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The same for a terminal, in columns."""
    table = [COLUMNS, *(cells(row) for row in rows)]
    widths = [max(len(line[at]) for line in table) for at in range(len(COLUMNS))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in table)


def with_tables(page: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The page with the table between each pair of marks written anew from the rows."""

    def fill(found: re.Match[str]) -> str:
        own = [row for row in rows if row["bench"] == found["bench"]]
        return found[1] + (markdown(own) if own else "Not measured yet.\n") + found[3]

    return MARKED.sub(fill, page)


if __name__ == "__main__":
    from bench import rows

    README.write_text(with_tables(README.read_text(), rows.load()))
