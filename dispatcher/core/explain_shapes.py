"""Words for a value whose shape is wrong. The checker's own are for programmers, and change with its version.

Checkers at the edges name what is wrong by a kind and a context (pydantic's `type` and `ctx`); the words are made here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_QUOTED = re.compile(r"'([^']*)'")
_TEXTS = {
    "missing": "it is missing",
    "extra_forbidden": "it is not known",
    "json_invalid": "it is not JSON",
    "string_type": "a text is expected",
    "string_pattern_mismatch": "it is not written as it must be",
    "int_type": "a whole number is expected",
    "int_parsing": "a whole number is expected",
    "int_from_float": "a whole number is expected",
    "int_parsing_size": "it is too large a number",
    "float_type": "a number is expected",
    "float_parsing": "a number is expected",
    "finite_number": "a number is expected",
    "bool_type": "true or false is expected",
    "bool_parsing": "true or false is expected",
    "dict_type": "a mapping of keys is expected",
    "model_type": "a mapping of keys is expected",
    "model_attributes_type": "a mapping of keys is expected",
    "dataclass_type": "a mapping of keys is expected",
    "list_type": "a list is expected",
    "tuple_type": "a list is expected",
    "set_type": "a list is expected",
    "frozen_set_type": "a list is expected",
    "none_required": "nothing is expected here",
}
_STARTS = {
    "datetime": "a time is expected, such as 2026-11-30T12:00:00Z",
    "timezone": "a time with its zone is expected, such as 2026-11-30T12:00:00Z",
    "date": "a day is expected, such as 2026-11-30",
    "time": "a time of day is expected, such as 22:00",
    "bytes": "a text is expected",
    "url": "a URL is expected",
    "path": "a path is expected",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least {} is expected"),
    "greater_than": ("gt", "more than {} is expected"),
    "less_than_equal": ("le", "at most {} is expected"),
    "less_than": ("lt", "less than {} is expected"),
    "multiple_of": ("multiple_of", "a multiple of {} is expected"),
    "string_too_short": ("min_length", "at least {} letters are expected"),
    "string_too_long": ("max_length", "at most {} letters are expected"),
    "too_short": ("min_length", "at least {} entries are expected"),
    "too_long": ("max_length", "at most {} entries are expected"),
}


def shape_text(kind: str, context: Mapping[str, object]) -> str:
    """What is expected instead, without the value and its place: the caller knows both."""
    if kind in _TEXTS:
        return _TEXTS[kind]
    if kind in _BOUNDS:
        name, text = _BOUNDS[kind]
        return text.format(context.get(name, "something else"))
    if kind in ("enum", "literal_error"):
        return f"one of {', '.join(words_of(str(context.get('expected', ''))))} is expected"
    if kind in ("value_error", "assertion_error") and str(context.get("error", "")):
        return str(context["error"])  # raised by a reader, with its own words
    return next((text for start, text in _STARTS.items() if kind.startswith(start)), "something else is expected here")


def words_of(expected: str) -> tuple[str, ...]:
    """The words of "'waiting', 'held' or 'gone'"."""
    return tuple(_QUOTED.findall(expected))


def place_text(location: Sequence[str | int]) -> str:
    """A place as people write it: `items[0].turn`."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in location]
    return "".join(parts).lstrip(".")
