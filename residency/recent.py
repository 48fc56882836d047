"""What was asked lately: a bounded memory that forgets by generations.

A memory that forgets everything when it is full forgets what is asked right now as well, and a round of questions that
crosses the bound finds nothing known, again and again. Here what was asked since the last forgetting stays: entries are
in a young or an old generation, a hit in the old one makes it young, and when the young one is full it becomes the old
one and the former old one goes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class Recent(Generic[K, V]):
    """At most twice `most` entries. The last `most` that were put or found are there for certain."""

    most: int
    _young: dict[K, V] = field(default_factory=dict)
    _old: dict[K, V] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._young) + sum(1 for key in self._old if key not in self._young)

    def get(self, key: K) -> V | None:
        found = self._young.get(key)
        if found is None and self._old:
            found = self._old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: K, value: V) -> None:
        if len(self._young) >= self.most and key not in self._young:
            self._young, self._old = {}, self._young
        self._young[key] = value
