"""The dispatch loop: look, decide, store, write, and look again.

Level-triggered: events only wake it, each cycle starts from the newest views and could be the first. The order of
steps is what makes kill -9 harmless: the decision with its hold and intent is stored before the write, the write is
guarded by resourceVersion, and what became of it is read from the hub, never remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from dispatcher.core.decide import decide, hold_of
from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.declaration import InputProblem
from dispatcher.core.errors import Conflict, Fenced, Refused, Transient
from dispatcher.core.explain import problems_text, sentence
from dispatcher.core.ids import DecisionId, WorkloadUid
from dispatcher.core.lease import Always
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.outstanding import Outstanding
from dispatcher.core.ports import EventType, Intent, IntentState, Leadership, Nomination, Notice, Store
from dispatcher.core.replay import Inputs
from dispatcher.core.request import build_request
from dispatcher.core.snapshot import Hold, HubView, Snapshot
from dispatcher.core.waiting import Phase, Standing, in_phase
from dispatcher.core.waiting import standing as standing_of
from dispatcher.core.workload import HubWorkload, Request
from dispatcher.logs import get_logger
from dispatcher.loops.notify import NoticeLoop
from dispatcher.loops.requests import Requests
from dispatcher.loops.rhythm import LONGEST_REST_S, Retries, rest_s
from dispatcher.loops.rounds import Round, Rounds
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker
from dispatcher.state import FleetState

LOOP = "dispatch"
RESYNC_S = 5.0
STORE_PAUSE_S = 1.0
"""From a cycle that ended at the store to the next: a database that comes back must not meet a storm."""
BATCH = 16
"""Nominations that are written side by side; after each batch the views are read anew."""
SLICE_S = 0.01
"""How long decisions are made in one go: then everything else in the process has its turn."""
WARM_UP_S = 5.0
"""How long a fresh daemon waits for workers that it has not seen yet before it decides without them."""
DECIDED = frozenset({Phase.WAITING, Phase.NOMINATED})
HELD_BY_INPUT = frozenset({Phase.NO_OWNER, Phase.UNREADABLE})


@dataclass(frozen=True, slots=True)
class Planned:
    """A nomination that is decided and not yet written."""

    request: Request
    decision: Decision
    hold: Hold
    seen: Inputs


@dataclass(slots=True)
class DispatchLoop:
    state: FleetState
    store: Store
    notices: NoticeLoop
    metrics: Metrics
    health: Health
    waker: Waker
    leadership: Leadership = field(default_factory=Always)
    rounds: Rounds = field(default_factory=Rounds)
    store_away_since_s: float | None = None
    """Since when (monotonic) no cycle has got through because of the store; None while it answers."""
    _memo: CandidateMemo = field(default_factory=CandidateMemo)
    """Candidates weighed before; they save time and change no answer."""
    _requests: Requests = field(default_factory=Requests)
    _unwritten: set[DecisionId] = field(default_factory=set)
    """Decisions whose nomination was never made: they count as no attempt."""
    _asked: set[WorkloadUid] = field(default_factory=set)
    _retries: Retries = field(default_factory=Retries)
    _started_s: float | None = None
    _led: int | None = None
    """The term that we have recovered for; None = none yet."""
    _from_store: bool = False
    """What we remember may not be what is stored: the next turn starts from the store."""

    async def run(self) -> None:
        self._led = None
        while True:
            self.health.beat(LOOP)
            pause_s = await self.turn()
            await self.waker.wait(RESYNC_S)
            await self.state.clock.sleep(pause_s)

    async def turn(self) -> float:
        """One cycle, where we lead; a new term begins with what the last leader left in the store. Returns how long
        the next one has to wait at least.

        A store that is away ends the cycle and nothing else (design section 9): no new commitment, running work is
        left alone, and the next turn starts from what the store then says.
        """
        if not self._leads():
            self._led = None
            return LONGEST_REST_S
        term, started_s = self.leadership.term, self.state.clock.monotonic_s()
        try:
            if self._led != term or self._from_store:
                await self.recover()
                self._led, self._from_store = term, False
            await self.cycle()
        except Transient as error:
            self._from_store = True
            self.store_away_since_s = self.store_away_since_s or self.state.clock.monotonic_s()
            self.metrics.store_failures.inc()
            get_logger().error("store_away", error=str(error))
            return STORE_PAUSE_S
        self.store_away_since_s = None
        return rest_s(self.state.clock.monotonic_s() - started_s)

    def _leads(self) -> bool:
        return self.leadership.may_write(self.state.clock.monotonic_s())

    async def recover(self) -> None:
        """After a start or a change of leader: take over holds and unanswered intents from the store; the hub's view
        will settle them. What was remembered of an earlier term is void."""
        self._started_s = self.state.clock.monotonic_s()
        self.rounds.open.clear()
        self._asked.clear()
        self._retries.clear()
        holds: dict[WorkloadUid, tuple[Hold, ...]] = {}
        for hold in await self.store.holds():
            holds[hold.workload] = (*holds.get(hold.workload, ()), hold)
        self.state.holds = holds
        self._unwritten = {intent.decision for intent in await self.store.intents(IntentState.ABANDONED)}
        for intent in await self.store.intents(IntentState.PLANNED):
            decision = await self.store.decision(intent.decision)
            version = decision.resource_version if decision is not None else ""
            self.rounds.begin(Round(intent.decision, intent.workload, version, intent.clusters, intent.made_at))

    async def cycle(self) -> None:
        """One pass over everything that waits. Does nothing while the hub is not fully seen (design section 9)."""
        started_s = self.state.clock.monotonic_s()
        if not self._may_decide():
            return
        await self._settle()
        considered: set[WorkloadUid] = set()
        while self._leads() and (planned := await self._plan(considered)):
            await self._write_all(planned)
        self._forget_gone()
        self.metrics.cycle.observe(self.state.clock.monotonic_s() - started_s)

    def _may_decide(self) -> bool:
        """The hub is synced and not silent; and at first, the workers have had their chance to be seen."""
        now, hub = self.state.clock.now(), self.state.hub_view()
        limit_s = self.state.policy.limits.silence_limit_s
        if not hub.synced or hub.observed_at is None or (now - hub.observed_at).total_seconds() > limit_s:
            return False
        if self._started_s is None or self.state.clock.monotonic_s() - self._started_s > WARM_UP_S:
            return True
        return all(view.synced or view.error is not None for view in self.state.worker_views().values())

    async def _settle(self) -> None:
        """Close what the views answer: written or abandoned rounds, holds whose capacity has become visible."""
        now = self.state.clock.now()
        settled = self.rounds.settle(self.state.hub_view(), self.state.worker_views(), self.state.holds, now)
        for decision, outcome in settled.marks:
            await self.store.mark(decision, outcome, now)
            if outcome is IntentState.ABANDONED:
                self._unwritten.add(decision)
                self._drop_hold_of(decision)
        for uid in settled.released:
            await self.store.release(uid, now)
            self.state.holds.pop(uid, None)

    # --- deciding ------------------------------------------------------------------------------------------------

    async def _plan(self, considered: set[WorkloadUid]) -> list[Planned]:
        """Decide on workloads not yet considered in this cycle, in order, until a batch of nominations is full."""
        now, hub = self.state.clock.now(), self.state.hub_view()
        snapshot = self.state.snapshot(now)
        planned: list[Planned] = []
        found = in_phase(hub, DECIDED | HELD_BY_INPUT)
        await self._remember(found)
        resumed_s = self.state.clock.monotonic_s()
        outstanding = self._outstanding(hub, found)
        for uid, standing in found:
            workload = hub.workloads[uid]
            if uid in considered or uid in self.rounds.open or self._retries.leaves_alone(workload, now):
                continue
            if standing.phase is Phase.WAITING and not outstanding.has_room(workload.priority):
                continue
            considered.add(uid)
            request = self._request(workload, standing.phase, hub)
            if request is None or (standing.phase is Phase.NOMINATED and not self._impatient(workload, now)):
                continue
            decision, seen = self._decide(request, snapshot, now)
            hold = hold_of(decision, request, self.state.policy, now)
            if hold is not None:
                snapshot = snapshot.with_hold(hold)
                planned.append(Planned(request, decision, hold, seen))
                if standing.phase is Phase.WAITING:
                    outstanding.add(workload.priority)
            elif standing.phase is Phase.WAITING:
                await self._record_wait(workload, decision, seen)
            if len(planned) >= BATCH:
                break
            if self.state.clock.monotonic_s() - resumed_s > SLICE_S:
                self.health.beat(LOOP)
                await asyncio.sleep(0)
                resumed_s = self.state.clock.monotonic_s()
        return planned

    def _outstanding(self, hub: HubView, found: Sequence[tuple[WorkloadUid, Standing]]) -> Outstanding:
        """The nominations that the hub shows, and ours that it does not show yet, without a cluster."""
        shown = {uid for uid, standing in found if standing.phase is Phase.NOMINATED} | set(self.rounds.open)
        return Outstanding(
            self.state.policy.limits.outstanding_nominations,
            (hub.workloads[uid].priority for uid in shown if uid in hub.workloads),
        )

    def _request(self, workload: HubWorkload, phase: Phase, hub: HubView) -> Request | None:
        """The request, or None after telling the owner what in their workload cannot be understood."""
        owner = hub.owners.get(workload.owner.uid) if workload.owner is not None else None
        avoided = self.state.avoided.get(workload.uid, ())
        self._requests.valid_for(hub, self.state.policy)
        known = self._requests.get(workload, owner, avoided)
        if known is not None:
            return known
        built = build_request(workload, owner, hub, self.state.policy)
        if isinstance(built, Request):
            self.state.problems.pop(workload.uid, None)
            return self._requests.put(workload, owner, replace(built, avoided=avoided))
        self._report_problems(workload, built)
        return None

    def _report_problems(self, workload: HubWorkload, problems: tuple[InputProblem, ...]) -> None:
        if self.state.problems.get(workload.uid) == problems:
            return
        self.state.problems[workload.uid] = problems
        message = problems_text(problems)
        get_logger().warning("input_problem", workload=workload.key, problems=message)
        self.notices.put(_notice(workload, EventType.WARNING, "InputProblem", message))

    def _decide(self, request: Request, snapshot: Snapshot, now: datetime) -> tuple[Decision, Inputs]:
        """Decide, numbering the attempt: it grows when an earlier nomination ended without a cluster.

        Says as well on what it was decided, to the letter: the store keeps that for replay.
        """
        previous = self.state.latest.get(request.uid)
        attempt = 1
        if previous is not None:
            made = previous.outcome is not Outcome.WAIT and previous.id not in self._unwritten
            attempt = previous.attempt + (1 if made and not request.already_nominated else 0)
        if request.attempt != attempt:
            request = self._requests.renumbered(request, attempt)
        seen = Inputs(request, snapshot, self.state.policy, now)
        return decide(seen.request, seen.snapshot, seen.policy, seen.now, self._memo), seen

    async def _remember(self, found: Sequence[tuple[WorkloadUid, Standing]]) -> None:
        """Know the newest decision on each of these Workloads: asked of the store once, for all of them together, after
        a start or a change of leader."""
        unknown = [uid for uid, _ in found if uid not in self._asked]
        for decision in await self.store.newest_of(unknown) if unknown else ():
            self.state.latest[decision.workload] = decision
        self._asked.update(unknown)

    def _impatient(self, workload: HubWorkload, now: datetime) -> bool:
        """Whether a nominated workload has waited longer than its class's patience for a worker to admit it.

        A copy that has its quota on a worker is being provisioned there: a second place would be bought twice. Where
        every nominated cluster has refused it, nothing is left to wait for.
        """
        if len(workload.nominated) >= self.state.policy.limits.max_nominations:
            return False
        refused = {entry.cluster for entry in self.state.avoided.get(workload.uid, ()) if entry.excluded}
        if set(workload.nominated) <= refused:
            return True
        views = self.state.worker_views()
        for name in workload.nominated:
            copy = views[name].copies.get((workload.namespace, workload.name)) if name in views else None
            if copy is not None and copy.quota_reserved_at is not None and copy.evicted_at is None:
                return False
        previous = self.state.latest.get(workload.uid)
        since = previous.decided_at if previous is not None else workload.quota_reserved_at or workload.created_at
        patience_s = _patience_s(previous, self.state)
        return (now - since).total_seconds() > patience_s

    async def _record_wait(self, workload: HubWorkload, decision: Decision, seen: Inputs) -> None:
        """Store and tell a wait when its reasons are new; the same reasons again only refresh what the API shows."""
        known = self.state.latest.get(workload.uid)
        self.state.latest[workload.uid] = decision
        if known is not None and (known.candidates is decision.candidates or _signature(known) == _signature(decision)):
            return
        try:
            await self.store.commit(decision, None, None, seen)
        except Transient as error:
            get_logger().error("wait_not_recorded", workload=workload.key, error=str(error))
        self._count(decision)
        self._tell(workload.uid, decision, "Waiting", EventType.NORMAL)

    # --- writing -------------------------------------------------------------------------------------------------

    async def _write_all(self, planned: Sequence[Planned]) -> None:
        async with asyncio.TaskGroup() as group:
            for plan in planned:
                group.create_task(self._nominate(plan))
        self.health.beat(LOOP)

    async def _nominate(self, plan: Planned) -> None:
        """Hold, store the intent, look once more, write, and note what is known of the result."""
        decision, request, now = plan.decision, plan.request, self.state.clock.now()
        clusters = (*request.already_nominated, plan.hold.cluster)
        self.state.holds[request.uid] = (*self.state.holds.get(request.uid, ()), plan.hold)
        self.rounds.begin(Round(decision.id, request.uid, request.resource_version, clusters, now))
        intent = Intent(decision.id, request.uid, clusters, IntentState.PLANNED, now, self._led or 0)
        try:
            await self.store.commit(decision, plan.hold, intent, plan.seen)
        except Transient as error:
            # Nothing is spent that was not stored (design section 9: the store is full or down).
            # It may have been stored all the same: the next turn reads what is open.
            self._forget(plan, "store", str(error))
            self._from_store = True
            return
        except Conflict as error:
            self._forget(plan, "open", str(error))
            self._from_store = True
            return
        except Fenced as error:
            self._forget(plan, "fenced", str(error))
            self.leadership.lost(str(error))
            return
        if not self._leads():
            # Whoever leads now finds the intent and settles it against the hub.
            self._forget(plan, "not-leading", "leadership ended before the write")
            return
        version = self._current_version(plan, self.state.clock.now())
        if version is None:
            await self._give_up(plan, "overtaken", "the views changed before the write", request.resource_version)
            return
        self.rounds.begin(Round(decision.id, request.uid, version, clusters, now))
        try:
            await self.state.hub.nominate(Nomination(request.uid, request.namespace, request.name, version, clusters))
        except Conflict as error:
            await self._give_up(plan, "conflict", str(error), version)
        except Refused as error:
            await self._give_up(plan, "refused", str(error))
        except Transient as error:
            # The write may have been made: the round stays open, and the view will tell.
            self.state.latest[request.uid] = decision
            self.metrics.nominations.labels("unknown").inc()
            get_logger().warning("nomination_unknown", workload=request.key, decision=decision.id, error=str(error))
        else:
            self._written(plan, self.state.clock.now())

    def _written(self, plan: Planned, now: datetime) -> None:
        decision, request = plan.decision, plan.request
        self.state.latest[request.uid] = decision
        self._retries.made(request.uid)
        self.metrics.nominations.labels("written").inc()
        self.metrics.reserve_to_nomination.observe(max(0.0, (now - request.waiting_since).total_seconds()))
        self._count(decision)
        reason = "Nominated" if decision.outcome is Outcome.NOMINATE else "NominationAdded"
        self._tell(request.uid, decision, reason, EventType.NORMAL)

    def _current_version(self, plan: Planned, now: datetime) -> str | None:
        """The workload's newest version to guard the write with; None when what was decided is no longer right.

        Runs after the last await before the write: a queue put on Hold, a lost link or a new policy since the decision
        cancels it (FR-NOM-05, time of check and of use). What Kueue wrote meanwhile and no decision depends on, such as
        PodsReady some milliseconds after the quota, does not.
        """
        fresh, hub, request = self.state.snapshot(now), self.state.hub_view(), plan.request
        view, shown = fresh.cluster(plan.hold.cluster), hub.workloads.get(request.uid)
        if view is None or shown is None or not self._same_request(shown, hub, request):
            return None
        if plan.seen.policy is not self.state.policy:
            return None  # other rules rule than the record names: what is written is decided under those in force
        others = tuple(h for h in fresh.holds if h.workload != request.uid)
        again = decide(request, Snapshot((view,), others), self.state.policy, now, CandidateMemo(self._memo.views))
        return shown.resource_version if again.chosen == plan.hold.cluster else None

    def _same_request(self, shown: HubWorkload, hub: HubView, request: Request) -> bool:
        """Whether a newer version of the workload asks for the same, in a phase in which it is asked."""
        if shown.resource_version == request.resource_version:
            return True
        known = replace(shown, resource_version=request.resource_version)
        asked = standing_of(shown, hub).phase in DECIDED and self._request(known, Phase.WAITING, hub)
        return isinstance(asked, Request) and replace(asked, attempt=request.attempt) == request

    async def _give_up(self, plan: Planned, result: str, error: str, overtaken: str | None = None) -> None:
        """The write was not made: close the stored intent and forget the promise."""
        try:
            await self.store.mark(plan.decision.id, IntentState.ABANDONED, self.state.clock.now())
        except Transient as error_of_store:
            get_logger().error("intent_left_open", decision=plan.decision.id, error=str(error_of_store))
            self._from_store = True
        self._forget(plan, result, error, overtaken)

    def _forget(self, plan: Planned, result: str, error: str, overtaken: str | None = None) -> None:
        """Drop the promise of a nomination that was not made; decide again as `Retries` says. `overtaken`: the version
        that somebody else's write has made old."""
        now, uid = self.state.clock.now(), plan.request.uid
        self.rounds.close(uid)
        self._drop_hold_of(plan.decision.id)
        self.metrics.nominations.labels(result).inc()
        get_logger().warning("nomination_not_made", workload=plan.request.key, result=result, error=error)
        if overtaken is not None:
            self._retries.overtaken(uid, overtaken, now)
        else:
            self._retries.failed(uid, now)

    # --- small things --------------------------------------------------------------------------------------------

    def _drop_hold_of(self, decision: str) -> None:
        for uid, holds in list(self.state.holds.items()):
            kept = tuple(h for h in holds if h.decision != decision)
            if kept:
                self.state.holds[uid] = kept
            else:
                del self.state.holds[uid]

    def _forget_gone(self) -> None:
        """Drop what is remembered of workloads that are no longer on the hub."""
        alive = self.state.hub_view().workloads
        for cells in (self.state.latest, self.state.problems):
            for uid in [uid for uid in cells if uid not in alive]:
                del cells[uid]
        self._retries.keep(alive)
        self._asked &= set(alive)
        self._requests.keep(alive)

    def _count(self, decision: Decision) -> None:
        self.metrics.decisions.labels(decision.outcome).inc()
        for candidate in decision.candidates:
            for rejection in candidate.rejections:
                self.metrics.rejections.labels(rejection.reason).inc()
        get_logger().info(
            "decision",
            decision=decision.id,
            workload=decision.key,
            job=decision.job_name,
            outcome=decision.outcome,
            cluster=decision.chosen,
            attempt=decision.attempt,
            policy=decision.policy_digest,
        )

    def _tell(self, uid: WorkloadUid, decision: Decision, reason: str, kind: EventType) -> None:
        workload = self.state.hub_view().workloads.get(uid)
        if workload is not None:
            self.notices.put(_notice(workload, kind, reason, sentence(decision)))


def _notice(workload: HubWorkload, kind: EventType, reason: str, message: str) -> Notice:
    return Notice(workload.uid, workload.namespace, workload.name, kind, reason, message)


def _patience_s(previous: Decision | None, state: FleetState) -> int:
    """The class's patience; a nomination that is not ours is given the longest patience of the plan."""
    for policy in state.policy.classes.values():
        if previous is not None and policy.workload_class == previous.workload_class:
            return policy.patience_s
    return max((p.patience_s for p in state.policy.classes.values()), default=600)


def _signature(decision: Decision) -> object:
    """What makes two waits the same wait for a person: the outcome and the reasons per cluster, not the amounts."""
    reasons = tuple((c.cluster, tuple(r.reason for r in c.rejections)) for c in decision.candidates)
    return (decision.outcome, decision.policy_digest, reasons)
