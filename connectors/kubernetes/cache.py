"""What an informer has seen, which never goes backwards (FR-WAT-07).

An object is taken only when it is newer for its key than what is held; a deleted one leaves its version behind, so
that a late reply of another connection cannot bring it back. Versions are compared as the decimal numbers that etcd
makes of them; one that is no number is taken as it comes, in the order of its stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped objects."""


def version_number(resource_version: str) -> int | None:
    return int(resource_version) if resource_version.isascii() and resource_version.isdigit() else None


@dataclass(slots=True)
class _Entry(Generic[T]):
    version: int | None
    value: T | None
    """None: the object exists, and nothing of it is worth keeping."""


class Cache(Generic[T]):
    """Projected objects of one kind. `revision` grows with every change that a reader could see."""

    def __init__(self) -> None:
        self.revision = 0
        self.newest = 0
        """The highest version ever held."""
        self._entries: dict[Key, _Entry[T]] = {}
        self._tombstones: dict[Key, int | None] = {}
        self._listeners: list[Callable[[T | None, T | None], None]] = []

    def listen(self, listener: Callable[[T | None, T | None], None]) -> None:
        """Tell every visible change of one object from now on: what it was and what it is, None = not there."""
        self._listeners.append(listener)

    def __len__(self) -> int:
        return sum(1 for _ in self.values())

    def get(self, key: Key) -> T | None:
        entry = self._entries.get(key)
        return entry.value if entry is not None else None

    def values(self) -> Iterator[T]:
        return (entry.value for entry in self._entries.values() if entry.value is not None)

    def items(self) -> list[tuple[Key, T]]:
        """Sorted by key, so that whatever is built from them is deterministic."""
        return [(key, value) for key in sorted(self._entries) if (value := self._entries[key].value) is not None]

    def put(self, key: Key, version: int | None, value: T | None) -> bool:
        """Take one object if it is newer. Says whether a reader sees a difference."""
        held = self._entries.get(key)
        last = held.version if held is not None else self._tombstones.get(key)
        if not _newer(version, last):
            return False
        self._tombstones.pop(key, None)
        self._entries[key] = _Entry(version, value)
        self.newest = max(self.newest, version or 0)
        return self._changed(held.value if held is not None else None, value)

    def remove(self, key: Key, version: int | None) -> bool:
        """The object was deleted at `version`. An older deletion than what is held is of a predecessor."""
        held = self._entries.get(key)
        last = held.version if held is not None else self._tombstones.get(key)
        if version is not None and last is not None and version < last:
            return False
        self._entries.pop(key, None)
        self._tombstones[key] = version
        self.newest = max(self.newest, version or 0)
        return self._changed(held.value if held is not None else None, None)

    def replace(self, listed: Mapping[Key, tuple[int | None, T | None]], list_version: int | None) -> bool:
        """Take a complete list: what is not in it was deleted, unless it is newer than the list itself."""
        before = self.revision
        for key, (version, value) in listed.items():
            self.put(key, version, value)
        for key in [key for key in self._entries if key not in listed]:
            held = self._entries[key].version
            if held is None or list_version is None or held <= list_version:
                self.remove(key, list_version)
        # The list is the newest word on everything up to its version: older marks have done their work.
        self._tombstones = {
            key: mark for key, mark in self._tombstones.items() if mark and list_version and mark > list_version
        }
        return self.revision != before

    def restart(self, listed: Mapping[Key, tuple[int | None, T | None]]) -> bool:
        """Take a list as it is: it comes from another server, or from one whose store was put back in time."""
        before, revision = self._entries, self.revision
        self._entries = {key: _Entry(version, value) for key, (version, value) in listed.items()}
        self._tombstones = {}
        self.newest = max((version or 0 for version, _ in listed.values()), default=0)
        for key, entry in self._entries.items():
            held = before.get(key)
            self._changed(held.value if held is not None else None, entry.value)
        for key, held in before.items():
            if key not in self._entries:
                self._changed(held.value, None)
        return self.revision != revision

    def _changed(self, old: T | None, new: T | None) -> bool:
        if old == new:
            return False
        self.revision += 1
        for listener in self._listeners:
            listener(old, new)
        return True


def _newer(version: int | None, last: int | None) -> bool:
    return version is None or last is None or version > last


class Part(Generic[T]):
    """A view or a part of one, built again only when something that it depends on has changed: mostly revisions."""

    def __init__(self, build: Callable[[], T], *revisions: Callable[[], object]) -> None:
        self._build = build
        self._revisions = revisions
        self._built_at: tuple[object, ...] = ()
        self._value: T | None = None

    def get(self) -> T:
        revisions = tuple(revision() for revision in self._revisions)
        if self._value is None or revisions != self._built_at:
            self._value, self._built_at = self._build(), revisions
        return self._value
