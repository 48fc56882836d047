"""Whose turn it is: what the teams had lately, and the turn of each that waits, kept from one look to the next.

Shares are of the last change of the hub: while nothing starts, ends, comes or goes, nobody's turn becomes another, and
two looks at the same fleet find the same line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dispatcher.core.ids import WorkloadUid
from dispatcher.core.order import PPM, Bid, OrderRules, Turn, turn_of
from dispatcher.core.resources import Resources
from dispatcher.core.shares import Share, Tally, Usage, Window

Pause = Callable[[], Awaitable[None]]
STRIDE = 64
STEP_PPM = PPM // 100
"""Shares count in whole percents: the line is not sorted anew for less."""
EVERY = timedelta(seconds=60)
"""Shares are not worked out more often than this."""
MOST_PAST = 20_000
"""Runs of the past that are remembered; beyond these the oldest are forgotten."""


@dataclass(slots=True)
class ShareBook:
    """Who has and had how much. What is gone from the hub is remembered by this process for as long as it counts; after
    a start the window begins with what the hub still shows."""

    shares: Mapping[str, Share] = field(default_factory=dict)
    _now: dict[WorkloadUid, Usage] = field(default_factory=dict)
    _past: list[Usage] = field(default_factory=list)
    _worked_out_at: datetime | None = None
    _rules: OrderRules | None = None

    def note(self, uid: WorkloadUid, usage: Usage | None, now: datetime) -> None:
        """What a workload has from now on; None: nothing (any more)."""
        known = self._now.get(uid)
        if known is not None and (usage is None or usage.begun_at != known.begun_at):
            self._past.append(known if known.ended_at is not None else replace(known, ended_at=now))
            del self._now[uid]
        if usage is not None:
            self._now[uid] = usage

    async def work_out(self, rules: OrderRules, capacity: Resources, now: datetime, pause: Pause) -> None:
        """The shares as of now, where they were not worked out a moment ago."""
        at = self._worked_out_at
        if rules == self._rules and at is not None and at <= now < at + EVERY:
            return
        tally, lasting = Tally(Window(rules.share_half_life_s), now), []
        for place, usage in enumerate(self._past[-MOST_PAST:]):
            if place % STRIDE == 0:
                await pause()
            if tally.add(usage):
                lasting.append(usage)
        for place, usage in enumerate(self._now.values()):
            if place % STRIDE == 0:
                await pause()
            tally.add(usage)
        self._past, self._worked_out_at, self._rules = lasting, now, rules
        found = tally.shares(capacity)
        self.shares = {
            team: replace(share, share_ppm=share.share_ppm // STEP_PPM * STEP_PPM) for team, share in found.items()
        }

    def turn(self, bid: Bid, rules: OrderRules) -> Turn:
        share = self.shares.get(bid.team)
        return turn_of(bid, rules, share.share_ppm, share.dominant) if share is not None else turn_of(bid, rules)
