"""The terms of a candidate's cost, each one amount of expected money with its bill (design section 5, docs/prices.md).

A term is a plain function from a candidate to a `Term`; adding one is one function and one line in `TERMS`
(docs/add-a-term.md). A term that lacks a fact has no amount and says in `unknown` which one, which rejects the
candidate: a missing price is never 0. Without `unknown` the reason is another filter's (no flavor, not in the
blueprint). Amounts are integer micro-USD, each line rounded half up once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dispatcher.core.context import Context
from dispatcher.core.decision import Term
from dispatcher.core.terms.arriving import arrivals
from dispatcher.core.terms.data import data_in
from dispatcher.core.terms.energy import energy
from dispatcher.core.terms.home import home
from dispatcher.core.terms.interruption import interruption
from dispatcher.core.terms.latency import latency
from dispatcher.core.terms.routes import cheapest_route
from dispatcher.core.terms.run import run
from dispatcher.core.terms.stranded import stranded
from dispatcher.core.terms.waiting import waiting

TermFunction = Callable[[Context], Term]


class Priced(NamedTuple):
    """All terms of a candidate, in the order of `TERMS`, and for how long it would be held there before it works."""

    terms: tuple[Term, ...]
    held_s: int


def price(context: Context) -> Priced:
    """What a candidate costs, by the ways on which its data comes."""
    uses = context.request.declared.data
    seen = context.by_ways(tuple([cheapest_route(context, use) for use in uses])) if uses else context
    coming = tuple(arrivals(seen))
    seen = seen.awaiting(coming) if coming else seen
    return Priced(tuple([term(seen) for term in TERMS]), seen.held_s)


def total_of(terms: tuple[Term, ...]) -> int | None:
    """The sum of the terms; None as soon as one of them is unknown."""
    amounts = [term.amount_usd_micro for term in terms]
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)


TERMS: tuple[TermFunction, ...] = (run, data_in, home, waiting, interruption, stranded, latency, energy)
"""All terms, in the order in which they are shown. The total is their sum: the order changes no choice."""
