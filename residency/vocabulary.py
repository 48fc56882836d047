"""The words of the law: flows, effects, modes, and where something is written. Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

UNLABELLED = "unlabelled"
"""The label of data that nobody has classified, and of a job that names no data at all (residency.md section 4.3)."""

EVERY_LABEL = "*"
"""In a rule's labels: whatever the label. Only forbid and require may say it; a permit for everything is no law."""


class Flow(StrEnum):
    """What happens to data. A job is legal where every flow of it is (residency.md, bottom line 2)."""

    PROCESS = "process"
    """Reading it in clear and computing with it. A remote read from elsewhere is this too, copied or not."""
    REPLICATE = "replicate"
    """A further copy in a store, in clear."""
    REPLICATE_SEALED = "replicate_sealed"
    """A further copy, encrypted end to end, with the keys kept at home."""
    CACHE = "cache"
    """A copy beside the computation, for as long as it runs."""
    CHECKPOINT = "checkpoint"
    """State of a run, written to where it can be resumed from: as sensitive as what was read."""
    OUTPUT = "output"
    """What a run makes: weights, data sets, reports."""
    LOGS = "logs"
    """Logs, metrics and traces, going to where they are kept."""
    REMOTE_ACCESS = "remote_access"
    """People who look at it or log in, from where they sit."""


class Effect(StrEnum):
    """PERMIT: a flow may happen where this holds. FORBID: it may not. REQUIRE: it may only where this holds."""

    PERMIT = "permit"
    FORBID = "forbid"
    REQUIRE = "require"


class Mode(StrEnum):
    """ENFORCE: decides. WARN: is told and does not decide. SHADOW: is only recorded, as what it would do.

    A permit grants in ENFORCE and WARN and never in SHADOW.
    """

    ENFORCE = "enforce"
    WARN = "warn"
    SHADOW = "shadow"


class Answer(StrEnum):
    """INDETERMINATE denies as DENY does, and says that a fact, not the law, stands in the way."""

    ALLOW = "allow"
    DENY = "deny"
    INDETERMINATE = "indeterminate"


class Running(StrEnum):
    """What becomes of work that runs when a rule makes it illegal (residency.md section 4.10)."""

    KEEP = "keep"
    """Let it end; record it."""
    DRAIN = "drain"
    """Checkpoint to a store that is still legal, then queue again elsewhere."""
    STOP_NOW = "stop_now"
    """Stop without writing."""


class Queued(StrEnum):
    """What becomes of work that waits with a nomination. HOLD: it stays and waits; REQUEUE: it is decided again."""

    REQUEUE = "requeue"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class OnChange:
    """What becomes of work that a change of rules, facts or exceptions makes illegal."""

    running: Running = Running.DRAIN
    grace_s: int = 0
    queued: Queued = Queued.REQUEUE


AS_USUAL = OnChange()


HARSHNESS = {Running.STOP_NOW: 0, Running.DRAIN: 1, Running.KEEP: 2}
"""What may become of work that runs, the harshest first."""


def harshest(changes: Iterable[OnChange]) -> OnChange:
    """The harshest of what several rules say, those apart that say nothing of their own."""
    return min((change for change in changes if change != AS_USUAL), key=_harshness, default=AS_USUAL)


def _harshness(change: OnChange) -> tuple[int, int, str]:
    return (HARSHNESS[change.running], change.grace_s, change.queued.value)


@dataclass(frozen=True, slots=True, order=True)
class At:
    """Where something is written, both numbers from 1, as editors count. It is shown and never part of a digest."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.file else ""


NOWHERE = At()
