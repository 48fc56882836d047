"""Judges again what waits with a nomination and what runs, by the rules in force, and acts on what became illegal.

Level-triggered: woken by every change of views and rules, and by the instant at which a verdict ends by itself. What it
writes, only while it leads: the audit log, Events, and the end of an attempt through the hub. The row in the log comes
before the write (intent before effect); the write is guarded by the version that was judged, and asked for again only
while the hub still shows the attempt alive. So a kill at any step ends nothing twice and forgets nothing.

It concludes nothing while the rules themselves are in doubt: work that runs is never ended because rules failed to
load, grew old, or a clock went wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from dispatcher.core.audit import (
    AuditKind,
    Entry,
    bundle_entry,
    obligations_of,
    refusal_entry,
    said_of,
    under,
    would_of,
)
from dispatcher.core.errors import Refused, Transient
from dispatcher.core.explain_findings import finding_text
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.illegal import Course, Examined, Illegal, Sight, Stand, examine, may_end
from dispatcher.core.lease import Always
from dispatcher.core.legality import law_window
from dispatcher.core.policy import Policy
from dispatcher.core.ports import Eviction, Leadership
from dispatcher.core.rulings import standing_of
from dispatcher.core.seal import SKEW_S, Trouble, Trust, age_s
from dispatcher.core.snapshot import Link, digest_of
from dispatcher.core.watchdog import OF_THE_LAW, Finding, FindingCode, FindingDetail
from dispatcher.core.workload import HubWorkload
from dispatcher.logs import get_logger
from dispatcher.loops.asking import Pace, is_newest
from dispatcher.loops.notify import NoticeLoop
from dispatcher.loops.slices import Slices
from dispatcher.loops.telling import Teller
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker
from dispatcher.state import FleetState
from residency.verdict import digest as without_places

LOOP = "legality"
RESYNC_S = 5.0
SETTLE_S = 1.0
"""From a wake-up to the look: what became illegal a second ago is no worse than what became so now."""
_CODES = {Course.HOLD: FindingCode.ILLEGAL_RUNNING, Course.END: FindingCode.ILLEGAL_ENDED}


class AuditPort(Protocol):
    """What of the store is written here. Raises Transient when it cannot be written now."""

    async def add(self, entries: list[Entry]) -> int: ...

    async def ruled(self, entry: Entry, tree: str, now: datetime, files: bytes | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a workload was judged on, and the outcome: asked again only when one of these is another."""

    policy: Policy
    workload: HubWorkload
    seen: tuple[object, ...]
    examined: Examined


