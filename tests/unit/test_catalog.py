"""The catalog as a part of the blueprint: what an answer must be, how it joins the files, and what its age does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from aiohttp import web

from connectors.embedded import ManualClock
from dispatcher.app.catalog import catalog_desk, read_first
from dispatcher.app.rules import WatchedFolder, known_of
from dispatcher.config import load_blueprint
from dispatcher.config.catalog import Answer
from dispatcher.config.files import read_folder
from dispatcher.config.loader import LoadResult, load_content
from dispatcher.config.strictjson import parse_json
from dispatcher.core.declaration import parse_declaration
from dispatcher.core.policy import CatalogStanding, Policy
from dispatcher.loops.catalog import CatalogDesk, CatalogLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health
from dispatcher.state import BlueprintStatus, FleetState
from dispatcher.store.audit import BundleRecord
from tests.connectors.catalog_server import CatalogServer, catalog_server
from tests.unit.blueprint_files import NOW, SMALL, texts, write

URL = "http://127.0.0.1:1/data-sets"
DOGS: dict[str, object] = {"labels": ["public"], "size": "3TB", "replicas": {"stores": ["lake"]}}


def files(url: str = URL, more: str = "", data: str = SMALL["data.yaml"]) -> dict[str, str | bytes]:
    return {**SMALL, "data.yaml": f"{data}{more}catalog: {{url: '{url}', every: PT1M, max_age: PT1H}}\n"}


def answer(sets: object, *, old: bool = False) -> Answer:
    body = sets if isinstance(sets, bytes) else json.dumps({"data_sets": sets}).encode()
    return Answer(URL, body, NOW, old)


def loaded(folder: Path, given: Answer | None, content: dict[str, str | bytes] | None = None) -> LoadResult:
    write(folder, content or files())
    return load_content(replace(read_folder(folder), catalog=given), folder, NOW)


def policy(folder: Path, given: Answer | None, content: dict[str, str | bytes] | None = None) -> Policy:
    found = loaded(folder, given, content)
    assert found.policy is not None, texts(found)
    return found.policy


# --- joining the files -------------------------------------------------------------------------------------------


def test_an_answer_adds_data_sets_as_if_they_stood_in_the_file(tmp_path: Path) -> None:
    ours = policy(tmp_path / "a", answer({"dogs": DOGS}))
    own = "  dogs: {labels: [public], size: 3TB, replicas: {stores: [lake]}}\n"
    written = policy(tmp_path / "b", None, {**SMALL, "data.yaml": SMALL["data.yaml"] + own})
    assert ours.data_sets == written.data_sets
    assert ours.catalog is not None
    assert (ours.catalog.standing, ours.catalog.names) == (CatalogStanding.READ, ("dogs",))


def test_file_and_catalog_may_derive_from_each_other(tmp_path: Path) -> None:
    more = "  pups:\n    replicas: {stores: [lake]}\n    derived_from: [dogs]\n"
    found = policy(tmp_path, answer({"dogs": {**DOGS, "derived_from": ["roads"]}}), files(more=more))
    assert found.data_sets["pups"].derived_from == ("dogs",)  # type: ignore[index]


def test_the_same_said_twice_is_no_contradiction_however_it_is_written(tmp_path: Path) -> None:
    roads = {"labels": ["public"], "size": 12 * 10**12, "replicas": {"clusters": ["cloud"], "stores": ["lake"]}}
    found = policy(tmp_path, answer({"roads": roads}))
    assert found.catalog is not None
    assert found.catalog.names == ()


BAD = [
    pytest.param(
        {"roads": DOGS},
        "catalog#/data_sets/roads: error: 'roads': another data set than the one of this name in data.yaml, line 10; "
        "say the same in both, or remove one",
        id="a name of the file with another content",
    ),
    pytest.param(
        {"dogs": {**DOGS, "size": "much"}},
        "catalog#/data_sets/dogs/size: error: 'much': not a size; write 40TB, 38Ti or bytes",
        id="a size that is none",
    ),
    pytest.param(
        {"dogs": {**DOGS, "lables": ["public"]}},
        "catalog#/data_sets/dogs/lables: error: 'lables': unknown key; did you mean 'labels'?",
        id="a key that nobody knows",
    ),
    pytest.param(
        {"dogs": {**DOGS, "labels": ["publik"]}},
        "catalog#/data_sets/dogs/labels/0: error: 'publik': not one of the labels of data.yaml; did you mean 'public'?",
        id="a label that nobody declared",
    ),
    pytest.param(
        {"dogs": {**DOGS, "replicas": {"stores": ["sea"]}}},
        "catalog#/data_sets/dogs/replicas/stores/0: error: 'sea': not one of the stores of data.yaml; known: lake",
        id="a store that is not there",
    ),
    pytest.param(
        {"dogs": {**DOGS, "derived_from": ["dogs"]}},
        "catalog#/data_sets/dogs/derived_from: error: 'derived_from': derived from itself; remove one link of the ring",
        id="a ring",
    ),
    pytest.param(
        {"dogs": {**DOGS, "persons": "12"}},
        "catalog#/data_sets/dogs/persons: error: '12': text in quotes, where a number is expected; remove the quotes",
        id="a number as text",
    ),
    pytest.param(
        {"dogs": {"size": "3TB"}},
        "catalog#/data_sets/dogs: error: 'dogs': the key 'replicas' is missing; add 'replicas:'",
        id="an entry that lies nowhere",
    ),
    pytest.param({"a/b~c": DOGS}, "catalog#/data_sets/a~1b~0c: error:", id="a name is escaped in its pointer"),
    pytest.param(b"<html>", "catalog#/: error: not JSON at byte 0; answer JSON", id="HTML"),
    pytest.param(b"[]", 'catalog#/: error: not an object; answer {"data_sets": {...}}', id="a list"),
    pytest.param(b"{}", "catalog#/: error: the key 'data_sets' is missing", id="nothing"),
    pytest.param(b'{"data_sets": []}', "catalog#/data_sets: error: a mapping of keys", id="sets as a list"),
    pytest.param(
        b'{"data_sets": {}, "stores": {}}',
        "catalog#/stores: error: 'stores': unknown key",
        id="more than data sets",
    ),
    pytest.param(
        b'{"data_sets": {"a": {}, "a": {}}}', "catalog#/data_sets/a: error: 'a': the key is there twice", id="twice"
    ),
    pytest.param(b'{"data_sets": NaN}', "catalog#/: error: 'NaN': not a number of JSON", id="NaN"),
    pytest.param(b"\xff", "catalog#/: error: not UTF-8", id="not UTF-8"),
    pytest.param(b"[" * 100_000, "catalog#/: error: ", id="nested without end"),
    pytest.param(b"[" * 30 + b"]" * 30, "nested deeper than 24 levels", id="nested too deep"),
]


@pytest.mark.parametrize(("sets", "text"), BAD)
def test_a_wrong_answer_is_told_by_pointer_value_rule_and_fix(tmp_path: Path, sets: object, text: str) -> None:
    found = loaded(tmp_path, answer(sets))
    assert found.policy is None
    assert any(text in line for line in texts(found)), texts(found)


def test_what_is_read_from_json_is_the_tree_that_yaml_gives() -> None:
    from dispatcher.config.strictyaml import parse, plain

    text = b'{"a": [1, 2.50, "x", true, null, {"b": ""}], "c": "01"}'
    json_tree, none = parse_json("f", text)
    yaml_tree, _ = parse("f", text)
    assert json_tree is not None
    assert yaml_tree is not None
    assert plain(json_tree) == plain(yaml_tree)
    assert none == []


@pytest.mark.parametrize(
    ("line", "text"),
    [
        pytest.param("catalog: {url: 'http://data.example/x'}", "not an https:// URL", id="no TLS"),
        pytest.param("catalog: {url: 'https://me:pw@data.example/x'}", "user name", id="a password in the URL"),
        pytest.param("catalog: {url: 'https://data.example/x', every: PT1S}", "more often", id="every second"),
        pytest.param("catalog: {url: 'https://d.example/x', max_age: PT1M}", "not longer than every", id="max_age"),
        pytest.param("catalog: {url: 'https://d.example/x', token: {}}", "exactly one of", id="a token from nowhere"),
        pytest.param("catalog: {url: 'https://d.example/x', token: {secret: x}}", "namespace/name", id="a bare Secret"),
        pytest.param("catalog: {url: '/x'}", "not an https:// URL", id="no URL"),
    ],
)
def test_an_endpoint_that_must_not_be_asked_is_an_error_of_the_file(tmp_path: Path, line: str, text: str) -> None:
    content: dict[str, str | bytes] = {**SMALL, "data.yaml": SMALL["data.yaml"] + line + "\n"}
    found = loaded(tmp_path, None, content)
    assert any(text in said for said in texts(found)), texts(found)


# --- what is not known -------------------------------------------------------------------------------------------

PUPS = "  pups:\n    replicas: {stores: [lake]}\n    derived_from: [dogs]\n"


def test_before_the_first_answer_nothing_is_said_of_its_sets_nor_of_what_was_made_from_them(tmp_path: Path) -> None:
    found = policy(tmp_path, None, files(more=PUPS))
    assert found.catalog is not None
    assert found.catalog.standing is CatalogStanding.UNREAD
    assert sorted(found.data_sets) == ["crops", "roads"]
    _, problems = parse_declaration((("entrepot.dev/datasets", "dogs"),), found)
    assert "could not be read yet" in problems[0].rule


def test_an_answer_of_another_endpoint_is_not_taken(tmp_path: Path) -> None:
    found = policy(tmp_path, replace(answer({"dogs": DOGS}), url="http://127.0.0.1:2/"))
    assert found.catalog is not None
    assert found.catalog.standing is CatalogStanding.UNREAD


def test_an_old_answer_keeps_labels_and_makes_everything_from_it_unknown(tmp_path: Path) -> None:
    given = {"dogs": DOGS}
    fresh = policy(tmp_path, answer(given), files(more=PUPS))
    old = policy(tmp_path, answer(given, old=True), files(more=PUPS))
    assert old.catalog is not None
    assert old.catalog.unknown == ("dogs", "pups")
    assert old.data_sets == fresh.data_sets
    assert old.digest != fresh.digest


def test_the_digest_is_of_the_content_and_not_of_its_writing(tmp_path: Path) -> None:
    one = policy(tmp_path, answer({"dogs": DOGS}))
    spaced = json.dumps({"data_sets": {"dogs": dict(reversed(DOGS.items()))}}, indent=2).encode()
    assert policy(tmp_path, answer(spaced)).digest == one.digest
    assert policy(tmp_path, answer({"dogs": {**DOGS, "size": "4TB"}})).digest != one.digest


# --- a daemon's desk ---------------------------------------------------------------------------------------------


class EagerClock(ManualClock):
    """Sleeping moves it: a client that pauses between its tries is awaited directly."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


