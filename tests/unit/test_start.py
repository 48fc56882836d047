"""What a start of the daemon must not wait for: a restart is over when it is warm again, and imports are most of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dispatcher.app.daemon import HEAD_START_S, Daemon, Surroundings
from dispatcher.cli.main import build
from tests.connectors.support import FakeClock, eventually, settle
from tests.stores import new_store
from tests.unit.api_world import World

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
OTHERS = ("alembic", "psycopg", "sqlalchemy.orm", "sqlalchemy.ext.asyncio", "connectors.embedded", "cryptography")
NOT_NEEDED = (*COMMANDS, *API, *OTHERS)


@pytest.mark.slow
def test_serve_imports_no_command_but_itself_and_no_library_of_others() -> None:
    command = [sys.executable, "-c", PROGRAM, *NOT_NEEDED]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert said.split() == []


async def _no_longer(daemon: Daemon, clock: FakeClock) -> None:
    await clock.advance(HEAD_START_S + 1)


async def _been_through(daemon: Daemon, clock: FakeClock) -> None:
    daemon.dispatch.settled.set()


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(_been_through, id="once-dispatch-has-been-through-the-hub"),
        pytest.param(_no_longer, id="or-when-its-head-start-is-over"),
    ],
)
async def test_what_looks_at_everything_that_runs_begins(
    happens: Callable[[Daemon, FakeClock], Awaitable[None]], tmp_path: Path
) -> None:
    """One event loop does both: a job that waited for the start must not wait for what runs to be judged again."""
    world, clock, store = World(), FakeClock(), await new_store(tmp_path / "store.db")
    around = Surroundings(world.hub, lambda cluster: world.workers[cluster.name], clock, source=None)  # type: ignore[arg-type]
    daemon, began = Daemon(around, world.state.policy, store, None), asyncio.Event()

    async def look() -> None:
        began.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(daemon._behind_dispatch(look))
        await clock.advance(HEAD_START_S / 2)
        await settle()
        assert not began.is_set()
        await happens(daemon, clock)
        await eventually(began.is_set)
    await store.close()


@pytest.mark.parametrize("name", [None, "no-such-command", "serve"])
def test_without_a_command_that_exists_all_are_there(name: str | None) -> None:
    app = build(name)
    known = [info.name for info in (*app.registered_commands, *app.registered_groups)]
    assert known == ["serve"] if name == "serve" else {"why", "serve", "policy", "store"} <= set(known)
