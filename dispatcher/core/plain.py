"""The vocabulary as plain data (dicts, lists, strings, numbers) and back: the form of stored inputs and of files.

Derived from the annotations of the dataclasses, so that a new field is carried from its first day. Mappings become
lists of [key, value] pairs: their keys may be tuples, and their order is part of the value (docs/adr/0012-replay.md).
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from functools import lru_cache
from typing import Any, Generic, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]


class PlainError(ValueError):
    """Data is not a value of the vocabulary; the message starts with the place: `snapshot.clusters.0.link: ...`."""

    def __init__(self, rule: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"{'.'.join(str(step) for step in path)}: {rule}" if path else rule)
        self.rule = rule
        self.path = path


@dataclass(frozen=True, slots=True)
class PlainCodec(Generic[T]):
    """Turns values of one type into plain data and back; the value that comes back is equal down to its repr."""

    encode: Callable[[T], Any]
    decode: Callable[[Any], T]


def plain_codec(kind: type[T]) -> PlainCodec[T]:
    """The codec of a type: a dataclass of the vocabulary, or anything that its fields may be.

    `decode` raises PlainError: a field that is unknown or missing without a default, a value of another type.
    `encode` raises PlainError on a datetime without a zone, since it names no instant.
    """
    hashable: Any = kind
    encode, decode = _pair(hashable)
    return PlainCodec(encode or _same, decode)


def _same(value: Any) -> Any:
    return value


@lru_cache(maxsize=512)
def _pair(kind: Any) -> tuple[Encode | None, Decode]:
    """Encoder and decoder of a type; an encoder of None means that the value is plain as it is."""
    if isinstance(kind, NewType):
        return _pair(kind.__supertype__)
    if kind in _LEAVES:
        return _LEAVES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _optional(kind, arguments)
    if origin is tuple:
        return _sequence(arguments[0]) if arguments[-1] is ... else _fixed(arguments)
    if origin is Mapping:
        return _mapping(*arguments)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    raise TypeError(f"{kind!r} has no plain form")


# --- leaves ------------------------------------------------------------------------------------------------------


def _exactly(kind: type, name: str) -> Decode:
    def decode(plain: Any) -> Any:
        if type(plain) is not kind:
            raise PlainError(f"{name} expected, not {_shown(plain)}")
        return plain

    return decode


def _from_instant(value: datetime) -> str:
    if value.tzinfo is None:
        raise PlainError(f"{value.isoformat()} has no time zone and names no instant: use UTC")
    return value.astimezone(UTC).isoformat()


def _to_instant(plain: Any) -> datetime:
    try:
        value = datetime.fromisoformat(plain)
    except (TypeError, ValueError):
        raise PlainError(f"a time such as 2026-03-01T12:00:00+00:00 expected, not {_shown(plain)}") from None
    if value.tzinfo is None:
        raise PlainError(f"{plain!r} has no time zone")
    return value.astimezone(UTC)


def _to_date(plain: Any) -> date:
    try:
        return date.fromisoformat(plain)
    except (TypeError, ValueError):
        raise PlainError(f"a date such as 2026-03-01 expected, not {_shown(plain)}") from None


_LEAVES: dict[Any, tuple[Encode | None, Decode]] = {
    str: (None, _exactly(str, "a text")),
    int: (None, _exactly(int, "a whole number")),
    bool: (None, _exactly(bool, "true or false")),
    datetime: (_from_instant, _to_instant),
    date: (date.isoformat, _to_date),
}


def _enum(kind: type[Enum]) -> tuple[Encode, Decode]:
    members = {member.value: member for member in kind}

    def decode(plain: Any) -> Enum:
        found = members.get(plain) if isinstance(plain, str | int) else None
        if found is None:
            raise PlainError(f"{_shown(plain)} is no {kind.__name__}")
        return found

    return lambda value: value.value, decode


# --- compounds ---------------------------------------------------------------------------------------------------


def _optional(kind: Any, arguments: tuple[Any, ...]) -> tuple[Encode | None, Decode]:
    inner = [argument for argument in arguments if argument is not type(None)]
    if len(inner) != 1 or len(arguments) != 2:
        raise TypeError(f"{kind!r} has no plain form: only `X | None` has")
    encode, decode = _pair(inner[0])

    def encode_some(value: Any) -> Any:
        return None if value is None or encode is None else encode(value)

    return (encode_some if encode is not None else None), lambda plain: None if plain is None else decode(plain)


def _sequence(kind: Any) -> tuple[Encode | None, Decode]:
    encode, decode = _pair(kind)

    def decode_all(plain: Any) -> tuple[Any, ...]:
        return tuple(_at(index, decode, entry) for index, entry in enumerate(_list(plain)))

    return (lambda value: [encode(entry) for entry in value]) if encode is not None else None, decode_all


def _fixed(kinds: tuple[Any, ...]) -> tuple[Encode | None, Decode]:
    pairs = [_pair(kind) for kind in kinds]

    def encode_all(value: Any) -> list[Any]:
        return [entry if encode is None else encode(entry) for entry, (encode, _) in zip(value, pairs, strict=True)]

    def decode_all(plain: Any) -> tuple[Any, ...]:
        entries = _list(plain)
        if len(entries) != len(pairs):
            raise PlainError(f"{len(pairs)} entries expected, not {len(entries)}")
        return tuple(
            _at(index, decode, entry) for index, (entry, (_, decode)) in enumerate(zip(entries, pairs, strict=True))
        )

    return (encode_all if any(encode is not None for encode, _ in pairs) else None), decode_all


def _mapping(key: Any, value: Any) -> tuple[Encode, Decode]:
    encode_pair, decode_pairs = _pair(tuple[key, value])[0], _pair(tuple[tuple[key, value], ...])[1]

    def encode(values: Mapping[Any, Any]) -> list[Any]:
        return [item if encode_pair is None else encode_pair(item) for item in values.items()]

    def decode(plain: Any) -> dict[Any, Any]:
        pairs = decode_pairs(plain)
        found = dict(pairs)
        if len(found) != len(pairs):
            raise PlainError("a key stands there twice")
        return found

    return encode, decode


def _dataclass(kind: type) -> tuple[Encode, Decode]:
    hints = get_type_hints(kind)
    parts = {field.name: _pair(hints[field.name]) for field in dataclasses.fields(kind)}
    needed = [f.name for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING]
    encoders = [(name, encode) for name, (encode, _) in parts.items()]

    def encode(value: Any) -> dict[str, Any]:
        return {
            name: getattr(value, name) if encode is None else encode(getattr(value, name)) for name, encode in encoders
        }

    def decode(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise PlainError(f"{kind.__name__} expected, not {_shown(plain)}")
        for name in plain:
            if name not in parts:
                raise PlainError(f"{kind.__name__} has no field {name!r}")
        for name in needed:
            if name not in plain:
                raise PlainError(f"{kind.__name__} needs field {name!r}")
        return kind(**{name: _at(name, parts[name][1], entry) for name, entry in plain.items()})

    return encode, decode


def _at(place: str | int, decode: Decode, plain: Any) -> Any:
    try:
        return decode(plain)
    except PlainError as error:
        raise PlainError(error.rule, (place, *error.path)) from None


def _list(plain: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(plain, list | tuple):
        raise PlainError(f"a list expected, not {_shown(plain)}")
    return plain


def _shown(plain: Any) -> str:
    text = repr(plain)
    return text if len(text) <= 60 else f"{text[:57]}..."
