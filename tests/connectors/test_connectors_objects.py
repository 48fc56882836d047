"""Replicas in a real S3 (moto's server): what is there, what is not, and what cannot be known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from connectors import objects
from connectors.objects import ObjectStore
from dispatcher.core.policy import ObjectSource
from dispatcher.core.ports import Clock
from dispatcher.core.replicas import Presence, Seen
from tests.connectors.s3_server import S3Server, key, s3_server
from tests.connectors.support import START, FakeClock


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        server.bucket("lake")
        server.put("lake", *(f"sets/roads/{n}.bin" for n in range(3)), "sets/roads-old/1.bin")
        server.put("lake", "sets/marked/_SUCCESS", "sets/marked/a", "sets/half/a")
        yield server


def store(source: ObjectSource) -> ObjectStore:
    clock: Clock = FakeClock()  # type: ignore[assignment]
    return ObjectStore(source, clock, key)


async def test_a_replica_that_is_there_is_confirmed_with_its_objects_and_bytes(s3: S3Server) -> None:
    assert await store(s3.source()).look("roads") == Seen(Presence.CONFIRMED, START, 3, 15)


async def test_a_prefix_of_another_name_is_no_replica(s3: S3Server) -> None:
    assert (await store(s3.source()).look("road")).presence is Presence.MISSING


async def test_nothing_there_is_missing(s3: S3Server) -> None:
    assert await store(s3.source()).look("dogs") == Seen(Presence.MISSING, START, 0, 0, why="has no object")


async def test_a_declared_marker_tells_a_whole_replica_from_a_half_one(s3: S3Server) -> None:
    marked = store(s3.source(marker="_SUCCESS"))
    assert (await marked.look("marked")).presence is Presence.CONFIRMED
    half = await marked.look("half")
    assert (half.presence, half.why) == (Presence.MISSING, "has no _SUCCESS")


async def test_counting_ends_and_says_so(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PAGE", 1)
    monkeypatch.setattr(objects, "MOST_OBJECTS", 2)
    seen = await store(s3.source()).look("roads")
    assert (seen.presence, seen.objects, seen.more) == (Presence.CONFIRMED, 2, True)


async def not_json() -> bytes:
    return b"very-secret"


async def sends_elsewhere() -> bytes:
    return b'{"aws_access_key_id": "very-secret", "aws_endpoint": "https://elsewhere.example"}'


@pytest.mark.parametrize("marker", [None, "_SUCCESS"], ids=["by listing", "by marker"])
async def test_a_bucket_that_is_not_there_is_unknown_and_never_missing(s3: S3Server, marker: str | None) -> None:
    seen = await store(s3.source("gone", marker=marker)).look("roads")
    assert (seen.presence, seen.why) == (Presence.UNKNOWN, "there is no such bucket")


async def test_a_store_that_does_not_answer_is_unknown(s3: S3Server) -> None:
    with s3_server() as gone:
        source = gone.source()
    seen = await replace_deadline(store(source), 5.0).look("roads")
    assert seen.presence is Presence.UNKNOWN
    assert seen.why.startswith(("cannot be asked", "no answer"))


def replace_deadline(found: ObjectStore, seconds: float) -> ObjectStore:
    return replace(found, deadline_s=seconds)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param(not_json, "the key is not JSON", id="no JSON"),
        pytest.param(sends_elsewhere, "other names than", id="a key file that would send data elsewhere"),
    ],
)
async def test_a_bad_key_is_unknown_and_never_told(s3: S3Server, given: objects.Key, why: str) -> None:
    clock: Clock = FakeClock()  # type: ignore[assignment]
    seen = await ObjectStore(s3.source(), clock, given).look("roads")
    assert seen.presence is Presence.UNKNOWN
    assert why in seen.why
    assert "very-secret" not in seen.why


@pytest.mark.parametrize("url", ["gs://lake/sets", "az://lake/sets"])
async def test_the_same_library_opens_the_other_clouds(url: str) -> None:
    """No such cloud is here: what counts is that the way to it is built from the same declaration, without network."""

    async def key_of_cloud() -> bytes:
        return b'{"azure_storage_account_name": "a", "azure_storage_account_key": "a2V5"}' if "az" in url else b""

    clock: Clock = FakeClock()  # type: ignore[assignment]
    source = ObjectSource(url, 900)
    found = await ObjectStore(source, clock, key_of_cloud if "az" in url else None)._open()
    assert type(found).__name__ in ("GCSStore", "AzureStore")
