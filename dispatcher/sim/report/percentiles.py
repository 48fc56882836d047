"""Percentiles by nearest rank: always a value that was seen, in integers, the same whatever the order of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dispatcher.core.prices import div_half_up, div_up

P50, P95, P99 = 500, 950, 990
"""In permille."""


def percentile(ordered: Sequence[int], permille: int) -> int:
    """The least value that at least so many permille of the values do not exceed; `ordered` ascends and is not empty.

    Raises:
        IndexError: there is no value.
    """
    return ordered[max(0, div_up(len(ordered) * permille, 1000) - 1)]


def weighted_percentile(weights: Mapping[int, int], permille: int) -> int:
    """The same over values that count as often as their weight says; a value of no weight counts for nothing.

    Raises:
        ValueError: nothing has a weight.
    """
    wanted = div_up(sum(weights.values()) * permille, 1000)
    seen = 0
    for value in sorted(value for value, weight in weights.items() if weight > 0):
        seen += weights[value]
        if seen >= wanted:
            return value
    raise ValueError("no value has a weight")


def mean(values: Sequence[int]) -> int:
    """The mean, rounded half up; values are zero or more.

    Raises:
        ZeroDivisionError: there is no value.
    """
    return div_half_up(sum(values), len(values))
