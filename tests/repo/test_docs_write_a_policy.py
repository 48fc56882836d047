"""The walk of docs/write-a-policy.md, done as a new operator would: every block as written, every command as said."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dispatcher.cli.main import run
from dispatcher.config.residency.lint_checks import Code
from residency.soundness import Flaw

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "write-a-policy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n# config/(residency/[a-z.]+)\n(.*?)```", PAGE, re.DOTALL)
LINT = ("--strict", "--now", "2026-11-29T12:00:00Z")
TEST = ("--min-coverage", "100", "--mutate")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "config", tmp_path / "config"))


def write(folder: Path, block: int) -> None:
    name, text = BLOCKS[block]
    (folder / name).write_text(text, encoding="utf-8")


def policy(command: str, folder: Path, *options: str) -> int:
    return run(["policy", command, str(folder), *options])


def test_the_walk_has_its_blocks() -> None:
    assert [name for name, _ in BLOCKS] == [
        "residency/board.test.yaml",
        "residency/board.yaml",
        "residency/board.test.yaml",
        "residency/exceptions.yaml",
    ]


def test_every_code_of_lint_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [code.value for code in (*Code, *Flaw) if f"`{code.value}`" not in page] == []


@pytest.mark.slow
def test_a_country_rule_from_its_test_to_an_exception(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, 0)
    assert policy("test", folder) == 2, "the rule that the test names is not there yet"
    assert "board-not-in-france" in capsys.readouterr().err
    write(folder, 1)
    assert policy("lint", folder, *LINT) == 0
    assert policy("test", folder, "--min-coverage", "100") == 0
    assert policy("facts", folder) == 0

    rule = folder / "residency" / "board.yaml"
    rule.write_text(rule.read_text().replace("mode: shadow", "mode: enforce"))
    capsys.readouterr()
    assert policy("test", folder) == 1, "the tests said shadow"
    assert "FAIL recordings-in-france-would-be-refused" in capsys.readouterr().out
    write(folder, 2)
    assert policy("lint", folder, *LINT) == 0
    assert policy("test", folder, *TEST) == 0

    write(folder, 3)
    assert policy("lint", folder, *LINT) == 0
    assert policy("lint", folder, "--strict", "--now", "2026-12-18T12:00:00Z") == 1, "it ends within three days"
    assert "autonomy-training, lidar-raw, cloud-b-fr is under the rule again" in capsys.readouterr().out
