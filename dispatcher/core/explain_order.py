"""Words for who goes first, who waits behind whom, and when. As `explain.py`, text that no code reads back."""

from __future__ import annotations

from datetime import datetime

from dispatcher.core.backfill import SHOWN, Expected
from dispatcher.core.decision import Basis, Candidate, Detail, Estimate, Reason
from dispatcher.core.order import Ahead, Turn
from dispatcher.core.units import clock_time, money, quantity, span

_STANDS_ON = {
    Basis.DECLARED.value: "by what owners declare",
    Basis.HISTORY.value: "by history",
    Basis.CLASS_DEFAULT.value: "by class defaults",
    "overdue": "by guess: what runs there is overdue",
}
_BASIS = {
    Basis.DECLARED: "as declared",
    Basis.HISTORY: "from the history of this queue and class",
    Basis.CLASS_DEFAULT: "the default of the class",
}
_AHEAD = {
    Ahead.PRIORITY: "of higher priority",
    Ahead.WAITED: "waits longer",
    Ahead.DELAY_PRICE: "its waiting costs more for the work that is left",
    Ahead.SHARE: "its team has had less",
    Ahead.TIE: "alike in all, and named first",
}


_RELEVANCE = {
    Reason.RESERVED: 0,
    Reason.WORTH_WAITING: 0,
    Reason.NOT_LISTED: 3,
    Reason.NOT_IN_BLUEPRINT: 3,
    Reason.NOT_IN_ANNOTATION: 2,
    Reason.ALREADY_NOMINATED: 2,
}
"""What is told first when not all fits in: the reasons that say most about capacity and law."""


def relevance(candidate: Candidate) -> int:
    """Where a candidate stands among those that were refused, most telling first."""
    return max((_RELEVANCE.get(rejection.reason, 1) for rejection in candidate.rejections), default=1)


def reserved_text(detail: Detail) -> str:
    """The holder, when it is to start and by which estimate, and what stands in its way."""
    start, until = _instant(detail.expected), _instant(detail.seen)
    return (
        f"is kept free for {detail.holder or 'an earlier one'}, which is to start there at {start} "
        f"({_STANDS_ON.get(detail.subject, detail.subject)}); this would run until {until} on "
        f"{quantity(detail.resource, detail.needed or 0)} {detail.flavor}, "
        f"where {quantity(detail.resource, detail.found or 0)} can be spared"
    )


def worth_waiting_text(detail: Detail) -> str:
    """What it would cost here, and what waiting for the better place costs, the wait included."""
    return (
        f"costs {money(detail.needed or 0)}: {detail.holder} costs {money(detail.found or 0)} with the wait, and is "
        f"expected to have room at {_instant(detail.expected)} ({_STANDS_ON.get(detail.subject, detail.subject)})"
    )


def _instant(told: tuple[str, ...]) -> str:
    return clock_time(datetime.fromisoformat(told[0])) if told else "a time that is not told"


def run_time_text(estimate: Estimate) -> str:
    """How long it is taken to run, and where that comes from."""
    runs = f": {estimate.runs} runs" if estimate.runs else ""
    return f"{span(estimate.duration_s)} ({_BASIS[estimate.basis]}{runs})"


def turn_text(turn: Turn) -> str:
    """Why a workload stands where it stands: what speaks for it, and what against."""
    worth = f"waiting costs {money(turn.worth_usd_micro)} an hour per GPU-hour of work"
    taken = f"{worth} (it runs {run_time_text(turn.bid.estimate)})" if turn.bid.estimate.runs else worth
    parts = [f"priority {turn.bid.priority}", f"{taken}: {span(turn.head_start_s)} ahead"]
    if turn.share_ppm:
        percent = f"{turn.share_ppm // 10_000}% of {turn.dominant}"
        parts.append(f"team {turn.bid.team} has had {percent}: {span(turn.handicap_s)} back")
    else:
        parts.append(f"team {turn.bid.team} has had next to nothing")
    return "; ".join(parts)


def ahead_text(name: str, why: Ahead) -> str:
    """What puts the one before it there."""
    return f"behind {name}: {_AHEAD[why]}"


def beyond_text() -> str:
    """Why nothing is said of a start."""
    return f"not worked out: beyond the first {SHOWN} that wait for room"


def expected_text(expected: Expected, now: datetime) -> str:
    """When it is expected to start, with where that comes from."""
    stands_on = _STANDS_ON["overdue" if expected.overdue else expected.basis.value]
    kept = ", kept free for it" if expected.reserved else ""
    wait_s = max(0, int((expected.start - now).total_seconds()))
    return f"in {span(wait_s)} on {expected.cluster} ({stands_on}{kept})"
