"""What pages show is what happens: their commands run on the demo, and the answers are held against the page.

A shown answer stands between two comments, and everything in it is written by `python -m tests.repo.test_readme`:

    <!-- run: why autonomy/world-model -->      the command, without `entrepot`; `{id of JOB}` is a decision's id
    <!-- run, exit 3: why autonomy/wrld -->     one that ends with another code than 0
    <!-- end -->

Commands of a page run one after the other in a folder of their own, which has `config/`, `examples/` and `demo/`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from dispatcher.cli.options import DEFAULT_SERVER
from tests.local.daemon import free_port

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(
    r"<!-- run(?:, exit (?P<code>\d))?: (?P<command>.+?) -->\n```\n\$ entrepot .+?\n(?P<answer>.*?)```\n<!-- end -->",
    re.DOTALL,
)
IN_A_SENTENCE = re.compile(r"`(?:kubectl )?entrepot ([a-z][^`]*)`")
"""A command line inside a paragraph or a table."""
ID_OF = re.compile(r"\{id of (?P<job>[a-z0-9/-]+)\}")
SHOWN_LETTERS = 8
WIDTH = "100"
JOBS, FINISHED = 22, 19
PATIENCE_S = 180.0
CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "INSTANT"),
    (re.compile(r"\b([0-9a-f]{64}|[0-9a-f]{16}|[0-9a-f]{8})\b"), "DIGEST"),
    # Whether a wait was found again before somebody asked is a matter of moments.
    (
        re.compile(r"decision DIGEST, attempt (\d+); found the same again at INSTANT"),
        r"decision DIGEST of INSTANT, attempt \1",
    ),
    (re.compile(r"(job|jobset)-([a-z0-9-]+)-[0-9a-f]{5}\b"), r"\1-\2-HASH"),
    (re.compile(r"\b(\d+[dh])?\d+[smhd]\b"), "AGE"),
    (re.compile(r"\d+%"), "SHARE"),
    (re.compile(r"\b\d+ s on (\S+): "), r"TIME on \1: "),
    (re.compile(r"\b\d+ s on (\S+, \d+ GPUs: )"), r"TIME on \1"),
    (re.compile(r"\d+\.\d{3} kWh, \d+\.\d{3} kg CO2"), "ENERGY"),
    (re.compile(r"\d+ bytes"), "SIZE"),
    (re.compile(r"number \d+ in line"), "number N in line"),
)
"""What differs from run to run."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One command on a page, with the answer that the page gives."""

    page: Path
    command: str
    code: int
    answer: str


def shown_on(page: Path) -> list[Shown]:
    text = page.read_text(encoding="utf-8")
    return [Shown(page, m["command"], int(m["code"] or 0), m["answer"]) for m in BLOCK.finditer(text)]


def settled(text: str) -> str:
    """Without what differs from run to run, and without the widths of what held it."""
    for pattern, name in CHANGING:
        text = pattern.sub(name, text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


@dataclass(frozen=True, slots=True)
class Stand:
    """A demo that stands, and a folder in which commands are run against it."""

    server: str
    folder: Path

    def filled(self, command: str) -> str:
        """The command with the ids that it asks for."""
        return ID_OF.sub(lambda found: self._id_of(found["job"]), command)

    def ask(self, command: str, code: int = 0) -> str:
        """What a person sees who types it: notes and errors included."""
        told = subprocess.run(
            [sys.executable, "-m", "dispatcher.cli.main", *shlex.split(command)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            env=self._environment(),
        )
        assert told.returncode == code, f"entrepot {command}: {told.returncode}\n{told.stdout}"
        shown = told.stdout.replace(self.server, DEFAULT_SERVER)
        return "\n".join(line.rstrip() for line in shown.splitlines()) + "\n"

    def _id_of(self, job: str) -> str:
        answer = httpx.get(f"{self.server}/v1/decisions/of/{job}", timeout=10.0, trust_env=False)
        return str(answer.json()["items"][0]["id"])[:SHOWN_LETTERS]

    def _environment(self) -> dict[str, str]:
        without = {name: value for name, value in os.environ.items() if not name.startswith(("ENTREPOT_", "KUBE"))}
        home = {"HOME": str(self.folder), "PYTHONPATH": str(ROOT)}
        return {**without, **home, "ENTREPOT_SERVER": self.server, "COLUMNS": WIDTH, "NO_COLOR": "1"}


@contextlib.contextmanager
def stand() -> Iterator[Stand]:
    """The running demo after all jobs that can finish have finished."""
    listen = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="entrepot-pages-") as folder:
        for name in ("config", "examples", "demo"):
            (Path(folder) / name).symlink_to(ROOT / name)
        process = subprocess.Popen(
            [sys.executable, "-m", "demo", "--listen", listen],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_until_done(f"http://{listen}", process)
            yield Stand(f"http://{listen}", Path(folder))
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0


def _wait_until_done(server: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    done = 0
    while done < FINISHED:
        assert time.monotonic() < deadline, f"{done} of {FINISHED} jobs finished"
        assert process.poll() is None, "the demo ended"
        time.sleep(0.5)
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.get(f"{server}/v1/workloads?limit=200", timeout=10.0, trust_env=False)
            done = sum(w["state"]["code"] == "finished" for w in answer.json()["items"])


def rewrite() -> None:
    """Put today's answers on every page that shows another one; a page of which only ids and times differ is left."""
    with stand() as demo:

        def answered(found: re.Match[str]) -> str:
            command, code = demo.filled(found["command"]), int(found["code"] or 0)
            head = found.group(0).partition("\n")[0]
            return f"{head}\n```\n$ entrepot {command}\n{demo.ask(command, code)}```\n<!-- end -->"

        for page in PAGES:
            before = page.read_text(encoding="utf-8")
            after = BLOCK.sub(answered, before)
            if settled(after) != settled(before):
                page.write_text(after, encoding="utf-8")
