"""The one parent of a fleet's processes: a small program of its own, so that nothing outlives its owner.

Run as `python supervisor.py DIRECTORY` with a pipe on standard input. While the fleet is owned (a test session, or a
start under way), the end of that pipe means that the owner is gone, whatever killed it, and the supervisor ends every
process that it started. After a "detach" command the fleet lives on by itself. Should the supervisor itself be killed,
the kernel ends its children (PR_SET_PDEATHSIG).

It takes commands, one JSON object a line, on a Unix socket in DIRECTORY; only standard library, one thread: the death
signal is tied to the thread that forked.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOCKET_NAME = "control.sock"
STATE_NAME = "supervisor.json"
LOCK_NAME = "supervisor.lock"
PR_SET_PDEATHSIG = 1
TICK_SECONDS = 0.2
ALREADY_RUNNING = 3  # exit code


def process_start_ticks(pid: int) -> int | None:
    """Clock ticks since boot at which `pid` started, or None: with it a recycled process id is not mistaken."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] == "Z" else int(fields[19])


def die_with_parent() -> Callable[[], None]:
    """What the child runs before exec: ask the kernel to kill it when the supervisor dies."""
    parent, library = os.getpid(), ctypes.CDLL(None)

    def ask() -> None:
        library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we could ask
            os._exit(1)

    return ask


class Supervisor:
    """Starts, signals and ends processes by name; each is the leader of a process group of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.commands: dict[str, dict[str, Any]] = {}
        self.detached = False
        self.finished = False
        self._recorded = ""
        self._killed: set[int] = set()

    def start(self, command: dict[str, Any]) -> dict[str, Any]:
        """Start one process; its output goes to the end of its log file."""
        name = command["name"]
        child = self.children.get(name)
        if child is not None and child.poll() is None:
            raise ValueError(f"{name} runs already")
        self.commands[name] = command
        with open(command["log"], "ab") as log:
            self.children[name] = subprocess.Popen(
                command["argv"],
                cwd=command["cwd"],
                env=command["env"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        return {"pid": self.children[name].pid}

    def send(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send a signal to a process group, then report what is known of the process."""
        child = self.children[command["name"]]
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, command["signal"])
            if command["signal"] == signal.SIGKILL:
                self._killed.add(child.pid)
                child.wait()
        return {}

    def listing(self) -> dict[str, Any]:
        """Every process ever started under its name; `exit_code` is None while it runs."""
        return {
            name: {
                "pid": child.pid,
                "start_ticks": process_start_ticks(child.pid),
                "exit_code": child.poll(),
            }
            for name, child in self.children.items()
        }

    def end_all(self, grace_seconds: float) -> None:
        """End every group: politely, and after `grace_seconds` by force. Frozen ones are thawed first."""
        for number in (signal.SIGTERM, signal.SIGCONT):
            self._to_all(number)
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline and any(c.poll() is None for c in self.children.values()):
            time.sleep(0.05)
        self._to_all(signal.SIGKILL)
        for child in self.children.values():
            child.wait()
        self.finished = True

    def _to_all(self, number: int) -> None:
        """A killed group is never signalled again: its number may belong to somebody else by then."""
        for child in self.children.values():
            if child.pid in self._killed or (child.poll() is not None and number != signal.SIGKILL):
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, number)
            if number == signal.SIGKILL:
                self._killed.add(child.pid)

    def answer(self, line: bytes) -> dict[str, Any]:
        """Carry out one command; errors go back to the caller as text."""
        try:
            command = json.loads(line)
            match command["op"]:
                case "start":
                    return {"ok": self.start(command)}
                case "restart":
                    return {"ok": self.start(self.commands[command["name"]])}
                case "signal":
                    return {"ok": self.send(command)}
                case "list":
                    return {"ok": self.listing()}
                case "detach":
                    self.detached = True
                    return {"ok": {}}
                case "shutdown":
                    self.end_all(command["grace_seconds"])
                    return {"ok": {}}
                case other:
                    return {"error": f"unknown command {other!r}"}
        except (OSError, ValueError, KeyError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def record(self) -> None:
        """Write down who runs, so that `down` can end them even if this program was killed."""
        own = {"pid": os.getpid(), "start_ticks": process_start_ticks(os.getpid())}
        text = json.dumps({"supervisor": own, "detached": self.detached, "processes": self.listing()}, indent=1)
        if text == self._recorded:
            return
        part = self.directory / (STATE_NAME + ".part")
        part.write_text(text)
        part.replace(self.directory / STATE_NAME)
        self._recorded = text


def serve(supervisor: Supervisor, listener: socket.socket, owner_fd: int) -> None:
    """Take commands until told to shut down, or until the owner of an owned fleet is gone."""
    events = selectors.DefaultSelector()
    events.register(listener, selectors.EVENT_READ)
    events.register(owner_fd, selectors.EVENT_READ)
    while not supervisor.finished:
        for key, _ in events.select(TICK_SECONDS):
            if key.fileobj is listener:
                _one_request(supervisor, listener)
            elif not os.read(owner_fd, 1):
                events.unregister(owner_fd)
                if not supervisor.detached:
                    supervisor.end_all(grace_seconds=1.0)
        supervisor.record()


def _one_request(supervisor: Supervisor, listener: socket.socket) -> None:
    """One connection carries one command and one answer; a caller that stalls is dropped."""
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        connection.settimeout(5.0)
        with connection.makefile("rb") as stream:
            line = stream.readline()
        if line:
            answer = supervisor.answer(line)
            supervisor.record()
            connection.sendall(json.dumps(answer).encode() + b"\n")


def main(directory: Path) -> int:
    """Hold the directory's lock for life: one supervisor to a directory."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir(directory)
    with open(LOCK_NAME, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"a fleet runs already in {directory}", file=sys.stderr)
            return ALREADY_RUNNING
        supervisor = Supervisor(directory)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # by way of the `finally` below
        Path(SOCKET_NAME).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(SOCKET_NAME)  # relative: an absolute path may be longer than a socket name can be
            os.chmod(SOCKET_NAME, 0o600)
            listener.listen(16)
            supervisor.record()
            try:
                serve(supervisor, listener, sys.stdin.fileno())
            finally:
                supervisor.end_all(grace_seconds=0.5)
                for name in (SOCKET_NAME, STATE_NAME):
                    Path(name).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
