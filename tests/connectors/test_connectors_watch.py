"""The informer against a server that behaves, and against every way in which watches are known to fail (FR-WAT)."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from connectors.kubernetes import feed_settings
from connectors.kubernetes.body import Page
from connectors.kubernetes.cache import Cache
from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.fields import Raw, child, text
from connectors.kubernetes.kubeconfig import Access, parse
from connectors.kubernetes.turns import Turns
from connectors.kubernetes.watch import Informer, Kind, Surroundings, WatchSettings, guarded
from dispatcher.core.errors import Transient
from tests.connectors.apiserver import KUEUE, ApiServer, always, named
from tests.connectors.support import FakeClock, eventually, settle

PATH = f"{KUEUE}/workloads"


class Counts:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def watch(self, cluster: str, kind: str, what: str) -> None:
        self.seen.append(what)


@dataclass(frozen=True)
class Fixed:
    """A source that always says the same."""

    access: Access

    async def read(self) -> Access:
        return self.access


class Withheld(Turns):
    """Nobody has a turn until they are `given`."""

    def __init__(self) -> None:
        super().__init__()
        self.given = asyncio.Event()

    async def take(self) -> None:
        await self.given.wait()


@dataclass
class Bed:
    api: ApiServer
    clock: FakeClock
    client: ApiClient
    informer: Informer[str]
    counts: Counts
    wakes: list[float]

    @property
    def cache(self) -> Cache[str]:
        return self.informer.cache

    def names(self) -> list[str]:
        return [value for _, value in self.cache.items()]

    async def watched(self, times: int = 1) -> None:
        """Until the `times`-th watch has begun and is open."""
        await eventually(
            lambda: (
                len(self.api.requests("WATCH", PATH)) >= times and self.api.watching(PATH) and self.informer.watching
            ),
            f"watch number {times}",
        )


def project(raw: Raw) -> str:
    """The decoder of these tests: "name:value"; an object that says so breaks it."""
    if child(raw, "spec").get("broken"):
        raise ValueError("spec.broken: as asked")
    return f"{text(child(raw, 'metadata'), 'name')}:{text(child(raw, 'spec'), 'value')}"


def thing(name: str, value: str = "1", **spec: object) -> Raw:
    return {**named(name, "team-a"), "spec": {"value": value, **spec}}


@asynccontextmanager
async def bed(
    api: ApiServer, settings: WatchSettings | None = None, kind: Kind | None = None, turns: Turns | None = None
) -> AsyncIterator[Bed]:
    """An informer that runs against `api`."""
    clock, counts, wakes = FakeClock(), Counts(), list[float]()
    api.serve(PATH)
    client = ApiClient("one", Fixed(parse(api.kubeconfig())), clock, turns=turns)
    around = Surroundings(client, clock, settings or WatchSettings(), counts)
    informer = Informer(kind or Kind("workloads", PATH), project, around)
    task = asyncio.get_running_loop().create_task(informer.run(lambda: wakes.append(clock.monotonic_s())))
    try:
        yield Bed(api, clock, client, informer, counts, wakes)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await client.close()


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        server.serve(PATH)
        yield server


# --- the good days -----------------------------------------------------------------------------------------------


async def test_it_lists_by_pages_then_follows_every_change(api: ApiServer) -> None:
    for number in range(5):
        api.put(PATH, thing(f"w{number}"))
    async with bed(api, WatchSettings(page_objects=2)) as b:
        await b.watched()
        assert b.informer.synced
        assert b.names() == [f"w{n}:1" for n in range(5)]
        assert [s.query.get("continue") for s in api.requests("LIST", PATH)] == [None, "2", "4"]
        api.put(PATH, thing("w1", "2"))
        api.delete(PATH, "w0", "team-a")
        api.put(PATH, thing("w9"))
        await eventually(lambda: b.names() == ["w1:2", "w2:1", "w3:1", "w4:1", "w9:1"])


async def test_no_more_than_one_page_is_held_while_the_next_is_waited_for(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of informers list at once: pages that each holds while it waits would be the daemon's memory."""
    pages: list[weakref.ref[Page]] = []
    held: list[int] = []
    fetch = ApiClient.listed

    async def listed(self: ApiClient, path: str, params: Mapping[str, str], accept: str) -> Page:
        held.append(sum(ref() is not None for ref in pages))
        found = await fetch(self, path, params, accept)
        pages.append(weakref.ref(found))
        return found

    monkeypatch.setattr(ApiClient, "listed", listed)
    for number in range(5):
        api.put(PATH, thing(f"w{number}"))
    async with bed(api, WatchSettings(page_objects=2)) as b:
        await b.watched()
        assert len(b.names()) == 5
    assert held == [0, 1, 1]


