"""Who waits, in deciding order, kept from one look at the hub to the next.

Thousands wait while a few change: what has not changed since the last look is neither judged nor sorted again, and a
first look at a large hub lets everything else in the process have its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from typing import NamedTuple

from dispatcher.core.bids import bid_of, capacity_of, usage_of
from dispatcher.core.decision import Basis
from dispatcher.core.history import NO_HISTORY, Usual
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.order import Bid, OrderRules, Turn
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import HubView, WorkerView
from dispatcher.core.waiting import Peers, Phase, Standing, standing, stands_alone
from dispatcher.core.workload import HubWorkload, OwnerMeta
from dispatcher.loops.turns import STRIDE, Pause, ShareBook

DECIDED = frozenset({Phase.WAITING, Phase.NOMINATED})
HELD_BY_INPUT = frozenset({Phase.NO_OWNER, Phase.UNREADABLE})
IN_LINE = DECIDED | HELD_BY_INPUT
PART = 1024
"""Workloads that are sorted in one go."""


class InLine(NamedTuple):
    """A workload that dispatch has to do with, and where it stands."""

    order: tuple[int, datetime, datetime, str]
    workload: HubWorkload
    standing: Standing


class _Known(NamedTuple):
    """A workload as it was last seen. `bid`: of one that is in line."""

    workload: HubWorkload
    owner: OwnerMeta | None
    standing: Standing
    bid: Bid | None
    alone: bool
    """Whether where it stands depends on no other."""

    def is_of(self, workload: HubWorkload, owner: OwnerMeta | None) -> bool:
        """Whether this is still all that is to be known."""
        return self.workload is workload and self.alone and (self.owner is owner or self.owner == owner)


@dataclass(slots=True)
class WaitingLine:
    """The workloads of the newest hub view that are in one of the phases IN_LINE."""

    turns: Mapping[WorkloadUid, Turn] = field(default_factory=dict)
    """The turn of each of them."""
    book: ShareBook = field(default_factory=ShareBook)
    usual: Usual = field(default_factory=lambda: NO_HISTORY)
    """How long runs of a queue and class usually last, for the next look."""
    _usual: Usual = field(default_factory=lambda: NO_HISTORY)
    """As of the last look."""
    _ended: list[tuple[HubWorkload, OwnerMeta | None]] = field(default_factory=list)
    _hub: HubView | None = None
    _policy: Policy | None = None
    _known: dict[WorkloadUid, _Known] = field(default_factory=dict)
    _line: list[InLine] = field(default_factory=list)

    async def of(
        self, hub: HubView, workers: Iterable[WorkerView], policy: Policy, now: datetime, pause: Pause
    ) -> list[InLine]:
        """All of them, first in order first. `pause` is awaited every STRIDE workloads."""
        same = policy is self._policy and self._hub is not None and _same(self._hub, hub)
        if same and self.usual is self._usual:
            return self._line
        self.book.begin(policy.order, now)
        touched = set() if same else await self._look(hub, policy, now, pause)
        touched |= self._estimate_anew(policy)
        if touched or policy is not self._policy:
            shares = self.book.shares
            self.book.work_out(policy.order, lambda: capacity_of(workers), now)
            anew = policy is not self._policy or shares != self.book.shares
            await self._sort(self._known.keys() if anew else touched, policy.order, pause)
        self._hub, self._policy, self._usual = hub, policy, self.usual
        return self._line

    def take_ended(self) -> list[tuple[HubWorkload, OwnerMeta | None]]:
        """What was found to be over since this was asked last, some of it more than once."""
        ended, self._ended = self._ended, []
        return ended

    async def _look(self, hub: HubView, policy: Policy, now: datetime, pause: Pause) -> set[WorkloadUid]:
        """Judge what has changed; which have, those included that are gone."""
        same_rules = self._hub is not None and (self._hub.checks, self._hub.configs) == (hub.checks, hub.configs)
        same_rules = same_rules and policy is self._policy
        before = self._known if same_rules else {}
        peers, owners = Peers(hub), hub.owners
        same_owners = self._hub is not None and owners is self._hub.owners
        found = _as_before(before, hub.workloads) if same_owners else {}
        touched: set[WorkloadUid] = set()
        for at, (uid, workload) in enumerate([each for each in hub.workloads.items() if each[0] not in found]):
            if at % STRIDE == 0:
                await pause()
            known = before.get(uid)
            owner = owners.get(workload.owner.uid) if workload.owner is not None else None
            if known is None or not known.is_of(workload, owner):
                known = self._judged(workload, owner, standing(workload, hub, peers), policy)
                self.book.note(uid, usage_of(workload, owner), now, workload.left_at or workload.evicted_at)
                touched.add(uid)
                if workload.finished:
                    self._ended.append((workload, owner))
            found[uid] = known
        recalled = self.book.noted() if self._hub is None else frozenset()
        for uid in sorted((self._known.keys() | recalled) - found.keys()):
            self.book.note(uid, None, now)
            touched.add(uid)
        self._known = found
        return touched

    def _estimate_anew(self, policy: Policy) -> set[WorkloadUid]:
        """Of those in line by a run time that nobody declared: who is taken to run for another time than before."""
        found: set[WorkloadUid] = set()
        for entry in self._line if self.usual is not self._usual else ():
            known = self._known.get(entry.workload.uid)
            if known is None or known.bid is None or known.bid.estimate.basis is Basis.DECLARED:
                continue
            bid = bid_of(known.workload, known.owner, policy, self.usual)
            if bid != known.bid:
                self._known[entry.workload.uid] = known._replace(bid=bid)
                found.add(entry.workload.uid)
        return found

    def _judged(self, workload: HubWorkload, owner: OwnerMeta | None, where: Standing, policy: Policy) -> _Known:
        bid = bid_of(workload, owner, policy, self.usual) if where.phase in IN_LINE else None
        return _Known(workload, owner, where, bid, stands_alone(workload))

    async def _sort(self, touched: Set[WorkloadUid], rules: OrderRules, pause: Pause) -> None:
        """Put into the line again whoever has changed; the others keep their turns."""
        line = [entry for entry in self._line if entry.workload.uid not in touched]
        turns = dict(self.turns)
        for at, uid in enumerate(sorted(touched)):
            if at % STRIDE == 0:
                await pause()
            known = self._known.get(uid)
            if known is None or known.bid is None:
                turns.pop(uid, None)
                continue
            turn = turns[uid] = self.book.turn(known.bid, rules)
            line.append(InLine(turn.key, known.workload, known.standing))
        self.turns, self._line = turns, await _sorted(line, pause)


async def _sorted(line: list[InLine], pause: Pause) -> list[InLine]:
    """Part by part, and then two and two, with a turn for everybody else after each: what is sorted already, as nearly
    all of a line is, costs next to nothing."""
    parts = [line[at : at + PART] for at in range(0, len(line), PART)]
    for part in parts:
        part.sort()
        await pause()
    while len(parts) > 1:
        merged = []
        for first, second in zip_longest(parts[::2], parts[1::2], fillvalue=()):
            merged.append(sorted((*first, *second)))
            await pause()
        parts = merged
    return parts[0] if parts else []


def _as_before(
    known: Mapping[WorkloadUid, _Known], workloads: Mapping[WorkloadUid, HubWorkload]
) -> dict[WorkloadUid, _Known]:
    """Those of whom nothing has changed, while no owner has."""
    return {uid: each for uid, each in known.items() if each.alone and workloads.get(uid) is each.workload}


def _same(before: HubView, hub: HubView) -> bool:
    """Whether nobody stands otherwise than before. Views share what has not changed."""
    return (
        before.workloads is hub.workloads
        and before.owners is hub.owners
        and (before.checks, before.configs) == (hub.checks, hub.configs)
    )
