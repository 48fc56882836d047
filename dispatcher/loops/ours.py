"""The hub's workloads by the name under which a worker shows their copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dispatcher.core.decision import Decision
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import HubView, Stake
from dispatcher.core.stakes import Said, said_of, stakes_of
from dispatcher.core.workload import HubWorkload


@dataclass(slots=True)
class Ours:
    """Looks up whom a decision might stop. Nothing is read while nobody is to be stopped."""

    _read: Mapping[WorkloadUid, HubWorkload] | None = None
    _by_key: dict[str, HubWorkload] = field(default_factory=dict)

    def stakes(self, decision: Decision, hub: HubView, policy: Policy) -> dict[str, Stake]:
        """What the hub knows of all those of ours whom Kueue would stop for this workload on one cluster or another."""
        candidates = [candidate for candidate in decision.candidates if candidate.preempts]
        if not any(victim.ours for candidate in candidates for victim in candidate.preempts):
            return {}
        if self._read is not hub.workloads:
            self._read = hub.workloads
            self._by_key = {workload.key: workload for workload in hub.workloads.values() if not workload.finished}

        def said(key: str) -> Said | None:
            found = self._by_key.get(key)
            return said_of(found, hub) if found is not None else None

        return stakes_of(candidates, said, policy)