async def test_the_next_page_is_on_its_way_while_one_is_read(api: ApiServer) -> None:
    """A server takes as long to make a page as we to read it: one after the other, a start would take both."""
    for number in range(5):
        api.put(PATH, thing(f"w{number}"))
    turns = Withheld()
    async with bed(api, WatchSettings(page_objects=2), turns=turns) as b:
        await eventually(lambda: len(api.requests("LIST", PATH)) == 2)
        await settle()
        assert [s.query.get("continue") for s in api.requests("LIST", PATH)] == [None, "2"]
        assert not b.informer.synced
        turns.given.set()
        await b.watched()
        assert [s.query.get("continue") for s in api.requests("LIST", PATH)] == [None, "2", "4"]
        assert b.names() == [f"w{n}:1" for n in range(5)]


async def test_a_page_that_does_not_come_ends_the_list_and_it_is_listed_again(api: ApiServer) -> None:
    for number in range(5):
        api.put(PATH, thing(f"w{number}"))
    broken = always(500)

    async def second_page_breaks(request: web.Request) -> web.StreamResponse | None:
        return await broken(request) if request.query.get("continue") == "2" else None

    api.faults["LIST", PATH] = second_page_breaks
    async with bed(api, WatchSettings(page_objects=2)) as b:
        await eventually(lambda: b.counts.seen == ["failed"])
        assert (b.names(), b.informer.synced) == ([], False)
        del api.faults["LIST", PATH]
        await b.clock.advance(30)
        await b.watched()
        assert b.names() == [f"w{n}:1" for n in range(5)]


async def test_the_watch_asks_for_bookmarks_from_the_list_on_with_a_server_side_timeout(api: ApiServer) -> None:
    async with bed(api) as b:
        await b.watched()
        query = api.requests("WATCH", PATH)[0].query
        assert query["allowWatchBookmarks"] == "true"
        assert query["resourceVersion"] == str(api.version)
        assert query["timeoutSeconds"] == "30"


async def test_an_event_that_changes_nothing_we_keep_wakes_nobody(api: ApiServer) -> None:
    api.put(PATH, thing("w1"))
    async with bed(api) as b:
        await b.watched()
        before = len(b.wakes)
        api.put(PATH, thing("w1", "1", noise="x"))
        api.bookmark(PATH)
        heard = b.informer.heard_at
        await b.clock.advance(1)
        api.bookmark(PATH)
        await eventually(lambda: b.informer.heard_at != heard)
        assert len(b.wakes) == before
        api.put(PATH, thing("w1", "2"))
        await eventually(lambda: len(b.wakes) == before + 1)


async def test_a_watch_that_the_server_ends_is_resumed_where_it_was(api: ApiServer) -> None:
    async with bed(api) as b:
        await b.watched()
        api.put(PATH, thing("w1"))
        await eventually(lambda: b.names() == ["w1:1"])
        version = str(api.version)
        await b.clock.advance(5)
        api.watching(PATH)[0].send(None)
        await b.watched(2)
        assert api.requests("WATCH", PATH)[1].query["resourceVersion"] == version
        assert len(api.requests("LIST", PATH)) == 1
        assert b.informer.error is None


async def test_bookmarks_move_the_place_to_resume_from(api: ApiServer) -> None:
    async with bed(api) as b:
        await b.watched()
        api.version += 50
        api.bookmark(PATH)
        heard = b.informer.heard_at
        await eventually(lambda: b.informer.heard_at == heard and not api.watching(PATH)[0].chunks.qsize())
        await settle()
        await b.clock.advance(5)
        api.watching(PATH)[0].send(None)
        await b.watched(2)
        assert api.requests("WATCH", PATH)[1].query["resourceVersion"] == str(api.version)


# --- FR-WAT ------------------------------------------------------------------------------------------------------


async def test_fr_wat_01_a_silent_watch_is_given_up_and_the_kind_listed_again(api: ApiServer) -> None:
    api.put(PATH, thing("w1"))
    async with bed(api) as b:
        await b.watched()
        api.delete(PATH, "w1", "team-a", silently=True)
        heard = b.informer.heard_at
        await b.clock.advance(44)
        assert b.informer.watching
        await b.clock.advance(1)
        await eventually(lambda: "silent" in b.counts.seen)
        assert not b.informer.watching, "no heartbeat makes it young"
        assert b.informer.heard_at == heard
        assert "no byte from its watch for 45 s" in str(b.informer.error)
        await b.clock.advance(1)
        await eventually(lambda: b.informer.watching and b.informer.error is None and b.names() == [])


