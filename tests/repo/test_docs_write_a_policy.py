"""docs/write-a-policy.md and docs/change-a-rule.md, done as a new operator would: every block and command as written.

`python -m tests.repo.test_docs_write_a_policy` writes anew what lint says there.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dispatcher.cli.main import run
from dispatcher.config.lint import lint, lint_text
from dispatcher.config.residency.lint_checks import Code
from residency.soundness import Flaw

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "write-a-policy.md"
WALK = (ROOT / "docs" / "change-a-rule.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n# config/(residency/[a-z.]+)\n(.*?)```", WALK, re.DOTALL)
DAY = datetime(2026, 11, 29, 12, tzinfo=UTC)
LINT = ("--strict", "--now", "2026-11-29T12:00:00Z")
TEST = ("--min-coverage", "100", "--mutate")
SLIPS = (
    ("fleet.yaml", "product: h200-141gb", "product: h200_sxm_141"),
    ("fleet.yaml", "    provider: altacloud", "    provider: altaclod"),
    ("prices.yaml", "usd_per_hour: 1.90", "usd_per_hour: 2.10 EUR"),
    ("queues.yaml", "amount: 25000", "amount: -25000"),
    ("queues.yaml", "        a100-mig: {gpus: 96", "        a100_mig: {gpus: 96"),
    ("queues.yaml", "    idle_timeout: PT2H", "idle_timeout: PT2H"),
    ("residency/personal.yaml", '{in: "@eea-plus-adequate"}', "{in: EU}"),
    (
        "data.yaml",
        "\ndata_sets:\n",
        "\ndata_sets:\n  camera-eu: {labels: [personal-eu], size: 1TB, replicas: {stores: [lake-de]}}\n",
    ),
)
"""What people write by mistake: in which file, instead of what."""
TOO_MUCH = ("queues.yaml", "        h100: {gpus: 16}", "        h100: {gpus: 26}")
LINTED = re.compile(r"(?<=```\n)(\$ entrepot blueprint lint config\n)?config/[a-z]+\.yaml:\d+.*?(?=```)", re.DOTALL)


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


# --- what lint says ----------------------------------------------------------------------------------------------


def linted(at: Path, *slips: tuple[str, str, str]) -> str:
    """What a person sees who lints the example, with these mistakes in it, on the day that the walk is of."""
    shutil.copytree(ROOT / "config", at / "config")
    for name, right, wrong in slips:
        file = at / "config" / name
        before = file.read_text(encoding="utf-8")
        assert right in before, f"{name} has no {right!r}"
        file.write_text(before.replace(right, wrong, 1), encoding="utf-8")
    with contextlib.chdir(at):
        return lint_text(lint(Path("config"), DAY))


def lint_shown(folder: Path) -> tuple[str, str]:
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    errors = linted(folder / "a", *SLIPS)
    return f"$ entrepot blueprint lint config\n{errors}", linted(folder / "b", TOO_MUCH)


@pytest.mark.slow
def test_what_lint_says_on_the_page_is_what_it_says(tmp_path: Path) -> None:
    shown = [found.group() for found in LINTED.finditer(PAGE.read_text(encoding="utf-8"))]
    assert shown == list(lint_shown(tmp_path))
    assert shown[0].count(": error: ") == len(SLIPS), "each mistake is told, and once"


def rewrite() -> None:
    with tempfile.TemporaryDirectory() as folder:
        told = iter(lint_shown(Path(folder)))
        PAGE.write_text(LINTED.sub(lambda _: next(told), PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
