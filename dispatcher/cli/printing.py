"""Output: tables for people (colour only on a terminal, and never against NO_COLOR), JSON and YAML for scripts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import yaml
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from dispatcher.cli.options import Output

WIDTH = 100
"""Columns where there is no terminal to ask."""


class _Screen(Console):
    """A console whose reader may go: `entrepot why JOB | head` is no failure (see main.run)."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Standard output. Rich itself drops colour off a terminal and under NO_COLOR."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH
    return _Screen(width=width, highlight=False, soft_wrap=False, emoji=False)


def emit(value: BaseModel, raw: bytes | None, output: Output, table: Callable[[Console, bool], None]) -> None:
    """Print an answer. `raw` is what the daemon sent: scripts get all of it, in its order. `table` gets `wide`."""
    if output in (Output.TABLE, Output.WIDE):
        table(console(), output is Output.WIDE)
    else:
        emit_data(json.loads(raw) if raw is not None else value.model_dump(mode="json"), output)


def emit_data(data: object, output: Output) -> None:
    """Print data for a script, keys in their own order."""
    if output is Output.YAML:
        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=WIDTH))
    else:
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def grid(*columns: str, right: frozenset[str] = frozenset(), flexible: str | None = None) -> Table:
    """A borderless table. Only the `flexible` column may wrap."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for column in columns:
        wraps = column == flexible
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis",
            ratio=1 if wraps else None,
        )
    return table


def clock(instant: datetime | None) -> str:
    """An instant in UTC, to the second."""
    return "-" if instant is None else instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def note(text: str) -> None:
    """A remark that is no part of the answer."""
    sys.stderr.write(f"note: {text}\n")
