"""Amounts of cluster resources as exact integers.

Units: `cpu` in millicores, every other resource in its own whole unit (bytes for `memory` and
`ephemeral-storage`, pieces for GPUs, MIG slices and `pods`). Kubernetes writes quantities as decimal strings with
suffixes (the API's "Quantity" format); `parse_quantity` reads all of them exactly, milli-bytes included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
WHOLE_GPU = "nvidia.com/gpu"
MIG_PREFIX = "nvidia.com/mig-"

_SUFFIXES: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_MAX_QUANTITY = Fraction(2**63 - 1)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]+))?")
_MAX_EXPONENT = 99
"""Far beyond what an amount can be, and near enough to be worked out: anybody may write an exponent of nine digits."""


class QuantityError(ValueError):
    """A string is not a non-negative Kubernetes quantity; the message names the value and what is allowed."""


def parse_quantity(text: str) -> Fraction:
    """Read a Kubernetes quantity exactly ("500m", "2147483648500m", "64Gi", "1e3").

    Raises:
        QuantityError: the text is no quantity, is negative, or is larger than an int64.
    """
    raw = text.strip()
    number, suffix = _split(raw)
    if suffix not in _SUFFIXES:
        raise QuantityError(f"{text!r} is not a quantity: unknown suffix {suffix!r} (use m, k, M, G, Ki, Mi, Gi ...)")
    found = _NUMBER.fullmatch(number)
    if found is None:
        raise QuantityError(f"{text!r} is not a quantity: a number such as 8, 500m or 64Gi is expected")
    if abs(int(found["exponent"] or 0)) > _MAX_EXPONENT:
        raise QuantityError(f"{text!r} is not a quantity: an exponent of at most two digits is expected")
    value = Fraction(number) * _SUFFIXES[suffix]
    if value < 0:
        raise QuantityError(f"{text!r} is negative: a quantity must be zero or more")
    if value > _MAX_QUANTITY:
        raise QuantityError(f"{text!r} is larger than an API quantity can be")
    return value


def _split(raw: str) -> tuple[str, str]:
    """Split "1.5Gi" into ("1.5", "Gi"); an exponent ("1e3", "1E3") belongs to the number."""
    if len(raw) > 64 or "_" in raw or "/" in raw:
        return "", raw
    end = len(raw)
    while end > 0 and raw[end - 1].isalpha():
        end -= 1
    return raw[:end], raw[end:]


@lru_cache(maxsize=4096)
def amount(resource: str, text: str) -> int:
    """The amount of one resource in its integer unit; a request is rounded up, as the scheduler does.

    Remembered, since the nodes of a fleet say the same few quantities thousands of times.

    Raises:
        QuantityError: see parse_quantity.
    """
    value = parse_quantity(text)
    scaled = value * 1000 if resource == CPU else value
    return -((-scaled.numerator) // scaled.denominator)


@lru_cache(maxsize=4096)
def is_gpu(resource: str) -> bool:
    """Whether a resource name is an accelerator: whole GPUs or MIG slices. Remembered: there are a few names, and each
    fit asks dozens of times."""
    return resource == WHOLE_GPU or resource.startswith(MIG_PREFIX)


@dataclass(frozen=True, slots=True)
class Resources:
    """An immutable vector of resource amounts: name to integer, sorted by name, zero entries kept as written."""

    items: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, amounts: Mapping[str, int]) -> Resources:
        return cls(tuple(sorted(amounts.items())))

    @classmethod
    def parse(cls, quantities: Mapping[str, object]) -> Resources:
        """Read a `resources.requests`-like mapping. Raises QuantityError naming the resource."""
        amounts: dict[str, int] = {}
        for name, text in quantities.items():
            try:
                amounts[name] = amount(name, str(text))
            except QuantityError as error:
                raise QuantityError(f"{name}: {error}") from None
        return cls.of(amounts)

    @classmethod
    def total(cls, parts: Iterable[Resources]) -> Resources:
        sums: dict[str, int] = {}
        for part in parts:
            for name, value in part.items:
                sums[name] = sums.get(name, 0) + value
        return cls.of(sums)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.items)

    def get(self, name: str) -> int:
        for key, value in self.items:
            if key == name:
                return value
        return 0

    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.items)

    def plus(self, other: Resources) -> Resources:
        return Resources.total((self, other))

    def minus(self, other: Resources) -> Resources:
        """Difference; entries may go below zero (over-use is a fact that must stay visible)."""
        left = dict(self.items)
        for name, value in other.items:
            left[name] = left.get(name, 0) - value
        return Resources.of(left)

    def times(self, count: int) -> Resources:
        return Resources(tuple((name, value * count) for name, value in self.items))

    def gpus(self) -> int:
        """Pieces of accelerator of every kind (a MIG slice counts as one piece)."""
        return sum([value for name, value in self.items if is_gpu(name)])

    def billed_milli(self) -> int:
        """Thousandths of what it is billed by and draws power for: its accelerators, or its cores where it has none."""
        return self.gpus() * 1000 or self.get(CPU)

    def gpu_resource(self) -> str | None:
        """The accelerator resource asked for (first by name), or None for a CPU-only vector."""
        for name, value in self.items:
            if value > 0 and is_gpu(name):
                return name
        return None


NOTHING = Resources()
