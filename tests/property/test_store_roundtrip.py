"""Law: a record comes back from its bytes equal to the last repr, and gives the same bytes again."""

from __future__ import annotations

import dataclasses
import sqlite3
import types
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.decision import Decision
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import Hold
from dispatcher.store.codec import decode_decision, decode_hold, encode_decision, encode_hold, wait_fingerprint
from dispatcher.store.tables import from_micros, to_micros
from tests.examples import examples

pytestmark = pytest.mark.slow

INSTANTS = st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)).map(
    lambda instant: instant.replace(fold=0)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""Any text that UTF-8 can carry: labels and messages come from others."""
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    datetime: INSTANTS,
    type(None): st.none(),
    Resources: st.dictionaries(TEXTS, st.integers(0, 2**63 - 1), max_size=3).map(Resources.of),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type of the vocabulary, found by its annotations: a new field is covered from its first day."""
    if isinstance(kind, NewType):
        return values_of(kind.__supertype__)
    if kind in LEAVES:
        return LEAVES[kind]
    arguments = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    if get_origin(kind) is tuple and arguments[-1] is ...:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if get_origin(kind) is tuple:
        return st.tuples(*(values_of(argument) for argument in arguments))
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(kind)})


DECISIONS = values_of(Decision)
HOLDS = values_of(Hold)


@examples(60)
@given(DECISIONS)
def test_a_decision_comes_back_as_it_was(decision: Decision) -> None:
    document = encode_decision(decision)
    read = decode_decision(document)
    assert read == decision
    assert repr(read) == repr(decision), "digests are taken over reprs"
    assert encode_decision(read) == document
    assert wait_fingerprint(read) == wait_fingerprint(decision)


@examples(60)
@given(HOLDS)
def test_a_hold_comes_back_as_it_was(hold: Hold) -> None:
    document = encode_hold(hold)
    assert decode_hold(document) == hold
    assert encode_hold(decode_hold(document)) == document


@given(DECISIONS, st.integers(-14, 14))
@examples(20)
def test_the_same_instant_in_another_zone_gives_the_same_bytes(decision: Decision, hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    moved = Decision(
        **{
            name: value.astimezone(zone) if isinstance(value, datetime) else value
            for name, value in ((field, getattr(decision, field)) for field in Decision.__slots__)
        }
    )
    assert encode_decision(moved) == encode_decision(decision)


@given(INSTANTS)
def test_an_instant_survives_its_column_exactly(instant: datetime) -> None:
    raw = sqlite3.connect(":memory:")
    micros = raw.execute("SELECT ?", (to_micros(instant),)).fetchone()[0]
    raw.close()
    assert from_micros(micros) == instant
