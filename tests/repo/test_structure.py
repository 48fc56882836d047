"""The repository keeps its own rules: sizes, headers that only the project is spoken of, and data-only folders."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("dispatcher", "connectors", "residency", "demo", "bench", "tests")
MOST_LINES = 500
MOST_TEST_LINES = 800
MOST_FUNCTION_LINES = 60
HOSTS = re.compile("|".join(("pypi" + r"\.org", "proxy" + r"\.golang\.org", "files" + r"\.pythonhosted")))
MACHINE_PATHS = re.compile(r"/(?:home|Users)/[a-z]|/work/(?:main|shared)")


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    )
    return [ROOT / line for line in listed.stdout.decode().splitlines() if (ROOT / line).is_file()]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_and_no_function_outgrows_a_reader(folder: str) -> None:
    assert [told for path in sorted((ROOT / folder).rglob("*.py")) for told in too_long(path)] == []


def too_long(path: Path) -> list[str]:
    name, text = path.relative_to(ROOT), path.read_text()
    lines = len(text.splitlines())
    found = [f"{name} has {lines} lines"] if lines > (MOST_TEST_LINES if "tests" in name.parts else MOST_LINES) else []
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MOST_FUNCTION_LINES:
                found.append(f"{name}:{node.lineno} {node.name} has {length} lines")
    return found


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node, and none of the expressions, which are most of a file."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        for below in getattr(node, name, ()):
            yield below
            yield from statements(below)


def test_what_outgrows_a_reader_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.repo.test_structure.ROOT", tmp_path)
    (tmp_path / "long.py").write_text("def f():\n" + "    pass\n" * (MOST_LINES + 1))
    assert too_long(tmp_path / "long.py") == ["long.py has 502 lines", "long.py:1 f has 502 lines"]


def test_no_file_names_a_registry_host_or_a_path_of_a_machine() -> None:
    found = []
    for path in tracked():
        if path.suffix in {".sum", ".png"}:
            continue
        text = path.read_text(errors="replace")
        found += [
            f"{path.relative_to(ROOT)}: {m.group()}" for m in (HOSTS.search(text), MACHINE_PATHS.search(text)) if m
        ]
    assert found == []


def test_config_is_data_only() -> None:
    assert [p.name for p in (ROOT / "config").rglob("*.py")] == []
