"""How many examples hypothesis draws: all that a law names in `make test`, a part of them, always the same, in
`make test-fast`. The command chooses the profile (`--hypothesis-profile`), so a run says by itself which it was.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings

WHOLE, FAST = "whole", "fast"
FAST_SHARE = 4
"""A fast run draws one in so many of the examples that a law names."""
LEAST = 8
_WITHOUT_A_NUMBER = 100
"""What hypothesis draws for a law that names no number."""


def register_profiles() -> None:
    """To be called before tests are collected: laws read the profile when they are imported.

    No deadlines: how long an example takes on a busy machine is no property of the code. The fast profile draws the
    same examples each time and keeps no database of them; a whole run looks for new ones.
    """
    settings.register_profile(WHOLE, deadline=None, max_examples=_WITHOUT_A_NUMBER)
    settings.register_profile(
        FAST, deadline=None, max_examples=_WITHOUT_A_NUMBER // FAST_SHARE, derandomize=True, database=None
    )
    settings.load_profile(WHOLE)


def examples(number: int, **more: Any) -> settings:
    """Settings of a law that is worth `number` examples; `more` goes to hypothesis as it is."""
    return settings(max_examples=share(number), **more)


def share(number: int) -> int:
    """How many of `number` draws this run makes: for laws that draw by themselves."""
    if settings.get_current_profile_name() != FAST:
        return number
    return max(min(number, LEAST), number // FAST_SHARE)
