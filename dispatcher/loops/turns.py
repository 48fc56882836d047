"""Whose turn it is: what the teams had lately, and the turn of each that waits, kept from one look to the next.

Shares are of the last change of the hub: while nothing starts, ends, comes or goes, nobody's turn becomes another, and
two looks at the same fleet find the same line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice

from dispatcher.core.fading import Fading
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.order import PPM, Bid, OrderRules, Turn, turn_of
from dispatcher.core.resources import Resources
from dispatcher.core.shares import Run, Share, Usage, Window

Pause = Callable[[], Awaitable[None]]
STRIDE = 64
STEP_PPM = PPM // 100
"""Shares count in whole percents: the line is not sorted anew for less."""
EVERY = timedelta(seconds=60)
"""Shares are not worked out more often than this."""
MOST_UNKEPT = 20_000
"""Beyond these the oldest changes are forgotten, while the store is away; a run that the hub shows is told again."""


@dataclass(slots=True)
class ShareBook:
    """Who has and had how much. What is gone from the hub is remembered for as long as it counts: by this process, and
    over a restart by the store (`recall`, `unkept`)."""

    shares: Mapping[str, Share] = field(default_factory=dict)
    is_kept: bool = False
    """Whether somebody takes what is `unkept`."""
    unseen: set[tuple[WorkloadUid, datetime]] = field(default_factory=set)
    """Runs of the unkept that ended while nobody looked: when is not known, only that it was by now."""
    _recalled: set[tuple[WorkloadUid, datetime]] = field(default_factory=set)
    """Runs that the store says go on, of which the hub has not said so yet."""
    _now: dict[WorkloadUid, Usage] = field(default_factory=dict)
    _fading: Fading | None = None
    _worked_out_at: datetime | None = None
    _rules: OrderRules | None = None
    _unkept: dict[tuple[WorkloadUid, datetime], Usage] = field(default_factory=dict)
    """By run, oldest change first."""

    async def recall(self, runs: Sequence[Run], rules: OrderRules, now: datetime, pause: Pause) -> None:
        """Begin with what the store holds. What of it goes on, and whether at all, the hub says at the next look: who
        is not there then went while nobody looked, and counts until that look."""
        self.begin(rules, now)
        assert self._fading is not None
        for at, (uid, usage) in enumerate(runs):
            if at % STRIDE == 0:
                await pause()
            self._fading.add(usage)
            if usage.ended_at is None:
                self._recalled.add((uid, usage.begun_at))
            known = self._now.get(uid)
            if known is None or known.begun_at < usage.begun_at:
                self._now[uid] = usage

    def noted(self) -> Set[WorkloadUid]:
        """Of whom a use is known that may go on."""
        return self._now.keys()

    def unkept(self, most: int) -> tuple[Run, ...]:
        """What has begun, ended or changed and is in no store yet, oldest change first."""
        return tuple(Run(uid, usage) for (uid, _), usage in islice(self._unkept.items(), most))

    def kept(self, runs: Sequence[Run]) -> None:
        """These are in the store; what has changed since stays unkept."""
        for uid, usage in runs:
            if self._unkept.get((uid, usage.begun_at)) == usage:
                del self._unkept[uid, usage.begun_at]
                self.unseen.discard((uid, usage.begun_at))

    def _log(self, uid: WorkloadUid, usage: Usage) -> None:
        if self.is_kept:
            self._unkept.pop((uid, usage.begun_at), None)
            self._unkept[uid, usage.begun_at] = usage
            if len(self._unkept) > MOST_UNKEPT:
                oldest = next(iter(self._unkept))
                del self._unkept[oldest]
                self.unseen.discard(oldest)

    def begin(self, rules: OrderRules, now: datetime) -> None:
        """Before the first use is noted: each is then entered as it comes, and not thousands of them at once."""
        if self._fading is None:
            self._fading = Fading(Window(rules.share_half_life_s), now)

    def note(self, uid: WorkloadUid, usage: Usage | None, now: datetime, left_at: datetime | None = None) -> None:
        """What a workload has from now on; None: nothing (any more).

        `left_at` is when the hub last took it back, if it says so. Of a run that began before we looked that was its
        end: nobody starts work anew while no daemon nominates, so it is still that run's.
        """
        known = self._now.get(uid)
        recalled = known is not None and (uid, known.begun_at) in self._recalled
        if known is not None:
            self._recalled.discard((uid, known.begun_at))
        if known == usage:
            return
        if known is not None and (usage is None or usage.begun_at != known.begun_at):
            if known.ended_at is None:
                told = recalled and usage is None and left_at is not None and known.begun_at <= left_at <= now
                ended_at = left_at if told and left_at is not None else now
                if self._fading is not None:
                    self._fading.end(known, ended_at)
                self._log(uid, replace(known, ended_at=max(known.begun_at, ended_at)))
                if recalled and not told and self.is_kept:
                    self.unseen.add((uid, known.begun_at))
            del self._now[uid]
            known = None
        if usage is not None:
            self._now[uid] = usage
            self._log(uid, usage)
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
            team: Share(team, share.share_ppm // STEP_PPM * STEP_PPM, share.dominant)
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
