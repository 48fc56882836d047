"""Frees the slices of interactive work that nobody uses: notice first, then the end, each on record before it is done.

Level-triggered, and stateless: what stands on the hub says how far each one is (core/idle.py), so that a kill at any
step, another replica, or a new store goes on where it was. The row in the audit log comes before the write (intent
before effect) and names the run and the notice, so it is written once; the write is guarded by the version that was
judged. Each write changes what the next look finds, so nothing is asked for twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from dispatcher.core.audit import AuditKind, Entry, under
from dispatcher.core.errors import Refused, Transient
from dispatcher.core.explain_idle import cancelled_text, freed_text, notice_text
from dispatcher.core.idle import (
    DECIDED,
    ENDED,
    ENDING,
    NOTICE,
    Course,
    IdleNotice,
    Sight,
    Stage,
    Standing,
    look,
    notice_of,
)
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.instants import stamp
from dispatcher.core.lease import Always
from dispatcher.core.policy import Policy
from dispatcher.core.ports import Amendment, EventType, Eviction, Leadership, Notice
from dispatcher.core.snapshot import Link, digest_of
from dispatcher.core.workload import HubWorkload
from dispatcher.logs import get_logger
from dispatcher.loops.asking import Pace, is_newest
from dispatcher.loops.notify import NoticeLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker
from dispatcher.state import FleetState

LOOP = "idle"
RESYNC_S = 5.0
NEWS_S = 600
"""An end is told for so long after it: a start does not tell everybody again what was freed last week."""
REQUEUE_S = 30
"""So long Kueue keeps what was evicted out of the queue, which is time enough to set it inactive."""
SETTLE_S = 1.0
"""From a wake-up to the look: hundreds of notebooks say every minute that somebody looked at them."""


class AuditPort(Protocol):
    """What of the store is written here. Raises Transient when it cannot be written now."""

    async def add(self, entries: list[Entry]) -> int: ...


@dataclass(slots=True)
class IdleLoop:
    state: FleetState
    audit: AuditPort
    notices: NoticeLoop
    metrics: Metrics
    health: Health
    waker: Waker
    leadership: Leadership = field(default_factory=Always)
    _told: set[tuple[WorkloadUid, str]] = field(default_factory=set)
    _pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self._pace = Pace(self.state, lambda: self.health.beat(LOOP))

    async def run(self) -> None:
        while True:
            self.health.beat(LOOP)
            await self.cycle()
            await self.waker.wait(RESYNC_S)
            await self.state.clock.sleep(SETTLE_S)

    async def cycle(self) -> None:
        """One look, and what follows from it. Nothing is concluded while the hub is not fully seen or silent."""
        now = self.state.clock.now()
        if self.state.hub_link(now) is not Link.CONNECTED:
            return
        found = look(Sight(self.state.hub_view(), self.state.worker_views(), self.state.policy, now))
        self.state.idle = found
        self._count(found)
        if not self._leading():
            return
        self._tell(found, now)
        for standing in found.values():
            if standing.course is not Course.NONE and not self._pace.spares(standing.workload):
                await self._act(standing, now)
        self._pace.keep()

    def _leading(self) -> bool:
        return self.leadership.may_write(self.state.clock.monotonic_s())

    # --- telling -------------------------------------------------------------------------------------------------

    def _count(self, found: Mapping[WorkloadUid, Standing]) -> None:
        stages = Counter(standing.stage for standing in found.values())
        for stage in Stage:
            self.metrics.idle.labels(stage).set(stages.get(stage, 0))

    def _tell(self, found: Mapping[WorkloadUid, Standing], now: datetime) -> None:
        """What is seen to stand is told, not what was written: so a write that was not answered, or of a daemon that is
        gone, is told as well. In the same words, which the hub only counts."""
        current: set[tuple[WorkloadUid, str]] = set()
        for uid, standing in found.items():
            reason, text = _news(standing, now)
            current.add((uid, text))
            if reason and (uid, text) not in self._told:
                self._event(standing.workload, EventType.WARNING, reason, text)
        self._told = current

    def _event(self, workload: HubWorkload, kind: EventType, reason: str, text: str) -> None:
        get_logger().info("idle", reason=reason, workload=workload.key, text=text)
        self.notices.put(Notice(workload.uid, workload.namespace, workload.name, kind, reason, text))

    # --- acting --------------------------------------------------------------------------------------------------

    async def _act(self, standing: Standing, now: datetime) -> None:
        """On record first; then, and only if it is and all is still as it was judged, the write."""
        judged = standing.workload
        notice = _notice_for(standing, now)
        if standing.course in DECIDED:
            try:
                await self.audit.add([_entry(standing, notice, self.state.policy, now)])
            except (Transient, Refused) as error:
                get_logger().error("audit_not_written", error=str(error))
                return
        if not is_newest(judged, self.state) or not self._leading():
            self.waker.wake()  # it moved: look at once what it is now
            return
        result = await self._write(judged, _write_of(standing, notice, now), now)
        self.metrics.idle_writes.labels(standing.course, result).inc()
        if result == "written" and standing.course is Course.CANCEL:
            self._event(judged, EventType.NORMAL, "IdleNoticeCancelled", cancelled_text(standing, now))

    async def _write(self, judged: HubWorkload, write: Amendment | Eviction, now: datetime) -> str:
        hub = self.state.hub
        made = hub.evict(write, now) if isinstance(write, Eviction) else hub.amend(write)
        result, error = await self._pace.result_of(judged, made, "written")
        if result == "conflict":
            self.waker.wake()
        if error is not None:
            fix = {"fix": "add deploy/interactive"} if isinstance(error, Refused) else {}
            get_logger().error("idle_not_written", workload=f"{write.namespace}/{write.name}", error=str(error), **fix)
        return result


def _news(standing: Standing, now: datetime) -> tuple[str, str]:
    """The Event's reason and words for what its owner should hear; empty: nothing."""
    if standing.stage is Stage.NOTICED and standing.notice is not None:
        return "IdleNotice", notice_text(standing, standing.notice)
    ended_at = standing.ended_at if standing.stage is Stage.ENDED else None
    if ended_at is not None and (now - ended_at).total_seconds() < NEWS_S:
        return "FreedAsIdle", freed_text(standing, ended_at)
    return "", ""


