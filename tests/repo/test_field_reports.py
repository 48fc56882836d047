"""Every field report of these groups has a test that is named by its id: `test_fr_nom_01_...` is FR-NOM-01."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
GROUPS = {"nom": 11, "rac": 12, "wat": 7, "aut": 3, "cfg": 6, "cli": 5, "sco": 18, "scl": 2}
"""How many reports a group has; they are numbered from 1."""
IDS = [f"{group}_{number:02d}" for group, most in GROUPS.items() for number in range(1, most + 1)]
NAME = re.compile(r"^ *(?:async )?def (test_fr_([a-z]{3}_\d\d)_\w+)", re.MULTILINE)


@cache
def named() -> dict[str, list[str]]:
    """Report ids with the tests that carry them, read from the names of test functions."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, report in NAME.findall(path.read_text()):
            found.setdefault(report, []).append(f"{path.name}: {name}")
    return found


@pytest.mark.parametrize("report", IDS)
def test_a_field_report_has_a_test_of_its_name(report: str) -> None:
    assert named().get(report), f"no test_fr_{report}_... shows what FR-{report.upper().replace('_', '-')} asks for"


def test_no_test_carries_a_number_that_no_report_has() -> None:
    ours = [report for report in named() if report[:3] in GROUPS]
    assert sorted(set(ours) - set(IDS)) == []
