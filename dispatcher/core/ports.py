"""What the core's shell asks of the world. Connectors implement these; loops and web know nothing else of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.energy import Drawn, EndedRun
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.lease import LeaseRecord
from dispatcher.core.replay import Inputs, Record
from dispatcher.core.replicas import Seen
from dispatcher.core.shares import Run
from dispatcher.core.snapshot import Hold, HubView, WorkerView
from dispatcher.core.workload import Avoided

Wake = Callable[[], None]
"""Called by a port when what it sees has changed. It only wakes the loops; views carry the truth."""


class Clock(Protocol):
    def now(self) -> datetime:
        """The current instant, aware, in UTC."""

    def monotonic_s(self) -> float:
        """Seconds that never jump, for silence limits and backoff."""

    def wall_ahead_s(self) -> int:
        """How many seconds the wall clock is ahead of `now` (behind: negative), away from zero; 0 while they agree."""

    async def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class CatalogText:
    """What the endpoint of a catalog answered, unread. `etag` is how to ask whether it still holds."""

    body: bytes = field(repr=False)
    etag: str | None = None


class CatalogPort(Protocol):
    async def fetch(self, etag: str | None) -> CatalogText | None:
        """The answer as it is now; None where the one of `etag` still holds.

        Raises:
            Transient: it did not answer, or cannot now.
            Refused: it answered something that cannot be a catalog, or does not want us.
        """


class ObjectsPort(Protocol):
    """A store's bucket."""

    async def look(self, name: str) -> Seen:
        """Whether the replica of a data set is there. Never raises for what the store answers or does not."""


class UseLog(Protocol):
    """What teams had of the fleet, kept so that their shares do not begin at nothing after a restart."""

    async def keep(
        self, runs: Sequence[Run], drawn: Mapping[tuple[WorkloadUid, datetime], Drawn | None], term: int | None = None
    ) -> None:
        """Record begins and ends, all or nothing; of a run that is known, what is told of it now. What it draws, where
        that is not told or guessed, stays as it was told before; told as None it is not known any more.

        Raises:
            Transient: nothing is promised; a repeat is safe.
            Fenced: a later term than `term` has begun: who leads now may have told more.
        """

    async def recall(self, since: datetime, most: int) -> Sequence[Run]:
        """Those that go on, then those that ended since, newest first; at most so many. Raises Transient."""


