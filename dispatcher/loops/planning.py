"""Deciding on everything that waits, in order, without keeping the rest of the process from its turn.

Reads views and what is remembered, and makes decisions; writes nothing but the newest decisions of the state. Ten
thousand may wait: who was told to wait, and of whom nothing that was weighed has changed, is not decided on again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dispatcher.core.decide import decide, hold_of, steps
from dispatcher.core.decision import Decision, Fit
from dispatcher.core.ids import DecisionId, WorkloadUid
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.ports import Store
from dispatcher.core.replay import Inputs
from dispatcher.core.request import attempt_of, build_request
from dispatcher.core.seal import SKEW_S
from dispatcher.core.snapshot import Hold, HubView, Snapshot
from dispatcher.core.traffic import Traffic
from dispatcher.core.waiting import Phase, standing
from dispatcher.core.watchdog import FindingCode
from dispatcher.core.workload import Avoided, HubWorkload, OwnerMeta, Request, class_named
from dispatcher.loops.almanac import Almanac
from dispatcher.loops.history import RunBook
from dispatcher.loops.hold_back import HoldBack
from dispatcher.loops.line import DECIDED, InLine, WaitingLine
from dispatcher.loops.lull import Lull, Scene
from dispatcher.loops.ours import Ours
from dispatcher.loops.patience import Patience
from dispatcher.loops.requests import Requests
from dispatcher.loops.retelling import Pass, Retelling
from dispatcher.loops.rhythm import Breaker, Retries
from dispatcher.loops.road import Road
from dispatcher.loops.rounds import Rounds, nominated_copy
from dispatcher.loops.slices import Slices
from dispatcher.loops.telling import Teller
from dispatcher.loops.told import Told
from dispatcher.runtime import Health
from dispatcher.state import FleetState

LOOP = "dispatch"
BATCH = 16
"""Nominations that are written side by side; after each batch the views are read anew."""
OWNER_GRACE_S = 10.0
"""A Workload and its job come by two watches, and either may be first: so long the job may be behind before its owner
is told that it cannot be seen."""

UNPLANNED_PATIENCE_S = 600
"""Of a plan without classes."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A nomination that is decided and not yet written."""

    request: Request
    decision: Decision
    hold: Hold
    seen: Inputs


