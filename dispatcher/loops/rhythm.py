"""When dispatch looks again: how long it rests between two cycles, and when a nomination that failed is tried again.

Quick where there is little to do, so that a job on an idle hub is nominated within a few milliseconds of its quota;
slow where much goes on, so that a storm of events costs a fifth of a core.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dispatcher.core.ids import WorkloadUid
from dispatcher.core.traffic import Refusal
from dispatcher.core.workload import HubWorkload

SHORTEST_REST_S = 0.002
LONGEST_REST_S = 0.1
BURST_S = 0.05
"""What a loop may work in a burst without longer rests: some ten cycles around the reservation of one job."""
OVERTAKEN_S = 1.0
"""How long a view that has not shown what overtook us is waited for."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


@dataclass(slots=True)
class Throttle:
    """How long a loop rests between two cycles: `shortest_s` while it has little to do; under a storm of events so long
    that it takes about `share` of a core, but never above `longest_s`.

    What it worked is owed, and paid back at the rate of that share: a burst is answered at once, a storm is not.
    """

    shortest_s: float
    longest_s: float
    share: float
    _owed_s: float = 0.0
    _counted_s: float = 0.0

    def rest_s(self, busy_s: float, now_s: float) -> float:
        """After a cycle that worked for `busy_s` and ended at `now_s` (monotonic)."""
        paid_s = max(0.0, now_s - self._counted_s) * self.share
        self._owed_s, self._counted_s = max(0.0, self._owed_s - paid_s) + busy_s, now_s
        if self._owed_s <= BURST_S:
            return self.shortest_s
        return min(self.longest_s, max(self.shortest_s, busy_s / self.share))


@dataclass(frozen=True, slots=True)
class _Failure:
    at: datetime
    pause_s: float
    overtaken_on: str | None
    """The resourceVersion that somebody else's write made old; None when it failed for another reason."""


@dataclass(slots=True)
class Retries:
    """Workloads whose last nomination was not made, and how long each is left alone.

    Kueue writes to a Workload three times within some milliseconds of its quota reservation (quota, checks, PodsReady),
    so that a quick nomination meets a conflict now and then. That is no reason to wait longer than until the view
    shows the newer version. Everything else is tried again after a pause that doubles.
    """

    _failures: dict[WorkloadUid, _Failure] = field(default_factory=dict)

    def overtaken(self, uid: WorkloadUid, resource_version: str, now: datetime) -> bool:
        """Somebody else wrote first: what we decided on is no longer the newest. Returns whether the same was said
        before.

        A hub that says so again of the same version (an admission policy denies with 422) is asked ever more rarely.
        """
        before = self._failures.get(uid)
        again = before is not None and before.overtaken_on == resource_version
        pause_s = min(before.pause_s * 2, LONGEST_PAUSE_S) if before is not None and again else OVERTAKEN_S
        self._failures[uid] = _Failure(now, pause_s, resource_version)
        return again

    def failed(self, uid: WorkloadUid, now: datetime) -> None:
        """The store, the hub or leadership did not allow it."""
        before = self._failures.get(uid)
        doubled_s = before.pause_s * 2 if before is not None and before.overtaken_on is None else FIRST_PAUSE_S
        self._failures[uid] = _Failure(now, min(doubled_s, LONGEST_PAUSE_S), None)

    def made(self, uid: WorkloadUid) -> None:
        self._failures.pop(uid, None)

    def leaves_alone(self, workload: HubWorkload, now: datetime) -> bool:
        """Whether it is too early to decide on this workload again."""
        failure = self._failures.get(workload.uid)
        if failure is None or (failure.overtaken_on not in (None, workload.resource_version)):
            return False
        return (now - failure.at).total_seconds() < failure.pause_s

    def turns(self) -> list[datetime]:
        """When those that failed may be decided on again."""
        return [failure.at + timedelta(seconds=failure.pause_s) for failure in self._failures.values()]

    def again_at(self, uid: WorkloadUid, now: datetime) -> datetime:
        """When this workload is decided on again."""
        failure = self._failures.get(uid)
        return failure.at + timedelta(seconds=failure.pause_s) if failure is not None else now

    def keep(self, alive: Container[WorkloadUid]) -> None:
        """Forget those that are no longer on the hub."""
        for uid in [uid for uid in self._failures if uid not in alive]:
            del self._failures[uid]

    def clear(self) -> None:
        self._failures.clear()