class LessonLog(Protocol):
    """What was learnt of copies that came to harm, kept so that a restart does not forget it: above all that a workload
    may have run to its end unseen, and must not be started again."""

    async def keep(self, learnt: Sequence[tuple[WorkloadUid, Avoided]], term: int | None = None) -> None:
        """Record what speaks against a cluster for a workload; of one cluster and cause, what is told now.

        Raises:
            Transient: nothing is promised; a repeat is safe.
            Fenced: a later term than `term` has begun.
        """

    async def recall(self, now: datetime) -> Sequence[tuple[WorkloadUid, Avoided]]:
        """What still holds at `now`, in a fixed order. Raises Transient."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """One write of `status.nominatedClusterNames`, valid only against `resource_version`."""

    uid: WorkloadUid
    namespace: str
    name: str
    resource_version: str
    clusters: tuple[ClusterName, ...]


@dataclass(frozen=True, slots=True)
class Eviction:
    """The end of an attempt: one write that sets the Workload's MultiKueue check to Retry, valid only against
    `resource_version`. `message` stands on the check until Kueue has acted on it. Kueue does not queue it again before
    `requeue_after_s`."""

    uid: WorkloadUid
    namespace: str
    name: str
    resource_version: str
    check: str
    message: str
    requeue_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Amendment:
    """A write on a hub Workload itself, valid only against `resource_version`: annotations of ours (None takes one
    off), and with `deactivate` its end. In one write, so that neither is ever there without the other."""

    uid: WorkloadUid
    namespace: str
    name: str
    resource_version: str
    annotations: tuple[tuple[str, str | None], ...]
    deactivate: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of one copy on its worker: `spec.active` becomes false, valid only for the copy of this uid."""

    uid: str
    namespace: str
    name: str


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event on a hub Workload (`kubectl describe workload` shows it). `reason` is UpperCamelCase."""

    uid: WorkloadUid
    namespace: str
    name: str
    type: EventType
    reason: str
    message: str


class HubPort(Protocol):
    async def check_ready(self) -> None:
        """Look whether this hub can be dispatched for, and in which mode nominations are written (core/writing.py).

        Raises:
            Fatal: the hub must be changed first; `fix` says how.
            Transient: the hub cannot be reached now.
        """

    async def run(self, wake: Wake) -> None:
        """Keep the view current until cancelled; survives disconnects by itself, never returns."""

    def view(self) -> HubView:
        """The newest immutable view; cheap."""

    async def nominate(self, nomination: Nomination) -> str:
        """Write the list, guarded by resourceVersion. Returns the new resourceVersion.

        Raises:
            Conflict: the Workload is newer (409/422) or gone (404); decide again.
            Transient: could not be written now; the outcome may be unknown, the next view tells.
            Refused: the hub forbids it (403, 415 ...).
        """

    async def withdraw(self, nomination: Nomination) -> str:
        """Empty a list that is dead, guarded as `nominate`; `clusters` is not read.

        Dead: left behind by an ended attempt, or of clusters that are gone. Never within an attempt that can still
        win: there nominations are add-only (kueue-contract section 5, hazards).
        """

    async def evict(self, eviction: Eviction, now: datetime) -> str:
        """End the attempt, wherever it is (kueue-contract section 6): Kueue evicts the Workload on the hub, clears the
        nomination and the cluster, stops the copy, frees the quota and queues it again. Guarded as `nominate`.

        Never while the check is closed already: an eviction on its way must not be asked for twice.
        """

    async def amend(self, amendment: Amendment) -> str:
        """Write annotations on a Workload; `deactivate` sets spec.active to false, so that Kueue evicts it wherever it
        is, frees its quota on hub and worker, and does not queue it again until somebody sets it back. Guarded as
        `nominate`."""

    async def notify(self, notice: Notice) -> None:
        """Create or repeat an Event. Raises Transient or Refused; losing one is not an error of the dispatch."""


class WorkerPort(Protocol):
    @property
    def name(self) -> ClusterName: ...

    async def run(self, wake: Wake) -> None:
        """Keep the view current until cancelled; survives disconnects by itself, never returns."""

    def view(self) -> WorkerView: ...

    async def stop(self, stop: Stop) -> None:
        """Stop a copy that runs although another one does (ADR 22). Its pods are asked to end, as in any eviction.

        Raises:
            Conflict: it is gone, or another has its name.
            Refused: we may not write there, which is the usual installation.
            Transient: the outcome is unknown.
        """


class LeasePort(Protocol):
    """One Lease, kept where all replicas see the same: on the hub."""

    async def read(self) -> LeaseRecord:
        """The Lease as it is now; `core.lease.ABSENT` when there is none.

        Raises:
            Transient: it cannot be read now.
            Refused: the hub forbids it, or what lies there is no Lease.
        """

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Make the Lease (version "") or replace exactly that version of it. Returns it with its new version.

        Raises:
            Conflict: somebody wrote or deleted it since it was read.
            Transient: the outcome is unknown.
            Refused: the hub forbids it.
        """


class Leadership(Protocol):
    """Whether this process may act. Asked right before each batch of writes, never remembered."""

    @property
    def term(self) -> int:
        """The term that we act in; it grows with every change of leader. 0 = no order of terms (one daemon alone)."""

    def may_write(self, now_s: float) -> bool:
        """Whether we lead at this instant of our own monotonic clock."""

    def lost(self, why: str) -> None:
        """The store says that a later term has begun: from here on `may_write` is False.

        Raises:
            Fatal: there is no election that could be won again; the process must end.
        """