@dataclass(slots=True)
class LegalityLoop:
    state: FleetState
    audit: AuditPort
    notices: NoticeLoop
    metrics: Metrics
    health: Health
    waker: Waker
    learned: Callable[[], None] = lambda: None
    """Called when dispatch should decide anew."""
    leadership: Leadership = field(default_factory=Always)
    files_of: Callable[[str], bytes | None] = lambda tree: None
    """The files of a bundle by its tree, to be kept for a later start; None: they are not at hand any more."""
    _judged: dict[WorkloadUid, _Judged] = field(default_factory=dict)
    _since: dict[Stand, datetime] = field(default_factory=dict)
    _told: set[tuple[str, str, str, str]] = field(default_factory=set)
    _ended: set[tuple[WorkloadUid, ClusterName]] = field(default_factory=set)
    _newest: datetime | None = None
    """The newest instant that the clock has shown."""
    _open: dict[Stand, str] = field(default_factory=dict)
    """The newest row of everything that is illegal where it is and has not been found legal since."""
    _recording: asyncio.Lock = field(default_factory=asyncio.Lock)
    _pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self._pace = Pace(self.state, lambda: self.health.beat(LOOP))

    async def run(self) -> None:
        while True:
            self.health.beat(LOOP)
            await self.cycle()
            await self.waker.wait(min(RESYNC_S, self._until_next()))
            await self.state.clock.sleep(SETTLE_S)

    async def cycle(self) -> None:
        """One look at the rules, then at everything that they may have made illegal."""
        self._watch_clock()
        self._gauge_rules()
        await self.record_bundles()
        now = self.state.clock.now()
        if self.state.hub_link(now) is not Link.CONNECTED:
            return
        if standing_of(self.state.policy, self.state.dated()) is not None:
            return
        policy = self.state.policy
        found = await self._look(now)
        if self.state.policy is not policy:
            self.waker.wake()  # other rules arrived meanwhile: what was found by the old ones is void
            return
        self._show(found, now)
        if self._leading():
            await self._act(found, now)
        self._forget(found)

    def _leading(self) -> bool:
        return self.leadership.may_write(self.state.clock.monotonic_s())

    # --- the rules themselves ------------------------------------------------------------------------------------

    def _watch_clock(self) -> None:
        """A clock that shows less than it did is wrong now or was before: until it has caught up, classified work waits
        and nothing that runs is judged."""
        now = self.state.clock.now()
        if self._newest is not None and (self._newest - now).total_seconds() > SKEW_S:
            policy, newest = self.state.policy, self._newest
            if policy.seal.not_before is None or policy.seal.not_before < newest:
                self.state.policy = replace(policy, seal=replace(policy.seal, not_before=newest))
                get_logger().error("clock_went_back", shows=now.isoformat(), showed=newest.isoformat())
                self.learned()
            return
        self._newest = max(now, self._newest or now)

    def _gauge_rules(self) -> None:
        policy, now, metrics = self.state.policy, self.state.dated(), self.metrics
        found = standing_of(policy, now)
        metrics.clock_ahead.set(self.state.clock.wall_ahead_s())
        metrics.law_age.set(age_s(policy.seal, now) or 0)
        metrics.law_max_age.set(policy.residency.settings.max_age_s or 0)
        metrics.law_signed.set(1 if policy.seal.trust is Trust.SIGNED else 0)
        for trouble in Trouble:
            metrics.law_trouble.labels(trouble).set(1 if found is not None and found.trouble is trouble else 0)

    async def record_bundles(self) -> None:
        """Write what became of the blueprints that arrived, oldest first. What cannot be written now stays in line.
        Dispatch asks for it before it decides, so that in the log a bundle stands before what was ruled by it.

        A replica that stands by has seen the same and lets the leader write it; once it leads, it says what rules.
        """
        async with self._recording:
            events = self.state.bundle_events
            if not self._leading():
                newest = [event for event in events if not event.refused][-1:]
                events.clear()
                events.extend(newest)
                return
            while events:
                event = events[0]
                policy = event.in_force
                try:
                    if event.refused:
                        await self.audit.add([refusal_entry(event.refused, policy, event.at)])
                    else:
                        tree = policy.seal.tree
                        files = await asyncio.to_thread(self.files_of, tree)
                        await self.audit.ruled(bundle_entry(policy, event.at), tree, event.at, files)
                except (Transient, Refused) as error:
                    get_logger().error("audit_not_written", error=str(error))
                    return
                events.popleft()

    # --- looking -------------------------------------------------------------------------------------------------

    async def _look(self, now: datetime) -> tuple[Illegal, ...]:
        """Judge what has changed since the last look, or whose answer has run out; all of it when rules changed, which
        takes a quarter of a millisecond each, so that others have their turn between."""
        hub, policy = self.state.hub_view(), self.state.policy
        ahead_s = self.state.clock.wall_ahead_s()
        sight = Sight(hub, self.state.worker_views(), policy, self.state.latest, now, ahead_s)
        windows = tuple(law_window(policy, at)[0] for at in (sight.dated, sight.surely))
        found: list[Illegal] = []
        kept: dict[WorkloadUid, _Judged] = {}
        slices = Slices(self.state, self.health, LOOP)
        for uid, workload in sorted(hub.workloads.items()):
            if workload.finished or not (workload.nominated or workload.cluster_name):
                continue
            known, seen = self._judged.get(uid), (*self._seen(workload, sight), windows)
            if known is None or not _same(known, policy, workload, seen, sight.dated):
                examined = examine(workload, sight, self._since, frozenset(self._ended))
                known = _Judged(policy, workload, seen, examined)
            await slices.pause()
            kept[uid] = known
            found += known.examined.found
        self._judged = kept
        self._since = {each.identity: each.since for each in found}
        return tuple(found)

    def _seen(self, workload: HubWorkload, sight: Sight) -> tuple[object, ...]:
        """What else of the views an answer depends on."""
        owner = sight.hub.owners.get(workload.owner.uid) if workload.owner is not None else None
        places = {*workload.nominated, *((workload.cluster_name,) if workload.cluster_name else ())}
        links = tuple((name, sight.link(name), sight.copy(workload, name)) for name in sorted(places))
        decision = sight.latest.get(workload.uid)
        ended = tuple(sorted(name for uid, name in self._ended if uid == workload.uid))
        return (owner, links, decision.id if decision is not None else None, ended)

    def _until_next(self) -> float:
        """Seconds until an answer ends by itself."""
        ends = [j.examined.valid_until for j in self._judged.values() if j.examined.valid_until is not None]
        if not ends:
            return RESYNC_S
        return max(0.05, (min(ends) - self.state.dated()).total_seconds())

    # --- telling -------------------------------------------------------------------------------------------------

    def _show(self, found: tuple[Illegal, ...], now: datetime) -> None:
        findings = tuple(sorted((_finding(each) for each in found if each.course is not Course.KEEP), key=_identity))
        for finding in findings:
            if finding.identity not in self._told and self._leading():
                self._tell(finding, now)
        self._told = {finding.identity for finding in findings}
        self.state.law_findings = findings
        for code in sorted(OF_THE_LAW):
            self.metrics.findings_open.labels(code).set(sum(1 for f in findings if f.code is code))

    def _tell(self, finding: Finding, now: datetime) -> None:
        text = finding_text(finding, now)
        get_logger().warning(
            "illegal",
            code=finding.code,
            workload=finding.key,
            cluster=finding.cluster,
            rule=finding.detail.rule,
            text=text,
        )
        Teller(self.state, self.notices, self.metrics).finding(finding, text)

    # --- acting --------------------------------------------------------------------------------------------------

    async def _act(self, found: tuple[Illegal, ...], now: datetime) -> None:
        """On record first; then, and only if it is, what ends."""
        try:
            await self._record(found, now)
        except (Transient, Refused) as error:
            get_logger().error("audit_not_written", error=str(error))
            return
        asked: set[WorkloadUid] = set()
        for each in found:
            if each.course is Course.END and each.workload.uid not in asked:
                asked.add(each.workload.uid)
                await self._end(each)

    async def _record(self, found: tuple[Illegal, ...], now: datetime) -> None:
        """A row for what is illegal, when that or what is done about it is new; one for what was and is legal again."""
        policy = self.state.policy
        entries = {each.identity: _entry(each, policy, now) for each in found}
        new = [entry for stand, entry in entries.items() if self._open.get(stand) != entry.event]
        legal = {stand for judged in self._judged.values() for stand in judged.examined.legal}
        lifted = [_lifted(stand, event, policy, now) for stand, event in self._open.items() if stand in legal]
        if new or lifted:
            await self.audit.add([*new, *lifted])
        kept = {s: event for s, event in self._open.items() if s not in legal and self._still_there(s)}
        self._open = kept | {stand: entry.event for stand, entry in entries.items()}

    def _still_there(self, stand: Stand) -> bool:
        """While an attempt is ended it stands where it was and is judged no more: that has made nothing legal."""
        uid, cluster, waits = stand
        workload = self.state.hub_view().workloads.get(uid)
        if workload is None or workload.finished:
            return False
        return cluster in workload.nominated if waits else workload.cluster_name == cluster

    async def _end(self, each: Illegal) -> None:
        """Ask the hub to end an attempt, if it still is what was judged."""
        workload = each.workload
        if not is_newest(workload, self.state) or not self._leading():
            self.waker.wake()  # it moved: look at once what it is now
            return
        check = may_end(workload, self.state.hub_view())
        if check is None or self._pace.spares(workload):
            return
        message = f"ended by law: {_rule_text(each)} forbids it on {each.cluster} now"
        eviction = Eviction(workload.uid, workload.namespace, workload.name, workload.resource_version, check, message)
        if each.waits:
            self._ended.add((workload.uid, each.cluster))
        evict = self.state.hub.evict(eviction, self.state.clock.now())
        result, error = await self._pace.result_of(workload, evict)
        if result == "conflict":
            self.waker.wake()
        if error is not None:
            get_logger().error("attempt_not_ended", workload=workload.key, error=str(error))
        self.metrics.law_evictions.labels(result).inc()

    def _forget(self, found: tuple[Illegal, ...]) -> None:
        alive = self.state.hub_view().workloads
        self._pace.keep()
        for uid, cluster in list(self._ended):
            workload = alive.get(uid)
            there = workload is not None and (cluster in workload.nominated or workload.cluster_name == cluster)
            if not there:
                self._ended.discard((uid, cluster))


