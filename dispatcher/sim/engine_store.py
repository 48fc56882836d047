"""The Store port in memory, for runs that end with their process: the same promises as the SQL store but durability."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.energy import EndedRun
from dispatcher.core.errors import Conflict, Refused
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.ports import Intent, IntentState
from dispatcher.core.replay import Inputs, Record
from dispatcher.core.snapshot import Hold


@dataclass(slots=True)
class MemoryStore:
    """Implements `dispatcher.core.ports.Store`. `log` holds every decision in the order of its commit.

    What a decision saw is not kept: there is no room for it, and a simulation can be run again.
    """

    log: list[Decision] = field(default_factory=list)
    _known: dict[DecisionId, Decision] = field(default_factory=dict)
    _of: dict[WorkloadUid, list[Decision]] = field(default_factory=dict)
    _holds: dict[DecisionId, Hold] = field(default_factory=dict)
    _held: dict[WorkloadUid, list[DecisionId]] = field(default_factory=dict)
    _intents: dict[DecisionId, Intent] = field(default_factory=dict)
    _changed: dict[DecisionId, datetime] = field(default_factory=dict)
    _open: dict[WorkloadUid, DecisionId] = field(default_factory=dict)
    _versions: dict[tuple[WorkloadUid, str], DecisionId] = field(default_factory=dict)

    async def commit(
        self, decision: Decision, hold: Hold | None, intent: Intent | None, seen: Inputs | None = None
    ) -> None:
        """As Store. Like every store it lets others run meanwhile: nominations that are written side by side all have
        their holds in place before the first of them is written."""
        await asyncio.sleep(0)
        for what, part in (("hold", hold), ("intent", intent)):
            if part is not None and (part.decision, part.workload) != (decision.id, decision.workload):
                raise Refused(f"store: {what} of decision {part.decision} cannot be committed with {decision.id}")
        if decision.id in self._known:
            return
        if intent is not None:
            version = (decision.workload, decision.resource_version)
            if decision.workload in self._open or version in self._versions:
                raise Conflict(f"store: another nomination of {decision.key} is open or on the same version")
            self._intents[decision.id] = intent
            self._changed[decision.id] = intent.made_at
            self._versions[version] = decision.id
            if intent.state is IntentState.PLANNED:
                self._open[decision.workload] = decision.id
        self._known[decision.id] = decision
        self._of.setdefault(decision.workload, []).append(decision)
        self.log.append(decision)
        if hold is not None:
            self._holds[decision.id] = hold
            self._held.setdefault(decision.workload, []).append(decision.id)

    async def mark(self, decision: DecisionId, state: IntentState, now: datetime, term: int | None = None) -> None:
        """As Store. Raises Refused where no intent was committed."""
        intent = self._intents.get(decision)
        if intent is None:
            raise Refused(f"store: decision {decision} has no intent to mark {state.value}")
        self._intents[decision] = replace(intent, state=state)
        self._changed[decision] = now
        if state is IntentState.PLANNED:
            self._open[intent.workload] = decision
        elif self._open.get(intent.workload) == decision:
            del self._open[intent.workload]
        if state is IntentState.ABANDONED:
            self._versions.pop((intent.workload, self._known[decision].resource_version), None)
            self._holds.pop(decision, None)

    async def release(self, workload: WorkloadUid, now: datetime, term: int | None = None) -> None:
        """As Store."""
        for decision in self._held.pop(workload, ()):
            self._holds.pop(decision, None)

    async def holds(self) -> Sequence[Hold]:
        return sorted(self._holds.values(), key=lambda hold: (hold.made_at, hold.decision))

    async def intents(self, state: IntentState) -> Sequence[Intent]:
        """Oldest first."""
        found = [intent for intent in self._intents.values() if intent.state is state]
        return sorted(found, key=lambda intent: (intent.made_at, intent.decision))

    async def states(self, wanted: Sequence[DecisionId]) -> Mapping[DecisionId, tuple[IntentState, datetime]]:
        """As Store."""
        return {each: (self._intents[each].state, self._changed[each]) for each in wanted if each in self._intents}

    async def decision(self, decision: DecisionId) -> Decision | None:
        return self._known.get(decision)

    async def ids_like(self, start: str, limit: int = 10) -> Sequence[DecisionId]:
        """As Store."""
        return sorted(known for known in self._known if known.startswith(start))[:limit]

    async def record(self, decision: DecisionId) -> Record | None:
        """As Store: inputs are not kept here, so there is none."""
        return None

    async def decisions_of(self, workload_key: str, limit: int = 20) -> Sequence[Decision]:
        """As Store."""
        return _newest((d for d in self.log if workload_key in (d.key, _job_key(d))), limit)

    async def ended_runs(self, key: str, limit: int) -> Sequence[EndedRun]:
        """Nobody asks: a report counts what ran itself."""
        return ()

    async def newest_of(self, workloads: Sequence[WorkloadUid]) -> Sequence[Decision]:
        """As Store."""
        found = (_newest(self._of.get(uid, ()), 1) for uid in workloads)
        return [decisions[0] for decisions in found if decisions]

    async def recent(
        self, limit: int = 50, cluster: ClusterName | None = None, outcome: Outcome | None = None
    ) -> Sequence[Decision]:
        """As Store."""
        there = (d for d in self.log if cluster is None or d.chosen == cluster)
        return _newest((d for d in there if outcome is None or d.outcome is outcome), limit)

    async def keys_named(self, name: str, limit: int = 20) -> Sequence[str]:
        """As Store."""
        named = _newest((d for d in self.log if name in (d.key.partition("/")[2], d.job_name)), len(self.log))
        return list(dict.fromkeys(d.key for d in named))[:limit]

    async def close(self) -> None:
        """Nothing is left to be written."""


def _newest(decisions: Iterable[Decision], limit: int) -> list[Decision]:
    """Newest first; of one instant, the one that was committed last."""
    numbered = list(enumerate(decisions))
    numbered.sort(key=lambda entry: (entry[1].decided_at, entry[0]), reverse=True)
    return [decision for _, decision in numbered[:limit]]


def _job_key(decision: Decision) -> str:
    return f"{decision.key.partition('/')[0]}/{decision.job_name}" if decision.job_name else ""