@dataclass
class Desk:
    """The parts of a daemon that read a catalog, on a real endpoint and a clock that stands still."""

    server: CatalogServer
    folder: Path
    clock: ManualClock
    source: WatchedFolder
    desk: CatalogDesk
    loop: CatalogLoop

    async def turn(self, seconds: float = 0.0) -> Policy:
        """Time passes, the loop has its turn, the folder is looked at; what rules then."""
        self.clock.advance(seconds)
        await self.loop.turn()
        found = await self.source.poll()
        if isinstance(found, Policy):
            self.loop.state.policy = found
        return self.loop.state.policy

    @property
    def trouble(self) -> tuple[str, ...]:
        assert self.loop.state.catalog is not None
        return self.loop.state.catalog.trouble

    def metric(self, trouble: str) -> float | None:
        return self.loop.metrics.registry.get_sample_value("entrepot_catalog_trouble", {"trouble": trouble})


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with catalog_server() as server:
        server.sets["dogs"] = DOGS
        folder = write(tmp_path, files(server.url))
        clock = EagerClock(NOW)
        first = load_blueprint(folder, NOW)
        assert first.policy is not None
        source = WatchedFolder(folder, clock, first)
        found = catalog_desk(source, clock, None)
        start = source.begin(await read_first(source, found, first.policy), known_of(BundleRecord()))
        state = FleetState(clock, start, BlueprintStatus(start.digest, NOW), None, {})  # type: ignore[arg-type]
        loop = CatalogLoop(state, found, Metrics(), Health(clock))
        yield Desk(server, folder, clock, source, found, loop)


