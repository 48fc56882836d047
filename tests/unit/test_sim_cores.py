"""`simulate --cores`: runs in processes of their own come out as in one, and none outlives the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.core.errors import Fatal
from dispatcher.sim.engine_compare import Mark, compare, entries
from tests.fleet.processes import wait_until
from tests.loops.sim_jobs import crowd

pytestmark = pytest.mark.slow
COMMAND = (sys.executable, "-m", "dispatcher.cli.main", "simulate", "steady-0.96", "--seeds", "2", "--cores", "2")
RUNS = "multiprocessing.spawn"
"""What the command line of a process says that makes a run."""


def children(pid: int) -> list[int]:
    """Processes that make runs for this one."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if RUNS in Path(f"/proc/{child}/cmdline").read_text()]


def is_gone(pid: int) -> bool:
    """Ended, or ended and not fetched by whoever inherited it."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def heeds_ctrl_c() -> None:
    """As a terminal starts it: whoever runs tests in the background hands down a SIGINT that is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def simulating() -> Iterator[subprocess.Popen[str]]:
    """The command, once its runs have begun."""
    with subprocess.Popen(
        COMMAND,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heeds_ctrl_c,
    ) as command:
        try:
            wait_until(lambda: len(children(command.pid)) == 2, 60, "two runs to begin")
            yield command
        finally:
            if command.poll() is None:
                os.killpg(command.pid, signal.SIGKILL)


def test_side_by_side_on_several_cores_comes_out_the_same() -> None:
    made, contenders = [crowd(25), replace(crowd(25), seed=2)], entries(("all-at-once", "entrepot"))
    marks: list[Mark] = []

    apart = compare(made, contenders, marks.append, cores=2)

    assert apart == compare(made, contenders)
    over = sorted((mark.contender, mark.seed) for mark in marks if mark.over)
    assert over == sorted((entry.name, each.seed) for entry in contenders for each in made)


def test_what_is_wrong_is_told_from_another_core_as_from_this_one() -> None:
    odd = replace(crowd(1), jobs=tuple(replace(job, queue="nowhere") for job in crowd(1).jobs))

    with pytest.raises(Fatal, match="no queue nowhere") as refused:
        compare([odd], entries(("all-at-once", "entrepot")), cores=2)
    assert "queues.yaml" in refused.value.fix


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_no_run_outlives_the_command(number: signal.Signals) -> None:
    with simulating() as command:
        runs = children(command.pid)
        command.send_signal(number)
        command.communicate(timeout=30)

        wait_until(lambda: all(map(is_gone, runs)), 10, "the runs to end")


def test_a_run_that_is_ended_from_outside_ends_the_command_and_the_other_run() -> None:
    with simulating() as command:
        runs = children(command.pid)
        os.kill(runs[0], signal.SIGKILL)
        _, told = command.communicate(timeout=30)

    assert command.returncode == 1
    assert "a run was ended from outside" in told
    assert "fewer --cores" in told
    assert is_gone(runs[1])
