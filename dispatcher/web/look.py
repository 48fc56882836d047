"""One look at the fleet for one answer: all views are read once, so that an answer agrees with itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Self

from dispatcher.core import explain
from dispatcher.core.backfill import Expected
from dispatcher.core.decision import Decision
from dispatcher.core.declaration import InputProblem
from dispatcher.core.endings import tolerance
from dispatcher.core.explain_findings import tolerance_text
from dispatcher.core.explain_idle import idle_text
from dispatcher.core.explain_order import beyond_text, expected_text, turn_text
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.nearness import nearest
from dispatcher.core.order import ahead_by, passable_s
from dispatcher.core.snapshot import HubView, Snapshot
from dispatcher.core.waiting import Phase, order_key, standing
from dispatcher.core.workload import HubWorkload
from dispatcher.state import FleetState
from dispatcher.web.models import Evidence, InputProblemView, Job, StateCode, StateView, WorkloadSummary
from dispatcher.web.models_idle import IdleView
from dispatcher.web.models_order import ExpectedView, TurnView
from dispatcher.web.status import Sighting, State, age_s, state_of, state_text

MAX_NEAR = 5
WORKLOAD_KIND = "workload"
"""As a kind: the name is the Workload's own, not its job's."""


@dataclass(frozen=True, slots=True)
class Look:
    """`order` gives those that wait for a decision their place, 1 is next; `ahead` names who is next before each."""

    state: FleetState
    now: datetime
    hub: HubView
    snapshot: Snapshot
    order: dict[str, int]
    ahead: dict[str, HubWorkload]
    expected: Mapping[WorkloadUid, Expected]

    @classmethod
    def at(cls, state: FleetState) -> Self:
        now, hub = state.clock.now(), state.hub_view()
        waiting = [w for w in hub.workloads.values() if standing(w, hub).phase is Phase.WAITING]
        ready = sorted((w for w in waiting if not state.problems.get(w.uid)), key=lambda w: _key(state, w))
        snapshot = state.snapshot(now)
        return cls(
            state,
            now,
            hub,
            snapshot,
            order={w.uid: place for place, w in enumerate(ready, 1)},
            ahead={after.uid: first for first, after in pairwise(ready)},
            expected=state.expected(snapshot) if state.expected is not None else {},
        )

    def workloads(self) -> list[HubWorkload]:
        """All of them, in deciding order."""
        return sorted(self.hub.workloads.values(), key=lambda w: _key(self.state, w))

    def job(self, workload: HubWorkload) -> Job | None:
        owner = workload.owner
        if owner is None:
            return None
        meta = self.hub.owners.get(owner.uid)
        return Job(kind=owner.kind, name=meta.name if meta is not None else owner.name)

    def named(self, namespace: str | None, name: str, kind: str | None = None) -> list[HubWorkload]:
        """Workloads that a person may mean by `name`: the Workload of that name, else those of the job of that name.

        Of several Workloads of one job (earlier attempts, resized slices) only the newest live one counts.
        """
        pool = [w for w in self.workloads() if namespace is None or w.namespace == namespace]
        exact = [w for w in pool if w.name == name] if kind in (None, WORKLOAD_KIND) else []
        if exact or kind == WORKLOAD_KIND:
            return exact
        newest: dict[tuple[str, str, str], HubWorkload] = {}
        for workload in sorted(pool, key=lambda w: (not w.finished, w.created_at, w.uid)):
            job = self.job(workload)
            if job is not None and job.name == name and kind in (None, job.kind.lower()):
                newest[(workload.namespace, job.kind, job.name)] = workload
        return [newest[key] for key in sorted(newest)]

    def near(self, name: str, namespace: str | None = None) -> tuple[str, ...]:
        """Jobs on the hub that may have been meant by `name`, as namespace/name; those of `namespace` first.

        A Workload's own name holds its job's, so it is found by that, and not named a second time.
        """
        spaces: dict[str, set[str]] = {}
        for workload in self.hub.workloads.values():
            job = self.job(workload)
            spaces.setdefault(job.name if job is not None else workload.name, set()).add(workload.namespace)
        found = nearest(name, spaces, MAX_NEAR)
        near = [(space != namespace, f"{space}/{word}") for word in found for space in sorted(spaces[word])]
        return tuple(text for _, text in sorted(near, key=lambda pair: pair[0]))[:MAX_NEAR]

    def cluster_names(self) -> tuple[str, ...]:
        return tuple(cluster.name for cluster in self.snapshot.clusters)

    def near_clusters(self, name: str) -> tuple[str, ...]:
        return nearest(name, self.cluster_names(), MAX_NEAR)

    def state_of(self, workload: HubWorkload) -> State:
        problems = bool(self.state.problems.get(workload.uid))
        found = state_of(workload, self.hub, self.snapshot, has_problems=problems)
        if found.code is not StateCode.UNSEEN:
            return found
        rule = tolerance(workload, self.state.policy, self.state.latest.get(workload.uid))
        lost_s = self.state.footing.lost_for_s(found.cluster, self.now) if found.cluster is not None else None
        return replace(found, detail=tolerance_text(rule, lost_s))

    def _turn(self, workload: HubWorkload) -> TurnView | None:
        turn, first = self.state.turns.get(workload.uid), self.ahead.get(workload.uid)
        if turn is None:
            return None
        before = self.state.turns.get(first.uid) if first is not None else None
        return TurnView(
            team=turn.bid.team,
            share_ppm=turn.share_ppm,
            dominant=turn.dominant or None,
            worth_usd_micro=turn.worth_usd_micro,
            head_start_s=turn.head_start_s,
            handicap_s=turn.handicap_s,
            estimate_s=turn.bid.estimate.duration_s,
            estimate_basis=turn.bid.estimate.basis,
            estimate_runs=turn.bid.estimate.runs,
            passable_s=passable_s(turn, self.state.policy.order, self.now),
            behind=first.key if first is not None else None,
            behind_by=ahead_by(before, turn) if before is not None else None,
            text=turn_text(turn),
        )

    def _expected(self, workload: HubWorkload) -> ExpectedView | None:
        found = self.expected.get(workload.uid)
        if found is None:
            return None
        return ExpectedView(
            start=found.start,
            cluster=found.cluster,
            basis=found.basis,
            overdue=found.overdue,
            reserved=found.reserved,
            text=expected_text(found, self.now),
        )

    def _idle(self, workload: HubWorkload) -> IdleView | None:
        found = self.state.idle.get(workload.uid)
        if found is None:
            return None
        seen, rule, notice = found.activity, found.rule, found.notice
        return IdleView(
            stage=found.stage,
            idle_since=seen.idle_since if seen is not None else None,
            checked=seen.checked if seen is not None else None,
            doubt=found.doubt,
            timeout_s=rule.timeout_s if rule is not None else None,
            notice_s=rule.notice_s if rule is not None else None,
            ends=notice.ends if notice is not None else None,
            ended_at=found.ended_at,
            text=idle_text(found, self.now),
        )

    def summary(self, workload: HubWorkload, decision: Decision | None = None) -> WorkloadSummary:
        """`decision` is the newest one, where the caller has read it; else the newest one in memory is taken."""
        latest = decision if decision is not None else self.state.latest.get(workload.uid)
        problems = self.state.problems.get(workload.uid, ())
        state = self.state_of(workload)
        return WorkloadSummary(
            namespace=workload.namespace,
            name=workload.name,
            uid=workload.uid,
            job=self.job(workload),
            local_queue=workload.local_queue,
            cluster_queue=workload.cluster_queue,
            workload_class=latest.workload_class if latest is not None else None,
            priority=workload.priority,
            created_at=workload.created_at,
            waiting_since=workload.quota_reserved_at,
            order=self.order.get(workload.uid),
            turn=self._turn(workload) if workload.uid in self.order else None,
            expected=self._expected(workload) if workload.uid in self.order else None,
            expected_unknown=beyond_text() if workload.uid in self.order.keys() & self.state.beyond else None,
            state=state_view(state, self.now),
            decision_id=latest.id if latest is not None else None,
            reason=_reason(state, latest, problems, self.now),
            problems=problem_views(problems),
            idle=self._idle(workload),
        )


def _key(state: FleetState, workload: HubWorkload) -> tuple[int, datetime, datetime, str]:
    turn = state.turns.get(workload.uid)
    return turn.key if turn is not None else order_key(workload)


def _reason(state: State, latest: Decision | None, problems: Sequence[InputProblem], now: datetime) -> str:
    """One sentence: what is wrong with its input, else the decision where that is what counts, else the state."""
    if problems:
        return "; ".join(explain.problem_text(problem) for problem in problems)
    decided = (
        StateCode.FINISHED,
        StateCode.FINISHING,
        StateCode.WAITING,
        StateCode.NOMINATED,
        StateCode.STARTING,
        StateCode.RUNNING,
        StateCode.QUEUED_ON_WORKER,
    )
    if latest is not None and state.code in decided:
        return explain.sentence(latest)
    return state_text(state, now)


def problem_views(problems: Sequence[InputProblem]) -> tuple[InputProblemView, ...]:
    return tuple(InputProblemView(key=p.key, value=p.value, rule=p.rule, fix=p.fix) for p in problems)


def state_view(state: State, now: datetime) -> StateView:
    return StateView(
        code=state.code,
        text=state_text(state, now),
        since=state.since,
        cluster=state.cluster,
        evidence=tuple(_evidence(seen, now) for seen in state.sightings),
    )


def _evidence(seen: Sighting, now: datetime) -> Evidence:
    copy = seen.copy
    return Evidence(
        cluster=seen.cluster,
        link=seen.link,
        observed_at=seen.observed_at,
        age_s=age_s(seen.observed_at, now) if seen.observed_at is not None else None,
        copy_found=copy is not None,
        quota_reserved_at=copy.quota_reserved_at if copy is not None else None,
        admitted_at=copy.admitted_at if copy is not None else None,
        evicted_at=copy.evicted_at if copy is not None else None,
        evicted_reason=copy.evicted_reason if copy is not None else "",
        finished=copy.finished if copy is not None else False,
        bound_pods=copy.bound_pods if copy is not None else None,
        quota_message=copy.quota_message if copy is not None else "",
    )
