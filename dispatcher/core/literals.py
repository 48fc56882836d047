"""The spellings that people write in keys and read exactly: durations, times, money. Integers only, never a float.

Every reader raises `LiteralError` with a text that says what is allowed; the caller names the key.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from dispatcher.core.resources import QuantityError, parse_quantity

USD_MICRO = 1_000_000
_MAX_DURATION_S = 10 * 366 * 86_400
_MAX_USD = 10**12

_DURATION = re.compile(
    r"^P(?:(?P<weeks>\d{1,6})W)?(?:(?P<days>\d{1,6})D)?"
    r"(?P<time>T(?:(?P<hours>\d{1,7})H)?(?:(?P<minutes>\d{1,8})M)?(?:(?P<seconds>\d{1,9})S)?)?$",
    re.ASCII,
)
_MONEY = re.compile(r"^(?P<whole>\d{1,13})(?:\.(?P<part>\d{1,6}))?$", re.ASCII)
_MILLISECONDS = re.compile(r"^(?P<digits>\d{1,9})ms$", re.ASCII)
_SECONDS = {"weeks": 7 * 86_400, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


class LiteralError(ValueError):
    """A text that does not read as what it should be; the message says what is allowed."""


def parse_duration(text: str) -> int:
    """Seconds of an ISO 8601 duration ("PT90M", "P1DT12H", "P2W"); more than zero, at most ten years.

    Months and years are refused: they have no fixed length, and a forecast in money needs one.

    Raises:
        LiteralError: see above.
    """
    raw = text.strip()
    date_part = raw.partition("T")[0]
    if raw.startswith("P") and ("Y" in date_part or "M" in date_part):
        raise LiteralError("months and years have no fixed length; write days or weeks, such as P30D")
    found = _DURATION.match(raw)
    if found is None or found["time"] == "T":
        raise LiteralError("an ISO 8601 duration in whole numbers is expected, such as PT90M, PT8H or P2D")
    seconds = sum(int(found[name]) * size for name, size in _SECONDS.items() if found[name] is not None)
    if seconds <= 0:
        raise LiteralError("a duration must be longer than zero, such as PT30M")
    if seconds > _MAX_DURATION_S:
        raise LiteralError("a duration of more than ten years is taken for a mistake")
    return seconds


def parse_instant(text: str) -> datetime:
    """An ISO 8601 instant with its offset ("2027-02-01T10:00:00Z"), in UTC.

    Raises:
        LiteralError: it is no instant, or it has no offset (a local time means another instant at each reader).
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise LiteralError("an ISO 8601 time is expected, such as 2027-02-01T10:00:00Z") from None
    if moment.tzinfo is None:
        raise LiteralError("the time needs its offset from UTC, such as 2027-02-01T10:00:00Z or ...+01:00")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise LiteralError("the time lies outside the calendar") from None


def parse_usd(text: str) -> int:
    """Micro-USD of an amount in USD ("120.50"); zero or more, at most six decimals.

    Raises:
        LiteralError: see above.
    """
    found = _MONEY.match(text.strip())
    if found is None:
        raise LiteralError("an amount in USD is expected, digits and at most six decimals, such as 120.50")
    micro = int(found["whole"]) * USD_MICRO + int((found["part"] or "").ljust(6, "0"))
    if micro > _MAX_USD * USD_MICRO:
        raise LiteralError("an amount of more than 10^12 USD is taken for a mistake")
    return micro


def parse_milliseconds(text: str) -> int:
    """Milliseconds of a round trip ("40ms"); one or more, at most a minute.

    Raises:
        LiteralError: see above.
    """
    found = _MILLISECONDS.match(text.strip())
    if found is None or not 1 <= int(found["digits"]) <= 60_000:
        raise LiteralError("a round trip of 1 to 60000 milliseconds is expected, such as 40ms")
    return int(found["digits"])


def parse_count(text: str) -> int:
    """A whole number of one or more.

    Raises:
        LiteralError: it is not.
    """
    raw = text.strip()
    if not raw.isascii() or not raw.isdigit() or len(raw) > 9 or int(raw) < 1:
        raise LiteralError("a whole number of 1 or more is expected")
    return int(raw)


def parse_size(text: str) -> int:
    """Bytes of "40GB", "38Gi" or plain digits; a trailing B is allowed.

    Raises:
        LiteralError: it is no size, or not a whole number of bytes.
    """
    raw = text.strip()
    try:
        size = parse_quantity(raw.removesuffix("B") if raw[-2:-1].isalpha() else raw)
    except QuantityError:
        raise LiteralError("a size is expected, such as 40GB, 38Gi or bytes") from None
    if size.denominator != 1:
        raise LiteralError("a whole number of bytes is expected, such as 40GB, 38Gi or bytes")
    return int(size)
