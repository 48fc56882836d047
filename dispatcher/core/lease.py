"""Who leads: a table of roles and a pure step over what was seen of the Lease. No I/O, no clock (docs/adr/0010).

Two rules make two leaders impossible, and both count time on the reader's own monotonic clock only, so that a wall
clock may jump as it likes:

- A leader stops writing `renew_deadline_s` after the moment it *sent* its last successful renewal.
- Another takes the Lease `duration_s` after the moment it had *received* the last change of it, and not sooner.

Since `renew_deadline_s < duration_s`, the first happens before the second (FR-RAC-05a). A paused process may still be
between its last check and its write: for that case every nomination carries its `term`, which the store refuses once
a later one has begun, and every write to the hub is guarded by resourceVersion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from dispatcher.core.errors import Fatal


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The Lease as it lies on the hub. `holder` "" = released; `transitions` is the term of its holder.

    `acquired_at` and `renewed_at` are wall clock times for people; nothing is ever decided by them. `version` guards
    the next write; "" = there is no Lease yet.
    """

    holder: str
    duration_s: int
    transitions: int
    version: str = ""
    acquired_at: datetime | None = None
    renewed_at: datetime | None = None


ABSENT = LeaseRecord("", 0, 0)
"""No Lease lies on the hub: the first write creates it."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds. `retry_s` is the pause between two renewals; those who stand by look twice as often.

    Raises:
        ValueError: the three do not leave a leader the time to stop before another may start.
    """

    duration_s: int = 15
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_s * 2 <= self.renew_deadline_s:
            raise ValueError("the renew deadline must leave room for two tries: at least twice the retry period")
        if self.renew_deadline_s > self.duration_s * 0.8:
            raise ValueError("the renew deadline must be at most 0.8 of the lease's duration: clocks run unequally")


class Role(StrEnum):
    """What we are, as far as we know."""

    UNKNOWN = "unknown"
    """The Lease has not been read yet."""
    STANDBY = "standby"
    """Another leads, or we may not."""
    LEADING = "leading"
    UNSURE = "unsure"
    """The Lease was ours and could not be renewed in time: nothing is written until it is."""
    RESTING = "resting"
    """We gave it up: the others go first."""


ALLOWED: Mapping[Role, frozenset[Role]] = {
    Role.UNKNOWN: frozenset({Role.UNKNOWN, Role.STANDBY, Role.LEADING, Role.RESTING}),
    Role.STANDBY: frozenset({Role.STANDBY, Role.LEADING, Role.RESTING}),
    Role.LEADING: frozenset({Role.LEADING, Role.UNSURE, Role.STANDBY, Role.RESTING}),
    Role.UNSURE: frozenset({Role.UNSURE, Role.LEADING, Role.STANDBY, Role.RESTING}),
    Role.RESTING: frozenset({Role.RESTING, Role.STANDBY, Role.LEADING}),
}
"""Every change of role that there is."""


class Move(StrEnum):
    """What to do with the Lease now."""

    NOTHING = "nothing"
    TAKE = "take"
    RENEW = "renew"
    GIVE_UP = "give-up"


@dataclass(frozen=True, slots=True)
class Tenure:
    """What one candidate knows. `changed_at_s` and `read_at_s` are when a read that showed `seen` had come back;
    `sent_at_s` is when our last successful write of the Lease was sent. All on our own monotonic clock."""

    me: str
    timing: LeaseTiming
    role: Role = Role.UNKNOWN
    seen: LeaseRecord | None = None
    changed_at_s: float = 0.0
    read_at_s: float = float("-inf")
    sent_at_s: float = float("-inf")
    rest_until_s: float = float("-inf")

    @property
    def mine(self) -> bool:
        """Whether the newest Lease that we know names us."""
        return self.seen is not None and self.seen.holder == self.me

    @property
    def holder(self) -> str:
        return self.seen.holder if self.seen is not None else ""

    @property
    def term(self) -> int:
        """The term that we may write in; 0 = none."""
        return self.seen.transitions if self.seen is not None and self.role is Role.LEADING else 0

    def may_write(self, now_s: float) -> bool:
        """Whether we lead at this very instant. To be asked right before each batch of writes."""
        return self.role is Role.LEADING and now_s - self.sent_at_s < self.timing.renew_deadline_s


