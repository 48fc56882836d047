"""The starter's side of a fleet's processes: talk to the supervisor, wait for readiness, find free ports.

Everything that a fleet runs, compilers included, is a child of `supervisor.py`, never of the caller: a caller that is
killed leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fleet.supervisor import ALREADY_RUNNING, LOCK_NAME, SOCKET_NAME, STATE_NAME, process_start_ticks

SUPERVISOR_PROGRAM = Path(__file__).with_name("supervisor.py")
FIRST_PORT, LAST_PORT = 20_000, 32_000  # below the range that the kernel hands to outgoing connections


class FleetError(RuntimeError):
    """Something a person can act on: what failed and where its log lies."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process to run; its name is unique in the fleet and names its log file."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]


class SupervisorClient:
    """Commands to the supervisor of one directory; any process of the same user may hold one."""

    def __init__(self, directory: Path, owned: subprocess.Popen[bytes] | None = None) -> None:
        self.directory = directory
        self._owned = owned
        self._detached = False

    @classmethod
    def launch(cls, directory: Path) -> SupervisorClient:
        """Start a supervisor that lives no longer than the calling process (until `detach`)."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "logs").mkdir(exist_ok=True)
        with open(directory / "logs" / "supervisor.log", "ab") as log:
            owned = subprocess.Popen(
                [sys.executable, "-I", str(SUPERVISOR_PROGRAM), str(directory)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        client = cls(directory, owned)
        deadline = time.monotonic() + 20.0
        while client.recorded_pid() != owned.pid:
            if owned.poll() is not None or time.monotonic() > deadline:
                code = owned.poll()
                client.close()
                if code == ALREADY_RUNNING:
                    raise FleetError(f"a fleet runs already in {directory}: end it with `down` first")
                raise FleetError(f"the supervisor did not start, see {directory / 'logs' / 'supervisor.log'}")
            time.sleep(0.02)
        return client

    def recorded_pid(self) -> int | None:
        """The process id that the supervisor wrote down once it took commands."""
        state = read_json(self.directory / STATE_NAME)
        return None if state is None else int(state["supervisor"]["pid"])

    def call(self, op: str, timeout_seconds: float = 15.0, **arguments: Any) -> Any:
        """One command and its answer. Raises FleetError if no supervisor answers, or if it refuses."""
        folder = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(timeout_seconds)
                connection.connect(f"/proc/self/fd/{folder}/{SOCKET_NAME}")  # short whatever the directory
                connection.sendall(json.dumps({"op": op, **arguments}).encode() + b"\n")
                with connection.makefile("rb") as stream:
                    answer = json.loads(stream.readline() or b'{"error": "no answer"}')
        except OSError as error:
            raise FleetError(f"no supervisor answers in {self.directory}: {error}") from error
        finally:
            os.close(folder)
        if "error" in answer:
            raise FleetError(f"supervisor: {answer['error']}")
        return answer["ok"]

    def log_path(self, name: str) -> Path:
        """Where the output of a process goes."""
        return self.directory / "logs" / f"{name}.log"

    def start(self, spec: ProcessSpec, working_directory: Path | None = None) -> int:
        """Start a process and return its id."""
        answer = self.call(
            "start",
            name=spec.name,
            argv=list(spec.argv),
            env=dict(spec.environment),
            cwd=str(working_directory or self.directory),
            log=str(self.log_path(spec.name)),
        )
        return int(answer["pid"])

    def restart(self, name: str) -> None:
        """Start a process that has ended once more, as it was started first."""
        self.call("restart", name=name)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to the process group of `name`; after SIGKILL the process is gone on return."""
        self.call("signal", name=name, signal=int(number))

    def processes(self) -> dict[str, dict[str, Any]]:
        """Name -> pid, start_ticks, exit_code (None while it runs)."""
        listing: dict[str, dict[str, Any]] = self.call("list")
        return listing

    def require_running(self, name: str) -> None:
        """Raise with the end of its log if the process has ended."""
        code = self.processes()[name]["exit_code"]
        if code is not None:
            raise FleetError(f"{name} ended with code {code}; the end of {self.log_path(name)}:\n{self.tail(name)}")

    def tail(self, name: str, lines: int = 12) -> str:
        """The last lines of a process's log."""
        try:
            text = self.log_path(name).read_text(errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(line[:400] for line in text.splitlines()[-lines:])

    def detach(self) -> None:
        """Let the fleet live on without its starter."""
        self.call("detach")
        self._detached = True

    def shutdown(self, grace_seconds: float = 1.5) -> None:
        """End every process of the fleet and the supervisor itself; nothing happens if it has ended."""
        pid = self.recorded_pid()
        ticks = None if pid is None else process_start_ticks(pid)
        if ticks is None:
            self.close()
            return
        try:
            self.call("shutdown", timeout_seconds=grace_seconds + 15.0, grace_seconds=grace_seconds)
            wait_until(lambda: pid is None or process_start_ticks(pid) != ticks, 10.0, "the supervisor to end")
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the supervisor; if this process owns it and it was not detached, the fleet ends."""
        if self._owned is None or self._owned.stdin is None:
            return
        self._owned.stdin.close()
        if self._detached and self.recorded_pid() == self._owned.pid:
            self._owned.returncode = 0  # it lives on by design: no warning about a child that still runs
        else:
            self._owned.wait(timeout=30)


def end_recorded(directory: Path) -> list[str]:
    """End what a directory's supervisor file names: by the supervisor, else by process id and start time."""
    state = read_json(directory / STATE_NAME)
    if state is None:
        return []
    ended = [name for name, process in state["processes"].items() if is_alive(process)]
    if is_alive(state["supervisor"]):
        SupervisorClient(directory).shutdown()
    for process in [state["supervisor"], *state["processes"].values()]:
        if is_alive(process):
            os.kill(process["pid"], signal.SIGKILL)
    for name in (STATE_NAME, SOCKET_NAME, LOCK_NAME):
        (directory / name).unlink(missing_ok=True)
    return ended


def is_alive(process: Mapping[str, Any]) -> bool:
    """Whether the very process that was recorded runs: same id, same start time."""
    ticks = process_start_ticks(int(process["pid"]))
    return ticks is not None and ticks == process["start_ticks"]


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file, or None if there is no such file."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file in one step, readable by the owner only: it may hold a token."""
    part = path.with_name(path.name + ".part")
    part.touch(mode=0o600)
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(path)


def wait_until(check: Callable[[], bool], timeout_seconds: float, what: str, pause_seconds: float = 0.1) -> None:
    """Ask again and again until `check` is true. Raises FleetError after `timeout_seconds`."""
    deadline = time.monotonic() + timeout_seconds
    while not check():
        if time.monotonic() > deadline:
            raise FleetError(f"waited {timeout_seconds:.0f} s for {what}")
        time.sleep(pause_seconds)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now, from a range that outgoing connections do not use."""
    candidates = list(range(FIRST_PORT, LAST_PORT))
    random.SystemRandom().shuffle(candidates)
    found: list[int] = []
    for port in candidates:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise FleetError(f"no {count} free ports between {FIRST_PORT} and {LAST_PORT}")
