"""Schema revisions: an old file is brought up to date, a newer one is refused, the tables are what the code says."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, insert
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from dispatcher.core.errors import Fatal
from dispatcher.store import open_records, open_store
from dispatcher.store.schema import config_for as _config
from dispatcher.store.sql import _decision_row
from dispatcher.store.tables import METADATA, decisions
from tests.unit.records import NOW, decision


def store_at(file: Path, revision: str) -> None:
    """A store file of an older release, with one record in it."""
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        config: Config = _config(connection)
        command.upgrade(config, revision)
        row = {name: value for name, value in _decision_row(decision()).items() if name != "reasons"}
        connection.execute(insert(decisions).values(row))
    engine.dispose()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_file_of_revision_1_is_upgraded_keeps_its_records_and_leaves_a_copy(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store_at(file, "0001")
    store = await open_store(file)
    assert list(await store.recent()) == [decision()]
    for number in range(2, 6):
        await store.commit(decision(number, chosen=None, at=NOW.replace(hour=9 + number)), None, None)
    assert len(await store.recent()) == 3
    await store.close()

    copy = sqlite3.connect(tmp_path / "store.db.0001.bak")
    assert copy.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
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
            assert "CREATE INDEX" in str(CreateIndex(index).compile(dialect=dialect))
