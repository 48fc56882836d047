"""kill -9 at any moment: what was acknowledged is there, and nothing is there by half."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dispatcher.core.ports import IntentState
from dispatcher.store import open_store
from tests.unit.records import decision, hold_of, intent_of

pytestmark = pytest.mark.slow

WRITER = """
import asyncio, sys
from dispatcher.store import open_store
from tests.unit.records import decision, hold_of, intent_of

async def write(file, start):
    store = await open_store(file)
    number = start
    while True:
        made = decision(number, key=f"n/w{number}")
        await store.commit(made, hold_of(made), intent_of(made))
        print(number, flush=True)
        number += 1

asyncio.run(write(sys.argv[1], int(sys.argv[2])))
"""


def write_until_killed(file: Path, start: int, wait_for: int) -> list[int]:
    """Numbers that the writer acknowledged before it was killed, just after its `wait_for`-th."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(file), str(start)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        seen = [int(process.stdout.readline()) for _ in range(wait_for)]
        process.send_signal(signal.SIGKILL)
        return seen + [int(line) for line in process.stdout.read().split()]


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_acknowledged_commit_survives_and_none_is_half(tmp_path: Path, seed: int) -> None:
    dice, file, acknowledged = random.Random(seed), tmp_path / "store.db", list[int]()
    for _ in range(2):
        start = max(acknowledged, default=0) + 100
        acknowledged += write_until_killed(file, start, dice.randint(1, 60))

        store = await open_store(file)
        recorded = {record.id: record for record in await store.recent(1000)}
        for number in acknowledged:
            made = decision(number, key=f"n/w{number}")
            assert recorded[made.id] == made
        assert {hold.decision: hold for hold in await store.holds()} == {
            name: hold_of(record) for name, record in recorded.items()
        }
        assert {intent.decision: intent for intent in await store.intents(IntentState.PLANNED)} == {
            name: intent_of(record) for name, record in recorded.items()
        }
        await store.close()
    raw = sqlite3.connect(file)
    assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()
