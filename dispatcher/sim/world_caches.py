"""What really lies in the data caches of a world: filled as runs read, and forgotten as caches forget.

Contenders know of it only what they conclude from their own decisions; this is what they are charged for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dispatcher.core.ids import ClusterName


@dataclass(slots=True)
class _Line:
    """A data set in a cache: by whose run it comes, and when it is there."""

    size_bytes: int
    run: str
    there_at: datetime


@dataclass(slots=True)
class Caches:
    """Of every cluster: what lies there, the longest unused first."""

    _lines: dict[ClusterName, dict[str, _Line]] = field(default_factory=dict)

    def wait_s(self, cluster: ClusterName, data_set: str, now: datetime) -> int | None:
        """How long until a set is there that others bring, or have brought; None: nobody does. It was used now."""
        there = self._lines.get(cluster, {})
        line = there.pop(data_set, None)
        if line is None:
            return None
        there[data_set] = line
        return max(0, int((line.there_at - now).total_seconds()))

    def brings(
        self, cluster: ClusterName, data_set: str, size_bytes: int, run: str, there_at: datetime, room_bytes: int
    ) -> None:
        """A run brings a set that fits into the cache. When that is full, what was unused the longest goes."""
        there = self._lines.setdefault(cluster, {})
        there.pop(data_set, None)
        there[data_set] = _Line(size_bytes, run, there_at)
        while sum(line.size_bytes for line in there.values()) > room_bytes:
            del there[next(iter(there))]

    def stopped(self, cluster: ClusterName, run: str, now: datetime) -> None:
        """A run is over: what it had not brought by now is not there."""
        there = self._lines.get(cluster, {})
        for name in [name for name, line in there.items() if line.run == run and line.there_at > now]:
            del there[name]
