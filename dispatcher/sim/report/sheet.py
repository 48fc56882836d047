"""Tables as values: titled columns and groups of rows, shown as plain text for a pipe or with rich on a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, groupby

from rich.table import Table

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """`left`: aligned to the left, as names are; numbers go to the right. Columns of one `quantity` stay together."""

    title: str
    left: bool = False
    quantity: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """Groups are told apart by an empty line. Every row has a cell for every column."""

    title: str
    columns: tuple[Column, ...]
    groups: tuple[tuple[tuple[str, ...], ...], ...]


def widths(sheet: Sheet) -> list[int]:
    """How many characters each column takes."""
    rows = (tuple(column.title for column in sheet.columns), *chain.from_iterable(sheet.groups))
    return [max(len(row[at]) for row in rows) for at in range(len(sheet.columns))]


def within(sheet: Sheet, width: int) -> tuple[Sheet, ...]:
    """The sheet in as many parts as it needs for a screen of this width, each with the names at its left.

    Columns of one quantity are not torn apart, even where they are too wide together.
    """
    takes = [width_of + len(_GAP) for width_of in widths(sheet)]
    names = [at for at, column in enumerate(sheet.columns) if column.left]
    room = width + len(_GAP) - sum(takes[at] for at in names)
    numbers = [at for at, column in enumerate(sheet.columns) if not column.left]
    parts: list[list[int]] = [[]]
    for _, block in groupby(numbers, key=lambda at: sheet.columns[at].quantity or at):
        columns = list(block)
        if parts[-1] and sum(takes[at] for at in (*parts[-1], *columns)) > room:
            parts.append([])
        parts[-1] += columns
    return tuple(_only(sheet, (*names, *part)) for part in parts)


def _only(sheet: Sheet, kept: tuple[int, ...]) -> Sheet:
    groups = tuple(tuple(tuple(row[at] for at in kept) for row in group) for group in sheet.groups)
    return Sheet(sheet.title, tuple(sheet.columns[at] for at in kept), groups)


def sheet_text(sheet: Sheet) -> str:
    """Plain text, in columns, with neither colour nor lines: what a pipe or a file gets."""
    head = tuple(column.title for column in sheet.columns)
    takes = widths(sheet)

    def line(row: tuple[str, ...]) -> str:
        cells = (
            cell.ljust(width) if column.left else cell.rjust(width)
            for cell, width, column in zip(row, takes, sheet.columns, strict=True)
        )
        return _GAP.join(cells).rstrip()

    blocks = ["\n".join(line(row) for row in group) for group in sheet.groups]
    between = "\n\n" if any(len(group) > 1 for group in sheet.groups) else "\n"
    return f"{sheet.title}\n\n{line(head)}\n{between.join(blocks)}\n"


def sheet_table(sheet: Sheet) -> Table:
    """The same for a terminal."""
    table = Table(
        title=sheet.title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, len(_GAP), 0, 0),
    )
    for column in sheet.columns:
        table.add_column(column.title, justify="left" if column.left else "right", no_wrap=True)
    for at, group in enumerate(sheet.groups):
        if at > 0 and len(group) > 1:
            table.add_row()
        for row in group:
            table.add_row(*row)
    return table
