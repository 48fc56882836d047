"""Which name may have been meant: one rule for "did you mean". A suggestion that is far off costs more than none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_ALIKE = 0.75
"""Below this share of common letters words look alike to machines only: `rl-loader` is no slip of `world-model`."""
_SHORTEST_PART = 3
_BETWEEN = re.compile(r"[-_./ ]+")


def nearest(word: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """At most `most` of the known names, the likeliest first; empty when nobody would see what they have in common.

    Likely are: the same letters in other case or with other separators; a slip of few letters; a name that holds the
    word (or is held by it) where that is three letters or a whole part between separators.
    """
    names = sorted(set(known))
    by_case = {name.lower(): name for name in reversed(names)}
    asked = word.lower()
    same = [name for name in names if _BETWEEN.sub("", name.lower()) == _BETWEEN.sub("", asked)]
    slips = [by_case[close] for close in get_close_matches(asked, list(by_case), n=most, cutoff=_ALIKE)]
    parts = [name for name in names if _part_of(asked, name.lower()) or _part_of(name.lower(), asked)]
    return tuple(dict.fromkeys((*same, *slips, *sorted(parts, key=len))))[:most]


def _part_of(part: str, whole: str) -> bool:
    return part in whole and (len(part) >= _SHORTEST_PART or part in _BETWEEN.split(whole)) and bool(part)
