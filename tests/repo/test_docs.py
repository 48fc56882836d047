"""README and docs can be walked: every link leads somewhere, every command line is one that the program takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from dispatcher.cli.main import build
from tests.repo.pages import IN_A_SENTENCE, PAGES, README, ROOT

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMAND_LINE = re.compile(r"^(?: {4}|)(?:\$ )?(?:kubectl )?entrepot ((?!--\*).+)$", re.MULTILINE)
ENDS = re.compile(r"\s+#|\s[|>&]|\\$")
"""Where a command line's own words end: a comment, a pipe, the end of its line."""
SYNOPSIS = re.compile(r"[\[\]]|\\\|")
"""What a synopsis has beside words: brackets, and the bars between choices as tables write them."""
README_LINES = 170


def anchor(heading: str) -> str:
    """As the forges make it: lower case, without punctuation, '-' for each blank."""
    plain = re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(anchor(found) for found in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))))


def broken(page: Path) -> Iterator[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        file, _, part = target.partition("#")
        if ":" in file:
            continue
        there = (page.parent / file).resolve() if file else page
        if not there.exists():
            yield f"{target}: no such file"
        elif part and part not in anchors(there):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    assert list(broken(page)) == []


def test_every_page_is_found_from_another() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve() for page in PAGES for link in LINK.findall(page.read_text())
    }
    assert [page.name for page in PAGES if page not in linked and page != README] == []


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= README_LINES


# --- command lines -----------------------------------------------------------------------------------------------


def command_lines(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [*COMMAND_LINE.findall(text), *IN_A_SENTENCE.findall(text)]


@cache
def program() -> Any:
    return get_command(build())


def unknown(line: str) -> Iterator[str]:
    """Commands and options of a line that the program does not have. `lint|render` are two commands."""
    words = shlex.split(SYNOPSIS.sub(" ", ENDS.split(line)[0]), posix=True)
    found = [program()]
    while words and hasattr(found[0], "commands") and not words[0].startswith("-"):
        names = words.pop(0).split("|")
        if not names[0].islower():
            return
        yield from (f"no command {name!r}" for name in names if name not in found[0].commands)
        found = [found[0].commands[name] for name in names if name in found[0].commands]
        if not found:
            return
    for option in (word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)):
        for each in option.split("/"):
            if not any(each in (*p.opts, *p.secondary_opts) for command in found for p in command.params):
                yield f"no option {each!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_is_one_that_the_program_takes(page: Path) -> None:
    assert [f"{line}: {what}" for line in command_lines(page) for what in unknown(line)] == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("wyh JOB", ["no command 'wyh'"]),
        ("policy lint|tset config", ["no command 'tset'"]),
        ("why JOB --sever X  # a comment", ["no option '--sever'"]),
        ("serve --ha/--no-ha | cat --x", []),
    ],
)
def test_a_line_that_the_program_does_not_take_is_told(line: str, told: list[str]) -> None:
    assert list(unknown(line)) == told


def test_every_command_of_the_program_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    names = [name for name, command in program().commands.items() if not hasattr(command, "commands")]
    names += [
        f"{group} {name}" for group in ("blueprint", "policy", "store") for name in program().commands[group].commands
    ]
    assert [name for name in names if f"`entrepot {name}" not in page] == []
