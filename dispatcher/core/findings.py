"""What is found wrong with a workload: by the watchdog, by the law, by what must end. Stable codes and typed detail."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dispatcher.core.ids import ClusterName, WorkloadUid


class FindingCode(StrEnum):
    """What was found. Stable codes: they are in metrics, Events' reasons and the API."""

    LEFT_BEHIND = "left-behind"
    NOT_LATCHED = "not-latched"
    COPY_EVICTED = "copy-evicted"
    COPY_RECLAIMED = "copy-reclaimed"
    COPY_REJECTED = "copy-rejected"
    COPY_DEACTIVATED = "copy-deactivated"
    COPY_OUT_OF_SYNC = "copy-out-of-sync"
    COPY_VANISHED = "copy-vanished"
    PROVISIONING_FAILED = "provisioning-failed"
    NAME_TAKEN = "name-taken"
    OUTCOME_UNKNOWN = "outcome-unknown"
    EVICTION_STUCK = "eviction-stuck"
    TWO_COPIES_RUNNING = "two-copies-running"
    HUB_RUNS_IT = "hub-runs-it"
    HUB_PREEMPTED = "hub-preempted"
    CLUSTER_GONE = "cluster-gone"
    CLUSTER_AWAY = "cluster-away"
    APPROVAL_REVOKED = "approval-revoked"
    PREEMPTION_IN_VAIN = "preemption-in-vain"
    ILLEGAL_WAITING = "illegal-waiting"
    ILLEGAL_RUNNING = "illegal-running"
    ILLEGAL_ENDED = "illegal-ended"


OF_THE_LAW = frozenset({FindingCode.ILLEGAL_WAITING, FindingCode.ILLEGAL_RUNNING, FindingCode.ILLEGAL_ENDED})
"""Found by core/illegal.py; all others by core/watchdog.py and core/endings.py."""


@dataclass(frozen=True, slots=True)
class FindingDetail:
    """Typed detail; unused fields stay empty. `reason` is Kueue's own code, `names` the things concerned.

    Of what became illegal (core/illegal.py): `rule` with its place, what is awaited, by when the rule wants it over.
    """

    reason: str = ""
    check: str = ""
    names: tuple[str, ...] = ()
    job: str = ""
    ran: bool = False
    last_seen: datetime | None = None
    rule: str = ""
    awaits: str = ""
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with one workload. `since` is when it became so, as far as that is known."""

    code: FindingCode
    workload: WorkloadUid
    key: str
    cluster: ClusterName | None = None
    copy: str = ""
    since: datetime | None = None
    detail: FindingDetail = FindingDetail()

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """The same thing seen again has the same identity; on another copy it is another thing."""
        return (self.workload, self.code.value, self.cluster or "", self.copy)
