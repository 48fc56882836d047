"""No error without a metric: whatever the code logs as a warning or an error has its kind in `PROBLEMS`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dispatcher.logs import PROBLEMS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for top in ("dispatcher", "connectors", "residency") for path in sorted((ROOT / top).rglob("*.py"))]
LOUD = {"warning", "error", "exception", "critical"}


@cache
def loud_events() -> tuple[tuple[str, ast.expr], ...]:
    """(place, first argument) of every call of a logger that is, or may be, louder than info.

    `log = get_logger().info if ... else get_logger().warning` and then `log(...)` counts as well.
    """
    texts = {path: path.read_text() for path in SOURCES}
    return tuple(
        (f"{path.relative_to(ROOT)}:{line}", event)
        for path, text in texts.items()
        if "get_logger()" in text
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for line, event in _loud_in(function)
    )


def _loud_in(function: ast.AST) -> Iterator[tuple[int, ast.expr]]:
    nodes = list(ast.walk(function))
    names = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and any(_loud(part) for part in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func
        if _loud(called) or (isinstance(called, ast.Name) and called.id in names):
            yield node.lineno, node.args[0]


def _loud(node: ast.AST) -> bool:
    """`get_logger().warning` and its like."""
    if not isinstance(node, ast.Attribute) or node.attr not in LOUD or not isinstance(node.value, ast.Call):
        return False
    return isinstance(node.value.func, ast.Name) and node.value.func.id == "get_logger"


def test_every_loud_event_is_a_constant_that_is_counted() -> None:
    missing = []
    for place, event in loud_events():
        assert isinstance(event, ast.Constant), f"{place}: the event of a log line is a constant, detail goes into keys"
        assert re.fullmatch(r"[a-z][a-z_]*", str(event.value)), f"{place}: {event.value!r} is no snake_case constant"
        if event.value not in PROBLEMS:
            missing.append(f"{place}: {event.value}")
    assert missing == [], "add them to PROBLEMS in dispatcher/logs.py, and see whether an alert should speak of them"


def test_no_kind_is_counted_that_nothing_logs() -> None:
    logged = {event.value for _, event in loud_events() if isinstance(event, ast.Constant)}
    assert sorted(set(PROBLEMS) - logged) == []
    assert list(PROBLEMS) == sorted(PROBLEMS)


def test_nothing_logs_but_by_get_logger() -> None:
    """Another way would not be counted, nor redacted."""
    other = re.compile(r"\bstructlog\.get_logger|\blogging\.getLogger|\bprint\(.*file=sys\.stderr")
    found = [str(p.relative_to(ROOT)) for p in SOURCES if p.name != "logs.py" and other.search(p.read_text())]
    assert found == []
