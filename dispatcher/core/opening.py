"""Waiting for a better place: whether a cluster that is full now is cheaper than one that is free, the wait included.

What is free now need not be the best place for long. Where the data lies, or on the GPUs that suit it, a run may cost
so much less that waiting for it there is worth what waiting costs. When such a cluster will have room is its *opening*:
the earliest start that the expected ends of what runs there allow, behind all who wait for it already (backfill.py).

Waiting is charged from when the work began to wait, not from now. So it ends by itself: who has waited as long as the
better place is worth goes where there is room, however near the opening still seems. Whoever follows this rule pays at
most twice what one would who knew the openings beforehand, and work that comes to a long line does not wait once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from dispatcher.core.backfill import Opening
from dispatcher.core.context import Setting
from dispatcher.core.decision import Candidate, Detail, Fit, Reason, Rejection, Resolver
from dispatcher.core.order import HOUR_S
from dispatcher.core.prices import div_half_up
from dispatcher.core.slate import Slate
from dispatcher.core.snapshot import digest_of


class BetterPlace(NamedTuple):
    """An opening that is worth waiting for, and what the run costs there with the wait."""

    cost_usd_micro: int
    opening: Opening


def cheaper_elsewhere(candidates: Sequence[Candidate], chosen: Candidate, setting: Setting) -> tuple[Candidate, ...]:
    """The candidates for which waiting could pay if they had room at once; the others need no opening."""
    if chosen.fit is not Fit.NOW or chosen.total_usd_micro is None:
        return ()
    most = chosen.total_usd_micro - _waited(setting, setting.now)
    within = setting.request.waiting_since + timedelta(seconds=setting.policy.order.hold_out_s) > setting.now
    return tuple(c for c in candidates if within and c.total_usd_micro is not None and c.total_usd_micro < most)


def hold_out(slate: Slate, setting: Setting, openings: Sequence[Opening]) -> Slate:
    """The slate with every eligible candidate rejected that costs more than waiting for the best of the openings.

    Where the best that fits now is cheaper, or has to preempt, it is the same: then nothing is waited for. Where
    nothing may be chosen now, a look-ahead goes to the best of the openings too: a full cluster of which nothing is
    known is no better, and a free one that goes does not change for which full one work waits.
    """
    found = worth_waiting(slate.eligible, slate.candidates, setting, openings)
    if found is None:
        first = _best(slate.full, setting, openings) if not slate.eligible else None
        return _waiting_for(slate, first) if first is not None else slate
    cost, opening = found
    closed = {c.cluster: _rejection(c, cost, opening) for c in slate.eligible}
    return replace(
        _waiting_for(slate, found),
        candidates=tuple(
            replace(c, rejections=(*c.rejections, closed[c.cluster])) if c.cluster in closed else c
            for c in slate.candidates
        ),
        eligible=(),
        candidates_digest=digest_of((slate.candidates_digest, tuple(sorted(closed.items())))),
    )


def _waiting_for(slate: Slate, found: BetterPlace) -> Slate:
    """Of the full ones only the one that is waited for."""
    return replace(slate, full=tuple(c for c in slate.full if c.cluster == found.opening.cluster))


def worth_waiting(
    eligible: Sequence[Candidate], candidates: Sequence[Candidate], setting: Setting, openings: Sequence[Opening]
) -> BetterPlace | None:
    """The best of the openings, where waiting for it costs less than the best that fits now; else None."""
    best = min([_total(c) for c in eligible if c.fit is Fit.NOW], default=None)
    if best is None:
        return None
    found = _best(candidates, setting, openings)
    return found if found is not None and found.cost_usd_micro < best else None


def _best(candidates: Sequence[Candidate], setting: Setting, openings: Sequence[Opening]) -> BetterPlace | None:
    """The opening at which the run costs least with the wait; None where none comes soon enough."""
    found = [(_total(c) + _waited(setting, o.start), o) for o in openings for c in candidates if _is(c, o, setting)]
    if not found:
        return None
    return BetterPlace(*min(found, key=lambda each: (each[0], each[1].start, each[1].cluster)))


def _total(candidate: Candidate) -> int:
    return candidate.total_usd_micro or 0


def _is(candidate: Candidate, opening: Opening, setting: Setting) -> bool:
    """Whether the opening is one of this candidate, and comes soon enough."""
    lasting = timedelta(seconds=setting.policy.order.hold_out_s)
    soon = opening.start - setting.request.waiting_since <= lasting
    return soon and candidate.cluster == opening.cluster and candidate.total_usd_micro is not None


def _waited(setting: Setting, until: datetime) -> int:
    """What the class pays for waiting since it began to."""
    seconds = max(0, int((until - setting.request.waiting_since).total_seconds()))
    return div_half_up(seconds * setting.plan.delay_price_usd_micro_per_hour, HOUR_S)


def _rejection(candidate: Candidate, cost: int, opening: Opening) -> Rejection:
    """`needed` is what it costs here, `found` what it costs there with the wait, `subject` on what its start stands."""
    detail = Detail(
        subject="overdue" if opening.overdue else opening.basis.value,
        needed=_total(candidate),
        found=cost,
        expected=(opening.start.isoformat(),),
        holder=opening.cluster,
    )
    return Rejection(Reason.WORTH_WAITING, Resolver.WAIT, detail)
