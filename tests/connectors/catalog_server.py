"""A catalog's endpoint on loopback that does whatever a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class CatalogServer:
    """`behave` answers every request; by default it is a good endpoint that answers `sets` with an ETag."""

    url: str = ""
    sets: dict[str, object] = field(default_factory=dict)
    behave: Behaviour | None = None
    asked: list[web.Request] = field(default_factory=list)

    def body(self) -> bytes:
        return json.dumps({"data_sets": self.sets}).encode()

    def tokens(self) -> list[str | None]:
        return [request.headers.get("Authorization") for request in self.asked]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if self.behave is not None:
            return await self.behave(request)
        etag = f'"{hash(self.body())}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        return web.Response(body=self.body(), content_type="application/json", headers={"ETag": etag})


@asynccontextmanager
async def catalog_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[CatalogServer]:
    server = CatalogServer()
    app = web.Application()
    app.router.add_get("/{any:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        assert runner.addresses
        scheme = "https" if tls is not None else "http"
        server.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/data-sets"
        yield server
    finally:
        await runner.cleanup()