def _notice_for(standing: Standing, now: datetime) -> IdleNotice | None:
    """The notice that this is about: the one that stands, or the one to give."""
    if standing.course is not Course.NOTICE:
        return standing.notice
    assert standing.rule is not None
    assert standing.activity is not None
    assert standing.since is not None
    return notice_of(standing.rule, standing.activity, standing.since, now)


def _write_of(standing: Standing, notice: IdleNotice | None, now: datetime) -> Amendment | Eviction:
    workload = standing.workload
    about = (workload.uid, workload.namespace, workload.name, workload.resource_version)
    match standing.course:
        case Course.NOTICE if notice is not None:
            return Amendment(*about, ((ENDED, None), (NOTICE, notice.text)))
        case Course.END:
            return Amendment(*about, ((ENDING, stamp(now)), (NOTICE, None)))
        case Course.EVICT:
            return Eviction(*about, standing.check, "freed as idle, after notice", REQUEUE_S)
        case Course.CLOSE:
            written = ((ENDED, stamp(standing.ended_at or now)), (ENDING, None))
            return Amendment(*about, written, deactivate=True)
    return Amendment(*about, ((NOTICE, None),))


def _entry(standing: Standing, notice: IdleNotice | None, policy: Policy, now: datetime) -> Entry:
    """The row of one course. Its event is the same however often it is tried: that of a notice names what it stands on,
    since its own times begin anew with each try; the others name their notice."""
    seen, rule = standing.activity, standing.rule
    told: tuple[object, ...] = (standing.workload.uid, standing.since, standing.course.value, policy.digest)
    about = seen.idle_since if standing.course is Course.NOTICE and seen is not None else notice
    detail = [("course", standing.course.value)]
    if rule is not None:
        detail += [("timeout_s", str(rule.timeout_s)), ("notice_s", str(rule.notice_s))]
    if seen is not None:
        detail += [("idle_since", stamp(seen.idle_since)), ("checked", stamp(seen.checked))]
    if notice is not None:
        detail += [("notice", notice.text)]
    return replace(
        under(policy, AuditKind.IDLE, f"idle/{digest_of((*told, about))}", now),
        workload=standing.workload.uid,
        cluster=standing.cluster,
        detail=tuple(detail),
    )