async def test_fr_wat_01_a_server_that_accepts_and_never_writes_is_left_after_the_limit(api: ApiServer) -> None:
    async def hang(_: web.Request) -> web.StreamResponse | None:
        await asyncio.get_running_loop().create_future()
        return None

    api.faults["WATCH", PATH] = hang
    async with bed(api) as b:
        await eventually(lambda: api.requests("WATCH", PATH))
        for _ in range(11):
            await b.clock.advance(60)
        await eventually(lambda: len(api.requests("WATCH", PATH)) >= 2)
        assert b.counts.seen.count("silent") >= 2


async def test_fr_wat_04_deletions_missed_while_disconnected_leave_the_cache(api: ApiServer) -> None:
    for name in ("w1", "w2"):
        api.put(PATH, thing(name))
    async with bed(api) as b:
        await b.watched()
        api.break_watches()
        api.delete(PATH, "w1", "team-a", silently=True)
        api.oldest_version = api.version + 1
        await eventually(lambda: not b.informer.watching)
        await b.clock.advance(1)
        await eventually(lambda: "expired" in b.counts.seen)
        api.oldest_version = 0
        await b.clock.advance(2)
        await eventually(lambda: b.informer.synced and b.names() == ["w2:1"])
        assert len(api.requests("LIST", PATH)) == 2


async def test_a_410_inside_the_stream_lists_again(api: ApiServer) -> None:
    async with bed(api) as b:
        await b.watched()
        api.put(PATH, thing("w1"))
        gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
        api.watching(PATH)[0].event("ERROR", gone)
        await eventually(lambda: "expired" in b.counts.seen)
        await b.clock.advance(1)
        await eventually(lambda: b.informer.synced and len(api.requests("LIST", PATH)) == 2)


async def test_fr_wat_05_six_idle_minutes_with_bookmarks_are_no_error(api: ApiServer) -> None:
    async with bed(api, WatchSettings(relist_s=3600)) as b:
        await b.watched()
        for _ in range(9):
            heard = b.informer.heard_at
            await b.clock.advance(40)
            api.bookmark(PATH)
            await eventually(lambda h=heard: b.informer.heard_at != h)
        assert len(api.requests("WATCH", PATH)) == 1
        assert b.informer.watching
        assert b.informer.error is None


async def test_fr_wat_06_an_event_of_1_6_mib_in_7_chunks_is_read(api: ApiServer) -> None:
    async with bed(api) as b:
        await b.watched()
        raw = {**thing("big"), "padding": "ä" * 800_000}
        raw["metadata"]["resourceVersion"] = str(api.version + 1)
        line = json.dumps({"type": "ADDED", "object": raw}, ensure_ascii=False).encode() + b"\n"
        assert len(line) > 1_600_000
        size = len(line) // 7 + 1
        api.watching(PATH)[0].send(*(line[start : start + size] for start in range(0, len(line), size)))
        await eventually(lambda: b.names() == ["big:1"])


@pytest.mark.parametrize(
    "bad",
    [
        b"{nonsense\n",
        b"[]\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"ADDED","object":7}\n',
        b"x" * 5000 + b"\n",
        b"\xff\xfe\n",
    ],
    ids=["not JSON", "not an object", "no object", "object is a number", "longer than the limit", "not UTF-8"],
)
async def test_fr_wat_06_one_bad_line_does_not_end_the_watch_and_is_mended_by_a_list(
    api: ApiServer, bad: bytes
) -> None:
    async with bed(api, WatchSettings(line_bytes=4096)) as b:
        await b.watched()
        api.watching(PATH)[0].send(bad)
        api.put(PATH, thing("after"))
        await eventually(lambda: b.names() == ["after:1"])
        assert len(api.requests("WATCH", PATH)) == 1
        assert "unreadable" in b.counts.seen
        api.collections[PATH][("team-a", "lost")] = thing("lost", resource="x")
        await b.clock.advance(31)
        api.bookmark(PATH)
        await b.clock.advance(31)
        await eventually(lambda: b.names() == ["after:1", "lost:1"])
        assert b.informer.synced
        assert "silent" not in b.counts.seen


