"""Clients that take for ever: their connections end, and nobody else waits for them."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.app import patience
from dispatcher.app.patience import PatientProtocol
from dispatcher.app.server import bind
from dispatcher.core.errors import Fatal
from tests.unit.api_world import served

SHORT_S = 0.1


class Hasty(PatientProtocol):
    patience_s = SHORT_S


async def app(scope: object, receive: object, send) -> None:  # type: ignore[no-untyped-def]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 30_000_000 if scope["path"] == "/much" else b"ok"})  # type: ignore[index]


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def heard(port: int, said: bytes, pause_s: float = 0.0) -> int:
    """How many bytes come until the server ends the connection; not read before a pause."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(said)
    received = 0
    try:
        async with asyncio.timeout(10):
            await asyncio.sleep(pause_s)
            while more := await reader.read(1024):
                received += len(more)
    except ConnectionResetError:
        pass
    finally:
        writer.transport.abort()
    return received


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nX-More: ", id="half a request"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTT", id="one request and half of another"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nx", id="a body without an end"),
    ],
)
async def test_a_connection_of_which_nothing_comes_is_closed(said: bytes) -> None:
    with served(app, Hasty) as url:
        await heard(port_of(url), said)


async def test_an_answer_that_nobody_reads_is_given_up() -> None:
    with served(app, Hasty) as url:
        assert await heard(port_of(url), b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n", 10 * SHORT_S) < 30_000_000


async def test_connections_beyond_the_bound_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MOST_CONNECTIONS", 0)
    with served(app, Hasty) as url:
        port = port_of(url)
        assert await heard(port, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") == 0
        monkeypatch.setattr(patience, "MOST_CONNECTIONS", 1)
        assert await heard(port, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") > 0


@pytest.mark.parametrize("listen", ["127.0.0.1:²", "127.0.0.1:" + "9" * 5000, "127.0.0.1:65536", "8383"])
def test_a_port_that_is_none_is_told(listen: str) -> None:
    with pytest.raises(Fatal, match="is not HOST:PORT"):
        bind(listen)
