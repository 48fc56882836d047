"""Amounts as people write them: money, resources, spans of time. Rounding here is for the eye only."""

from __future__ import annotations

from datetime import datetime

from dispatcher.core.prices import div_half_up
from dispatcher.core.resources import CPU, MEMORY

_CENT = 10_000
_BYTES = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_SPANS = (("d", 86_400), ("h", 3_600), ("min", 60))


def money(usd_micro: int) -> str:
    """Cents, rounded half up; amounts under one cent exactly, so that a small sum never reads as nothing."""
    sign, amount = ("-", -usd_micro) if usd_micro < 0 else ("", usd_micro)
    if 0 < amount < _CENT:
        return f"{sign}$0.{amount:06d}".rstrip("0")
    cents = div_half_up(amount, _CENT)
    return f"{sign}${cents // 100:,}.{cents % 100:02d}"


def signed_money(usd_micro: int) -> str:
    """A difference: always with its sign."""
    return money(usd_micro) if usd_micro < 0 else f"+{money(usd_micro)}"


def quantity(resource: str | None, amount: int) -> str:
    """An amount of a resource without its name: millicores as cores, bytes in binary units, pieces as they are."""
    if resource == CPU:
        return _decimal(amount, 1000)
    if resource in (MEMORY, "ephemeral-storage"):
        for unit, size in _BYTES:
            if amount >= size:
                return f"{_decimal(amount, size)} {unit}"
        return f"{amount} B"
    return str(amount)


def counted(count: int, thing: str) -> str:
    """So many of a thing ("1 GPU", "2 GPUs")."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def span(seconds: int) -> str:
    """A length of time by its two largest units ("2 d 4 h", "90 s")."""
    if seconds < 120:
        return f"{seconds} s"
    parts: list[str] = []
    for unit, size in _SPANS:
        count, seconds = divmod(seconds, size)
        if count and len(parts) < 2:
            parts.append(f"{count} {unit}")
    return " ".join(parts)


def clock_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _decimal(amount: int, size: int) -> str:
    tenths = div_half_up(amount * 10, size)
    whole, rest = divmod(tenths, 10)
    return f"{whole}.{rest}" if rest else str(whole)
