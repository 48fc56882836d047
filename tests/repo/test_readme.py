"""README and docs show what the program answers. `python -m tests.repo.test_readme` writes the answers anew."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.local.daemon import free_port
from tests.repo.pages import (
    FINISHED,
    IN_A_SENTENCE,
    JOBS,
    PAGES,
    README,
    ROOT,
    Shown,
    Stand,
    rewrite,
    settled,
    shown_on,
    stand,
)

pytestmark = pytest.mark.slow

ALL = [shown for page in PAGES for shown in shown_on(page)]
"""In the order of the pages: a later command of a page may need what an earlier one left."""


@pytest.mark.parametrize("name", ["README.md", "on-call.md", "replay.md"])
def test_pages_that_live_on_answers_have_some(name: str) -> None:
    assert [shown for shown in ALL if shown.page.name == name]


@pytest.fixture(scope="module")
def demo() -> Iterator[Stand]:
    with stand() as found:
        yield found


@pytest.mark.parametrize("shown", ALL, ids=[f"{shown.page.name}: {shown.command}" for shown in ALL])
def test_the_answer_on_the_page_is_the_answer_of_the_program(shown: Shown, demo: Stand) -> None:
    assert settled(demo.ask(demo.filled(shown.command), shown.code)) == settled(shown.answer)


def test_what_the_readme_says_to_try_can_be_tried(demo: Stand) -> None:
    commands = [line for line in IN_A_SENTENCE.findall(README.read_text(encoding="utf-8")) if line.islower()]
    assert len(commands) >= 8
    for command in commands:  # in their order: one leaves a file that another reads
        assert demo.ask(command)


def test_the_demo_runs_to_its_end_and_says_so_in_one_json_object() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "demo", "--once", "--listen", f"127.0.0.1:{free_port()}"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )
    last = json.loads(ran.stdout.splitlines()[-1])
    assert (last["submitted"], last["dispatched"], last["finished"]) == (JOBS, FINISHED, FINISHED)
    assert set(last["held"]) == {"autonomy/foundation-xl", "flywheel/relabel-typo", "simulation/cad-fit"}
    assert all(last["held"].values())


if __name__ == "__main__":
    rewrite()
