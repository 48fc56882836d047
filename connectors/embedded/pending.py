"""What waits in one ClusterQueue, grouped so that a full queue costs nothing.

Workloads of one shape (equal pod sets, equal priority) fit or do not fit together, so when the oldest of a shape was
turned away the rest need not be tried until something changes. Five thousand waiting copies of one job are one try.
"""

from __future__ import annotations

import heapq
from datetime import datetime

from connectors.embedded.objects import Shape, Workload

_Entry = tuple[datetime, int, Workload]


class PendingQueue:
    """Waiting workloads by shape; `turned_away` remembers why a shape was refused since the last change."""

    def __init__(self) -> None:
        self.count = 0
        self.turned_away: dict[Shape, str] = {}
        self._shapes: dict[Shape, list[_Entry]] = {}

    def push(self, workload: Workload) -> None:
        if workload.queued:
            return
        workload.queued = True
        self.count += 1
        entry = (workload.queue_order_at, workload.seq, workload)
        heapq.heappush(self._shapes.setdefault(workload.shape, []), entry)

    def discard(self, workload: Workload) -> None:
        """Take a workload out. Its entry stays in the heap until it surfaces."""
        if workload.queued:
            workload.queued = False
            self.count -= 1

    def head(self, strict: bool) -> Workload | None:
        """Who is next: highest priority, then oldest, among shapes not turned away; under strict FIFO among all,
        and a head that was turned away blocks those behind it."""
        best: tuple[int, datetime, int] | None = None
        found: tuple[Shape, Workload] | None = None
        for shape in list(self._shapes):
            workload = self._surface(shape)
            if workload is None or (not strict and shape in self.turned_away):
                continue
            rank = (-workload.priority, workload.queue_order_at, workload.seq)
            if best is None or rank < best:
                best, found = rank, (shape, workload)
        if found is None or found[0] in self.turned_away:
            return None
        return found[1]

    def _surface(self, shape: Shape) -> Workload | None:
        heap = self._shapes[shape]
        while heap and (not heap[0][2].queued or heap[0][0] != heap[0][2].queue_order_at):
            heapq.heappop(heap)
        if not heap:
            del self._shapes[shape]
            self.turned_away.pop(shape, None)
            return None
        return heap[0][2]


def shape_of(workload: Workload) -> Shape:
    return workload.shape
