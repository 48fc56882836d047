"""The HTTP server of the read-only API, as one cancellable coroutine inside the daemon's TaskGroup."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterator

import uvicorn

from dispatcher.app.patience import PatientProtocol
from dispatcher.core.errors import Fatal
from dispatcher.web.late import LateApi

STOP_S = 3.0
_PORT = re.compile(r"[0-9]{1,5}")


class _Quiet(uvicorn.Server):
    """uvicorn without its own signal handlers: the daemon's are the only ones."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(listen: str) -> socket.socket:
    """Open the listening socket at once, so that a port in use stops the start and not a loop.

    Raises:
        Fatal: `listen` is not HOST:PORT, or the address cannot be bound.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not _PORT.fullmatch(port) or int(port) > 65535:
        raise Fatal(f"listen address {listen!r} is not HOST:PORT", "for example --listen 127.0.0.1:8383")
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        family = socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, int(port)))
    except OSError as error:
        found.close()
        raise Fatal(f"cannot listen on {listen}: {error.strerror}", "choose another --listen HOST:PORT") from error
    return found


class ApiServer:
    """Serves `api` on `listen` until cancelled, and has the whole of it made once `warm` returns.

    `address` is where it really listens (port 0 = any free one).
    """

    def __init__(self, api: LateApi, listen: str, warm: Callable[[], Awaitable[object]]) -> None:
        self._api = api
        self._warm = warm
        self._socket: socket.socket | None = bind(listen)
        host, port = self._socket.getsockname()[:2]
        self.address = f"{host}:{port}"

    async def run(self) -> None:
        listening = self._socket or bind(self.address)
        self._socket = None
        config = uvicorn.Config(
            self._api,
            http=PatientProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=5,
        )
        server = _Quiet(config)
        try:
            async with asyncio.TaskGroup() as group:
                making = group.create_task(self._make())
                await server.serve(sockets=[listening])
                making.cancel()
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await server.shutdown(sockets=[listening])
            listening.close()

    async def _make(self) -> None:
        """That an API cannot be made must not be found out by the first who asks: it ends the server."""
        await self._warm()
        await self._api.whole()
