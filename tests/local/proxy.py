"""A TCP proxy between the daemon and one apiserver, with which tests make a network misbehave.

TLS stays end to end: the proxy sees bytes only, and the apiservers' certificates are valid for loopback. What it can do
is what networks do: refuse, reset, fall silent with all connections open (in one or both directions, for all
connections or for those that are open now), lose the far end without a word, and be slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")
_CALL_S = 10.0
_CHUNK = 1 << 16
_WAITING_CHUNKS = 64


class Direction(StrEnum):
    REQUESTS = "requests"
    ANSWERS = "answers"


@dataclass(frozen=True, slots=True)
class Weather:
    """How the proxy treats connections: `silent` directions let no byte pass (they pass later, in order), an answer
    comes `delay_s` late and at most at `bytes_per_s`. `far_end` False: nobody is there behind the proxy any more."""

    silent: frozenset[Direction] = frozenset()
    delay_s: float = 0.0
    bytes_per_s: float | None = None
    far_end: bool = True


FAIR = Weather()


@dataclass(eq=False, slots=True)
class _Connection:
    """One connection of the daemon. `weather` None = that of the proxy, as it changes."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter | None = None
    weather: Weather | None = None

    def reset(self) -> None:
        """End it at once, with RST: the peer's next read or write fails."""
        for writer in (self.near, self.far):
            if writer is not None:
                found = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()


class Proxy:
    """One proxied apiserver. Every method may be called from any thread; each takes effect before it returns."""

    def __init__(self, name: str, target_port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.port = 0
        self.accepted = 0
        """Connections taken since the start: what a storm would let grow."""
        self._target_port = target_port
        self._loop = loop
        self._weather = FAIR
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._changed = asyncio.Event()

    @property
    def server_url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    # --- what tests do -----------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Open connections are reset, new ones refused."""
        self._call(self._cut())

    def silence(self, *directions: Direction) -> None:
        """All connections stay open and new ones are taken, but no byte passes in these directions (default: both)."""
        self._call(self._become(replace(FAIR, silent=frozenset(directions or Direction))))

    def silence_present(self) -> None:
        """The connections that are open now let no byte pass any more; new ones work."""
        self._call(self._freeze(Weather(silent=frozenset(Direction))))

    def half_open(self) -> None:
        """The far end is gone and nobody tells: connections stay open towards the daemon, new ones too."""
        self._call(self._lose_far_end())

    def slow(self, delay_s: float, bytes_per_s: float | None = None) -> None:
        """Every answer comes late."""
        self._call(self._become(Weather(delay_s=delay_s, bytes_per_s=bytes_per_s)))

    def mend(self) -> None:
        """Pass everything again. What was held back passes; connections whose far end is gone are reset."""
        self._call(self._mend())

    def start(self, port: int = 0) -> None:
        self._call(self._listen(port))

    def stop(self) -> None:
        self._call(self._cut())

    def _call(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(_CALL_S)

    # --- on the proxy's own loop -------------------------------------------------------------------------------------

    async def _listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _cut(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for connection in list(self._open):
            connection.reset()

    async def _become(self, weather: Weather) -> None:
        self._weather = weather
        self._tell_change()

    async def _freeze(self, weather: Weather) -> None:
        for connection in self._open:
            connection.weather = weather

    async def _lose_far_end(self) -> None:
        self._weather = Weather(silent=frozenset(Direction), far_end=False)
        await self._freeze(self._weather)
        for connection in list(self._open):
            if connection.far is not None:
                connection.far.transport.abort()

    async def _mend(self) -> None:
        self._weather = FAIR
        for connection in list(self._open):
            if connection.weather is not None and not connection.weather.far_end:
                connection.reset()
            connection.weather = None
        self._tell_change()
        if self._server is None:
            await self._listen(self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        connection = _Connection(writer, weather=None if self._weather.far_end else self._weather)
        self._open.add(connection)
        try:
            if connection.weather is not None:
                await self._until(lambda: connection.weather is None)
            far_reader, connection.far = await asyncio.open_connection("127.0.0.1", self._target_port)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(connection, reader, connection.far, Direction.REQUESTS))
                group.create_task(self._pump(connection, far_reader, writer, Direction.ANSWERS))
        except* (OSError, _Ended):
            pass
        finally:
            self._open.discard(connection)
            if connection.far is not None:
                connection.far.transport.abort()
            writer.transport.abort()

    async def _pump(
        self, connection: _Connection, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Bytes of one direction, in order, each when it is due; ends both directions when its source ends."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_WAITING_CHUNKS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take(connection, source, waiting, direction))
            while True:
                due_s, chunk = await waiting.get()
                await asyncio.sleep(max(0.0, due_s - self._loop.time()))
                await self._until(lambda: direction not in self._weather_of(connection).silent)
                if not chunk:
                    raise _Ended
                sink.write(chunk)
                await sink.drain()
                rate = self._weather_of(connection).bytes_per_s
                if rate is not None and direction is Direction.ANSWERS:
                    await asyncio.sleep(len(chunk) / rate)

    async def _take(
        self,
        connection: _Connection,
        source: asyncio.StreamReader,
        waiting: asyncio.Queue[tuple[float, bytes]],
        direction: Direction,
    ) -> None:
        while True:
            try:
                chunk = await source.read(_CHUNK)
            except OSError:
                chunk = b""
            late_s = self._weather_of(connection).delay_s if direction is Direction.ANSWERS else 0.0
            await waiting.put((self._loop.time() + late_s, chunk))
            if not chunk:
                return

    async def _until(self, passes: Callable[[], bool]) -> None:
        while not passes():
            await self._changed.wait()

    def _tell_change(self) -> None:
        """Wake whoever waits for other weather."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _weather_of(self, connection: _Connection) -> Weather:
        return connection.weather or self._weather


class _Ended(Exception):
    """One side closed."""


@dataclass(slots=True)
class Proxies:
    """A proxy for each of some apiservers, by name, on one thread with a loop of its own."""

    by_name: dict[str, Proxy] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Proxy:
        return self.by_name[name]

    def mend(self) -> None:
        for proxy in self.by_name.values():
            proxy.mend()


@contextlib.contextmanager
def proxies(targets: Mapping[str, int]) -> Iterator[Proxies]:
    """Proxies before these ports of loopback; they and their connections end with the context."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxies", daemon=True)
    thread.start()
    found = Proxies({name: Proxy(name, port, loop) for name, port in sorted(targets.items())})
    try:
        for proxy in found.by_name.values():
            proxy.start()
        yield found
    finally:
        for proxy in found.by_name.values():
            proxy.stop()
        asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result(_CALL_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CALL_S)
        loop.close()


async def _end_tasks() -> None:
    """Whoever still waits on a connection is cancelled and waited for."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CALL_S)
