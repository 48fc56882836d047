"""Tables as values: titled columns and groups of rows, shown as plain text for a pipe or with rich on a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from rich.table import Table

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """`left`: aligned to the left, as names are; numbers go to the right."""

    title: str
    left: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """Groups are told apart by an empty line. Every row has a cell for every column."""

    title: str
    columns: tuple[Column, ...]
    groups: tuple[tuple[tuple[str, ...], ...], ...]


def sheet_text(sheet: Sheet) -> str:
    """Plain text, in columns, with neither colour nor lines: what a pipe or a file gets."""
    head = tuple(column.title for column in sheet.columns)
    rows = (head, *chain.from_iterable(sheet.groups))
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]

    def line(row: tuple[str, ...]) -> str:
        cells = (
            cell.ljust(width) if column.left else cell.rjust(width)
            for cell, width, column in zip(row, widths, sheet.columns, strict=True)
        )
        return _GAP.join(cells).rstrip()

    blocks = ["\n".join(line(row) for row in group) for group in sheet.groups]
    between = "\n\n" if any(len(group) > 1 for group in sheet.groups) else "\n"
    return f"{sheet.title}\n\n{line(head)}\n{between.join(blocks)}\n"


def sheet_table(sheet: Sheet) -> Table:
    """The same for a terminal."""
    table = Table(title=sheet.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in sheet.columns:
        table.add_column(column.title, justify="left" if column.left else "right", no_wrap=True)
    for group in sheet.groups:
        for row in group:
            table.add_row(*row)
        if len(group) > 1:
            table.add_section()
    return table