HUB = ""
"""The breaker's name for the hub as a whole; everything else in it is a namespace."""
CONFLICTS = 16
"""So many conflicts one after another, with nothing taken in between, are no accident: the hub denies, with 422."""
NAMESPACES = 3
"""So many namespaces that refuse one after another, with nothing taken in between: it is the hub that refuses."""
LONGEST_HUB_PAUSE_S = 5.0
"""The hub is tried more often than one namespace: what one policy forbids must not keep others for long."""


@dataclass(frozen=True, slots=True)
class _Tripped:
    message: str
    at: datetime
    pause_s: float

    @property
    def again_at(self) -> datetime:
        return self.at + timedelta(seconds=self.pause_s)


@dataclass(slots=True)
class Breaker:
    """A hub that refuses nominations (403, 422) is asked one at a time, ever more rarely, until it takes one again.

    Refusals are counted by namespace, since admission policies are made for namespaces; where several refuse in a row,
    for the hub as a whole. A namespace that has not refused need not wait for those that do: the hub is tried again
    sooner than any of them.
    """

    _tripped: dict[str, _Tripped] = field(default_factory=dict)
    _trying: set[str] = field(default_factory=set)
    """Those of which one nomination is on its way: they are asked for no second one."""
    _conflicts: int = 0
    """One after another, with nothing taken in between."""

    def stops(self, namespace: str, now: datetime) -> Refusal | None:
        """What keeps a workload of the namespace back now; None: it may be tried."""
        if not self._tripped:
            return None
        for key in (namespace, HUB):
            found = self._tripped.get(key)
            if found is not None and (now < found.again_at or key in self._trying):
                return Refusal(found.message, found.at, found.again_at, own=False)
        return None

    def turns(self) -> list[datetime]:
        """When those that refused are asked again."""
        return [tripped.again_at for tripped in self._tripped.values()]

    def tries(self, namespace: str) -> None:
        """A nomination of the namespace is on its way."""
        self._trying.update(key for key in (namespace, HUB) if key in self._tripped)

    def ended(self) -> None:
        """All nominations that were on their way have their answer."""
        self._trying.clear()

    def refused(self, namespace: str, message: str, now: datetime) -> None:
        self._trip(namespace, message, now, LONGEST_PAUSE_S)
        if len([key for key in self._tripped if key != HUB]) >= NAMESPACES:
            self._trip(HUB, message, now, LONGEST_HUB_PAUSE_S)

    def conflicted(self, message: str, now: datetime) -> None:
        """The hub says that somebody else wrote first, which it may say of everything."""
        self._conflicts += 1
        if self._conflicts >= CONFLICTS:
            self._trip(HUB, message, now, LONGEST_HUB_PAUSE_S)

    def _trip(self, key: str, message: str, now: datetime, longest_s: float) -> None:
        """Refusals of one batch count once."""
        before = self._tripped.get(key)
        if before is not None and now < before.again_at:
            return
        pause_s = FIRST_PAUSE_S if before is None else min(before.pause_s * 2, longest_s)
        self._tripped[key] = _Tripped(message, now, pause_s)

    def made(self, namespace: str) -> None:
        """The hub took one."""
        self._tripped.pop(namespace, None)
        self._tripped.pop(HUB, None)
        self._conflicts = 0

    def clear(self) -> None:
        self._conflicts = 0
        self._tripped.clear()
        self._trying.clear()
