"""Stores with a schema, without making the schema each time: one is made, opened and closed, and then copied.

That an empty target becomes a store is shown in tests/unit/test_store_schema.py; whatever else is asked of a store
holds of one that was opened before. Nor are statements compiled for each store again: a process keeps what it compiled.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from dispatcher.store import SqlStore, open_store


class OneForAllFiles(SQLiteDialect_pysqlite):
    """A statement reads the same for every file. Compiling it is half of what a short transaction costs, and each
    engine begins with nothing compiled: a daemon has one store, a run of tests a thousand."""

    supports_statement_cache = True
    compiled: dict[Any, Any] = {}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        engine.update_execution_options(compiled_cache=cls.compiled)


registry.register("sqlite", __name__, OneForAllFiles.__name__)


async def new_store(file: Path) -> SqlStore:
    """A new store of SQLite, open for writing."""
    return await open_store(new_file(file))


def new_file(file: Path) -> Path:
    """The file of a new store, ready to be opened."""
    file.touch(0o600)
    file.write_bytes(_empty_store())
    return file


def prepare(target: Path | str) -> None:
    """Make the schema at an empty target. In a thread, since whoever asks may run in a loop of its own."""

    async def make() -> None:
        await (await open_store(target)).close()

    maker = threading.Thread(target=asyncio.run, args=(make(),))
    maker.start()
    maker.join()


@cache
def _empty_store() -> bytes:
    with tempfile.TemporaryDirectory(prefix="entrepot-store-") as folder:
        file = Path(folder) / "store.db"
        prepare(file)
        return file.read_bytes()
