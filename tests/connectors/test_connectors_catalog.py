"""The catalog's endpoint over real sockets: what a good one gives, and everything that a bad one may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from connectors.catalog import MAX_BYTES, Deadlines, HttpCatalog
from connectors.kubernetes.credentials import token_of
from connectors.kubernetes.faults import NotFound
from connectors.kubernetes.kubeconfig import BadKubeconfig
from dispatcher.core.errors import EntrepotError, Refused, Transient
from dispatcher.core.policy import CatalogSource, Credentials
from tests.connectors.catalog_server import Behaviour, CatalogServer, catalog_server
from tests.connectors.support import EagerClock, authority, server_context

SHORT = Deadlines(connect_s=1.0, silence_s=0.05, attempt_s=0.1)
TOKEN = "very-secret"


@pytest.fixture
async def server() -> AsyncIterator[CatalogServer]:
    async with catalog_server() as found:
        yield found


def client(url: str, *, deadlines: Deadlines = Deadlines(), ca_file: str | None = None) -> HttpCatalog:
    async def token() -> str:
        return TOKEN

    return HttpCatalog(CatalogSource(url, 60, 3600, ca_file=ca_file), EagerClock(), token, deadlines)


async def test_an_answer_comes_with_its_etag_and_is_not_sent_again_while_it_holds(server: CatalogServer) -> None:
    endpoint = client(server.url)
    found = await endpoint.fetch(None)
    assert found is not None
    assert found.body == server.body()
    assert found.etag
    assert await endpoint.fetch(found.etag) is None
    server.sets["more"] = {}
    again = await endpoint.fetch(found.etag)
    assert again is not None
    assert again.body == server.body()
    assert server.tokens() == [f"Bearer {TOKEN}"] * 3


@pytest.mark.parametrize(
    "etag",
    [
        pytest.param(b'"\xe9"', id="letters that no header may carry"),
        pytest.param(b'"' + b"x" * 4000 + b'"', id="one that nobody would send back"),
    ],
)
async def test_an_etag_that_cannot_be_sent_back_is_none(etag: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nETag: "
        writer.write(head + etag + b"\r\n\r\n{}")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        endpoint = client(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/")
        found = await endpoint.fetch(None)
        assert found is not None
        assert found.etag is None
        assert await endpoint.fetch(found.etag) == found


# --- what a bad one may do ---------------------------------------------------------------------------------------


async def html(request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>log in</html>", content_type="text/html")


async def flood(request: web.Request) -> web.StreamResponse:
    """Ten megabytes whose length nobody declared."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for _ in range(160):
        await response.write(b" " * 2**16)
    return response


async def declared_flood(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b" " * (MAX_BYTES + 1), content_type="application/json")


async def round_and_round(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound(request.path)


async def to_nowhere(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302)


async def out_of_the_web(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "file:///etc/passwd"})


