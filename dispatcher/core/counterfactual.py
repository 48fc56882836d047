"""What would have had to change for another answer, as values; `explain.py` has the words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dispatcher.core.decision import Candidate, Decision, Fit, Rejection, TermKind
from dispatcher.core.ids import ClusterName


class Obstacle(StrEnum):
    """What kind of thing kept a cluster from being chosen."""

    COST = "cost"
    PREEMPTION = "preemption"
    LOSS_UNKNOWN = "loss-unknown"
    TIE = "tie"
    REJECTED = "rejected"
    UNPRICED = "unpriced"


@dataclass(frozen=True, slots=True)
class Difference:
    """One term of a loser beside the winner's: positive where the loser is dearer."""

    kind: TermKind
    usd_micro: int


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Why one cluster was not chosen and what would have made it the choice.

    `gap_usd_micro` is the loser's total minus the winner's (None where one of them is not known); it must fall below
    zero. `differences` are its parts, largest first. `blocking` must all be lifted; `alone` says that it is a single
    thing. `would_win` tells whether the cluster would have been chosen with that lifted and all else equal.
    """

    cluster: ClusterName
    obstacle: Obstacle
    gap_usd_micro: int | None = None
    differences: tuple[Difference, ...] = ()
    blocking: tuple[Rejection, ...] = ()
    would_win: bool | None = None

    @property
    def alone(self) -> bool:
        return len(self.blocking) == 1


def counterfactuals(decision: Decision) -> tuple[Counterfactual, ...]:
    """One per cluster that was not chosen: eligible losers by total, then the rejected, fewest obstacles first."""
    winner = decision.candidate(decision.chosen) if decision.chosen is not None else None
    losers = [c for c in decision.candidates if c.cluster != decision.chosen]
    ordered = sorted(losers, key=lambda c: (not c.eligible, len(c.rejections), c.total_usd_micro or 0, c.cluster))
    return tuple(counterfactual(loser, winner) for loser in ordered)


def counterfactual(loser: Candidate, winner: Candidate | None) -> Counterfactual:
    gap = _gap(loser, winner)
    parts = differences(loser, winner) if winner is not None and gap is not None else ()
    if loser.rejections:
        return Counterfactual(
            loser.cluster, Obstacle.REJECTED, gap, parts, loser.rejections, _would_win(loser, winner, gap)
        )
    if loser.total_usd_micro is None:
        return Counterfactual(loser.cluster, Obstacle.UNPRICED)
    if winner is not None and loser.fit is Fit.BY_PREEMPTION and winner.fit is Fit.NOW:
        return Counterfactual(loser.cluster, Obstacle.PREEMPTION, gap, parts, would_win=gap is not None and gap < 0)
    if winner is not None and loser.loss_known < winner.loss_known:
        return Counterfactual(loser.cluster, Obstacle.LOSS_UNKNOWN, gap, parts)
    obstacle = Obstacle.TIE if gap == 0 else Obstacle.COST
    return Counterfactual(loser.cluster, obstacle, gap, parts)


def differences(loser: Candidate, winner: Candidate) -> tuple[Difference, ...]:
    """Where the two bills differ, the largest difference first; terms that are equal or not known are left out."""
    mine = {term.kind: term.amount_usd_micro for term in winner.terms}
    found = [
        Difference(term.kind, term.amount_usd_micro - base)
        for term in loser.terms
        if term.amount_usd_micro is not None and (base := mine.get(term.kind)) is not None
    ]
    return tuple(sorted((d for d in found if d.usd_micro), key=lambda d: (-abs(d.usd_micro), d.kind)))


def _gap(loser: Candidate, winner: Candidate | None) -> int | None:
    if winner is None or winner.total_usd_micro is None or loser.total_usd_micro is None:
        return None
    return loser.total_usd_micro - winner.total_usd_micro


def _would_win(loser: Candidate, winner: Candidate | None, gap: int | None) -> bool | None:
    """With everything in its way lifted, all else equal. Unknown where the loser has no total to compare."""
    if winner is None:
        return None if loser.total_usd_micro is None else True
    return None if gap is None or gap == 0 else gap < 0
