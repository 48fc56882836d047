"""What may be concluded from silence, and since when: whether we see well enough to act on the loss of a cluster.

Whoever was blind cannot tell a cluster that is lost from one that was not looked at. So every loss clock begins when
somebody began to look: at the start of the process, with a new leader, when the hub is seen again. Until one quiet
period has passed since then, nothing is done because of a loss (design section 9, FR-RAC-02). A clock that runs is kept
from look to look, also of a cluster that was never seen in this life: else its grace would never end (FR-WAT-02).

Many clusters that go at once have most likely gone for one reason, and that reason is on our side: then nothing is done
either, and somebody is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from dispatcher.core.ids import ClusterName
from dispatcher.core.snapshot import Link

TOGETHER_S = 600
"""Clusters that went within so long of each other went together."""


class Mode(StrEnum):
    """Stable codes: they are in metrics and in the API."""

    BLIND = "blind"
    """The hub is not seen: nothing is decided at all."""
    WARMING = "warming"
    """Seen again, and not for long enough: no loss has any consequence."""
    STEADY = "steady"
    FROZEN = "frozen"
    """Too many clusters went together: no loss has any consequence until they are back, or a person has looked."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look sees: the hub's link, each cluster's with when it was last heard of, and in which term we act
    (None: we stand by)."""

    hub: Link
    clusters: Mapping[ClusterName, tuple[Link, datetime | None]]
    term: int | None
    now: datetime


@dataclass(frozen=True, slots=True)
class Footing:
    """`since`: from when on we have looked without a break. `lost`: the anchor of each loss clock that runs."""

    mode: Mode = Mode.BLIND
    since: datetime | None = None
    lost: Mapping[ClusterName, datetime] = field(default_factory=dict)
    term: int | None = None

    def lost_for_s(self, cluster: ClusterName, now: datetime) -> float | None:
        """How long a cluster has counted as lost; None: it has not, or nothing may be concluded from that now."""
        if self.mode is not Mode.STEADY or cluster not in self.lost:
            return None
        return (now - self.lost[cluster]).total_seconds()


def step(before: Footing, sight: Sight, quiet_s: int, most_percent: int) -> Footing:
    """The footing after one more look. More than `most_percent` of all clusters lost together freeze it."""
    if sight.hub is not Link.CONNECTED:
        return Footing(term=sight.term)
    since = before.since
    if since is None or before.term != sight.term:
        return Footing(Mode.WARMING, sight.now, _lost({}, sight, sight.now), sight.term)
    lost = _lost(before.lost, sight, since)
    if (sight.now - since).total_seconds() <= quiet_s:
        return Footing(Mode.WARMING, since, lost, sight.term)
    if together(lost.values()) * 100 > most_percent * len(sight.clusters):
        return Footing(Mode.FROZEN, since, lost, sight.term)
    if before.mode is Mode.FROZEN:  # what kept us from seeing may be over only just now
        return step(replace(before, since=None), sight, quiet_s, most_percent)
    return Footing(Mode.STEADY, since, lost, sight.term)


def _lost(known: Mapping[ClusterName, datetime], sight: Sight, since: datetime) -> Mapping[ClusterName, datetime]:
    """A cluster that is newly lost has been since it was last heard of, as far as somebody was looking then; where
    nobody knows when that was, since now."""
    return {
        name: known.get(name, max(since, seen_at or sight.now))
        for name, (link, seen_at) in sorted(sight.clusters.items())
        if link is not Link.CONNECTED
    }


def together(anchors: Iterable[datetime]) -> int:
    """The most losses that began within TOGETHER_S of each other."""
    begun = sorted(anchors)
    span = timedelta(seconds=TOGETHER_S)
    return max((sum(first <= other <= first + span for other in begun) for first in begun), default=0)
