"""Dated sets: of countries (EU, EEA, adequate, export groups) or of GPU products (those that export law names).

Membership is dated because law is: a country joins, an adequacy decision ends, a framework is struck down. A set can be
inside another; a ring of sets is an error of the bundle (`soundness.py`), and here simply ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum

from residency.vocabulary import NOWHERE, At


class Of(StrEnum):
    """What a set is of. A clause on a country takes a set of countries, one on GPU products a set of products."""

    COUNTRIES = "countries"
    PRODUCTS = "products"


@dataclass(frozen=True, slots=True)
class Member:
    """A name in a set, or another set (exactly one of the two), within half-open [since, until), UTC."""

    name: str = ""
    set: str = ""
    since: datetime | None = None
    until: datetime | None = None
    source: str = ""
    at: At = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Set:
    """A named set with its source. `until` revokes all of it at once; `verify_by` is the day to look the source up."""

    id: str
    of: Of
    members: tuple[Member, ...]
    source: str
    verify_by: date | None = None
    until: datetime | None = None
    at: At = field(default=NOWHERE, compare=False)


Span = tuple[datetime | None, datetime | None]
"""Half-open [since, until); None has no end on that side."""


@dataclass(frozen=True, slots=True)
class Membership:
    """A set with everything inside it written out: for each name the spans in which it belongs."""

    spans: Mapping[str, tuple[Span, ...]]

    def holds(self, name: str, now: datetime) -> bool:
        return any(_within(span, now) for span in self.spans.get(name, ()))

    def next_change(self, name: str, now: datetime) -> datetime | None:
        """The next instant at which this name may join or leave; None when it never does."""
        ends = [end for span in self.spans.get(name, ()) for end in span if end is not None and end > now]
        return min(ends, default=None)

    def names(self, now: datetime) -> tuple[str, ...]:
        """Who belongs now, in order."""
        return tuple(sorted(name for name in self.spans if self.holds(name, now)))


NOBODY = Membership({})


def membership(sets: Mapping[str, Set], name: str) -> Membership:
    """Write a set out. Sets that are not there and rings add nothing: an unsound bundle never widens."""
    found: dict[str, set[Span]] = {}
    _collect(sets, name, (None, None), (), found)
    return Membership({key: tuple(sorted(found[key], key=_order)) for key in sorted(found)})


def _collect(
    sets: Mapping[str, Set], name: str, within: Span, path: tuple[str, ...], found: dict[str, set[Span]]
) -> None:
    known = sets.get(name)
    if known is None or name in path:
        return
    outer = _meet(within, (None, known.until))
    for member in known.members:
        span = _meet(outer, (member.since, member.until)) if outer is not None else None
        if span is None:
            continue
        if member.set:
            _collect(sets, member.set, span, (*path, name), found)
        else:
            found.setdefault(member.name, set()).add(span)


def _meet(a: Span, b: Span) -> Span | None:
    since = max((s for s in (a[0], b[0]) if s is not None), default=None)
    until = min((u for u in (a[1], b[1]) if u is not None), default=None)
    return None if since is not None and until is not None and since >= until else (since, until)


def _within(span: Span, now: datetime) -> bool:
    since, until = span
    return (since is None or since <= now) and (until is None or now < until)


def _order(span: Span) -> tuple[bool, float, bool, float]:
    since, until = span
    return (
        since is not None,
        since.timestamp() if since is not None else 0.0,
        until is None,
        until.timestamp() if until is not None else 0.0,
    )


def rings(sets: Mapping[str, Set]) -> tuple[tuple[str, ...], ...]:
    """Every ring of sets, each once, starting at its first name in order."""
    found: set[tuple[str, ...]] = set()
    for start in sorted(sets):
        _walk(sets, start, (start,), found)
    return tuple(sorted(found))


def _walk(sets: Mapping[str, Set], name: str, path: tuple[str, ...], found: set[tuple[str, ...]]) -> None:
    inner = sorted({member.set for member in sets[name].members if member.set in sets})
    for step in inner:
        if step == path[0]:
            found.add(_from_least(path))
        elif step not in path and step > path[0]:
            _walk(sets, step, (*path, step), found)


def _from_least(ring: tuple[str, ...]) -> tuple[str, ...]:
    least = ring.index(min(ring))
    return ring[least:] + ring[:least]
