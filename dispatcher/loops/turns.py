"""Whose turn it is: what the teams had lately, and the turn of each that waits, kept from one look to the next.

Shares are of the last change of the hub: while nothing starts, ends, comes or goes, nobody's turn becomes another, and
two looks at the same fleet find the same line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dispatcher.core.fading import Fading
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.order import PPM, Bid, OrderRules, Turn, turn_of
from dispatcher.core.resources import Resources
from dispatcher.core.shares import Share, Usage, Window

Pause = Callable[[], Awaitable[None]]
STRIDE = 64
STEP_PPM = PPM // 100
"""Shares count in whole percents: the line is not sorted anew for less."""
EVERY = timedelta(seconds=60)
"""Shares are not worked out more often than this."""


@dataclass(slots=True)
class ShareBook:
    """Who has and had how much. What is gone from the hub is remembered by this process for as long as it counts; after
    a start the window begins with what the hub still shows."""

    shares: Mapping[str, Share] = field(default_factory=dict)
    _now: dict[WorkloadUid, Usage] = field(default_factory=dict)
    _fading: Fading | None = None
    _worked_out_at: datetime | None = None
    _rules: OrderRules | None = None

    def begin(self, rules: OrderRules, now: datetime) -> None:
        """Before the first use is noted: each is then entered as it comes, and not thousands of them at once."""
        if self._fading is None:
            self._fading = Fading(Window(rules.share_half_life_s), now)

    def note(self, uid: WorkloadUid, usage: Usage | None, now: datetime) -> None:
        """What a workload has from now on; None: nothing (any more)."""
        known = self._now.get(uid)
        if known == usage:
            return
        if known is not None and (usage is None or usage.begun_at != known.begun_at):
            if known.ended_at is None and self._fading is not None:
                self._fading.end(known, now)
            del self._now[uid]
            known = None
        if usage is not None:
            self._now[uid] = usage
            if self._fading is not None:
                self._change(known, usage, self._fading)

    @staticmethod
    def _change(known: Usage | None, usage: Usage, fading: Fading) -> None:
        """A use is new, has ended, or is told otherwise than before."""
        if known is None:
            fading.add(usage)
        elif usage.ended_at is not None and usage == replace(known, ended_at=usage.ended_at):
            fading.end(known, usage.ended_at)
        else:
            fading.add(known, -1)
            fading.add(usage)

    def work_out(self, rules: OrderRules, capacity: Callable[[], Resources], now: datetime) -> None:
        """The shares as of now, where they were not worked out a moment ago."""
        at = self._worked_out_at
        if rules == self._rules and at is not None and at <= now < at + EVERY:
            return
        fading = self._fading = self._in_window(Window(rules.share_half_life_s), now)
        self._worked_out_at, self._rules = now, rules
        self.shares = {
            team: replace(share, share_ppm=share.share_ppm // STEP_PPM * STEP_PPM)
            for team, share in fading.shares(capacity(), now).items()
        }

    def _in_window(self, window: Window, now: datetime) -> Fading:
        known = self._fading
        if known is not None:
            return known if known.window == window else known.in_window(window)
        made = Fading(window, now)
        for usage in self._now.values():
            made.add(usage)
        return made

    def turn(self, bid: Bid, rules: OrderRules) -> Turn:
        share = self.shares.get(bid.team)
        return turn_of(bid, rules, share.share_ppm, share.dominant) if share is not None else turn_of(bid, rules)
