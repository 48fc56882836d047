"""Fixtures of the loop tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.loops.bench import Bench, start


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    found = await start(tmp_path)
    yield found
    await found.store.close()
