"""What a law of decisions is about: one request, what is seen, and by which rules and prices it is decided."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatcher.core.decide import decide
from dispatcher.core.decision import Decision
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import Snapshot
from dispatcher.core.workload import Request
from tests.core_builders import NOW


@dataclass(frozen=True)
class World:
    request: Request
    snapshot: Snapshot
    policy: Policy

    def decide(self) -> Decision:
        return decide(self.request, self.snapshot, self.policy, NOW)

    def priced(self, **prices: object) -> World:
        return replace(self, policy=replace(self.policy, prices=replace(self.policy.prices, **prices)))  # type: ignore[arg-type]
