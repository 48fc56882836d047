"""What a start of the daemon must not wait for: a restart is over when it is warm again, and imports are most of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dispatcher.cli.main import build

PROGRAM = """
import sys
from dispatcher.cli.main import build
build("serve")
import dispatcher.app.serve
print(" ".join(name for name in sys.argv[1:] if name in sys.modules))
"""
COMMANDS = ("dispatcher.cli.ask", "dispatcher.cli.policy", "dispatcher.sim", "httpx")
API = ("fastapi", "starlette", "dispatcher.web.api", "dispatcher.web.models")
"""Of what answers people, a start needs the probes alone."""
OTHERS = ("alembic", "psycopg", "sqlalchemy.orm", "sqlalchemy.ext.asyncio", "connectors.embedded")
NOT_NEEDED = (*COMMANDS, *API, *OTHERS)


@pytest.mark.slow
def test_serve_imports_no_command_but_itself_and_no_library_of_others() -> None:
    command = [sys.executable, "-c", PROGRAM, *NOT_NEEDED]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert said.split() == []


@pytest.mark.parametrize("name", [None, "no-such-command", "serve"])
def test_without_a_command_that_exists_all_are_there(name: str | None) -> None:
    app = build(name)
    known = [info.name for info in (*app.registered_commands, *app.registered_groups)]
    assert known == ["serve"] if name == "serve" else {"why", "serve", "policy", "store"} <= set(known)
