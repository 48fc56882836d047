"""The seal of a bundle: who vouches for the rules in force, since when, and whether they may still be used.

A decision sees it beside the rules themselves, so that "too old" and "the clock is wrong" are reasons like any other,
recorded and replayed. Work that runs is never touched for what stands here: only a bundle in good standing ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

PUBLIC = "public"
"""The label of data that somebody has published: all others are classified, unlabelled data too."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SKEW_S = 60
"""How far another machine's clock may be ahead of ours before one of the two is wrong."""


class Trust(StrEnum):
    """SIGNED: by a trusted key. UNSIGNED: taken as it is, since no key is configured. MISSING: there is no bundle that
    may be used, so the rules in force are none."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"
    MISSING = "missing"


class Trouble(StrEnum):
    """Why a bundle may not be used for classified work now. Stable codes."""

    MISSING = "rules-missing"
    TOO_OLD = "rules-too-old"
    EXPIRED = "rules-expired"
    CLOCK = "clock-wrong"


@dataclass(frozen=True, slots=True)
class Seal:
    """`serial` grows with every bundle; `revision` is git's, `tree` the digest of all files of the blueprint.

    `confirmed_at`: when somebody last vouched for the rules: the manifest's `valid_from`, or, without a manifest, when
    these files were first seen. `not_before`: an instant that has been already, so a clock that shows less is wrong.
    `rolled_back`: older than one that ruled before, and explicitly allowed. `public_goes_on`: without rules, data
    labelled `public` may go anywhere.
    """

    trust: Trust = Trust.UNSIGNED
    serial: int | None = None
    revision: str = ""
    tree: str = ""
    author: str = ""
    approvers: tuple[str, ...] = ()
    key: str = ""
    confirmed_at: datetime | None = None
    valid_until: datetime | None = None
    not_before: datetime | None = None
    rolled_back: bool = False
    public_goes_on: bool = False

    @property
    def actor(self) -> str:
        """Who changed the rules, for the audit log: what a signed manifest says of itself, and nothing else."""
        if self.trust is not Trust.SIGNED:
            return Trust.UNSIGNED.value
        approved = f", approved by {', '.join(self.approvers)}" if self.approvers else ""
        return f"{self.author}{approved}"

    @property
    def identity(self) -> str:
        """The same bundle sealed again has another one."""
        return f"{self.trust}/{self.serial if self.serial is not None else '-'}/{self.tree}/{self.key}"


UNSEALED = Seal()


@dataclass(frozen=True, slots=True)
class Standing:
    """What is wrong with a bundle now, and the two instants that disagree."""

    trouble: Trouble
    since: datetime | None = None
    limit: datetime | None = None


def standing(seal: Seal, max_age_s: int | None, now: datetime) -> Standing | None:
    """None while the bundle may be used. A clock that cannot be right is asked first: by it nothing else is known."""
    wrong = clock_trouble(seal, now)
    if wrong is not None:
        return wrong
    if seal.trust is Trust.MISSING:
        return Standing(Trouble.MISSING)
    if seal.valid_until is not None and seal.valid_until <= now:
        return Standing(Trouble.EXPIRED, seal.confirmed_at, seal.valid_until)
    stops_at = stops(seal, max_age_s)
    if stops_at is not None and stops_at <= now:
        return Standing(Trouble.TOO_OLD, seal.confirmed_at, stops_at)
    return None


def clock_trouble(seal: Seal, now: datetime) -> Standing | None:
    """A clock before 1970, or before an instant that has been already."""
    earliest = seal.not_before or EPOCH
    if now < EPOCH or (seal.not_before is not None and now < earliest - timedelta(seconds=SKEW_S)):
        return Standing(Trouble.CLOCK, None, earliest)
    return None


def turns(seal: Seal, max_age_s: int | None) -> tuple[datetime, ...]:
    """The instants at which `standing` may become another by itself."""
    right = seal.not_before - timedelta(seconds=SKEW_S) if seal.not_before is not None else None
    return tuple(at for at in (right, seal.valid_until, stops(seal, max_age_s)) if at is not None)


def stops(seal: Seal, max_age_s: int | None) -> datetime | None:
    """When classified work stops unless somebody vouches for the rules again; None: never for their age."""
    if max_age_s is None or seal.confirmed_at is None:
        return None
    return seal.confirmed_at + timedelta(seconds=max_age_s)


def age_s(seal: Seal, now: datetime) -> int | None:
    """Since when nobody has vouched for the rules, in seconds; None where that is not known."""
    return None if seal.confirmed_at is None else max(0, int((now - seal.confirmed_at).total_seconds()))
