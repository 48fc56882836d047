"""Ends attempts through the hub, and surplus copies on their worker: one guarded write each, asked for once.

What became of a write is read from the hub: a check that is Retry, or an eviction on its way, is never asked for again
(core/illegal.py, `may_end`), and a write on an older version than the hub's is refused there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dispatcher.core.errors import Transient
from dispatcher.core.explain_findings import finding_text
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.illegal import may_end
from dispatcher.core.ports import Eviction, Stop
from dispatcher.core.watchdog import Finding
from dispatcher.logs import get_logger
from dispatcher.loops.asking import Pace, result_of
from dispatcher.metrics import Metrics
from dispatcher.state import FleetState


@dataclass(slots=True)
class Ender:
    """`again` is called when the Workload moved meanwhile: then it is to be looked at anew, at once."""

    state: FleetState
    metrics: Metrics
    again: Callable[[], None]
    pace: Pace

    async def end(self, finding: Finding) -> None:
        """Ask the hub to end the attempt that a finding is about. To be called while we lead."""
        hub = self.state.hub_view()
        workload = hub.workloads.get(finding.workload)
        check = may_end(workload, hub) if workload is not None else None
        if workload is None or check is None or self.pace.spares(workload):
            return
        message = f"ended by entrepot: {finding_text(finding, self.state.clock.now())}"
        eviction = Eviction(workload.uid, workload.namespace, workload.name, workload.resource_version, check, message)
        evict = self.state.hub.evict(eviction, self.state.clock.now())
        result, error = await self.pace.result_of(workload, evict)
        if result == "conflict":
            self.again()
        if error is not None:
            get_logger().error("attempt_not_ended", workload=workload.key, error=str(error))
        self.metrics.endings.labels(finding.code, result).inc()


@dataclass(slots=True)
class Stopper:
    """Stops the copy that runs although another one does (FR-RAC-10, ADR 22). Most workers do not let us write: that is
    asked once a copy, and then it is a person's to stop it, as the Event says."""

    state: FleetState
    metrics: Metrics
    _asked: set[tuple[WorkloadUid, str]] = field(default_factory=set)

    async def stop(self, finding: Finding) -> None:
        """Ask the worker to stop the copy that a finding is about. To be called while we lead."""
        key = (finding.workload, finding.copy)
        port = self.state.workers.get(finding.cluster) if finding.cluster is not None else None
        if port is None or key in self._asked:
            return
        namespace, _, name = finding.key.partition("/")
        copy = port.view().copies.get((namespace, name))
        if copy is None or copy.uid != finding.copy or not copy.active or copy.evicted_at is not None:
            return  # it is being stopped
        self._asked.add(key)
        result, error = await result_of(port.stop(Stop(copy.uid, namespace, name)))
        if isinstance(error, Transient):
            self._asked.discard(key)
        if error is not None:
            get_logger().error("copy_not_stopped", workload=finding.key, cluster=finding.cluster, error=str(error))
        self.metrics.endings.labels(finding.code, result).inc()

    def forget(self, findings: tuple[Finding, ...]) -> None:
        """Drop what is over."""
        self._asked &= {(finding.workload, finding.copy) for finding in findings}
