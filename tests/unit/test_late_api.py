"""A daemon answers probes from the first moment on; the rest of its API comes when it is warm, or when one asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from dispatcher.store import SqlStore
from dispatcher.web import vitals
from dispatcher.web.api import build_api
from dispatcher.web.late import App, LateApi, Message, Receive, Send
from dispatcher.web.models import HealthView, ReadyView
from dispatcher.web.vitals import LeaderFacts
from tests.stores import new_store
from tests.unit.api_world import World

PROBES = ("/healthz", "/readyz", "/metrics")


class Whole:
    """Something to be made: counts how often it was, and says who asked."""

    def __init__(self) -> None:
        self.made = 0
        self.asked: list[str] = []

    def make(self) -> App:
        self.made += 1
        return self.answer

    async def answer(self, scope: Message, receive: Receive, send: Send) -> None:
        self.asked.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = await new_store(tmp_path / "store.db")
    yield opened
    await opened.close()


def client(app: App) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api")  # type: ignore[arg-type]


@pytest.mark.parametrize("path", PROBES)
async def test_probes_are_answered_without_the_api_as_with_it(path: str, world: World, store: SqlStore) -> None:
    late = LateApi(world.state, world.vitals, lambda: build_api(world.state, store, world.vitals))
    world.vitals.unready = ("the hub has not been read",)
    answers = []
    async with client(late) as asking:
        answers.append(await asking.get(path))
        await late.whole()
        answers.append(await asking.get(path))
    early, whole = ((a.status_code, a.headers["content-type"], a.content) for a in answers)
    assert early == whole


@pytest.mark.parametrize("leads", [None, LeaderFacts(False, "a", "", "standby", 0)], ids=["alone", "a standby"])
def test_probes_have_the_shapes_that_are_documented(world: World, leads: LeaderFacts | None) -> None:
    world.vitals.facts = leads
    health = HealthView.model_validate_json(vitals.healthz(world.vitals).body, strict=True)
    assert [loop.limit_s for loop in health.loops] == [60.0, None]
    assert (health.leader is None) is (leads is None)
    ReadyView.model_validate_json(vitals.readyz(world.vitals).body, strict=True)


async def test_who_asks_first_has_the_api_made_and_all_others_wait_for_the_same(world: World) -> None:
    whole = Whole()
    async with client(LateApi(world.state, world.vitals, whole.make)) as asking:
        for path in PROBES:
            await asking.get(path)
        assert whole.made == 0, "probes need none of it"
        found = await asyncio.gather(*(asking.get(f"/v1/{n}") for n in range(3)))
    assert [answer.status_code for answer in found] == [204] * 3
    assert (whole.made, sorted(whole.asked)) == (1, ["/v1/0", "/v1/1", "/v1/2"])


async def test_other_methods_on_probes_are_the_apis_to_refuse(world: World) -> None:
    whole = Whole()
    async with client(LateApi(world.state, world.vitals, whole.make)) as asking:
        assert (await asking.post("/readyz")).status_code == 204
    assert whole.asked == ["/readyz"]


async def test_an_api_that_could_not_be_made_is_made_by_the_next_who_asks(world: World) -> None:
    whole, tries = Whole(), []

    def make() -> App:
        tries.append(1)
        if len(tries) == 1:
            raise ImportError("no")
        return whole.make()

    late = LateApi(world.state, world.vitals, make)
    with pytest.raises(ImportError):
        await late.whole()
    async with client(late) as asking:
        assert (await asking.get("/v1/clusters")).status_code == 204
