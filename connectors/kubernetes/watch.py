"""One kind of one cluster, kept current: list, watch, resume, and list again when the watch cannot be trusted.

What proves that the cache is the truth, from cheap to dear:
- every byte from the server, bookmarks included, proves this watch, and so does its end: the server is asked to end it
  every `turn_s`, and it is resumed where it was, on a connection that answers;
- silence beyond `silence_s` ends it, and the kind is listed again (FR-WAT-01): the peer may be long gone;
- a list at least every `relist_s` proves it against losses that nobody noticed; deletions missed leave the cache.
Between two bytes the cluster's heartbeat (feed.py) proves the link; so what a reader takes as fresh may be wrong for
`silence_s` at most, and only if one connection dies without a sign while another one to the same server lives. That
is why `silence_s` lies below the policy's silence limit, and `turn_s` below `silence_s`: bookmarks alone, one a minute,
would not keep a quiet kind above suspicion.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from connectors.kubernetes.cache import Cache, Key, version_number
from connectors.kubernetes.client import JSON, METADATA_LIST, METADATA_ONE, ApiClient
from connectors.kubernetes.faults import Expired, Forbidden, NotFound, of_status
from connectors.kubernetes.fields import Raw, child, integer, shared, text
from connectors.kubernetes.lines import LINE_LIMIT, LineSplitter
from dispatcher.core.errors import EntrepotError, Refused, Transient
from dispatcher.core.ports import Clock
from dispatcher.logs import get_logger
from dispatcher.runtime import Waker

T = TypeVar("T")

PAGES = 2
"""Of each cluster: one that is read, and one that the server makes meanwhile. A server takes longer to make a page than
we to read it, so that one after the other a start would wait as long as it works."""
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)
"""What a decoder may raise for one odd object; QuantityError is a ValueError."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What to watch. `optional`: its API may be absent (a CRD not installed), which is then simply nothing to see.
    `dispensable`: our account may also lack the right to read it, as the roles of earlier releases do; one that may
    list and not watch reads it anew every `absent_s`."""

    name: str
    path: str
    metadata_only: bool = False
    optional: bool = False
    dispensable: bool = False
    field_selector: str = ""


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """Seconds, unless named otherwise. All watches of a cluster share one."""

    turn_s: float = 30.0
    """The server-side timeout of a watch. To resume one costs the server next to nothing: it lists nothing."""
    silence_s: float = 45.0
    """No byte for so long ends a watch. Above `turn_s`: the server has owed us the end of the watch for a while."""
    relist_s: float = 300.0
    """A planned list falls between two watches."""
    mend_s: float = 30.0
    """After a line that could not be read, the kind is listed again so soon."""
    absent_s: float = 300.0
    """How often to look whether an absent kind has come."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    page_objects: int = 100
    """Objects are up to some 20 KB, and a page is held as bytes until its last object has been read."""
    slice_objects: int = 20
    """Of a page that are read at once: some 3 ms in which nothing else runs."""
    line_bytes: int = LINE_LIMIT


class Observer(Protocol):
    """Counts what happens to watches, for metrics. `what` is one of: listed, resumed, expired, silent, failed,
    unreadable, absent, unwatched."""

    def watch(self, cluster: str, kind: str, what: str) -> None: ...


