"""Events on hub Workloads, written beside dispatch and never in its way.

The queue is bounded and one notice a (workload, reason) waits at a time: a newer one replaces it. Losing an Event is
counted, not retried for ever: the decision is in the store.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from dispatcher.core.errors import EntrepotError, Transient
from dispatcher.core.ports import Clock, HubPort, Notice
from dispatcher.logs import get_logger
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker

LOOP = "notify"
LIMIT = 2000
RESYNC_S = 10.0
TRIES = 3
LONGEST_PAUSE_S = 5.0
"""However long the hub asks for: a notice that waits holds up all that come after it."""


@dataclass(slots=True)
class NoticeLoop:
    """Takes notices from anybody in the process, writes them one by one."""

    hub: HubPort
    clock: Clock
    metrics: Metrics
    health: Health
    waker: Waker
    _waiting: OrderedDict[tuple[str, str], Notice] = field(default_factory=OrderedDict)

    def put(self, notice: Notice) -> None:
        """Queue a notice; never blocks. When full the oldest is dropped and counted."""
        key = (notice.uid, notice.reason)
        self._waiting.pop(key, None)
        self._waiting[key] = notice
        if len(self._waiting) > LIMIT:
            self._waiting.popitem(last=False)
            self.metrics.events_lost.labels("queue-full").inc()
        self.waker.wake()

    def pending(self) -> int:
        return len(self._waiting)

    async def run(self) -> None:
        while True:
            self.health.beat(LOOP)
            await self.drain()
            await self.waker.wait(RESYNC_S)

    async def drain(self) -> None:
        """Write what waits; a notice that cannot be written after a few tries is counted as lost."""
        while self._waiting:
            _, notice = self._waiting.popitem(last=False)
            await self._write(notice)
            self.health.beat(LOOP)

    async def _write(self, notice: Notice) -> None:
        for attempt in range(TRIES):
            self.health.beat(LOOP)
            try:
                await self.hub.notify(notice)
            except Transient as error:
                await self.clock.sleep(min(error.retry_after_s or 0.5 * 2**attempt, LONGEST_PAUSE_S))
                continue
            except EntrepotError as error:
                get_logger().warning("event_refused", workload=f"{notice.namespace}/{notice.name}", error=str(error))
                self.metrics.events_lost.labels("refused").inc()
                return
            return
        self.metrics.events_lost.labels("unreachable").inc()