def known(policy: Policy) -> list[str]:
    return sorted(str(name) for name in policy.data_sets)


async def test_a_daemon_starts_with_what_the_endpoint_answers(desk: Desk) -> None:
    assert known(desk.loop.state.policy) == ["crops", "dogs", "roads"]
    assert await desk.source.poll() is None


async def test_a_new_answer_is_a_new_policy_within_a_turn_and_the_same_one_is_not(desk: Desk) -> None:
    before = await desk.turn()
    assert await desk.turn(60) is before
    desk.server.sets["cats"] = DOGS
    assert known(await desk.turn(30)) == ["crops", "dogs", "roads"]
    after = await desk.turn(30)
    assert known(after) == ["cats", "crops", "dogs", "roads"]
    assert after.digest != before.digest


async def bad_gateway(request: web.Request) -> web.StreamResponse:
    return web.Response(status=502)


async def nonsense(request: web.Request) -> web.StreamResponse:
    body = json.dumps({"data_sets": {"dogs": {**DOGS, "size": "much"}}}).encode()
    return web.Response(body=body, content_type="application/json")


@pytest.mark.parametrize(
    ("behave", "text", "trouble"),
    [
        pytest.param(bad_gateway, "answers 502", "unreachable", id="an endpoint that is down"),
        pytest.param(nonsense, "catalog#/data_sets/dogs/size", "refused", id="an answer that is wrong"),
    ],
)
async def test_after_a_bad_answer_the_last_good_one_stays_until_it_is_too_old(
    desk: Desk, behave: object, text: str, trouble: str
) -> None:
    good = await desk.turn()
    desk.server.behave = behave  # type: ignore[assignment]
    assert await desk.turn(60) is good
    assert text in desk.trouble[0]
    assert desk.metric(trouble) == 1
    assert desk.metric("old") == 0
    old = await desk.turn(3600)
    assert old.catalog is not None
    assert old.catalog.standing is CatalogStanding.OLD
    assert old.catalog.read_at == NOW
    assert desk.metric("old") == 1
    desk.server.behave = None
    again = await desk.turn(60)
    assert again.digest == good.digest
    assert (desk.trouble, desk.metric(trouble), desk.metric("old")) == ((), 0, 0)


