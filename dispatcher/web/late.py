"""The API of a daemon that is just starting: probes are answered at once, everything else as soon as it is there.

What answers people is most of what a start would import, and nobody asks yet, while jobs wait. So it is made aside, in
a thread, when the daemon is warm or when somebody asks, whichever comes first. Who asks waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from dispatcher.state import FleetState
from dispatcher.web import vitals
from dispatcher.web.vitals import Answer, HealthSource

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
"""An ASGI application."""


class LateApi:
    """An ASGI application that `make` turns into the whole API; until then it knows the probes alone."""

    def __init__(self, state: FleetState, health: HealthSource, make: Callable[[], App]) -> None:
        self._probes: dict[str, Callable[[], Answer]] = {
            "/healthz": lambda: vitals.healthz(health, state.footing, state.blueprint.errors),
            "/readyz": lambda: vitals.readyz(health),
            "/metrics": lambda: vitals.metrics(health),
        }
        self._make = make
        self._made: App | None = None
        self._making = asyncio.Lock()

    async def whole(self) -> App:
        """The API, made by the first who needs it."""
        async with self._making:
            if self._made is None:
                self._made = await asyncio.to_thread(self._make)
            return self._made

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        probe = self._probes.get(scope["path"]) if self._made is None and scope.get("method") == "GET" else None
        if probe is None:
            await (await self.whole())(scope, receive, send)
            return
        answer = probe()
        headers = [(b"content-length", b"%d" % len(answer.body)), (b"content-type", answer.media_type.encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
