"""What the README shows is what happens: its commands run on the demo, and the answers are compared with the page.

`python -m tests.repo.test_readme` writes the answers anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.local.daemon import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(
    r"<!-- readme: (?P<command>.+?) -->\n```\n\$ entrepot .+?\n(?P<answer>.*?)```\n<!-- end -->", re.DOTALL
)
WIDTH = "100"
JOBS, FINISHED = 22, 19
PATIENCE_S = 180.0
CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"), "INSTANT"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "DIGEST"),
    (re.compile(r"(job|jobset)-([a-z0-9-]+)-[0-9a-f]{5}\b"), r"\1-\2-HASH"),
    (re.compile(r"\b\d+[smhd]\b"), "AGE"),
    (re.compile(r"number \d+ in line"), "number N in line"),
)


def settled(text: str) -> str:
    """Without what differs from run to run: instants, ages, digests, hashes, and the width of what held them."""
    for pattern, name in CHANGING:
        text = pattern.sub(name, text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


@contextlib.contextmanager
def demo() -> Iterator[str]:
    """The running demo after all jobs that can finish have finished; yields the address of its API."""
    listen = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "demo", "--listen", listen],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_done(f"http://{listen}", process)
        yield f"http://{listen}"
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


def wait_until_done(server: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    done = 0
    while done < FINISHED:
        assert time.monotonic() < deadline, f"{done} of {FINISHED} jobs finished"
        assert process.poll() is None, "the demo ended"
        time.sleep(0.5)
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.get(f"{server}/v1/workloads?limit=200", timeout=10.0, trust_env=False)
            done = sum(w["state"]["code"] == "finished" for w in answer.json()["items"])


def ask(command: str, server: str) -> str:
    told = subprocess.run(
        [sys.executable, "-m", "dispatcher.cli.main", *command.split(), "--server", server],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": WIDTH, "NO_COLOR": "1"},
    )
    return "\n".join(line.rstrip() for line in told.stdout.splitlines()) + "\n"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with demo() as found:
        yield found


BLOCKS = [(m["command"], m["answer"]) for m in BLOCK.finditer(README.read_text())]


def test_the_page_shows_answers() -> None:
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize(("command", "answer"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_the_answer_on_the_page_is_the_answer_of_the_program(command: str, answer: str, server: str) -> None:
    assert settled(ask(command, server)) == settled(answer)


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


def rewrite() -> None:
    """Put today's answers on the page."""
    with demo() as address:

        def answered(match: re.Match[str]) -> str:
            command = match["command"]
            return f"<!-- readme: {command} -->\n```\n$ entrepot {command}\n{ask(command, address)}```\n<!-- end -->"

        README.write_text(BLOCK.sub(answered, README.read_text()))


if __name__ == "__main__":
    rewrite()