def after_read(tenure: Tenure, lease: LeaseRecord, received_s: float) -> Tenure:
    """The Lease was read (ABSENT when there is none); the answer had come by `received_s`.

    Whoever has been blind for as long as a renewal may take starts the holder's time anew: after an outage of the hub
    the holder gets its chance to renew before anybody calls it lost (FR-RAC-02, FR-RAC-04).
    """
    was = tenure.seen
    blind = received_s - tenure.read_at_s > tenure.timing.renew_deadline_s
    unchanged = was is not None and (was.version, was.holder) == (lease.version, lease.holder)
    changed_at_s = tenure.changed_at_s if unchanged and not blind else received_s
    role = tenure.role
    if role in (Role.LEADING, Role.UNSURE):
        role = role if lease.holder == tenure.me else Role.STANDBY
    elif lease.holder or received_s >= tenure.rest_until_s:
        role = Role.STANDBY
    return replace(tenure, role=role, seen=lease, changed_at_s=changed_at_s, read_at_s=received_s)


def next_move(tenure: Tenure, now_s: float, *, fit: bool) -> Move:
    """What to do with the Lease as it was last seen. `fit` = our work loops live and the store answers.

    | the Lease | we | move |
    | --- | --- | --- |
    | names us | fit | renew |
    | names us | not fit | give up |
    | was released | fit, not resting | take |
    | names another, or is absent, for less than its duration | any | nothing |
    | names another, or is absent, for its duration | fit, not resting | take |
    | anything else | not fit, or resting | nothing |

    An absent Lease is waited for like a silent holder: it may have been deleted under one who still leads.
    """
    lease = tenure.seen
    if lease is None:
        return Move.NOTHING
    if lease.holder == tenure.me:
        return Move.RENEW if fit else Move.GIVE_UP
    if not fit or now_s < tenure.rest_until_s:
        return Move.NOTHING
    if lease.holder == "" and lease.version:
        return Move.TAKE
    patience_s = max(lease.duration_s, tenure.timing.duration_s)
    return Move.TAKE if now_s - tenure.changed_at_s >= patience_s else Move.NOTHING


def to_write(tenure: Tenure, move: Move, floor: int, now: datetime) -> LeaseRecord:
    """The Lease that a move writes, guarded by the version that was seen.

    `floor` is the highest term that the store knows: a Lease that was deleted and made anew must not begin with terms
    that the store has seen already.
    """
    lease = tenure.seen if tenure.seen is not None else ABSENT
    if move is Move.TAKE:
        term = max(lease.transitions, floor) + 1
        return LeaseRecord(tenure.me, tenure.timing.duration_s, term, lease.version, now, now)
    if move is Move.GIVE_UP:
        return replace(lease, holder="", duration_s=1, renewed_at=now)
    return replace(lease, duration_s=tenure.timing.duration_s, renewed_at=now)


def after_write(tenure: Tenure, move: Move, written: LeaseRecord, sent_s: float, received_s: float) -> Tenure:
    """A move succeeded; it was sent at `sent_s`: from then, and not from the answer, our time runs."""
    known = replace(tenure, seen=written, changed_at_s=received_s, read_at_s=received_s)
    if move is Move.GIVE_UP:
        return rested(known, received_s)
    return replace(known, role=Role.LEADING, sent_at_s=sent_s)


def after_failure(tenure: Tenure, now_s: float) -> Tenure:
    """Nothing was heard of the Lease. A leader keeps its role until its time is over, and then writes nothing more."""
    if tenure.role is Role.LEADING and not tenure.may_write(now_s):
        return replace(tenure, role=Role.UNSURE)
    return tenure


def rested(tenure: Tenure, now_s: float) -> Tenure:
    """We stop leading, whatever the Lease says, and let the others go first."""
    return replace(tenure, role=Role.RESTING, rest_until_s=now_s + 2 * tenure.timing.retry_s)


class Always:
    """Leadership of a daemon that runs alone. `term` 0 = it has no place in the order of terms."""

    __slots__ = ("term",)

    def __init__(self, term: int = 0) -> None:
        self.term = term

    def may_write(self, now_s: float) -> bool:
        """A daemon that runs alone always leads."""
        return True

    def lost(self, why: str) -> None:
        """Raises Fatal: there are two, and each believes itself alone."""
        raise Fatal(
            f"another daemon works on the same store: {why}",
            "stop one of them, or run both with --ha so that one leads and the other stands by",
        )
