"""Two readings of the time, and which of them counts for what (docs/adr/0018-steady-clock.md).

`now` never jumps: every age and every pause is a difference of two of it. Dates that people wrote (the end of an
exception or of an attestation, the age of rules) mean the wall clock. Where somebody has set that, the two disagree
until `now` has followed, and one of them is wrong; nobody here can know which. So nothing is dispatched after a date
that either of them says is over, and nothing that runs is ended for a date that only one of them says is over.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

LONGEST_S = 100 * 366 * 86_400
"""What is expected to last longer counts as so long: ten years at a thousandth of the speed, or an exabyte over a slow
line, end after the last date that can be written."""


def later(now: datetime, wall_ahead_s: int) -> datetime:
    """The later of both: by it dates are judged. `wall_ahead_s`: how far the wall clock is ahead of `now` (behind:
    negative)."""
    return now + timedelta(seconds=wall_ahead_s) if wall_ahead_s > 0 else now


def stamp(moment: datetime) -> str:
    """An instant as a record and an annotation show it, to the second."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def earlier(now: datetime, wall_ahead_s: int) -> datetime:
    """The earlier of both: what is over by it is over for certain."""
    return now + timedelta(seconds=wall_ahead_s) if wall_ahead_s < 0 else now