def _same(known: _Judged, policy: Policy, workload: HubWorkload, seen: tuple[object, ...], now: datetime) -> bool:
    ends = known.examined.valid_until
    unchanged = known.policy is policy and known.workload is workload and known.seen == seen
    return unchanged and (ends is None or now < ends)


def _identity(finding: Finding) -> tuple[str, str, str, str]:
    return finding.identity


def _rule_text(each: Illegal) -> str:
    why = each.because.because
    place = str(why.clause_at if why.clause_at.file else why.at)
    return f"{why.rule or why.code.value}{f', {place}' if place else ''}"


def _finding(each: Illegal) -> Finding:
    code = _CODES[each.course]
    if each.waits and each.course is Course.HOLD:
        code = FindingCode.ILLEGAL_WAITING
    detail = FindingDetail(
        names=tuple(dict.fromkeys(v.artefact for v in each.ruling.against)),
        rule=_rule_text(each),
        awaits=each.awaits.value,
        deadline=each.deadline,
    )
    return Finding(code, each.workload.uid, each.workload.key, each.cluster, "", each.since, detail)


def _event(each: Illegal, policy: Policy) -> str:
    """What makes two rows one, so that neither another look nor a restart repeats it.

    What ends is told once an attempt and bundle, whoever ends it: an attempt is known by when it got its quota. What
    stays is told once for as long as it stays, unless what the law says of it changes. Nothing here moves with the
    time of the look, as the end of a verdict does where the rules bound its life.
    """
    told: tuple[object, ...] = (each.identity, each.course.value, policy.residency.digest)
    if each.course is Course.END:
        return f"illegal/{digest_of((*told, each.workload.quota_reserved_at))}"
    says = tuple((v.flow, v.artefact, v.label, v.destination, v.answer, v.because) for v in each.ruling.against)
    return f"illegal/{digest_of((*told, each.awaits.value, each.since, without_places(says)))}"


def _entry(each: Illegal, policy: Policy, now: datetime) -> Entry:
    """The row of one thing that is illegal under one bundle."""
    detail = [("course", each.course.value), ("state", "waits" if each.waits else "runs")]
    if each.awaits:
        detail.append(("awaits", each.awaits.value))
    return replace(
        under(policy, AuditKind.ILLEGAL, _event(each, policy), now),
        workload=each.workload.uid,
        cluster=each.cluster,
        ruling=each.ruling.digest,
        answer=each.ruling.answer.value,
        said=tuple(said_of(verdict) for verdict in each.ruling.against),
        obligations=obligations_of(each.ruling),
        would=would_of(each.ruling),
        valid_until=each.ruling.valid_until,
        detail=tuple(detail),
    )


def _lifted(stand: Stand, event: str, policy: Policy, now: datetime) -> Entry:
    uid, cluster, _ = stand
    name = f"legal-again/{digest_of((event, policy.residency.digest, now))}"
    entry = under(policy, AuditKind.LEGAL_AGAIN, name, now)
    return replace(entry, workload=uid, cluster=cluster, answer="allow")
