"""What each decision of one pass may see of the traffic (core/traffic.py): what stands nominated, who waits ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dispatcher.core.context import class_of
from dispatcher.core.decision import Candidate, Decision, Outcome
from dispatcher.core.ids import ClusterName, FlavorName, WorkloadUid
from dispatcher.core.outstanding import Outstanding
from dispatcher.core.snapshot import HubView
from dispatcher.core.traffic import EMPTY, Bound, Refusal, Traffic
from dispatcher.core.waiting import Phase
from dispatcher.core.workload import HubWorkload, Request
from dispatcher.loops.hold_back import HoldBack
from dispatcher.loops.line import InLine
from dispatcher.loops.rounds import Rounds, nominated_copy
from dispatcher.state import FleetState


class Road:
    """Counted from the views and from what we have written and do not see yet; then kept up as the pass goes on."""

    def __init__(
        self,
        back: HoldBack,
        hub: HubView,
        found: Sequence[InLine],
        rounds: Rounds,
        class_of_workload: Callable[[HubWorkload], str | None],
    ) -> None:
        state = back.state
        self.back = back
        self._policy = state.policy
        self._looks_ahead = {c.workload_class for c in state.policy.classes.values() if c.look_ahead}
        self._queued: dict[tuple[ClusterName, str], int] = {}
        self._claims: set[tuple[ClusterName, FlavorName]] = set()
        self._last: tuple[Candidate, ...] | None = None
        self._full: Traffic | None = None
        going = {entry.workload.uid: entry.workload for entry in found if entry.standing.phase is Phase.NOMINATED}
        going |= {uid: hub.workloads[uid] for uid in rounds.open if uid in hub.workloads}
        self._state, self._going = state, going
        self._uncopied: int | None = None
        limit = state.policy.limits.outstanding_nominations
        self._outstanding = Outstanding(limit, (workload.priority for workload in going.values()))
        if self._looks_ahead:
            self._count(state, going, rounds, class_of_workload)

    def _count(
        self,
        state: FleetState,
        going: dict[WorkloadUid, HubWorkload],
        rounds: Rounds,
        class_of_workload: Callable[[HubWorkload], str | None],
    ) -> None:
        """Those on their way to a cluster that have no quota there yet, wherever the nomination stands by now."""
        for uid, workload in going.items():
            opened = rounds.open.get(uid)
            names = dict.fromkeys((*workload.nominated, *(opened.clusters if opened is not None else ())))
            workload_class = class_of_workload(workload)
            for name in names if workload_class in self._looks_ahead else ():
                copy = nominated_copy(state, workload, name)
                if copy is None or (copy.quota_reserved_at is None and not copy.finished):
                    self._queue(name, workload_class or "")

    def _queue(self, cluster: ClusterName, workload_class: str) -> None:
        key = (cluster, workload_class)
        self._queued[key] = self._queued.get(key, 0) + 1
        self._full = None

    def uncopied(self) -> int:
        """How many nominations had no copy yet, wherever they stand, when the pass began: the depth of MultiKueue's
        queue. Counted when first asked for."""
        if self._uncopied is None:
            self._uncopied = sum(
                not workload.nominated or nominated_copy(self._state, workload, workload.nominated[-1]) is None
                for workload in self._going.values()
            )
        return self._uncopied

    def before(self, request: Request, phase: Phase, refusal: Refusal | None) -> Traffic:
        """What this request meets. Only what can matter for it: the fewer the differences, the less is decided anew."""
        if phase is not Phase.WAITING:
            return EMPTY
        if refusal is not None:
            return Traffic(refusal=refusal)
        limit = self._policy.limits.outstanding_nominations
        if limit is not None and not self._outstanding.has_room(request.priority):
            return Traffic(bound=Bound(limit, limit))
        if class_of(request, self._policy) not in self._looks_ahead:
            return EMPTY
        if self._full is None:
            self._full = Traffic(dict(sorted(self._queued.items())), tuple(sorted(self._claims)))
        return self._full

    def leaves(self, request: Request, decision: Decision, phase: Phase) -> None:
        """One more nomination is on its way."""
        self.back.started(request, decision)
        if phase is Phase.WAITING:
            self._outstanding.add(request.priority)
        if decision.workload_class in self._looks_ahead and decision.chosen is not None:
            self._queue(decision.chosen, decision.workload_class)

    def passed(self, workload: HubWorkload, decision: Decision | None) -> None:
        """This one waits, and whoever comes after it in the order leaves it the next room."""
        if decision is None or decision.outcome is not Outcome.WAIT:
            return
        self.back.waits(workload, decision)
        if not self._looks_ahead:
            return
        if decision.candidates is not self._last:
            self._last = decision.candidates
            more = self.back.memory.claims(workload.uid, decision.candidates) - self._claims
            if more:
                self._claims |= more
                self._full = None