async def silence(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def drip(request: web.Request) -> web.StreamResponse:
    """Never silent for long, and never done."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.01)


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def zipped(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"x", headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})


async def unasked_304(request: web.Request) -> web.StreamResponse:
    return web.Response(status=304)


def status(code: int, **headers: str) -> Behaviour:
    async def behave(request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, headers=headers)

    return behave


FAULTS = [
    pytest.param(html, Refused, "answers text/html", 1, id="a log-in page instead of JSON is refused"),
    pytest.param(flood, Refused, "more than 8388608 bytes", 1, id="ten megabytes are not read to their end"),
    pytest.param(declared_flood, Refused, "more than 8388608 bytes", 1, id="a declared flood is not read at all"),
    pytest.param(round_and_round, Refused, "more than 3 redirects", 4, id="redirects end"),
    pytest.param(to_nowhere, Refused, "to nowhere", 1, id="a redirect without a target"),
    pytest.param(out_of_the_web, Refused, "away from https", 1, id="a redirect to a file"),
    pytest.param(status(302, Location="javascript:alert(1)"), Refused, "no URL", 1, id="a redirect to what is no URL"),
    pytest.param(silence, Transient, "no answer", 3, id="silence has a deadline, and is tried again"),
    pytest.param(drip, Transient, "no answer within", 3, id="an answer that never ends has a deadline"),
    pytest.param(hang_up, Transient, "cannot be reached", 3, id="a connection that breaks is tried again"),
    pytest.param(zipped, Refused, "compressed", 1, id="no answer is unpacked that was not to be packed"),
    pytest.param(unasked_304, Refused, "answers 304", 1, id="not modified, where nothing was known"),
    pytest.param(status(500), Transient, "answers 500", 3, id="a server error is tried again"),
    pytest.param(status(429, **{"Retry-After": "7"}), Transient, "answers 429", 3, id="too many requests"),
    pytest.param(status(401), Refused, "token", 1, id="a token that is not taken is not tried again"),
    pytest.param(status(404), Refused, "answers 404", 1, id="not found"),
    pytest.param(status(204), Refused, "answers 204", 1, id="no content is no answer"),
]


@pytest.mark.parametrize(("behave", "error", "text", "requests"), FAULTS)
async def test_a_bad_answer_is_an_error_of_its_kind_and_never_tells_the_token(
    server: CatalogServer, behave: object, error: type[EntrepotError], text: str, requests: int
) -> None:
    server.behave = behave  # type: ignore[assignment]
    short = behave in (silence, drip)
    endpoint = client(server.url, deadlines=SHORT if short else Deadlines())
    with pytest.raises(error, match=text) as caught:
        await endpoint.fetch(None)
    if short:  # a deadline so short may end a request before the server has it: tries are counted here
        assert endpoint.clock.pauses == requests - 1
    else:
        assert len(server.asked) == requests
    assert TOKEN not in repr(caught.getrepr())


async def test_the_pause_between_tries_is_what_the_endpoint_asks_for(server: CatalogServer) -> None:
    server.behave = status(503, **{"Retry-After": "7"})
    endpoint = client(server.url)
    with pytest.raises(Transient):
        await endpoint.fetch(None)
    assert endpoint.clock.monotonic_s() == 14.0


async def test_nobody_listens(server: CatalogServer) -> None:
    async with catalog_server() as gone:
        url = gone.url
    with pytest.raises(Transient, match="cannot be reached"):
        await client(url).fetch(None)


async def test_the_token_does_not_follow_a_redirect_to_another_host(server: CatalogServer) -> None:
    async with catalog_server() as other:

        async def behave(request: web.Request) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(other.url)

        server.behave = behave
        found = await client(server.url).fetch(None)
        assert found is not None
        assert server.tokens() == [f"Bearer {TOKEN}"]
        assert other.tokens() == [None]


async def test_the_token_follows_a_redirect_on_its_own_host(server: CatalogServer) -> None:
    async def behave(request: web.Request) -> web.StreamResponse:
        if request.path == "/data-sets":
            raise web.HTTPTemporaryRedirect("/v2/data-sets")
        return web.Response(body=b"{}", content_type="application/json")

    server.behave = behave
    assert await client(server.url).fetch(None) is not None
    assert server.tokens() == [f"Bearer {TOKEN}"] * 2


# --- TLS ---------------------------------------------------------------------------------------------------------


async def test_tls_is_trusted_by_the_ca_that_the_blueprint_names_and_by_no_other(tmp_path: Path) -> None:
    ours = authority()
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text(ours.ca_pem)
    async with catalog_server(server_context(ours)) as server:
        assert await client(server.url, ca_file=str(ca_file)).fetch(None) is not None
        with pytest.raises(Transient, match="certificate is not trusted"):
            await client(server.url).fetch(None)


async def test_a_ca_file_that_is_none_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")
    with pytest.raises(Refused, match="ca_file"):
        await client("https://127.0.0.1:1/x", ca_file=str(bad)).fetch(None)


async def test_a_redirect_from_tls_to_none_is_refused(tmp_path: Path) -> None:
    ours = authority()
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text(ours.ca_pem)
    async with catalog_server(server_context(ours)) as safe, catalog_server() as plain:

        async def behave(request: web.Request) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(plain.url)

        safe.behave = behave
        with pytest.raises(Refused, match="away from https"):
            await client(safe.url, ca_file=str(ca_file)).fetch(None)
        assert plain.asked == []


# --- the token ---------------------------------------------------------------------------------------------------


async def no_secret(namespace: str, name: str) -> dict[str, object]:
    raise NotFound("gone")


async def a_secret(namespace: str, name: str) -> dict[str, object]:
    return {"data": {"token": "dmVyeS1zZWNyZXQK"}}


async def test_a_token_is_read_from_a_file_or_a_secret_each_time_anew(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    where = Credentials(file=str(path))
    assert await token_of(where, no_secret) == "one"
    path.write_text("two\n")
    assert await token_of(where, no_secret) == "two"
    assert await token_of(Credentials("ns", "name", "token"), a_secret) == TOKEN


@pytest.mark.parametrize(
    ("content", "error"),
    [
        pytest.param("", Transient, id="an empty file is one that is being written"),
        pytest.param("two words", BadKubeconfig, id="blanks inside"),
        pytest.param("line\nbreak", BadKubeconfig, id="a header of one's own behind the token"),
    ],
)
async def test_what_is_no_token_is_never_sent(tmp_path: Path, content: str, error: type[EntrepotError]) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(error) as caught:
        await token_of(Credentials(file=str(path)), no_secret)
    assert not content or content not in str(caught.value)


async def test_a_secret_that_is_not_there_is_named() -> None:
    with pytest.raises(BadKubeconfig, match="Secret ns/name does not exist"):
        await token_of(Credentials("ns", "name", "token"), no_secret)
