"""Fixtures that every test folder may use. The real fleet is started once a session, by the first test that asks."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.examples import register_profiles

if TYPE_CHECKING:  # loaded by those who ask for one: every process of a run reads this file, and most need neither
    from tests.fleet import LocalFleet
    from tests.postgres import PostgresServer

register_profiles()
gc.set_threshold(50_000, 20, 100)  # what tests drop is counted, and next to nothing of it goes in circles


def pytest_collection_finish() -> None:
    """What was imported and collected lives to the end: the collector need not look through it again and again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _log_of_its_own() -> Iterator[None]:
    """A command that a test runs in this process sets up logging for it: not for the tests after it."""
    yield
    if "structlog" in sys.modules:
        sys.modules["structlog"].reset_defaults()


@pytest.fixture(scope="session")
def local_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A hub and three workers of the example blueprint, as real processes, shared by the whole session.

    Tests keep apart by namespace and queue, and put back what they change.
    """
    from tests.fleet import LocalFleet
    from tests.local.fleet_objects import example_fleet

    hub_objects, clusters = example_fleet()
    folder = tmp_path_factory.mktemp("fleet")
    with LocalFleet.start(folder, hub_objects, clusters, log=lambda line: print(line, file=sys.stderr)) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL server on loopback; tests make databases of their own in it."""
    from tests.postgres import postgres_server

    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is that nothing was written to: every test that takes it holds on both databases, on PostgreSQL in
    `make test`."""
    if request.param == "sqlite":
        from tests.stores import new_file

        return str(new_file(tmp_path / "store.db"))
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.store()
