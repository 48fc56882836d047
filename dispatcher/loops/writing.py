"""Writing a nomination: the decision with its hold and intent is stored first, then one guarded write to the hub.

The order of steps is what makes kill -9 harmless. What became of a write is read from the hub, never remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from dispatcher.core.decide import decide
from dispatcher.core.decision import Outcome
from dispatcher.core.errors import Conflict, Fenced, Refused, Transient
from dispatcher.core.holds import promised_before
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.ports import Intent, IntentState, Leadership, Nomination, Store
from dispatcher.core.replay import Inputs
from dispatcher.core.traffic import Refusal, Traffic
from dispatcher.logs import get_logger
from dispatcher.loops.caches import CacheKeeper
from dispatcher.loops.planning import Planned, Planner
from dispatcher.loops.rounds import Round, Rounds
from dispatcher.loops.telling import Teller
from dispatcher.metrics import Metrics
from dispatcher.state import FleetState

TRIES = 3
"""Of one nomination, while Kueue writes to its Workload at the same time: it writes three times at a reservation."""
RECORDING_S = 0.2
"""How long waits are recorded in one go: nominations must not stand behind thousands of them."""


@dataclass(slots=True)
class Writer:
    """`in_doubt`: what we remember may not be what is stored; whoever has read the store again clears it."""

    state: FleetState
    planner: Planner
    rounds: Rounds
    teller: Teller
    metrics: Metrics
    leadership: Leadership
    in_doubt: bool = False
    caches: CacheKeeper = field(init=False)
    _begun: bool = False
    _term: int = 0
    """That of the batch that is being written."""

    def __post_init__(self) -> None:
        self.caches = CacheKeeper(self.state)

    def leads(self) -> bool:
        return self.leadership.may_write(self.state.clock.monotonic_s())

    async def nominate(self, planned: Sequence[Planned], store: Store, term: int) -> None:
        """Write a batch, all side by side. The very first goes alone: what the fleet looks like is stored with it, and
        those after it need not bring the same once more."""
        self._term, alone = term, planned[:1] if not self._begun else ()
        for plan in alone:
            await self._nominate(plan, store)
        self._begun = True
        async with asyncio.TaskGroup() as group:
            for plan in planned[len(alone) :]:
                group.create_task(self._nominate(plan, store))
        self.planner.breaker.ended()

    async def record_waits(self, store: Store) -> bool:
        """Store and tell the waits whose reasons are new; returns whether none is left for the next time."""
        started_s, waits = self.state.clock.monotonic_s(), self.planner.waits
        while waits and self.leads():
            if self.state.clock.monotonic_s() - started_s > RECORDING_S:
                return False
            uid = next(iter(waits))
            decision, seen = waits.pop(uid)
            try:
                await store.commit(decision, None, None, seen)
            except Transient as error:
                get_logger().error("wait_not_recorded", workload=decision.key, error=str(error))
            self.teller.decided(decision, "Waiting")
        return True

    async def _nominate(self, plan: Planned, store: Store) -> None:
        """Hold, store the intent, look once more, write, and note what is known of the result."""
        decision, request, now = plan.decision, plan.request, self.state.clock.now()
        clusters = (*request.already_nominated, plan.hold.cluster)
        self.state.holds[request.uid] = (*self.state.holds.get(request.uid, ()), plan.hold)
        self.rounds.begin(Round(decision.id, request.uid, request.resource_version, clusters, now))
        intent = Intent(decision.id, request.uid, clusters, IntentState.PLANNED, now, self._term)
        if not await self._stored(plan, intent, store):
            return
        await self._written_or_not(plan, store, clusters)

    async def _written_or_not(self, plan: Planned, store: Store, clusters: tuple[ClusterName, ...]) -> None:
        """Write what is stored. Kueue writes to the Workload at the same time: as long as what it wrote changes nothing
        for the decision, the same is written again on the newer version."""
        request, conflict, overtaken = plan.request, None, ""
        for _ in range(TRIES):
            if not self.leads():
                # Whoever leads now finds the intent and settles it against the hub.
                self._failed(plan, "not-leading", "leadership ended before the write")
                return
            now = self.state.clock.now()
            version = self._current_version(plan, now)
            if version is None or version == overtaken:
                break
            self.rounds.begin(Round(plan.decision.id, request.uid, version, clusters, now))
            conflict, overtaken = await self._try(plan, store, version, clusters), version
            if conflict is None:
                return
        if conflict is None:
            await self._give_up(plan, store, "overtaken", "the views changed before the write")
            self.planner.retries.overtaken(request.uid, request.resource_version, self.state.clock.now())
        else:
            await self._give_up(plan, store, "conflict", str(conflict))
            self._conflicted(plan, overtaken, str(conflict), self.state.clock.now())

    async def _try(
        self, plan: Planned, store: Store, version: str, clusters: tuple[ClusterName, ...]
    ) -> Conflict | None:
        """One write. Returns the conflict, which may be tried again; everything else is seen to."""
        request = plan.request
        try:
            await self.state.hub.nominate(Nomination(request.uid, request.namespace, request.name, version, clusters))
        except Conflict as error:
            return error
        except Refused as error:
            await self._refused(plan, store, error)
        except Transient as error:
            # The write may have been made: the round stays open, and the view will tell.
            self.state.latest[request.uid] = plan.decision
            self.metrics.nominations.labels("unknown").inc()
            get_logger().warning(
                "nomination_unknown", workload=request.key, decision=plan.decision.id, error=str(error)
            )
        else:
            self._written(plan, self.state.clock.now())
        return None

    async def _refused(self, plan: Planned, store: Store, error: Refused) -> None:
        await self._give_up(plan, store, "refused", str(error))
        now = self.state.clock.now()
        self.planner.retries.failed(plan.request.uid, now)
        self.planner.breaker.refused(plan.request.namespace, str(error), now)
        self._waits_for_hub(plan, str(error), now)

    async def _stored(self, plan: Planned, intent: Intent, store: Store) -> bool:
        """Whether the decision, its hold and its intent are in the store. Nothing is spent that was not stored (design
        section 9: the store is full or down)."""
        try:
            await store.commit(plan.decision, plan.hold, intent, plan.seen)
        except (Transient, Conflict) as error:
            # It may have been stored all the same: the next turn reads what is open.
            self._failed(plan, "store" if isinstance(error, Transient) else "open", str(error))
            self.in_doubt = True
            return False
        except Fenced as error:
            self._failed(plan, "fenced", str(error))
            self.leadership.lost(str(error))
            return False
        self.caches.stored(plan.decision)
        return True

    def _written(self, plan: Planned, now: datetime) -> None:
        decision, request = plan.decision, plan.request
        self.state.latest[request.uid] = decision
        self.planner.retries.made(request.uid)
        self.planner.breaker.made(request.namespace)
        self.metrics.nominations.labels("written").inc()
        self.metrics.reserve_to_nomination.observe(max(0.0, (now - request.waiting_since).total_seconds()))
        self.teller.decided(decision, "Nominated" if decision.outcome is Outcome.NOMINATE else "NominationAdded")

    def _conflicted(self, plan: Planned, version: str, message: str, now: datetime) -> None:
        """Somebody else wrote first. What says so again of a version that nobody has changed is a refusal."""
        self.planner.breaker.conflicted(message, now)
        if self.planner.retries.overtaken(plan.request.uid, version, now):
            self._waits_for_hub(plan, message, now)

    def _waits_for_hub(self, plan: Planned, message: str, now: datetime) -> None:
        """The workload waits because the hub says no: decided and recorded as such, so that its owner is told."""
        request = plan.request
        if request.already_nominated:
            return  # it stands nominated elsewhere, and that is what is told
        refusal = Refusal(message, now, self.planner.retries.again_at(request.uid, now))
        seen = Inputs(request, replace(plan.seen.snapshot, traffic=Traffic(refusal=refusal)), plan.seen.policy, now)
        self.planner.waited(decide(request, seen.snapshot, seen.policy, now, self.planner.memo), seen)

    def _current_version(self, plan: Planned, now: datetime) -> str | None:
        """The workload's newest version to guard the write with; None when what was decided is no longer right.

        Runs after the last await before the write: a queue put on Hold, a lost link or a new policy since the decision
        cancels it (FR-NOM-05, time of check and of use). What Kueue wrote meanwhile and no decision depends on, such as
        PodsReady some milliseconds after the quota, does not.
        """
        request, hub = plan.request, self.state.hub_view()
        shown = hub.workloads.get(request.uid)
        if shown is None or not self.planner.same_request(shown, hub, request):
            return None
        if plan.seen.policy is not self.state.policy:
            return None  # other rules rule than the record names: what is written is decided under those in force
        fresh = self.state.snapshot_of(plan.hold.cluster, now)
        before = promised_before(fresh.holds, plan.seen.snapshot, request.uid)
        looked = replace(fresh, holds=before, traffic=plan.seen.snapshot.traffic)
        again = decide(request, looked, self.state.policy, now, CandidateMemo(self.planner.memo.views))
        if again.chosen != plan.hold.cluster:
            return None
        # What fitted and now only may queue is another decision: by how full the road is then, and it says so.
        queues = again.ahead is not None and plan.decision.ahead is None
        return None if queues else shown.resource_version

    async def _give_up(self, plan: Planned, store: Store, result: str, error: str) -> None:
        """The write was not made: close the stored intent and forget the promise."""
        try:
            await store.mark(plan.decision.id, IntentState.ABANDONED, self.state.clock.now(), self._term)
        except Transient as error_of_store:
            get_logger().error("intent_left_open", decision=plan.decision.id, error=str(error_of_store))
            self.in_doubt = True
        except Fenced as error_of_store:
            self.leadership.lost(str(error_of_store))
        self._forget(plan, result, error)

    def _failed(self, plan: Planned, result: str, error: str) -> None:
        self._forget(plan, result, error)
        self.planner.retries.failed(plan.request.uid, self.state.clock.now())

    def _forget(self, plan: Planned, result: str, error: str) -> None:
        """Drop the promise of a nomination that was not made; it is decided again."""
        self.rounds.close(plan.request.uid)
        self.drop_hold(plan.request.uid, plan.decision.id)
        self.caches.dropped(plan.decision.id)
        self.metrics.nominations.labels(result).inc()
        get_logger().warning("nomination_not_made", workload=plan.request.key, result=result, error=error)

    def drop_hold(self, uid: WorkloadUid, decision: DecisionId) -> None:
        kept = tuple(hold for hold in self.state.holds.get(uid, ()) if hold.decision != decision)
        if kept:
            self.state.holds[uid] = kept
        else:
            self.state.holds.pop(uid, None)