async def test_an_object_that_cannot_be_decoded_is_left_out_and_the_rest_goes_on(api: ApiServer) -> None:
    api.put(PATH, thing("bad", broken=True))
    api.put(PATH, thing("good"))
    async with bed(api) as b:
        await b.watched()
        assert b.names() == ["good:1"]
        api.put(PATH, thing("good", broken=True))
        api.put(PATH, thing("other"))
        await eventually(lambda: b.names() == ["other:1"])
        assert len(api.requests("WATCH", PATH)) == 1


async def test_fr_wat_07_a_late_reply_is_refused_and_an_early_one_taken(api: ApiServer) -> None:
    old = api.put(PATH, thing("w1", "old"))
    async with bed(api) as b:
        await b.watched()
        new = api.put(PATH, thing("w1", "new"))
        await eventually(lambda: b.names() == ["w1:new"])
        b.informer.offer(old)
        assert b.names() == ["w1:new"]
        reply = {**thing("w1", "reply"), "metadata": {**new["metadata"], "resourceVersion": str(api.version + 1)}}
        b.informer.offer(reply)
        assert b.names() == ["w1:reply"]
        api.delete(PATH, "w1", "team-a")
        api.version += 5
        await eventually(lambda: b.names() == [])
        b.informer.offer(new)
        assert b.names() == []


async def test_a_planned_list_finds_what_no_watch_told(api: ApiServer) -> None:
    async with bed(api) as b:
        await b.watched()
        api.collections[PATH][("team-a", "untold")] = thing("untold")
        for _ in range(8):
            await b.clock.advance(40)
            api.bookmark(PATH)
            await settle()
        await b.clock.advance(10)
        await eventually(lambda: b.names() == ["untold:1"])
        assert "silent" not in b.counts.seen


# --- bad servers -------------------------------------------------------------------------------------------------


async def test_a_dead_server_is_asked_again_ever_more_rarely_and_found_when_it_is_back(api: ApiServer) -> None:
    api.put(PATH, thing("w1"))
    async with bed(api) as b:
        await b.watched()
        await api.stop_listening()
        await eventually(lambda: b.informer.error is not None)
        assert b.informer.synced, "the cache may still be complete: nothing was missed yet"
        for _ in range(30):
            await b.clock.advance(10)
        tries = b.counts.seen.count("failed")
        assert 8 <= tries <= 40, "capped pauses: not once, and not hundreds of times"
        await api.listen_again()
        b.informer.kick()
        await b.watched(2)
        assert b.informer.error is None


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_in_a_tight_loop(api: ApiServer) -> None:
    async def end(request: web.Request) -> web.StreamResponse | None:
        response = web.StreamResponse()
        await response.prepare(request)
        return response

    api.faults["WATCH", PATH] = end
    async with bed(api) as b:
        await eventually(lambda: b.counts.seen.count("failed") >= 1)
        await settle(400)
        assert len(api.requests("WATCH", PATH)) == 1


async def test_a_list_older_than_what_was_seen_is_not_believed_until_it_insists(api: ApiServer) -> None:
    api.put(PATH, thing("w1", "new"))
    async with bed(api) as b:
        await b.watched()
        api.collections[PATH] = {("team-a", "w1"): thing("w1", "restored", x=1)}
        api.collections[PATH][("team-a", "w1")]["metadata"]["resourceVersion"] = "3"
        api.version = 5
        await b.clock.advance(46)
        await b.clock.advance(1)
        await eventually(lambda: b.informer.error is not None and "older" in b.informer.error)
        assert b.names() == ["w1:new"]
        for _ in range(4):
            await b.clock.advance(5)
        await eventually(lambda: b.names() == ["w1:restored"])


@pytest.mark.parametrize("status", [403, 500, 503])
async def test_a_refused_list_is_said_and_tried_again(api: ApiServer, status: int) -> None:
    api.faults["LIST", PATH] = always(status, "because")
    async with bed(api) as b:
        await eventually(lambda: b.informer.error is not None)
        assert f"{status} because" in str(b.informer.error)
        assert not b.informer.synced
        del api.faults["LIST", PATH]
        await b.clock.advance(2)
        await eventually(lambda: b.informer.synced and b.informer.error is None)


async def test_an_optional_kind_that_is_not_served_is_synced_and_looked_for_rarely(api: ApiServer) -> None:
    absent = Kind("jobsets", "/apis/jobset.x-k8s.io/v1alpha2/jobsets", optional=True)
    async with bed(api, kind=absent) as b:
        await eventually(lambda: b.informer.synced)
        assert b.informer.absent
        assert b.informer.error is None
        await b.clock.advance(299)
        assert len(api.requests("LIST", absent.path)) == 1
        api.serve(absent.path)
        await b.clock.advance(2)
        await eventually(lambda: not b.informer.absent and api.watching(absent.path))


