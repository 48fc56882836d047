"""The `when` of a rule as models, generated from the engine's own table of facts: one key a fact, one key an operator.

An editor completes both from the schema, a mistyped fact is an unknown key with a suggestion, and an operator that does
not fit a fact cannot be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, create_model, model_validator

from dispatcher.config.values import Boolean, Countries, CountryOrSet, Instant, Integer, Strict, Word, Words, fail
from residency.clauses import ALLOWED, Operator
from residency.facts import FACTS, Shape

_ABOUT: Mapping[Operator, str] = {
    Operator.IN: "It is one of these.",
    Operator.NOT_IN: "It is none of these.",
    Operator.ALL_OF: "All of these are among them.",
    Operator.ANY_OF: "At least one of these is among them.",
    Operator.NONE_OF: "None of these is among them.",
    Operator.SUBSET_OF: "All of them are among these.",
    Operator.EQUALS: "It is exactly this.",
    Operator.AT_MOST: "It is this or less.",
    Operator.AT_LEAST: "It is this or more.",
    Operator.BETWEEN: "The instant lies in this half-open span.",
}


class Span(Strict):
    """A half-open span of time, UTC; a side that is not written has no end."""

    since: Annotated[Instant | None, Field(alias="from", description="First instant of it.")] = None
    until: Annotated[Instant | None, Field(description="First instant after it.")] = None

    @model_validator(mode="after")
    def _has_an_end(self) -> Span:
        if self.since is None and self.until is None:
            raise fail("a span without ends", "write from:, until: or both")
        return self


class _Test(Strict):
    """What is asked of one fact: at least one operator; of several, all must hold."""

    @model_validator(mode="after")
    def _asks(self) -> _Test:
        if not self.model_fields_set:
            raise fail("nothing is asked of the fact", "write an operator, such as in: [DE]")
        if any(getattr(self, name) == () for name in self.model_fields_set):
            raise fail("an empty list", "name at least one, or remove the condition")
        return self


class _Entry(Strict):
    """One fact with its test, in a list of alternatives."""

    @model_validator(mode="after")
    def _one(self) -> _Entry:
        if len(self.model_fields_set) != 1:
            raise fail("an entry asks of exactly one fact", "begin another entry with '- '")
        return self


_KINDS: Mapping[Shape, tuple[Any, Any]] = {
    Shape.COUNTRY: (Countries, CountryOrSet),
    Shape.COUNTRIES: (Countries, CountryOrSet),
    Shape.WORD: (Words, Word),
    Shape.WORDS: (Words, Word),
    Shape.PRODUCTS: (Words, Word),
    Shape.BOOL: (Boolean, Boolean),
    Shape.NUMBER: (Integer, Integer),
    Shape.TIME: (Span, Span),
}
"""For each shape the type of a list operand and that of `equals`."""


def _test_of(shape: Shape) -> Any:
    several, one = _KINDS[shape]
    fields: dict[str, Any] = {}
    for operator in sorted(ALLOWED[shape]):
        kind = one if operator is Operator.EQUALS else several
        fields[operator.value] = (kind | None, Field(default=None, description=_ABOUT[operator]))
    return create_model(f"{shape.value.capitalize()}Test", __base__=_Test, __doc__=_Test.__doc__, **fields)


_TESTS: Mapping[Shape, Any] = {shape: _test_of(shape) for shape in Shape}


def _by_fact() -> dict[str, Any]:
    return {
        fact.name: (_TESTS[fact.shape] | None, Field(default=None, description=fact.about)) for fact in FACTS.values()
    }


Entry: Any = create_model("Entry", __base__=_Entry, __doc__=_Entry.__doc__, **_by_fact())
_GROUPS: dict[str, Any] = {
    "any": (tuple[Entry, ...] | None, Field(default=None, description="At least one must hold.", min_length=1)),
    "all": (tuple[Entry, ...] | None, Field(default=None, description="All must hold.", min_length=1)),
}
When: Any = create_model(
    "When",
    __base__=Strict,
    __doc__="All of it must hold. Facts that are not known make it unknown.",
    **_by_fact(),
    **_GROUPS,
)
