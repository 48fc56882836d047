"""Acts on what the watchdog finds: tells it once, counts it, keeps a faulty cluster out of the next decisions of that
workload for a while, and takes nominations back that an eviction has left behind or whose cluster is gone.

Level-triggered like dispatch: it is woken by every change and looks at the newest views. It writes the withdrawal of
dead nominations and the end of attempts (core/endings.py), and only while it leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dispatcher.core.endings import Standing, endings, ends
from dispatcher.core.errors import EntrepotError, Fatal, Fenced, Transient
from dispatcher.core.explain_findings import finding_text
from dispatcher.core.footing import Mode, Sight, step
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.lease import Always
from dispatcher.core.ports import Leadership, LessonLog, Nomination
from dispatcher.core.snapshot import Link, link_of
from dispatcher.core.watchdog import OF_THE_LAW, Finding, FindingCode, Looked, Memory, Views, look_steps
from dispatcher.core.workload import Avoided
from dispatcher.logs import get_logger
from dispatcher.loops.asking import Pace
from dispatcher.loops.ending import Ender, Stopper
from dispatcher.loops.lessons import Lesson, learn
from dispatcher.loops.notify import NoticeLoop
from dispatcher.loops.rhythm import Throttle
from dispatcher.loops.slices import Slices
from dispatcher.loops.telling import Teller
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker
from dispatcher.state import FleetState

LOOP = "copies"
RESYNC_S = 5.0
SETTLE_S = 0.05
LONGEST_SETTLE_S = 0.25
"""From a wake-up to the look; the longer one while events come all the time. A worker's bad answer is visible for about
a second, so both are short."""
SHARE = 0.03
"""Of a core, that looks take meanwhile, as far as that goes with the longer one."""
PENALTY_S = 1800
EXCLUSION_S = 600
LONGEST_EXCLUSION_S = 7200
RECHECK_LIMIT_S = 40.0
"""For all of its calls together: one that hangs must not make this loop look dead."""
RECHECK_S = 60.0
"""How often a hub that does not latch is asked again how it may be written to."""

PENALISED = frozenset({FindingCode.COPY_EVICTED, FindingCode.COPY_VANISHED})
"""Going back is dearer for a while, not forbidden (FR-NOM-03)."""
EXCLUDED = frozenset(
    {
        FindingCode.COPY_REJECTED,
        FindingCode.COPY_DEACTIVATED,
        FindingCode.COPY_OUT_OF_SYNC,
        FindingCode.PROVISIONING_FAILED,
        FindingCode.NAME_TAKEN,
        FindingCode.PREEMPTION_IN_VAIN,
    }
)
"""The cluster is left out for a while, twice as long each time."""


TAKEN_BACK = frozenset({FindingCode.COPY_RECLAIMED})
"""The cluster is left out for what the workload would borrow there again, for a while and twice as long each time: the
owner of that quota is there now, and would take it back once more. On quota of its own it may go there at once."""


@dataclass(slots=True)
class CopiesLoop:
    state: FleetState
    notices: NoticeLoop
    metrics: Metrics
    health: Health
    waker: Waker
    learned: Callable[[], None] = lambda: None
    """Called when dispatch should decide anew because of what was found."""
    leadership: Leadership = field(default_factory=Always)
    lessons: LessonLog | None = None
    """Keeps what was learnt, over restarts; None: it is lost with the process."""
    _memory: Memory = field(default_factory=dict)
    _told: set[tuple[str, str, str, str]] = field(default_factory=set)
    _times: dict[tuple[WorkloadUid, ClusterName | None, str], int] = field(default_factory=dict)
    _unkept: dict[Lesson, Avoided] = field(default_factory=dict)
    """What was learnt and is not stored yet."""
    _rechecked_s: float = float("-inf")
    _pace: Pace = field(init=False)
    _ender: Ender = field(init=False)
    _stopper: Stopper = field(init=False)

    def __post_init__(self) -> None:
        self._pace = Pace(self.state, lambda: self.health.beat(LOOP))
        self._ender = Ender(self.state, self.metrics, self.waker.wake, self._pace)
        self._stopper = Stopper(self.state, self.metrics)

    async def run(self) -> None:
        throttle, clock = Throttle(SETTLE_S, LONGEST_SETTLE_S, SHARE), self.state.clock
        while True:
            self.health.beat(LOOP)
            started_s = clock.monotonic_s()
            await self.cycle()
            ended_s = clock.monotonic_s()
            await self.waker.wait(RESYNC_S)
            await clock.sleep(throttle.rest_s(ended_s - started_s, ended_s))

    async def cycle(self) -> None:
        """One look. Nothing is concluded while the hub is not fully seen or silent (design section 9)."""
        now = self.state.clock.now()
        self._look_at_footing(now, self.leadership.term if self._leading() else None)
        if self.state.hub_link(now) is not Link.CONNECTED:
            return
        findings, leading = await self._found(now), self._leading()
        for finding in findings:
            if finding.identity not in self._told:
                self._avoid(finding, now)
                if leading:
                    self._tell(finding, now)
        self._told = {finding.identity for finding in findings}
        self.state.findings = findings
        self._count_open(findings)
        self._forget(now)
        if leading:
            await self._keep()
            await self._act(findings)

    async def _found(self, now: datetime) -> tuple[Finding, ...]:
        state = self.state
        views = Views(state.hub_view(), state.worker_views(), state.policy.limits.silence_limit_s, now)
        looked = await self._look(views)
        self._memory = looked.memory
        ending = endings(views, Standing(state.policy, state.latest, state.footing, state.in_vain))
        return tuple(sorted((*looked.findings, *ending), key=lambda finding: finding.identity))

    def _look_at_footing(self, now: datetime, term: int | None) -> None:
        """What may be concluded from silence from now on; a fleet of which too much is lost at once is told."""
        before, limits = self.state.footing, self.state.policy.limits
        clusters = {
            name: (link_of(view, limits.silence_limit_s, now), view.observed_at)
            for name, view in self.state.worker_views().items()
        }
        sight = Sight(self.state.hub_link(now), clusters, term, now)
        footing = self.state.footing = step(before, sight, limits.silence_limit_s, limits.mass_loss_percent)
        self.metrics.clusters_lost.set(len(footing.lost))
        for mode in Mode:
            self.metrics.footing.labels(mode).set(1 if mode is footing.mode else 0)
        if footing.mode is Mode.FROZEN and before.mode is not Mode.FROZEN:
            get_logger().error("fleet_frozen", lost=sorted(footing.lost), of=len(clusters))
        elif footing.mode is not before.mode:
            get_logger().info("footing", mode=footing.mode, lost=sorted(footing.lost))

    async def _look(self, views: Views) -> Looked:
        slices, looking = Slices(self.state, self.health, LOOP), look_steps(self._memory, views)
        while True:
            try:
                next(looking)
            except StopIteration as end:
                found: Looked = end.value
                return found
            await slices.pause()

    def _leading(self) -> bool:
        """A replica that stands by learns as the leader does, and says and writes nothing."""
        return self.leadership.may_write(self.state.clock.monotonic_s())

    # --- telling -------------------------------------------------------------------------------------------------

    def _tell(self, finding: Finding, now: datetime) -> None:
        """Something that was not so at the last look: an Event, a log line, a count."""
        text = finding_text(finding, now)
        get_logger().warning(
            "finding",
            code=finding.code,
            workload=finding.key,
            cluster=finding.cluster,
            since=finding.since.isoformat() if finding.since is not None else None,
            text=text,
        )
        Teller(self.state, self.notices, self.metrics).finding(finding, text)

    def _count_open(self, findings: tuple[Finding, ...]) -> None:
        """Of all codes but the law's, which its own loop counts."""
        for code in FindingCode:
            if code not in OF_THE_LAW:
                self.metrics.findings_open.labels(code).set(sum(1 for f in findings if f.code is code))

    # --- lessons for dispatch ------------------------------------------------------------------------------------

    def _avoid(self, finding: Finding, now: datetime) -> None:
        code, cluster = finding.code, finding.cluster
        if code is FindingCode.OUTCOME_UNKNOWN:
            self._put(finding.workload, Avoided(None, code.value, now, None, excluded=True))
        elif code in PENALISED and cluster is not None:
            until = now + timedelta(seconds=PENALTY_S)
            self._put(finding.workload, Avoided(cluster, code.value, now, until, excluded=False))
        elif code in EXCLUDED and cluster is not None:
            until = self._longer_each_time(finding, now)
            self._put(finding.workload, Avoided(cluster, code.value, now, until, excluded=True))
        elif code in TAKEN_BACK and cluster is not None:
            until = self._longer_each_time(finding, now)
            self._put(finding.workload, Avoided(cluster, code.value, now, until, excluded=False, while_borrowing=True))

    def _longer_each_time(self, finding: Finding, now: datetime) -> datetime:
        key = (finding.workload, finding.cluster, finding.code.value)
        times = self._times[key] = self._times.get(key, 0) + 1
        return now + timedelta(seconds=min(LONGEST_EXCLUSION_S, EXCLUSION_S * 2 ** min(times - 1, 10)))

    def _put(self, uid: WorkloadUid, entry: Avoided) -> None:
        """One entry for a cluster and a cause; the newest counts. Sorted: requests are digested."""
        learn(self.state, uid, entry)
        self._unkept[uid, entry.cluster, entry.code] = entry
        self.learned()

    async def _keep(self) -> None:
        """Store what was learnt, before anything follows from it. What cannot be stored now stays in line; it counts
        for this process all the same."""
        if self.lessons is None or not self._unkept:
            return
        learnt = [(key[0], entry) for key, entry in self._unkept.items()]
        try:
            await self.lessons.keep(learnt, self.leadership.term or None)
        except Fenced as error:
            self.leadership.lost(str(error))
        except Transient as error:
            get_logger().error("lesson_not_kept", count=len(learnt), error=str(error))
        else:
            self._unkept.clear()

    def _forget(self, now: datetime) -> None:
        """Drop what is over, and everything of workloads that are gone."""
        alive = self.state.hub_view().workloads
        for uid, entries in list(self.state.avoided.items()):
            kept = tuple(e for e in entries if e.until is None or e.until > now) if uid in alive else ()
            if kept:
                self.state.avoided[uid] = kept
            else:
                del self.state.avoided[uid]
        for key in [key for key in self._times if key[0] not in alive]:
            del self._times[key]
        for lesson in [lesson for lesson in self._unkept if lesson[0] not in self.state.avoided]:
            del self._unkept[lesson]
        self._pace.keep()
        for uid, cluster in list(self.state.in_vain.items()):
            if uid not in alive or tuple(alive[uid].nominated) != (cluster,):
                del self.state.in_vain[uid]

    # --- acting --------------------------------------------------------------------------------------------------

    async def _act(self, findings: tuple[Finding, ...]) -> None:
        for finding in findings:
            if finding.code is FindingCode.LEFT_BEHIND or self._may_take_back(finding):
                await self._withdraw(finding)
            elif ends(finding) and self._leading():
                await self._ender.end(finding)
            elif finding.code is FindingCode.TWO_COPIES_RUNNING and self._leading():
                self.health.beat(LOOP)
                await self._stopper.stop(finding)
        self._stopper.forget(findings)
        if any(finding.code is FindingCode.NOT_LATCHED for finding in findings):
            await self._recheck()

    def _may_take_back(self, finding: Finding) -> bool:
        """A nomination to a cluster that is gone. Not before we see well: a copy that we cannot see yet may win."""
        gone = finding.code is FindingCode.CLUSTER_GONE and finding.cluster is None
        return gone and self.state.footing.mode is Mode.STEADY

    async def _withdraw(self, finding: Finding) -> None:
        """Take the named clusters off the list at once, and no other: by a list that an eviction left behind the
        Workload is dispatched with its next quota; a cluster that is gone never answers."""
        workload, dead = self.state.hub_view().workloads.get(finding.workload), finding.detail.names
        if workload is None or not set(dead) <= set(workload.nominated) or self._pace.spares(workload):
            return
        if not self._leading():
            return
        kept = tuple(name for name in workload.nominated if name not in dead)
        nomination = Nomination(workload.uid, workload.namespace, workload.name, workload.resource_version, kept)
        write = self.state.hub.nominate if kept else self.state.hub.withdraw
        result, error = await self._pace.result_of(workload, write(nomination), "withdrawn")
        if result == "conflict":
            self.waker.wake()  # it moved: look at once whether there is still something to clear
            return
        if error is not None:
            get_logger().warning("nomination_not_cleared", workload=workload.key, error=str(error))
        self.metrics.nominations.labels(result).inc()

    async def _recheck(self) -> None:
        """A hub that does not latch may have lost its clearing policy: from now on write as it allows today."""
        now_s = self.state.clock.monotonic_s()
        if now_s - self._rechecked_s < RECHECK_S:
            return
        self._rechecked_s = now_s
        self.health.beat(LOOP)
        try:
            async with asyncio.timeout(RECHECK_LIMIT_S):
                await self.state.hub.check_ready()
        except TimeoutError:
            get_logger().warning("hub_not_rechecked", error=f"no answer within {RECHECK_LIMIT_S:g} s")
        except Fatal as error:
            get_logger().error("hub_not_dispatchable", error=str(error), fix=error.fix)
        except EntrepotError as error:
            get_logger().warning("hub_not_rechecked", error=str(error))
