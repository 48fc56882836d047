"""Distributions as tables of quantiles: one even draw in, one whole number out, by integer arithmetic only.

A published trace is known by its quantiles, so they are what a distribution is fitted to here; the lognormal that
sizes of data and errors of estimates follow is brought into the same form once. No draw calls a function whose last
digit depends on the machine.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise

from dispatcher.sim.generator.draws import UNIT

NORMAL_MILLIONTHS: tuple[tuple[str, int], ...] = (
    ("0.5", 0), ("0.55", 125_661), ("0.6", 253_347), ("0.65", 385_320), ("0.7", 524_401), ("0.75", 674_490),
    ("0.8", 841_621), ("0.85", 1_036_433), ("0.9", 1_281_552), ("0.925", 1_439_531), ("0.95", 1_644_854),
    ("0.97", 1_880_794), ("0.98", 2_053_749), ("0.99", 2_326_348), ("0.995", 2_575_829), ("0.999", 3_090_232),
    ("0.9999", 3_719_016), ("0.99999", 4_264_891),
)  # fmt: skip
"""Quantiles of the standard normal distribution in millionths, of the upper half; the lower one mirrors it."""
_DIGITS = Context(prec=28)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A non-decreasing table from probability (shares of UNIT, from 0 to UNIT) to value, straight between its points.

    Raises:
        ValueError: the table does not begin at 0, end at UNIT, and rise in between.
    """

    probabilities: tuple[int, ...]
    values: tuple[int, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in pairwise(self.probabilities))
        ordered = all(a <= b for a, b in pairwise(self.values))
        ends = (self.probabilities[:1], self.probabilities[-1:]) == ((0,), (UNIT,))
        if not (rising and ordered and ends and len(self.probabilities) == len(self.values)):
            raise ValueError("a table of quantiles goes from probability 0 to 1, and its values never fall")

    @classmethod
    def of(cls, *points: tuple[str, int]) -> Quantiles:
        """A table as people write it: ("0.95", 49936) means that 95 % are at most 49936."""
        return cls(tuple(_share(written) for written, _ in points), tuple(value for _, value in points))

    @classmethod
    def lognormal(cls, median: int, sigma_permille: int) -> Quantiles:
        """exp(ln(median) + sigma x z), cut where a draw of a hundred thousand would lie.

        The exponential is one of decimal arithmetic, which rounds correctly and so the same everywhere.
        """
        upper = [(_share(written), z) for written, z in NORMAL_MILLIONTHS]
        points = [(UNIT - p, -z) for p, z in reversed(upper[1:])] + upper
        values = [_scaled(median, sigma_permille * z) for _, z in points]
        return cls((0, *(p for p, _ in points), UNIT), (values[0], *values, values[-1]))

    def at(self, draw: int) -> int:
        """The value at a draw from 0 to UNIT, rounded half up."""
        after = bisect_right(self.probabilities, draw)
        if after == len(self.probabilities):
            return self.values[-1]
        low, high = self.values[after - 1], self.values[after]
        if low == high:
            return low
        start = self.probabilities[after - 1]
        width = self.probabilities[after] - start
        return low + (2 * (high - low) * (draw - start) + width) // (2 * width)

    def between(self, least: int, most: int) -> Quantiles:
        """The same with what is lower or higher taken as these bounds."""
        return Quantiles(self.probabilities, tuple(min(max(value, least), most) for value in self.values))

    def mean(self) -> Fraction:
        """The mean of the table, exactly."""
        points = zip(self.probabilities, self.values, strict=True)
        areas = sum((q - p) * (a + b) for (p, a), (q, b) in pairwise(points))
        return Fraction(areas, 2 * UNIT)


def _share(written: str) -> int:
    return round(Fraction(written) * UNIT)


def _scaled(median: int, exponent_billionths: int) -> int:
    power = _DIGITS.exp(Decimal(exponent_billionths).scaleb(-9, _DIGITS))
    return int(_DIGITS.multiply(Decimal(median), power).to_integral_value())
