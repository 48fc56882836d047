"""The supervisor of a fleet: whatever happens to its owner, no process is left. With `sleep` in place of a fleet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.fleet.fleet import end, is_running
from tests.fleet.processes import (
    FleetError,
    ProcessSpec,
    SupervisorClient,
    free_ports,
    is_alive,
    read_json,
    wait_until,
    write_json,
)
from tests.fleet.supervisor import process_start_ticks

ENVIRONMENT = {"PATH": os.environ["PATH"]}
REPOSITORY = Path(__file__).resolve().parents[2]
OWNER = """
import os, signal, sys
from pathlib import Path
from tests.fleet.processes import ProcessSpec, SupervisorClient
supervisor = SupervisorClient.launch(Path(sys.argv[1]))
supervisor.start(ProcessSpec("sleeper", ["sleep", "600"], dict(os.environ)))
print("started", flush=True)
signal.pause()
"""


def spec(name: str = "sleeper", *argv: str) -> ProcessSpec:
    return ProcessSpec(name, argv or ("sleep", "600"), ENVIRONMENT)


def gone(pid: int) -> bool:
    return process_start_ticks(pid) is None


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[SupervisorClient]:
    client = SupervisorClient.launch(tmp_path)
    yield client
    client.shutdown(grace_seconds=0.2)


def test_a_killed_owner_leaves_no_process(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "started\n"
        state = json.loads((tmp_path / "supervisor.json").read_text())
        owner.kill()
    for process in (state["supervisor"], state["processes"]["sleeper"]):
        wait_until(partial(gone, process["pid"]), 10, "the process to end", 0.02)


def test_a_killed_supervisor_takes_its_processes_along(tmp_path: Path) -> None:
    client = SupervisorClient.launch(tmp_path)
    pid = client.start(spec())
    supervisor_pid = client.recorded_pid()
    assert supervisor_pid is not None
    os.kill(supervisor_pid, signal.SIGKILL)
    wait_until(lambda: gone(pid), 10, "the process to end", 0.02)
    client.close()


def test_a_detached_fleet_outlives_its_starter_and_is_ended_by_name_of_its_folder(tmp_path: Path) -> None:
    client = SupervisorClient.launch(tmp_path)
    pid = client.start(spec())
    client.detach()
    client.close()
    assert is_running(tmp_path)
    assert SupervisorClient(tmp_path).processes()["sleeper"]["exit_code"] is None
    assert end(tmp_path) == ["sleeper"]
    assert gone(pid)
    assert not is_running(tmp_path)


def test_a_second_fleet_in_the_same_folder_is_refused(supervisor: SupervisorClient) -> None:
    with pytest.raises(FleetError, match="a fleet runs already"):
        SupervisorClient.launch(supervisor.directory)
    assert supervisor.processes() == {}


def test_a_process_that_ends_is_reported_with_the_end_of_its_log(supervisor: SupervisorClient) -> None:
    supervisor.start(spec("broken", "sh", "-c", "echo no such flag; exit 7"))
    wait_until(lambda: supervisor.processes()["broken"]["exit_code"] is not None, 10, "it to end", 0.02)
    with pytest.raises(FleetError, match=r"(?s)broken ended with code 7.*no such flag"):
        supervisor.require_running("broken")


def test_a_program_that_does_not_exist_is_an_error_and_not_the_end_of_the_supervisor(
    supervisor: SupervisorClient,
) -> None:
    with pytest.raises(FleetError, match="FileNotFoundError"):
        supervisor.start(spec("missing", "no-such-program"))
    assert supervisor.start(spec()) > 0


def test_a_killed_process_starts_again_under_its_name(supervisor: SupervisorClient) -> None:
    first = supervisor.start(spec())
    supervisor.signal("sleeper", signal.SIGKILL)
    assert supervisor.processes()["sleeper"]["exit_code"] == -signal.SIGKILL
    supervisor.restart("sleeper")
    assert supervisor.processes()["sleeper"]["pid"] != first


def test_a_frozen_process_is_ended_as_well(tmp_path: Path) -> None:
    client = SupervisorClient.launch(tmp_path)
    pid = client.start(spec())
    client.signal("sleeper", signal.SIGSTOP)
    client.shutdown(grace_seconds=0.2)
    assert gone(pid)


def test_a_recycled_process_id_is_not_taken_for_the_recorded_process() -> None:
    ticks = process_start_ticks(os.getpid())
    assert ticks is not None
    assert is_alive({"pid": os.getpid(), "start_ticks": ticks})
    assert not is_alive({"pid": os.getpid(), "start_ticks": ticks - 1})


def test_the_state_file_is_private_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    assert read_json(path) is None
    write_json(path, {"version": 1})
    assert read_json(path) == {"version": 1}
    assert path.stat().st_mode & 0o077 == 0


def test_free_ports_differ_and_lie_below_the_ephemeral_range() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32_768