class Unobserved:
    """The observer of those who do not count."""

    def watch(self, cluster: str, kind: str, what: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all informers of a cluster share."""

    client: ApiClient
    clock: Clock
    settings: WatchSettings
    observer: Observer
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PAGES))
    """One is held while a page is fetched and read: of each cluster there are so many in memory, whatever its kinds
    need."""


class _Listing(Generic[T]):
    """What has been read of a list so far. `newest` is set when the page that was last asked for has been read, `whole`
    when that was the last of all."""

    def __init__(self) -> None:
        self.found: dict[Key, tuple[int | None, T | None]] = {}
        self.version = ""
        self.whole = asyncio.Event()
        self.newest = asyncio.Event()
        self.newest.set()


class _Silent(Exception):
    """No byte within the limit."""


class _Due(Exception):
    """A list is due although the watch is well."""


class Informer(Generic[T]):
    """Keeps `cache` current while `run` runs. Only `cache`, the flags and `offer` are for others."""

    def __init__(self, kind: Kind, decode: Callable[[Raw], T | None], around: Surroundings) -> None:
        self.kind = kind
        self.cache: Cache[T] = Cache()
        self.synced = False
        """Listed completely since start, or since the last time that the watch had to be given up."""
        self.watching = False
        self.absent = False
        self.unwatched = False
        """We may list it and not watch it: what is held is as old as the last list, and speaks for nobody's age."""
        self.heard_at: datetime | None = None
        """When the last byte came from the server."""
        self.error: str | None = None
        self._decode = decode
        self._around = around
        self._wake: Callable[[], None] = lambda: None
        self._resource_version = ""
        self.generation = 0
        self._heard_s = 0.0
        self._list_due_s = 0.0
        self._went_back = 0
        self._failures = 0
        self._alarm = Waker(around.clock)

    @property
    def current(self) -> bool:
        """Whether what is held comes from the server that the client talks to now."""
        return self.generation == self._around.client.generation

    async def run(self, wake: Callable[[], None]) -> None:
        """Never returns and never raises for what servers and networks do."""
        self._wake, self._resource_version, self._failures = wake, "", 0
        while True:
            try:
                await self._round()
            except NotFound as error:
                await self._not_served(error)
            except Forbidden as error:
                await self._not_let(error)
            except Expired:
                self._give_up("expired")
                await self._pause()
            except _Silent:
                self._fell_silent()
                await self._pause()
            except _Due:
                pass
            except EntrepotError as error:
                self._report(error)
                self._count("failed")
                await self._pause()

    def kick(self) -> None:
        """The link is known to be back: do not wait out a pause that was meant for a dead one."""
        self._failures = 0
        self._alarm.wake()

    def offer(self, raw: Raw) -> None:
        """Take an object from a reply to one of our own calls, if it is newer than what the watch has brought."""
        if self.synced and self._take("MODIFIED", raw):
            self._wake()

    async def _round(self) -> None:
        if self._must_list():
            await self._list()
        else:
            self._count("resumed")
        try:
            await guarded(self._watch(), self._guard())
        except Forbidden as error:
            if not self.kind.dispensable:
                raise
            await self._go_by_lists(error)

    # --- list ---

    def _must_list(self) -> bool:
        if not self.current:
            self._resource_version = ""
        return not self._resource_version or self._around.clock.monotonic_s() >= self._list_due_s

    async def _list(self) -> None:
        listing: _Listing[T] = _Listing()
        async with one_error() as group:
            group.create_task(self._page(listing, "", group))
            await listing.whole.wait()
        self._adopt_list(listing.found, listing.version)
        self._heard()

    async def _page(self, listing: _Listing[T], token: str, group: asyncio.TaskGroup) -> None:
        """Fetch a page and project it, some objects at a time. The next one is asked for as soon as its token is known,
        and read when this one has been."""
        client, size = self._around.client, self._around.settings.slice_objects
        params = {"limit": str(self._around.settings.page_objects), **self._selector()}
        if token:
            params["continue"] = token
        before, read = listing.newest, asyncio.Event()
        listing.newest = read
        async with self._around.places:
            page = await client.listed(self.kind.path, params, METADATA_LIST if self.kind.metadata_only else JSON)
            ahead = page.next_token()
            if ahead:
                group.create_task(self._page(listing, ahead, group))
            await before.wait()
            for at, raw in enumerate(page.items()):
                if at % size == 0:
                    await client.turns.take()
                meta = child(raw, "metadata")
                listing.found[_key(meta)] = (version_number(text(meta, "resourceVersion")), self._decoded(raw))
        listing.version, after = text(page.metadata, "resourceVersion"), text(page.metadata, "continue")
        read.set()
        if not after:
            listing.whole.set()
        elif not ahead:
            group.create_task(self._page(listing, after, group))

    def _adopt_list(self, listed: dict[Key, tuple[int | None, T | None]], version: str) -> None:
        """A list older than what was seen is not believed twice; the third time the server's store was put back."""
        number, client = version_number(version), self._around.client
        fresh_start = not self.current
        if not fresh_start and number is not None and number < self.cache.newest:
            self._went_back += 1
            if self._went_back < 3:
                raise Transient(f"{client.name}: {self.kind.name}: the list is older than what was seen before")
            get_logger().warning("store_went_back", cluster=client.name, kind=self.kind.name)
            fresh_start = True
        changed = self.cache.restart(listed) if fresh_start else self.cache.replace(listed, number)
        self._went_back, self.generation, self._resource_version = 0, client.generation, version
        self._list_due_s = self._around.clock.monotonic_s() + self._around.settings.relist_s
        self._count("listed")
        news = changed or not self.synced or self.error is not None or self.absent
        self.synced, self.error, self.absent = True, None, False
        if news:
            self._wake()

    # --- watch ---

    async def _watch(self) -> None:
        around = self._around
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._resource_version,
            "timeoutSeconds": str(max(1, round(around.settings.turn_s))),
            **self._selector(),
        }
        self._heard_s = started_s = around.clock.monotonic_s()
        accept = METADATA_ONE if self.kind.metadata_only else JSON
        chunks_seen = 0
        async with around.client.stream(self.kind.path, params, accept) as chunks:
            self._heard()
            self._healthy()
            try:
                chunks_seen = await self._consume(chunks)
            finally:
                self.watching = False
        if not chunks_seen and around.clock.monotonic_s() - started_s < 1.0:
            raise Transient(f"{around.client.name}: {self.kind.name}: the server ended the watch at once")

    async def _consume(self, chunks: AsyncIterator[bytes]) -> int:
        splitter = LineSplitter(self._around.settings.line_bytes)
        seen = overlong = 0
        async for chunk in chunks:
            seen += 1
            self._failures = 0
            self._heard()
            lines = splitter.feed(chunk)
            if splitter.overlong != overlong:
                overlong = splitter.overlong
                self._unreadable(f"a line of more than {self._around.settings.line_bytes} bytes")
            changes = sum(self._line(line) for line in lines)
            if changes:
                self._wake()
        return seen

    async def _guard(self) -> None:
        """Ends the watch from outside when it is silent, or when a list is overdue although it goes on."""
        clock, settings = self._around.clock, self._around.settings
        while True:
            now_s = clock.monotonic_s()
            silent_s = self._heard_s + settings.silence_s
            # The server ends the watch by itself about when the list is due: overtime is for one that does not.
            due_s = self._list_due_s + settings.mend_s
            if now_s >= silent_s:
                raise _Silent
            if now_s >= due_s:
                raise _Due
            await clock.sleep(min(silent_s - now_s, due_s - now_s, settings.mend_s))
            self._failures = 0

    def _line(self, line: bytes) -> bool:
        """One event; says whether a reader sees a difference. Raises Expired or another error that the server sent."""
        try:
            event = json.loads(line)
            kind, raw = event["type"], event["object"]
        except _MALFORMED:
            self._unreadable("a line that is no watch event")
            return False
        if not isinstance(raw, dict):
            self._unreadable("an event without an object")
            return False
        if kind == "ERROR":
            where = f"{self._around.client.name}: WATCH {self.kind.path}"
            raise of_status(integer(raw, "code", 500), where, line and json.dumps(raw).encode(), {})
        version = text(child(raw, "metadata"), "resourceVersion")
        changed = kind != "BOOKMARK" and self._take(str(kind), raw)
        self._resource_version = version or self._resource_version
        return changed

    def _take(self, event: str, raw: Raw) -> bool:
        meta = child(raw, "metadata")
        key, version = _key(meta), version_number(text(meta, "resourceVersion"))
        if event == "DELETED":
            return self.cache.remove(key, version)
        return self.cache.put(key, version, self._decoded(raw))

    def _decoded(self, raw: Raw) -> T | None:
        """The projection; an object that cannot be read is not there, and is reported."""
        try:
            return self._decode(raw)
        except _MALFORMED as error:
            name = "/".join(_key(child(raw, "metadata")))
            get_logger().warning(
                "object_unreadable", cluster=self._around.client.name, kind=self.kind.name, name=name, error=str(error)
            )
            self._count("unreadable")
            return None

    # --- states ---

    def _heard(self) -> None:
        self._heard_s, self.heard_at = self._around.clock.monotonic_s(), self._around.clock.now()

    def _healthy(self) -> None:
        """Open, again or for the first time. A turn that went as it should is no news: it wakes nobody."""
        news = self.error is not None
        self.watching, self.unwatched, self.error = True, False, None
        if news:
            self._wake()

    def _report(self, error: EntrepotError) -> None:
        """A lost link is one line of the feed's, not one of each kind; what a person must mend is a warning here."""
        text = str(error)
        if text != self.error:
            log = get_logger().warning if isinstance(error, Refused) else get_logger().debug
            log("watch_failed", cluster=self._around.client.name, kind=self.kind.name, error=text)
            self.error = text
            self._wake()

    def _give_up(self, what: str) -> None:
        """The cache has missed something: it is not trusted until it has been listed again."""
        get_logger().debug("watch_given_up", cluster=self._around.client.name, kind=self.kind.name, because=what)
        self._count(what)
        self._resource_version, self.synced = "", False
        self._wake()

    def _fell_silent(self) -> None:
        """Nobody knows whether something was missed: what is held keeps the age of the last byte, whatever the
        heartbeat says, and is listed again before it is young again."""
        name, kind = self._around.client.name, self.kind.name
        get_logger().info("watch_given_up", cluster=name, kind=kind, because="silent")
        self._count("silent")
        self._resource_version = ""
        self.error = f"{name}: {kind}: no byte from its watch for {self._around.settings.silence_s:g} s"
        self._wake()

    def _unreadable(self, what: str) -> None:
        """We lost one event and cannot say of which object: go on, and list again soon."""
        get_logger().warning("watch_line_unreadable", cluster=self._around.client.name, kind=self.kind.name, error=what)
        self._count("unreadable")
        self._list_due_s = min(self._list_due_s, self._around.clock.monotonic_s())

    async def _not_served(self, error: NotFound) -> None:
        if not self.kind.optional:
            self._report(Refused(f"{error} ({self.kind.name} is not served: is Kueue installed there?)"))
            self._count("failed")
            await self._pause()
            return
        await self._do_without()

    async def _not_let(self, error: Forbidden) -> None:
        if self.kind.dispensable:
            if not self.absent:
                self._not_allowed(error)
            await self._do_without()
            return
        self._report(error)
        self._count("failed")
        await self._pause()

    async def _do_without(self) -> None:
        """There is nothing of the kind, until it is asked for again."""
        around = self._around
        self._count("absent")
        self.unwatched = False
        self.cache.restart({})
        self.generation = around.client.generation
        if not (self.absent and self.synced) or self.error is not None:
            self.absent, self.synced, self.error = True, True, None
            self._wake()
        self._resource_version = ""
        await self._alarm.wait(around.settings.absent_s)

    async def _go_by_lists(self, error: Forbidden) -> None:
        """What was listed stands, until it is listed again."""
        if not self.unwatched:
            self._not_allowed(error)
        self._count("unwatched")
        self.unwatched, self._resource_version = True, ""
        await self._alarm.wait(self._around.settings.absent_s)

    def _not_allowed(self, error: Forbidden) -> None:
        """Told once, for all goes on: the doctor says what is missed (`topologies-not-read`)."""
        name = self._around.client.name
        get_logger().warning("kind_not_allowed", cluster=name, kind=self.kind.name, error=str(error))

    async def _pause(self) -> None:
        """Wait before the next try: doubling, capped, and spread by a hash, so that informers do not come together."""
        settings, name = self._around.settings, self._around.client.name
        pause_s = min(settings.first_pause_s * 2 ** min(self._failures, 16), settings.longest_pause_s)
        self._failures += 1
        seed = hashlib.sha256(f"{name}|{self.kind.name}|{self._failures}".encode()).digest()[0]
        await self._alarm.wait(pause_s * (0.5 + seed / 512))

    def _selector(self) -> dict[str, str]:
        return {"fieldSelector": self.kind.field_selector} if self.kind.field_selector else {}

    def _count(self, what: str) -> None:
        self._around.observer.watch(self._around.client.name, self.kind.name, what)


def _key(meta: Raw) -> Key:
    return (shared(meta, "namespace"), text(meta, "name"))


async def guarded(work: Coroutine[Any, Any, None], guard: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end unless `guard` raises first."""
    async with one_error() as group:
        watchman = group.create_task(guard)
        await work
        watchman.cancel()


@asynccontextmanager
async def one_error() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup out of which one exception comes, not a group. Whoever opens it waits inside for its work: a task
    that fails while a group only ends leaves its owner, before Python 3.13, as one that was cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # Before Python 3.13 a group that is ending by an error of its own forgets a cancellation that comes then.
            raise asyncio.CancelledError from None
        raise errors.exceptions[0] from None
