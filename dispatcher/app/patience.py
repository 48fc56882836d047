"""How long a client of the API may take: whoever opens a connection and says nothing, or asks and does not read, holds
a file of this process for as long; a thousand of them would keep it from its own clusters."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

PATIENCE_S = 30.0
"""From an open connection to a whole request, and from there until all of the answer is read, at most twice this."""
MOST_CONNECTIONS = 512


class PatientProtocol(H11Protocol):
    """HTTP with an end: at each look something must have come of a connection since the last one, or it is closed."""

    patience_s = PATIENCE_S
    _seen: RequestResponseCycle | None = None
    _looking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._looking = self.loop.call_later(self.patience_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        if self.cycle is self._seen:  # no request yet, none since, or still the one that was there before
            self.transport.abort()
            return
        self._seen = self.cycle
        self._looking = self.loop.call_later(self.patience_s, self._look)
