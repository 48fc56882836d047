"""Evaluates rules that do not rule, beside those that do: counts and tells what would be otherwise, changes nothing.

Level-triggered as all loops: it looks at the work as it is and asks both laws. It shares no mutable state with
dispatch, reads the live policy and never writes it, and whatever goes wrong here is counted and ends this look alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime

from dispatcher.core.ids import WorkloadUid
from dispatcher.core.illegal import Sight
from dispatcher.core.impact import Effect
from dispatcher.core.policy import Policy
from dispatcher.core.shadow import Beside, Difference, Mirror, differences
from dispatcher.core.work import stage_of, work_of
from dispatcher.core.workload import HubWorkload
from dispatcher.logs import get_logger
from dispatcher.loops.reload import PolicySource
from dispatcher.loops.slices import Slices
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health
from dispatcher.state import FleetState

LOOP = "shadow"
LOOK_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class _Known:
    """What an answer was found on; asked again only when one of these is another."""

    seen: tuple[object, ...]
    mirror: Mirror
    beside: Beside | None


@dataclass(slots=True)
class ShadowLoop:
    """`source` is where the candidate comes from; without one only live rules on trial are counted."""

    state: FleetState
    source: PolicySource | None
    metrics: Metrics
    health: Health
    _candidate: Policy | None = None
    _mirror: Mirror | None = None
    _known: dict[WorkloadUid, _Known] = field(default_factory=dict)
    _told: set[Difference] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            self.health.beat(LOOP)
            await self.look()
            await self.state.clock.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """One look. Never raises for what is in the candidate or comes out of it."""
        try:
            await self._follow()
            await self._compare()
        except Exception as error:  # noqa: BLE001 - the law of this loop: it never disturbs another
            self.metrics.shadow_failures.inc()
            self.state.shadow = replace(self.state.shadow, failures=self.state.shadow.failures + 1)
            get_logger().warning("shadow_failed", error=f"{type(error).__name__}: {error}")

    async def _follow(self) -> None:
        """Take the candidate's newest edit, if it is valid as a whole; else keep the last one and say what is wrong."""
        found = await self.source.poll() if self.source is not None else None
        if found is None:
            return
        if isinstance(found, Policy):
            self._candidate, self._told = found, set()
            now = self.state.clock.now()
            self.state.shadow = replace(self.state.shadow, candidate=found.residency.digest, loaded_at=now, errors=())
            get_logger().info("shadow_loaded", candidate=found.residency.digest, live=self._live().residency.digest)
        else:
            self.state.shadow = replace(self.state.shadow, errors=found)
            get_logger().warning("shadow_refused", errors=list(found))
        self.metrics.shadow_refused.set(1 if self.state.shadow.errors else 0)

    def _live(self) -> Policy:
        return self.state.policy

    async def _compare(self) -> None:
        now, hub = self.state.clock.now(), self.state.hub_view()
        if not hub.synced:
            return
        mirror = self._mirror_at(self.state.dated())
        sight = Sight(hub, self.state.worker_views(), mirror.live, self.state.latest, now)
        found: list[Beside] = []
        known: dict[WorkloadUid, _Known] = {}
        slices = Slices(self.state, self.health, LOOP)
        for uid, workload in sorted(hub.workloads.items()):
            if workload.finished:
                continue
            known[uid] = self._of(workload, sight, mirror)
            beside = known[uid].beside
            found += [beside] if beside is not None else []
            await slices.pause()
        self._known = known
        self._show(found)

    def _mirror_at(self, now: datetime) -> Mirror:
        live = self._live()
        if self._mirror is None or not self._mirror.serves(live, self._candidate, now):
            self._mirror = Mirror(live, self._candidate, now)
        return self._mirror

    def _of(self, workload: HubWorkload, sight: Sight, mirror: Mirror) -> _Known:
        owner = sight.hub.owners.get(workload.owner.uid) if workload.owner is not None else None
        places = (*workload.nominated, *((workload.cluster_name,) if workload.cluster_name else ()))
        copies = tuple(sight.copy(workload, name) for name in places)
        decision = sight.latest.get(workload.uid)
        seen = (workload, owner, copies, decision.id if decision is not None else None)
        known = self._known.get(workload.uid)
        if known is not None and known.mirror is mirror and known.seen == seen:
            return known
        stage = stage_of(workload, sight)
        work = work_of(workload, stage, sight) if stage is not None else None
        return _Known(seen, mirror, mirror.beside(work) if work is not None else None)

    def _show(self, found: list[Beside]) -> None:
        """Counted and logged once a workload and difference; shown for as long as it is so."""
        open_now: Counter[str] = Counter()
        for one in found:
            for difference in differences(one):
                open_now[difference[1]] += 1
                if difference not in self._told:
                    self._tell(one, difference)
        alive = {one.work.request.uid for one in found}
        self._told = {difference for difference in self._told if difference[0] in alive}
        for effect in Effect:
            self.metrics.shadow_open.labels(effect.value).set(open_now[effect.value])
        differing = tuple(one for one in found if one.change is not None or one.trials)
        self.state.shadow = replace(self.state.shadow, looked_at=len(found), beside=differing)

    def _tell(self, one: Beside, difference: Difference) -> None:
        self._told.add(difference)
        _, what, rule = difference
        by = "rule on trial" if what.startswith("would-deny") else "candidate"
        self.metrics.shadow_differences.labels(what, rule).inc()
        get_logger().info("shadow_difference", workload=one.work.key, by=by, would=what, rule=rule)
