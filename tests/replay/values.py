"""Any value of the vocabulary, found by its annotations: a new field is covered from its first day."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from tests.property.test_store_roundtrip import INSTANTS, LEAVES, TEXTS

DATES = st.dates(date(1990, 1, 1), date(2200, 1, 1))


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """As in the law of the store's records, with mappings, dates and `None` where that is allowed."""
    if isinstance(kind, NewType):
        return values_of(kind.__supertype__)
    if kind is datetime:
        return INSTANTS
    if kind is date:
        return DATES
    if kind is str:
        return TEXTS
    if kind in LEAVES:
        return LEAVES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Mapping:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=2)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    if origin is tuple and arguments[-1] is ...:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values_of(argument) for argument in arguments))
    if not dataclasses.is_dataclass(kind):
        return st.sampled_from(kind)
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(kind)})  # type: ignore[arg-type]
