"""The HTTP server of the read-only API, as one cancellable coroutine inside the daemon's TaskGroup."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from dispatcher.core.errors import Fatal

STOP_S = 3.0


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
    if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
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
    """Serves `app` on `listen` until cancelled. `address` is where it really listens (port 0 = any free one)."""

    def __init__(self, app: FastAPI, listen: str) -> None:
        self._app = app
        self._listen = listen
        self._socket: socket.socket | None = bind(listen)
        host, port = self._socket.getsockname()[:2]
        self.address = f"{host}:{port}"

    async def run(self) -> None:
        listening = self._socket or bind(self.address)
        self._socket = None
        config = uvicorn.Config(self._app, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=5)
        server = _Quiet(config)
        try:
            await server.serve(sockets=[listening])
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await server.shutdown(sockets=[listening])
            listening.close()