@dataclass(slots=True)
class Planner:
    """Decides, and remembers what makes deciding again cheap. Nothing here is durable."""

    state: FleetState
    teller: Teller
    health: Health
    rounds: Rounds
    retries: Retries = field(default_factory=Retries)
    breaker: Breaker = field(default_factory=Breaker)
    memo: CandidateMemo = field(default_factory=CandidateMemo)
    """Candidates weighed before; they save time and change no answer."""
    unwritten: set[DecisionId] = field(default_factory=set)
    """Decisions whose nomination was never made: they count as no attempt."""
    waits: dict[WorkloadUid, tuple[Decision, Inputs]] = field(default_factory=dict)
    """Waits for new reasons that are not recorded yet."""
    warm: bool = False
    """Whether a whole cycle is done: from then on little is new at a time."""
    line: WaitingLine = field(default_factory=WaitingLine)
    """Who waits, and what teams had lately."""
    _kept: list[datetime] = field(default_factory=list)
    """When, by time alone, those ahead would keep something else free than they did in this cycle."""
    decided: int = 0
    """How many decisions were made."""
    _lull: Lull | None = None
    """The newest pass, where nobody was decided on in it."""
    _requests: Requests = field(default_factory=Requests)
    _runs: RunBook = field(init=False)
    _almanac: Almanac = field(default_factory=Almanac)
    _ours: Ours = field(default_factory=Ours)
    _recalled: set[WorkloadUid] = field(default_factory=set)
    """Whose newest decision was asked of the store in this term."""
    _ownerless: dict[WorkloadUid, datetime] = field(default_factory=dict)
    """Since when each Workload has been seen without its job."""
    _patience: Patience = field(init=False)
    _begun_at: datetime = field(init=False)
    """When what is remembered here began: with the start, or with our term."""
    _told: Retelling = field(init=False)
    _seen: Told = field(default_factory=Told)

    def __post_init__(self) -> None:
        self._patience = Patience(self.state)
        self._told = Retelling(self.state, self.waits)
        self._runs = RunBook(self.state)
        self._begun_at = self.state.clock.now()

    def forget(self) -> None:
        """What was remembered of an earlier term is void."""
        self._begun_at = self.state.clock.now()
        self._lull = None
        self._patience.forget()
        self._almanac.forget()
        self._ownerless.clear()
        self._recalled.clear()
        self.retries.clear()
        self.breaker.clear()
        self.waits.clear()
        self.state.in_vain.clear()

    async def plan(self, store: Store, considered: set[WorkloadUid]) -> list[Planned]:
        """Decide on workloads not yet considered in this cycle, in order, until a batch of nominations is full."""
        now, hub = self.state.clock.now(), self.state.hub_view()
        slices = Slices(self.state, self.health, LOOP)
        snapshot = self.state.snapshot(now)
        await self._read(snapshot, slices)
        scene, first, decided = self._scene(hub, snapshot, now), not considered, self.decided
        if first and self._all_wait_on(scene, now):
            return []
        found, road = await self._survey(store, hub, snapshot, now, slices)
        planned: list[Planned] = []
        for at, entry in enumerate(found):
            if at % 16 == 0:
                await slices.pause()
            workload, phase, uid = entry.workload, entry.standing.phase, entry.workload.uid
            if uid in considered or uid in self.rounds.open or self.retries.leaves_alone(workload, now):
                road.passed(workload, self.state.latest.get(uid))
                continue
            considered.add(uid)
            request = self._request(workload, phase, hub)
            if request is None or (phase is Phase.NOMINATED and not self._impatient(workload, road, now)):
                continue
            request = self._numbered(request)
            met = road.before(request, phase, self.breaker.stops(workload.namespace, now))
            traffic = await self._told.newly_met(request, snapshot, met, Pass(self.memo, road.back, slices))
            if traffic is None:
                road.passed(workload, self.state.latest[uid])
                continue
            met = replace(traffic, openings=()) if traffic.openings else traffic
            seen = Inputs(request, snapshot.amid(met), self.state.policy, now)
            seen, decision = await self._decide_behind(seen, road.back, slices)
            hold = hold_of(decision, request, seen.policy, now, snapshot)
            if hold is None:
                self._stays(workload, phase, decision, seen, road)
                continue
            snapshot = snapshot.with_hold(hold)
            planned.append(self._leaves(Planned(request, decision, hold, seen), phase, road))
            if len(planned) >= BATCH:
                break
        self._kept += road.back.turns
        if first and self.decided == decided:
            self._lull = Lull(scene, road.back, now)
        return planned

    def _all_wait_on(self, scene: Scene, now: datetime) -> bool:
        """Whether a pass would come out as the last one did. If not, one begins."""
        if self._lull is not None and self._lull.lasts(scene, now):
            return True
        self._kept, self._lull = [], None
        return False

    def _scene(self, hub: HubView, snapshot: Snapshot, now: datetime) -> Scene:
        policy = self.state.policy
        self.memo.look(snapshot, policy, now)
        return Scene(hub, policy, self.memo.changed, dict(self.state.avoided))

    def rest(self, again_at: Callable[[datetime], datetime]) -> None:
        """Where nobody was decided on in the last pass, the next ones come out alike until then, if nothing changes.
        That counts from the pass: what time has changed since must not be missed."""
        if self._lull is not None and self._lull.until is None:
            self._lull.until = again_at(self._lull.looked_at)

    async def _survey(
        self, store: Store, hub: HubView, snapshot: Snapshot, now: datetime, slices: Slices
    ) -> tuple[list[InLine], Road]:
        """Who waits, first in order first, and what each of them meets: everything that is new is worked out."""
        workers = [cluster.worker for cluster in snapshot.clusters if cluster.worker is not None]
        self.line.usual = self.state.usual
        found = await self.line.of(hub, workers, self.state.policy, now, slices.pause)
        if await self._runs.note(self.line.take_ended(), store):
            self.line.usual = self.state.usual
            found = await self.line.of(hub, workers, self.state.policy, now, slices.pause)
        self.state.turns = self.line.turns
        self._requests.valid_for(hub, self.state.policy, self.state.usual)
        await self._recall(store, [entry.workload for entry in found if entry.workload.uid not in self._recalled])
        await slices.pause()
        road = Road(HoldBack(self.state, self.memo.views, self._almanac, now), hub, found, self.rounds, self._class_of)
        self.state.expected, self.state.beyond = road.back.expected, road.back.beyond
        return found, road

    def _stays(self, workload: HubWorkload, phase: Phase, decision: Decision, seen: Inputs, road: Road) -> None:
        """Nothing is nominated for it: it waits, or goes on waiting where it stands nominated."""
        if phase is Phase.WAITING:
            self.waited(decision, seen)
            road.passed(workload, decision)
        else:
            self._preempts_in_vain(seen)

    def _leaves(self, planned: Planned, phase: Phase, road: Road) -> Planned:
        """One more is on its way."""
        road.leaves(planned.request, planned.decision, phase)
        self.breaker.tries(planned.request.namespace)
        self.waits.pop(planned.request.uid, None)
        return planned

    async def _decide_behind(self, seen: Inputs, back: HoldBack, slices: Slices) -> tuple[Inputs, Decision]:
        """Decide; and where that would delay somebody ahead who cannot start, once more with what they reserved. Then
        once more where a cluster that is full may be worth waiting for, with when it has room."""
        seen, decision = await self._decide_knowing(seen, slices)
        reserved = await back.in_the_way(seen.request, decision, seen.snapshot, slices.pause)
        if reserved:
            seen = _amid(seen, replace(seen.snapshot.traffic, reserved=reserved))
            seen, decision = await self._decide_knowing(seen, slices)
        openings = self._told.known_openings(seen, decision.candidates, back)
        openings = openings or await back.openings(seen, decision, slices.pause)
        if openings:
            self._told.told_apart(decision)
            seen = _amid(seen, replace(seen.snapshot.traffic, openings=openings))
            seen, decision = await self._decide_knowing(seen, slices)
        return seen, decision

    async def _decide_knowing(self, seen: Inputs, slices: Slices) -> tuple[Inputs, Decision]:
        """Decide; and where that may stop some of ours, once more with what the hub knows of them."""
        decision = await self._decide(seen, slices)
        stakes = self._ours.stakes(decision, self.state.hub_view(), seen.policy)
        if stakes == seen.snapshot.stakes:
            return seen, decision
        seen = replace(seen, snapshot=replace(seen.snapshot, stakes=stakes))
        return seen, await self._decide(seen, slices)

    async def _decide(self, seen: Inputs, slices: Slices) -> Decision:
        """A request of a kind that was never seen is weighed a cluster at a time."""
        self.decided += 1
        request, snapshot, policy, now = seen.request, seen.snapshot, seen.policy, seen.now
        for at, _ in enumerate(steps(request, snapshot, policy, now, self.memo)):
            if at == 0:
                self._settle()
            await slices.pause()
        return decide(request, snapshot, policy, now, self.memo)

    async def _read(self, snapshot: Snapshot, slices: Slices) -> None:
        """Work out views that are new: a fleet that is seen for the first time takes some seconds."""
        for cluster in snapshot.clusters:
            for _ in self.memo.views.steps(cluster):
                await slices.pause()
            self._settle()

    def _settle(self) -> None:
        """What a first cycle works out lives as long as we do: the collector, which stops everything while it looks
        through all that lives, need not look there again."""
        if not self.warm:
            gc.freeze()

    def waited(self, decision: Decision, seen: Inputs) -> None:
        """A wait: what the API shows from now on, and to be recorded where its reasons are new."""
        known = self.state.latest.get(decision.workload)
        self.state.latest[decision.workload] = decision
        self._told.roads[decision.workload] = seen.snapshot.traffic
        if decision.workload in self.waits or known is None or self._seen.of(known) != self._seen.of(decision):
            self.waits[decision.workload] = (decision, seen)

    def _class_of(self, workload: HubWorkload) -> str | None:
        """The class of a workload that is nominated; None where nobody can tell."""
        known = self.state.latest.get(workload.uid)
        if known is not None:
            return known.workload_class
        plan = self.state.policy.queues.get(workload.cluster_queue) if workload.cluster_queue is not None else None
        return plan.default_class if plan is not None else None

    # --- requests ---

    def _request(self, workload: HubWorkload, phase: Phase, hub: HubView) -> Request | None:
        """The request, or None after telling the owner what in their workload cannot be understood."""
        owner = hub.owners.get(workload.owner.uid) if workload.owner is not None else None
        avoided = self.state.avoided.get(workload.uid, ())
        known = self._requests.get(workload, owner, avoided)
        if known is not None:
            return known
        if self._may_be_behind(workload, owner):
            return None
        built = build_request(workload, owner, hub, self.state.policy)
        if isinstance(built, Request):
            self.state.problems.pop(workload.uid, None)
            return self._requests.put(workload, owner, replace(built, avoided=avoided))
        self.teller.problems(workload, built)
        return None

    def _may_be_behind(self, workload: HubWorkload, owner: OwnerMeta | None) -> bool:
        """Whether the job of a Workload that was first seen a moment ago may still be on its way to us."""
        if owner is not None or workload.owner is None:
            self._ownerless.pop(workload.uid, None)
            return False
        now = self.state.clock.now()
        since = self._ownerless.setdefault(workload.uid, now)
        return (now - since).total_seconds() < OWNER_GRACE_S

    def same_request(self, shown: HubWorkload, hub: HubView, request: Request) -> bool:
        """Whether a newer version of the workload asks for the same, in a phase in which it is asked."""
        if shown.resource_version == request.resource_version:
            return True
        known = replace(shown, resource_version=request.resource_version)
        asked = standing(shown, hub).phase in DECIDED and self._request(known, Phase.WAITING, hub)
        return isinstance(asked, Request) and replace(asked, attempt=request.attempt) == request

    def _numbered(self, request: Request) -> Request:
        """The request with the number of its attempt."""
        previous = self.state.latest.get(request.uid)
        attempt = attempt_of(request, previous, written=previous is None or previous.id not in self.unwritten)
        return request if request.attempt == attempt else self._requests.renumbered(request, attempt)

    async def _recall(self, store: Store, unknown: Sequence[HubWorkload]) -> None:
        """Know the newest decision on each of these Workloads: asked of the store once, for all of them together, after
        a start or a change of leader. On what was created since then nobody else has decided."""
        begun_at = self._begun_at + timedelta(seconds=SKEW_S)
        older = [workload.uid for workload in unknown if workload.created_at <= begun_at]
        for decision in await store.newest_of(older) if older else ():
            self.state.latest[decision.workload] = decision
        self._recalled.update(workload.uid for workload in unknown)

    # --- patience ---

    def _impatient(self, workload: HubWorkload, road: Road, now: datetime) -> bool:
        """Whether a nominated workload has waited longer than its class's patience for a worker to admit it.

        A copy that has its quota on a worker is being provisioned there: a second place would be bought twice. Where
        every nominated cluster has refused it, nothing is left to wait for.
        """
        waited_s = self._patience.waited_s(workload, road.uncopied, now)
        if len(workload.nominated) >= self.state.policy.limits.max_nominations:
            return False
        refused = {entry.cluster for entry in self.state.avoided.get(workload.uid, ()) if entry.excluded}
        if set(workload.nominated) <= refused:
            return True
        if waited_s <= self._patience_s(self.state.latest.get(workload.uid)):
            return False
        for name in workload.nominated:
            copy = nominated_copy(self.state, workload, name)
            if copy is not None and copy.quota_reserved_at is not None and copy.evicted_at is None:
                return False
        return True

    def _preempts_in_vain(self, seen: Inputs) -> None:
        """Its patience is over and nothing can be added. Where it waits for a preemption, another cluster that could do
        as much is not added beside it but tried after it (FR-NOM-07), so that victims fall in one place at a time.

        Noted for whoever ends attempts; it ends nothing by itself.
        """
        request, standing_by = seen.request, self.state.latest.get(seen.request.uid)
        (there, *others), chosen = request.already_nominated, standing_by.chosen if standing_by is not None else None
        found = standing_by.candidate(there) if standing_by is not None else None
        self.state.in_vain.pop(request.uid, None)
        if others or chosen != there or found is None or found.fit is not Fit.BY_PREEMPTION:
            return
        left_out = Avoided(there, FindingCode.PREEMPTION_IN_VAIN.value, seen.now, None, excluded=True)
        elsewhere = replace(request, already_nominated=(), avoided=(*request.avoided, left_out))
        again = decide(elsewhere, seen.snapshot, seen.policy, seen.now, self.memo)
        if again.chosen is not None and again.ahead is None:
            self.state.in_vain[request.uid] = there

    def _patience_s(self, previous: Decision | None) -> int:
        """The class's patience; a nomination that is not ours is given the longest patience of the plan."""
        plans = self.state.policy.classes
        known = class_named(previous.workload_class) if previous is not None else None
        if known is not None and known in plans:
            return plans[known].patience_s
        return max((plan.patience_s for plan in plans.values()), default=UNPLANNED_PATIENCE_S)

    def turns(self) -> list[datetime]:
        """The instants at which, by time alone, something may be decided otherwise than in the last cycle."""
        owners = [since + timedelta(seconds=OWNER_GRACE_S) for since in self._ownerless.values()]
        patience = self._patience.turns(lambda uid: self._patience_s(self.state.latest.get(uid)))
        return [*self._kept, *owners, *patience, *self.retries.turns(), *self.breaker.turns()]

    def keep(self, hub: HubView) -> None:
        """Drop what is remembered of workloads that are no longer on the hub."""
        alive = hub.workloads
        cells: tuple[dict[WorkloadUid, object], ...] = (
            self.state.latest,  # type: ignore[assignment]
            self.state.problems,
            self.waits,
            self._ownerless,
        )
        self._told.keep(alive)
        self._patience.keep(alive)
        self._almanac.keep(alive)
        self.memo.keep(alive)
        for cell in cells:
            for uid in [uid for uid in cell if uid not in alive]:
                del cell[uid]
        self.retries.keep(alive)
        self._recalled &= alive.keys()
        self._requests.keep(alive)
        self._runs.keep(alive)


def _amid(seen: Inputs, traffic: Traffic) -> Inputs:
    return Inputs(seen.request, seen.snapshot.amid(traffic), seen.policy, seen.now)
