"""Typed reads from JSON that an apiserver sent. The CRDs promise the shapes; nothing here relies on the promise.

A reader answers with an empty value when a field is absent or of another type, so that a decoder cannot be stopped by
one odd object. What must not be guessed (quantities, times that rank workloads) is checked by its decoder instead.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from dispatcher.core.resources import QuantityError, Resources

Raw = Mapping[str, Any]
"""One JSON object as decoded by `json.loads`. It never leaves this package."""

KEY_PREFIX = "entrepot.dev/"
SHARED = 1024
"""How many recent values are remembered to be shared. What repeats over thousands of objects is always recent; what is
one object's own passes through."""


def child(raw: Raw, *path: str) -> Raw:
    """The object below `path`; empty when it is absent or not an object."""
    found = raw
    for step in path:
        value = found.get(step)
        if not isinstance(value, dict):
            return {}
        found = value
    return found


def children(raw: Raw, key: str) -> Sequence[Raw]:
    """The objects in a list; entries that are no objects are left out."""
    value = raw.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else ()


def text(raw: Raw, key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""


def shared(raw: Raw, key: str) -> str:
    """As `text`, interned: for values that repeat over thousands of objects (queue names, label keys)."""
    return sys.intern(text(raw, key))


def integer(raw: Raw, key: str, otherwise: int = 0) -> int:
    value = raw.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def texts(raw: Raw, key: str) -> tuple[str, ...]:
    value = raw.get(key)
    return tuple(sys.intern(v) for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def instant(value: object) -> datetime | None:
    """An RFC 3339 time as the API writes it ("2026-08-01T10:00:00Z", fractions allowed); None when it is not one."""
    return _instant(value) if isinstance(value, str) else None


@lru_cache(maxsize=SHARED)
def _instant(value: str) -> datetime | None:
    """What happens to an object happens within one second, mostly: its conditions have the same instant."""
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def pairs(raw: Raw) -> tuple[tuple[str, str], ...]:
    """A string map (labels) as sorted pairs. Equal pairs are one object: all nodes carry the same forty labels."""
    return tuple(sorted(_pair(k, v) for k, v in raw.items() if isinstance(k, str) and isinstance(v, str)))


@lru_cache(maxsize=SHARED)
def _pair(key: str, value: str) -> tuple[str, str]:
    return sys.intern(key), sys.intern(value)


def own_keys(*metadata: Raw) -> tuple[tuple[str, str], ...]:
    """Labels and annotations below `entrepot.dev/` of several objects; contradictions stay visible as two pairs."""
    found = {
        (sys.intern(key), value)
        for meta in metadata
        for part in ("labels", "annotations")
        for key, value in child(meta, part).items()
        if key.startswith(KEY_PREFIX) and isinstance(value, str)
    }
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Condition:
    """An entry of `status.conditions`."""

    status: str
    reason: str
    message: str
    changed_at: datetime | None

    @property
    def holds(self) -> bool:
        return self.status == "True"

    @property
    def since(self) -> datetime | None:
        """When it became True; None while it is not."""
        return self.changed_at if self.holds else None


ABSENT = Condition("", "", "", None)


def condition(raw: Raw, kind: str) -> Condition:
    """The condition of that type; one that does not hold when it is absent."""
    return conditions(raw).get(kind, ABSENT)


def conditions(raw: Raw) -> dict[str, Condition]:
    """All conditions by their type, for who asks for several; of two of a type the first counts."""
    found: dict[str, Condition] = {}
    for entry in children(child(raw, "status"), "conditions"):
        found.setdefault(
            text(entry, "type"),
            Condition(
                text(entry, "status"),
                text(entry, "reason"),
                text(entry, "message"),
                instant(entry.get("lastTransitionTime")),
            ),
        )
    return found


def resources(raw: Raw) -> Resources:
    """A resource map. Equal maps give the same object: thousands of pods ask for the same things.

    Raises:
        QuantityError: a quantity that the API's format does not know; names the resource.
    """
    return _resources(tuple(sorted((key, str(value)) for key, value in raw.items())))


@lru_cache(maxsize=8192)
def _resources(quantities: tuple[tuple[str, str], ...]) -> Resources:
    return Resources.parse({sys.intern(key): value for key, value in quantities})


def readable_resources(raw: Raw) -> Resources:
    """As `resources`, but an entry that cannot be read is left out: for what a node offers, less is the safe side."""
    try:
        return resources(raw)
    except QuantityError:
        kept: dict[str, Any] = {}
        for key, value in raw.items():
            try:
                resources({key: value})
            except QuantityError:
                continue
            kept[key] = value
        return resources(kept)
