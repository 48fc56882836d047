"""Turns at long work, so that the event loop comes round between two of them.

At start all kinds of all clusters are read at once, and the answers of twenty servers are often there at the same
moment: each page is read in some milliseconds, and all of them one after another in some hundred.
"""

from __future__ import annotations

import asyncio


class Turns:
    """Shared by all who decode much. Only work waits for a turn, never the network: nobody slow is waited for."""

    def __init__(self) -> None:
        self._next = asyncio.Lock()

    async def take(self) -> None:
        """Returns when it is one's turn, first come first served. The turn lasts until the caller awaits anything."""
        async with self._next:
            await asyncio.sleep(0)
