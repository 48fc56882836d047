"""How many nominations of one hub may wait for their cluster at a time.

MultiKueue works off nominations at the rate of its remote clients (5 requests a second, kueue-contract section 1), in
no order of priority: whatever is nominated in the evening stands before what becomes urgent at night. A bound keeps
that queue short, and the rest with us, where priority counts. It costs throughput, so the operator sets it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable


class Outstanding:
    """The priorities of all nominations that have no cluster yet, against `limits.outstanding_nominations`.

    Those of lower priority do not count for a workload: what is more urgent than they are passes the bound, so that at
    no priority more than `bound` workloads of it or above are outstanding.
    """

    __slots__ = ("_bound", "_priorities")

    def __init__(self, bound: int | None, priorities: Iterable[int] = ()) -> None:
        """`bound` None: unbounded."""
        self._bound = bound
        self._priorities = sorted(priorities) if bound is not None else []

    def has_room(self, priority: int) -> bool:
        """Whether one more nomination of this priority stays within the bound."""
        if self._bound is None:
            return True
        return len(self._priorities) - bisect_left(self._priorities, priority) < self._bound

    def add(self, priority: int) -> None:
        """One more nomination is on its way."""
        insort(self._priorities, priority)
