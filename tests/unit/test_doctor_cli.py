"""The command: what it prints, and its exit codes."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from dispatcher.cli.doctor import anything_wrong
from dispatcher.cli.main import run
from dispatcher.cli.show_doctor import doctor_page, progress_line, summary, to_data
from dispatcher.core.doctor import Code, diagnose
from dispatcher.core.doctor.facts import Skew, Unread
from tests.connectors.apiserver import ApiServer
from tests.connectors.support import kubeconfig, write
from tests.unit.blueprint_files import EXAMPLE
from tests.unit.doctor_facts import all_of, config, healthy, hub, worker
from tests.unit.test_doctor import job


@pytest.fixture
def empty_hub() -> Iterator[ApiServer]:
    """A hub without Kueue, served from a loop of its own: the command runs its own."""
    ready, ended = threading.Event(), threading.Event()
    server = ApiServer("hub")

    async def serve() -> None:
        async with server:
            ready.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(20)
    yield server
    ended.set()
    thread.join(20)


def test_findings_end_with_6_and_json_has_codes(
    empty_hub: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "config", empty_hub.kubeconfig())
    assert run(["doctor", "--kubeconfig", str(file), "-o", "json"]) == 6
    data = json.loads(capsys.readouterr().out)
    assert "kueue-not-served" in [finding["code"] for finding in data["findings"]]
    assert data["clusters"][0] == {
        "name": "hub",
        "reachable": True,
        "error": None,
        "kubernetes": "v1.36.3",
        "kueue": None,
        "account": None,
    }


def test_severity_narrows_what_is_shown_and_not_the_exit_code(
    empty_hub: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "config", empty_hub.kubeconfig())
    assert run(["doctor", "--kubeconfig", str(file), "--severity", "err", "-o", "json"]) == 6
    data = json.loads(capsys.readouterr().out)
    assert {finding["severity"] for finding in data["findings"]} == {"error"}


def test_a_hub_that_cannot_be_reached_is_4_and_standard_output_still_has_the_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    file = write(tmp_path / "config", kubeconfig(f"https://127.0.0.1:{port}"))
    assert run(["doctor", "--kubeconfig", str(file), "--blueprint", str(EXAMPLE), "-o", "json"]) == 4
    printed = capsys.readouterr()
    assert [f["code"] for f in json.loads(printed.out)["findings"]] == ["unreachable", "rules-unsigned"]
    assert "the hub was not read" in printed.err
    assert str(file) in printed.err


def test_a_kubeconfig_that_does_not_exist_is_an_unreachable_hub(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "--kubeconfig", str(tmp_path / "none")]) == 4
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--blueprint", "/nowhere"], id="a blueprint that is no folder"),
        pytest.param(["--severity", "bad"], id="a severity that does not exist"),
        pytest.param(["--timeout", "0"], id="no time at all"),
    ],
)
def test_bad_usage_is_2(arguments: list[str]) -> None:
    assert run(["doctor", "--kubeconfig", "x", *arguments]) == 2


def page(facts: object) -> str:
    screen = Console(file=io.StringIO(), width=100, force_terminal=False)
    assert isinstance(facts, type(healthy()))
    doctor_page(screen, facts, diagnose(facts))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_the_table_groups_findings_and_gives_each_its_fix() -> None:
    shown = page(all_of(config(dispatcher=None), job(ttl_s=0))(healthy()))
    lines = [line.rstrip() for line in shown.splitlines()]
    assert lines.index("Hub configuration") < lines.index("Jobs")
    assert "  error   hub: Job team-a/train  [ttl-short]" in lines
    assert "          fix   set ttlSecondsAfterFinished to 990 or more, or remove it" in lines
    assert lines[-1] == "hub and 2 of 2 workers: 2 errors"


def test_a_healthy_fleet_is_one_line() -> None:
    assert page(healthy()).strip() == "hub and 2 of 2 workers: nothing wrong"


def test_a_worker_that_was_not_reached_is_counted_as_such() -> None:
    facts = worker(error="no route")(healthy())
    assert summary(facts, diagnose(facts)) == "hub and 1 of 2 workers: 1 error"


def test_notes_alone_are_not_wrong() -> None:
    note = worker(unread=(Unread("list jobs", "forbidden"),))(healthy())
    assert not anything_wrong(diagnose(note))
    assert anything_wrong(diagnose(worker(skew=Skew(9000, 10000))(healthy())))


def test_data_names_the_object_in_parts() -> None:
    facts = hub(policy_faults=None)(job(managed_by="")(healthy()))
    (finding,) = to_data(facts, diagnose(facts))["findings"]
    assert finding["code"] == Code.NOT_MANAGED.value
    assert finding["where"] == {
        "cluster": "hub",
        "kind": "Job",
        "namespace": "team-a",
        "name": "train",
        "place": None,
    }


@pytest.mark.parametrize(("terminal", "shown"), [(True, True), (False, False)])
def test_progress_is_for_a_terminal_only_and_leaves_nothing(
    terminal: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress_line() as progress:
        progress("reading the hub")
    assert ("reading the hub" in screen.getvalue()) is shown
    assert screen.getvalue().endswith("\x1b[2K") is shown
