"""The options of `serve` that concern replicas and store, and `store backup`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from connectors.embedded import ManualClock
from dispatcher.app.serve import ServeOptions, lead_alone
from dispatcher.cli.main import run
from dispatcher.core.errors import Fatal, Fenced
from dispatcher.store import open_store
from dispatcher.web.vitals import LeaderFacts, healthz
from tests.builders import START
from tests.unit.api_world import Vitals
from tests.unit.records import NOW, decision, hold_of, intent_of

HIDDEN = "postgresql://entrepot:hidden-word@127.0.0.1:9/entrepot"

REFUSED: dict[str, tuple[list[str], str]] = {
    "an embedded fleet has no replicas": (["serve", "--embedded", "--ha"], "leave one of them out"),
    "times that allow two leaders": (["serve", "--lease", "15/14/2"], "0.8 of the lease's duration"),
    "times that are none": (["serve", "--lease", "fast"], "15/10/2"),
}


@pytest.mark.parametrize(("arguments", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_options_that_cannot_work_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert said in capsys.readouterr().err


REPLICATED = {
    "a file is one daemon's own": ("entrepot.db", None, False),
    "a PostgreSQL is shared": (HIDDEN, None, True),
    "--ha on a file": ("entrepot.db", True, True),
    "--no-ha on a PostgreSQL": (HIDDEN, False, False),
}


@pytest.mark.parametrize(("store", "asked", "expected"), REPLICATED.values(), ids=REPLICATED.keys())
def test_whether_a_leader_is_elected(store: str, asked: bool | None, expected: bool) -> None:
    assert ServeOptions(Path("config"), store, ha=asked).replicated is expected


def test_a_backup_can_be_opened_and_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, copy, made = tmp_path / "store.db", tmp_path / "copy.db", decision()

    async def fill() -> None:
        store = await open_store(file)
        await store.commit(made, hold_of(made), intent_of(made))
        await store.close()

    asyncio.run(fill())
    assert run(["store", "backup", str(copy), "--store", str(file)]) == 0
    assert run(["store", "backup", str(copy), "--store", str(file)]) == 1
    assert "exists already" in capsys.readouterr().err

    async def look() -> None:
        store = await open_store(copy)
        assert list(await store.recent()) == [made]
        await store.close()

    asyncio.run(look())


def test_a_database_is_referred_to_its_own_tool_and_its_password_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTREPOT_STORE", HIDDEN)
    assert run(["store", "backup", str(tmp_path / "copy.db")]) == 1
    said = capsys.readouterr().err
    assert "pg_dump" in said
    assert "hidden-word" not in said
    assert run(["why", "team-a/train", "--server", "http://127.0.0.1:9"]) != 0
    assert "hidden-word" not in capsys.readouterr().err


LEADERS = {
    "we lead": (LeaderFacts(True, "a", "a", "leading", 4), "a leads in term 4 and dispatches"),
    "another leads": (LeaderFacts(False, "a", "b", "standby", 0), "b leads; a stands by"),
    "nobody is known to": (LeaderFacts(False, "a", "", "unknown", 0), "nobody is known to lead; a is unknown"),
    "we cannot renew": (LeaderFacts(False, "a", "a", "unsure", 0), "nobody is known to lead; a is unsure"),
}


@pytest.mark.parametrize(("facts", "text"), LEADERS.values(), ids=LEADERS.keys())
def test_health_says_who_leads(facts: LeaderFacts, text: str) -> None:
    found = json.loads(healthz(Vitals(facts=facts)).body)
    assert found["ok"], "a standby is well"
    assert (found["leader"]["text"], found["leader"]["leading"]) == (text, facts.leading)


def test_health_of_a_daemon_alone_names_no_leader() -> None:
    assert json.loads(healthz(Vitals()).body)["leader"] is None


async def test_a_second_daemon_alone_on_one_store_makes_the_first_end(tmp_path: Path) -> None:
    clock = ManualClock(START)
    store = await open_store(tmp_path / "store.db")
    first = await lead_alone(store, clock)
    second = await lead_alone(store, clock)
    assert (first.term, second.term) == (1, 2)
    made = decision(at=NOW)
    with pytest.raises(Fenced) as caught:
        await store.commit(made, None, replace(intent_of(made), term=first.term))
    with pytest.raises(Fatal, match="same store"):
        first.lost(str(caught.value))
    await store.commit(made, None, replace(intent_of(made), term=second.term))
    await store.close()
