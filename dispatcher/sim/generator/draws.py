"""Random numbers that are the same on every machine, in every Python and in any order: digests of what is asked for.

A generator with a state gives the next caller other numbers as soon as somebody draws once more. Here each job's draws
come from (seed, purpose, name) alone, so that adding a draw, leaving out a job or reading a trace in pieces changes
nothing else, and the overlay of a trace is the same for all who compare on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")

BITS = 32
UNIT = 1 << BITS
"""Draws are whole numbers from 0 to UNIT - 1, evenly; a probability is a share of UNIT."""
_BYTES = BITS // 8


class Draws:
    """An endless row of even draws for one purpose."""

    __slots__ = ("_key", "_numbers")

    def __init__(self, seed: int, *purpose: str) -> None:
        self._key = "\x1f".join((str(seed), *purpose)).encode()
        self._numbers = self._endless()

    def _endless(self) -> Iterator[int]:
        block = 0
        while True:
            digest = blake2b(self._key, salt=block.to_bytes(8, "big")).digest()
            for at in range(0, len(digest), _BYTES):
                yield int.from_bytes(digest[at : at + _BYTES], "big")
            block += 1

    def even(self) -> int:
        """The next draw, from 0 to UNIT - 1."""
        return next(self._numbers)

    def below(self, bound: int) -> int:
        """A whole number from 0 to `bound` - 1."""
        return self.even() * bound >> BITS

    def chance(self, permille: int) -> bool:
        """True in so many of a thousand cases."""
        return self.even() * 1000 < permille << BITS

    def weighted(self, choices: Sequence[tuple[T, int]]) -> T:
        """One of the choices, each as often as its weight says.

        Raises:
            ValueError: no choice has a weight.
        """
        drawn = self.below(sum(weight for _, weight in choices))
        for choice, weight in choices:
            if drawn < weight:
                return choice
            drawn -= weight
        raise ValueError("nothing to choose from: no choice has a weight")
