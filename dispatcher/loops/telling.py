"""How decisions and findings reach people: a metric, and an Event on the Workload in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dispatcher.core.decision import Decision
from dispatcher.core.declaration import InputProblem
from dispatcher.core.explain import problems_text, sentence
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.ports import EventType, Notice
from dispatcher.core.watchdog import Finding, FindingCode
from dispatcher.core.workload import HubWorkload
from dispatcher.logs import get_logger
from dispatcher.loops.notify import NoticeLoop
from dispatcher.metrics import Metrics
from dispatcher.state import FleetState

_REASONS: Mapping[FindingCode, str] = {
    FindingCode.LEFT_BEHIND: "NominationCleared",
    FindingCode.NOT_LATCHED: "NotLatched",
    FindingCode.COPY_EVICTED: "EvictedOnWorker",
    FindingCode.COPY_RECLAIMED: "ReclaimedOnWorker",
    FindingCode.COPY_REJECTED: "RejectedOnWorker",
    FindingCode.COPY_DEACTIVATED: "DeactivatedOnWorker",
    FindingCode.COPY_OUT_OF_SYNC: "DispatchFailed",
    FindingCode.COPY_VANISHED: "LostOnWorker",
    FindingCode.PROVISIONING_FAILED: "ProvisioningFailed",
    FindingCode.NAME_TAKEN: "NameTaken",
    FindingCode.OUTCOME_UNKNOWN: "OutcomeUnknown",
    FindingCode.EVICTION_STUCK: "EvictionStuck",
    FindingCode.TWO_COPIES_RUNNING: "RunsTwice",
    FindingCode.HUB_RUNS_IT: "HubRunsIt",
    FindingCode.HUB_PREEMPTED: "PreemptedOnHub",
    FindingCode.CLUSTER_GONE: "ClusterGone",
    FindingCode.CLUSTER_AWAY: "ClusterAway",
    FindingCode.APPROVAL_REVOKED: "ApprovalRevoked",
    FindingCode.PREEMPTION_IN_VAIN: "PreemptionInVain",
    FindingCode.ILLEGAL_WAITING: "IllegalWhileWaiting",
    FindingCode.ILLEGAL_RUNNING: "IllegalWhileRunning",
    FindingCode.ILLEGAL_ENDED: "EndedByLaw",
}
"""Reasons of the Events on findings."""


@dataclass(slots=True)
class Teller:
    state: FleetState
    notices: NoticeLoop
    metrics: Metrics

    def decided(self, decision: Decision, reason: str) -> None:
        """Tell a decision that is new; `reason` is the Event's."""
        self._count(decision)
        workload = self._workloads().get(decision.workload)
        if workload is not None:
            self.notices.put(_notice(workload, EventType.NORMAL, reason, sentence(decision)))

    def problems(self, workload: HubWorkload, problems: tuple[InputProblem, ...]) -> None:
        """Tell the owner what in their workload cannot be understood; the same again is not told again."""
        if self.state.problems.get(workload.uid) == problems:
            return
        self.state.problems[workload.uid] = problems
        message = problems_text(problems)
        get_logger().warning("input_problem", workload=workload.key, problems=message)
        self.notices.put(_notice(workload, EventType.WARNING, "InputProblem", message))

    def finding(self, finding: Finding, text: str) -> None:
        """Count something that was not so at the last look, and tell its owner."""
        self.metrics.findings.labels(finding.code).inc()
        workload = self._workloads().get(finding.workload)
        if workload is not None:
            self.notices.put(_notice(workload, EventType.WARNING, _REASONS[finding.code], text))

    def _workloads(self) -> Mapping[WorkloadUid, HubWorkload]:
        return self.state.hub_view().workloads

    def _count(self, decision: Decision) -> None:
        self.metrics.decisions.labels(decision.outcome).inc()
        rejections = [rejection for candidate in decision.candidates for rejection in candidate.rejections]
        for rejection in (*rejections, *((decision.kept,) if decision.kept is not None else ())):
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


def _notice(workload: HubWorkload, kind: EventType, reason: str, message: str) -> Notice:
    return Notice(workload.uid, workload.namespace, workload.name, kind, reason, message)
