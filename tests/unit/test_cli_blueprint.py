"""`entrepot blueprint ...` on the example and on broken copies of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dispatcher.cli.main import run

EXAMPLE = Path(__file__).parents[2] / "config"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    folder = tmp_path / "blueprint"
    shutil.copytree(EXAMPLE, folder)
    text = (folder / "fleet.yaml").read_text()
    (folder / "fleet.yaml").write_text(text + "\nsurprise: 1\n")
    return folder


def test_the_example_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["blueprint", "lint", str(EXAMPLE)]) == 0
    assert "valid" in capsys.readouterr().out


def test_a_broken_file_is_5_with_its_place(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["blueprint", "lint", str(broken)]) == 5
    assert "fleet.yaml:" in capsys.readouterr().out
    assert run(["blueprint", "lint", str(broken), "-o", "json"]) == 5
    found = json.loads(capsys.readouterr().out)
    assert (found["valid"], found["errors"][0]["file"]) == (False, "fleet.yaml")
    assert run(["blueprint", "render", str(broken)]) == 5


def test_render_prints_or_writes_the_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["blueprint", "render", str(EXAMPLE)]) == 0
    assert "kind: MultiKueueConfig" in capsys.readouterr().out
    assert run(["blueprint", "render", str(EXAMPLE), "--out", str(tmp_path / "out")]) == 0
    written = capsys.readouterr().out.split()
    assert Path(written[0]).name == "hub.yaml"
    assert all(Path(name).is_file() for name in written)


def test_rendering_an_unknown_cluster_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["blueprint", "render", str(EXAMPLE), "--only", "mars"]) == 2
    assert "mars" in capsys.readouterr().err


def test_the_schema_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["blueprint", "schema"]) == 0
    assert "fleet.schema.json" in capsys.readouterr().out
    assert run(["blueprint", "schema", str(tmp_path)]) == 0
    assert (tmp_path / "schema" / "fleet.schema.json").is_file()
