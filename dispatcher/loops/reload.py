"""Hot reload of the blueprint: as a whole or not at all; the last good one rules while an edit is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from dispatcher.core.policy import Policy
from dispatcher.core.ports import Clock
from dispatcher.logs import get_logger
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health
from dispatcher.state import BlueprintStatus, BundleEvent, FleetState

LOOP = "blueprint"
POLL_S = 2.0


class PolicySource(Protocol):
    """Where policies come from: None while nothing changed, else a policy or the texts of what is wrong with it."""

    async def poll(self) -> Policy | tuple[str, ...] | None: ...


@dataclass(slots=True)
class ReloadLoop:
    state: FleetState
    source: PolicySource
    clock: Clock
    metrics: Metrics
    health: Health
    on_change: Callable[[Policy], None]

    async def run(self) -> None:
        while True:
            self.health.beat(LOOP)
            await self.look()
            await self.clock.sleep(POLL_S)

    async def look(self) -> None:
        """One look at the files; swaps the policy in one assignment, so no decision ever sees half of an edit."""
        found = await self.source.poll()
        if found is None:
            return
        now = self.clock.now()
        if isinstance(found, Policy):
            self.state.policy = found
            self.state.blueprint = BlueprintStatus(found.digest, now)
            self.state.bundle_events.append(BundleEvent(now, found))
            self.metrics.blueprint_reloads.labels("loaded").inc()
            self.metrics.blueprint_stale.set(0)
            get_logger().info("blueprint_loaded", digest=found.digest)
            self.on_change(found)
            return
        self.state.blueprint = replace(self.state.blueprint, errors=found, failed_at=now)
        self.state.bundle_events.append(BundleEvent(now, self.state.policy, refused=found))
        self.metrics.blueprint_reloads.labels("refused").inc()
        self.metrics.blueprint_stale.set(1)
        get_logger().error("blueprint_refused", errors=list(found), digest_in_force=self.state.policy.digest)