async def test_a_wall_clock_that_is_set_back_makes_no_old_answer_young(desk: Desk) -> None:
    await desk.turn()
    desk.server.behave = nonsense
    desk.clock.set_by_s = -86_400
    old = await desk.turn(3601)
    assert old.catalog is not None
    assert old.catalog.standing is CatalogStanding.OLD


async def test_an_edit_that_contradicts_the_answer_is_refused_as_any_edit(desk: Desk) -> None:
    good = await desk.turn()
    own = "  dogs: {labels: [personal], size: 3TB, replicas: {stores: [lake]}}\n"
    write(desk.folder, files(desk.server.url, more=own))
    found = await desk.source.poll()
    assert isinstance(found, tuple)
    assert "catalog#/data_sets/dogs" in found[0]
    assert await desk.turn(1) is good


async def test_an_answer_that_files_cannot_do_without_is_refused_when_it_goes(desk: Desk) -> None:
    write(desk.folder, files(desk.server.url, more=PUPS))
    assert "pups" in known(await desk.turn(1))
    del desk.server.sets["dogs"]
    after = await desk.turn(60)
    assert "pups" in known(after)
    assert "'dogs': not one of the data sets of data.yaml" in desk.trouble[0]


async def test_an_edit_of_the_url_asks_the_other_endpoint_at_once(desk: Desk) -> None:
    await desk.turn()
    async with catalog_server() as other:
        other.sets["cats"] = DOGS
        write(desk.folder, files(other.url))
        assert known(await desk.turn(1)) == ["crops", "roads"]
        assert known(await desk.turn(1)) == ["cats", "crops", "roads"]


async def test_an_endpoint_that_is_not_there_at_the_start_does_not_keep_the_daemon_from_starting(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path, files(URL))
    clock = EagerClock(NOW)
    first = load_blueprint(folder, NOW)
    assert first.policy is not None
    source = WatchedFolder(folder, clock, first)
    found = catalog_desk(source, clock, None)
    assert await read_first(source, found, first.policy) is first.policy
