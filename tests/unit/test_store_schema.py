"""Schema revisions: an old file is brought up to date, a newer one is refused, the tables are what the code says."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, insert
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from dispatcher.core.errors import Fatal
from dispatcher.core.ports import IntentState
from dispatcher.store import migrations, open_records, open_store
from dispatcher.store.schema import HEAD
from dispatcher.store.schema import config_for as _config
from dispatcher.store.sql import _decision_row
from dispatcher.store.tables import METADATA, decisions
from tests.postgres import PASSWORD, PostgresServer
from tests.unit.records import NOW, decision, intent_of


def store_at(file: Path, revision: str) -> None:
    """A store file of an older release, with one record in it."""
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        config: Config = _config(connection)
        command.upgrade(config, revision)
        row = {name: value for name, value in _decision_row(decision()).items() if name != "reasons"}
        connection.execute(insert(decisions).values(row))
    engine.dispose()


def revisions() -> list[str]:
    """Every schema that a release ever wrote, the newest excepted."""
    script = ScriptDirectory(str(Path(migrations.__file__).parent))
    return sorted(r.revision for r in script.walk_revisions() if r.revision != script.get_current_head())


def test_the_revision_that_starts_expect_is_the_newest_one() -> None:
    assert ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head() == HEAD


@pytest.mark.slow
def test_a_start_on_a_current_file_loads_neither_alembic_nor_a_driver_that_it_does_not_use(tmp_path: Path) -> None:
    async def twice() -> None:
        for _ in range(2):
            await (await open_store(tmp_path / "store.db")).close()

    asyncio.run(twice())
    program = "\n".join(
        (
            "import asyncio, sys",
            "from pathlib import Path",
            "from dispatcher.store import open_store",
            "async def opened(): await (await open_store(Path(sys.argv[1]))).close()",
            "asyncio.run(opened())",
            "print([name for name in ('alembic', 'psycopg') if name in sys.modules])",
        )
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "store.db")]
    said = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout
    assert said.strip() == "[]"


def postgres_at(url: str, revision: str) -> None:
    """A database as an older release left it."""
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    with engine.begin() as connection:
        command.upgrade(_config(connection), revision)
        row = {name: value for name, value in _decision_row(decision()).items() if name != "reasons"}
        connection.execute(insert(decisions).values(row))
        made = intent_of(decision())
        old = {"decision": made.decision, "workload": made.workload, "clusters": '["onprem-1"]', "state": "planned"}
        columns = ", ".join(old)
        values = ", ".join(f"'{value}'" for value in old.values())
        # Before revision 3 nothing kept two daemons from opening two.
        rows = [(made.decision, 2)] + ([("d-forgotten", 1)] if revision < "0003" else [])
        for name, at in rows:
            connection.exec_driver_sql(
                f"INSERT INTO intents ({columns}, made_at, changed_at) VALUES ({values}, {at}, {at})".replace(
                    made.decision, name
                )
            )
    engine.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("revision", revisions())
async def test_a_postgresql_database_of_every_released_revision_is_upgraded_and_keeps_its_records(
    postgres: PostgresServer, revision: str
) -> None:
    url = postgres.database()
    postgres_at(url, revision)
    store = await open_store(url)
    assert list(await store.recent()) == [decision()]
    still_open = [i.decision for i in await store.intents(IntentState.PLANNED)]
    assert still_open == [decision().id], "of two open intents of one workload the newest stays"
    assert await store.term() == 0
    await store.lead(1, "somebody", NOW)
    await store.close()


@pytest.mark.slow
async def test_replicas_that_start_together_upgrade_one_after_the_other(postgres: PostgresServer) -> None:
    url = postgres.database()
    async with asyncio.TaskGroup() as group:
        opening = [group.create_task(open_store(url)) for _ in range(4)]
    for task in opening:
        assert await task.result().term() == 0
        await task.result().close()


@pytest.mark.slow
async def test_the_migrations_make_exactly_the_tables_of_the_code_on_postgresql(postgres: PostgresServer) -> None:
    url = postgres.database()
    await (await open_store(url)).close()
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()


@pytest.mark.slow
async def test_a_postgresql_database_of_a_newer_release_is_refused_with_the_fix(postgres: PostgresServer) -> None:
    url = postgres.database()
    await (await open_store(url)).close()
    with psycopg.connect(url) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    for opening in (open_store, open_records):
        with pytest.raises(Fatal, match="9999") as caught:
            await opening(url)
        assert "version" in caught.value.fix
        assert PASSWORD not in str(caught.value)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("revision", revisions())
async def test_a_file_of_every_released_revision_is_upgraded_keeps_its_records_and_leaves_a_copy(
    tmp_path: Path, revision: str
) -> None:
    file = tmp_path / "store.db"
    store_at(file, revision)
    store = await open_store(file)
    assert list(await store.recent()) == [decision()]
    for number in range(2, 6):
        await store.commit(decision(number, chosen=None, at=NOW.replace(hour=9 + number)), None, None)
    assert len(await store.recent()) == 3
    await store.close()

    copy = sqlite3.connect(tmp_path / f"store.db.{revision}.bak")
    assert copy.execute("SELECT version_num FROM alembic_version").fetchone() == (revision,)
    assert copy.execute("SELECT id FROM decisions").fetchall() == [(decision().id,)]
    copy.close()


async def test_opening_a_current_file_changes_nothing_and_makes_no_copy(tmp_path: Path) -> None:
    for _ in range(2):
        store = await open_store(tmp_path / "store.db")
        await store.close()
    assert names(tmp_path) == ["store.db"]


async def test_a_file_of_a_newer_release_is_refused_with_the_fix(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    await (await open_store(file)).close()
    raw = sqlite3.connect(file)
    raw.execute("UPDATE alembic_version SET version_num = '9999'")
    raw.commit()
    raw.close()
    for opening in (open_store, open_records):
        with pytest.raises(Fatal, match="9999") as caught:
            await opening(file)
        assert "version" in caught.value.fix


async def test_records_of_an_older_schema_are_not_read_half_understood(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store_at(file, "0001")
    with pytest.raises(Fatal, match="schema 0001"):
        await open_records(file)


async def test_the_migrations_make_exactly_the_tables_of_the_code(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    await (await open_store(file)).close()
    engine = create_engine(f"sqlite:///{file}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()


def test_the_tables_can_be_written_for_postgresql() -> None:
    dialect = postgresql.dialect()
    for table in METADATA.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            assert " INDEX " in str(CreateIndex(index).compile(dialect=dialect))