class Fence(Protocol):
    """The store's memory of terms: once a term has begun there, commits of earlier ones are refused."""

    async def term(self) -> int:
        """The highest term that ever began; 0 = none. Raises Transient."""

    async def lead(self, term: int, holder: str, now: datetime) -> None:
        """Begin a term; repeating the newest one by the same holder changes nothing.

        Raises:
            Fenced: this term or a later one has begun already, by another.
            Transient: the store cannot be written now.
        """


class IntentState(StrEnum):
    """Life of a nomination: stored before the write, closed when its effect (or failure) has been seen. Where its run
    brings data into a cache, what became of that is noted in the end."""

    PLANNED = "planned"
    WRITTEN = "written"
    ABANDONED = "abandoned"
    BROUGHT = "brought"
    """Written, and the data that its run brings into the cluster's cache is there (core/caches.py)."""
    ENDED = "ended"
    """Written, and its attempt was over before that data could have been there."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A nomination that we mean to write. `key` is the decision id, so a repeat is the same intent.

    `term` is the leader's; a commit in an older term than the store has seen is refused (Fence).
    """

    decision: DecisionId
    workload: WorkloadUid
    clusters: tuple[ClusterName, ...]
    state: IntentState
    made_at: datetime
    term: int = 0


class Store(Protocol):
    """Durable memory. Every method is one transaction with a deadline; none calls the network inside it.

    Raises Transient when the store cannot be written (full, locked, gone): then no new commitment is made.
    """

    async def commit(
        self, decision: Decision, hold: Hold | None, intent: Intent | None, seen: Inputs | None = None
    ) -> None:
        """Record a decision with its hold and intent in one transaction; repeating it changes nothing.

        `seen` is what it was decided on, kept for replay as long as there is room.

        Raises:
            Fenced: a later term has begun; whoever wrote this no longer leads.
            Conflict: another nomination of this Workload is open, or was decided on the same version of it.
        """

    async def mark(self, decision: DecisionId, state: IntentState, now: datetime, term: int | None = None) -> None:
        """Move an intent on. An ABANDONED intent drops the holds of its decision as well.

        Raises:
            Fenced: a later term than `term` has begun: who leads now says what became of it.
        """

    async def release(self, workload: WorkloadUid, now: datetime, term: int | None = None) -> None:
        """Drop all holds of a workload. Raises Fenced as `mark`: they may be the holds of who leads now."""

    async def holds(self) -> Sequence[Hold]: ...

    async def intents(self, state: IntentState) -> Sequence[Intent]: ...

    async def states(self, wanted: Sequence[DecisionId]) -> Mapping[DecisionId, tuple[IntentState, datetime]]:
        """Of these decisions, those with an intent, and since when it is in its state. A few queries for thousands."""

    async def decision(self, decision: DecisionId) -> Decision | None: ...

    async def ids_like(self, start: str, limit: int = 10) -> Sequence[DecisionId]:
        """Ids that begin with `start`, in order: people copy as much of an id as they need."""

    async def record(self, decision: DecisionId) -> Record | None:
        """A decision with what it saw; None when there is no such decision, or its inputs are no longer kept."""

    async def decisions_of(self, workload_key: str, limit: int = 20) -> Sequence[Decision]:
        """Newest first. `workload_key` is namespace/name of the Workload, or of its job."""

    async def ended_runs(self, key: str, limit: int) -> Sequence[EndedRun]:
        """The ended runs of a workload of which it is known where they ran, newest first."""
        ...

    async def newest_of(self, workloads: Sequence[WorkloadUid]) -> Sequence[Decision]:
        """The newest decision of each of these Workloads that has one. A few queries for thousands of them."""

    async def recent(
        self, limit: int = 50, cluster: ClusterName | None = None, outcome: Outcome | None = None
    ) -> Sequence[Decision]:
        """Newest first, over all workloads; narrowed to those that chose `cluster` or came out as `outcome`."""

    async def keys_named(self, name: str, limit: int = 20) -> Sequence[str]:
        """Workload keys (namespace/name) that a bare workload or job name stands for, newest decision first."""

    async def close(self) -> None: ...