async def test_a_dispensable_kind_that_may_not_be_read_is_done_without(api: ApiServer) -> None:
    kind = Kind("topologies", f"{KUEUE}/topologies", optional=True, dispensable=True)
    api.serve(kind.path)
    api.put(kind.path, named("racks"))
    api.faults["LIST", kind.path] = always(403)
    with capture_logs() as logs:
        async with bed(api, kind=kind) as b:
            await eventually(lambda: b.informer.synced and b.informer.absent)
            assert b.informer.error is None
            await b.clock.advance(301)
            await eventually(lambda: len(api.requests("LIST", kind.path)) == 2)
            del api.faults["LIST", kind.path]
            await b.clock.advance(301)
            await eventually(lambda: not b.informer.absent and len(list(b.informer.cache.items())) == 1)
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["kind_not_allowed"], "told once"


async def test_a_dispensable_kind_that_may_only_be_listed_is_listed_once_in_a_while_and_told_once(
    api: ApiServer,
) -> None:
    kind = Kind("topologies", f"{KUEUE}/topologies", optional=True, dispensable=True)
    api.serve(kind.path)
    api.put(kind.path, thing("racks"))
    api.faults["WATCH", kind.path] = always(403)
    with capture_logs() as logs:
        async with bed(api, kind=kind) as b:
            await eventually(lambda: b.informer.synced and b.informer.unwatched)
            await settle()
            revision, wakes = b.cache.revision, len(b.wakes)
            for times in (2, 3, 4):
                await b.clock.advance(301)
                await eventually(lambda times=times: len(api.requests("LIST", kind.path)) == times)  # type: ignore[misc]
                await eventually(lambda times=times: len(api.requests("WATCH", kind.path)) == times)  # type: ignore[misc]
                await settle()
                assert (b.names(), b.informer.error) == (["racks:1"], None)
            assert (b.cache.revision, len(b.wakes)) == (revision, wakes), "nothing has changed for anybody"
            api.put(kind.path, thing("blocks"))
            await b.clock.advance(301)
            await eventually(lambda: b.names() == ["blocks:1", "racks:1"])
            del api.faults["WATCH", kind.path]
            await b.clock.advance(301)
            await eventually(lambda: b.informer.watching and not b.informer.unwatched)
    told = [entry for entry in logs if entry["event"] == "kind_not_allowed"]
    assert [(entry["kind"], entry["log_level"]) for entry in told] == [("topologies", "warning")]
    assert "403" in told[0]["error"]


async def test_a_needed_kind_that_is_not_served_is_an_error(api: ApiServer) -> None:
    async with bed(api, kind=Kind("cohorts", f"{KUEUE}/cohorts")) as b:
        await eventually(lambda: b.informer.error is not None)
        assert "is Kueue installed" in str(b.informer.error)
        assert not b.informer.synced


async def test_metadata_only_kinds_are_asked_for_as_partial_objects(api: ApiServer) -> None:
    async with bed(api, kind=Kind("workloads", PATH, metadata_only=True)) as b:
        await b.watched()
        accepts = [s.headers["Accept"] for s in (*api.requests("LIST", PATH), *api.requests("WATCH", PATH))]
        assert accepts == [
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        ]


async def test_a_cancellation_that_meets_a_failing_watch_is_not_lost() -> None:
    failing, cleaning = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await failing.wait()
        raise Transient("the connection broke")

    async def guard() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await cleaning.wait()

    task = asyncio.get_running_loop().create_task(guarded(work(), guard()))
    await settle(5)
    failing.set()
    await settle(5)
    task.cancel()
    await settle(5)
    cleaning.set()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("limit_s", [5, 8, 30, 60, 300])
def test_fr_wat_01_whatever_the_silence_limit_a_dead_watch_is_given_up_within_it(limit_s: int) -> None:
    """The server ends a watch before its silence is suspicious, and silence is suspicious before the limit is over."""
    watch = feed_settings(limit_s).watch
    assert 1 <= watch.turn_s < watch.silence_s < limit_s
    assert watch.silence_s < watch.relist_s


def test_settings_keep_their_order() -> None:
    """A watch's end must come before silence counts, and a list must outlast silence."""
    settings = WatchSettings()
    assert settings.turn_s < settings.silence_s < settings.relist_s
