"""What the blueprint asks for beside dispatch, and what that needs: a Kueue that waits, permissions of a component.

Each of these is off unless somebody writes it down; then nothing but the doctor would say that it cannot work.
"""

from __future__ import annotations

from collections.abc import Iterator

from dispatcher.core.doctor.facts import HUB, WRITE_WORKLOADS, ClusterFacts, FleetFacts
from dispatcher.core.doctor.findings import Code, Finding, Where, found
from dispatcher.core.doctor.reach import lost_timeout_s, seen_workers
from dispatcher.core.idle import any_rule
from dispatcher.core.policy import Away, Policy, Unreachable
from dispatcher.core.units import span


def check_wishes(facts: FleetFacts) -> Iterator[Finding]:
    policy = facts.blueprint.policy if facts.blueprint is not None else None
    if policy is None or not facts.hub.cluster.reachable:
        return
    yield from _moves(facts, policy)
    yield from _idle(facts.hub.cluster, policy)
    for worker in seen_workers(facts).values():
        yield from _stop(worker.cluster)


def _moves(facts: FleetFacts, policy: Policy) -> Iterator[Finding]:
    """`after` counts from when a cluster was last heard of, and so does Kueue's timeout: the shorter one acts."""
    config = facts.hub.cluster.config
    known = config is not None and not config.problem
    lost_s = lost_timeout_s(facts.hub)
    for where, rule in _tolerances(policy):
        if rule.course is not Away.MOVE:
            continue
        after = f"on_unreachable is move after {span(rule.after_s)}"
        if not known:
            yield found(Code.MOVE_UNKNOWN, where, f"{after}, and the hub's workerLostTimeout could not be read")
        elif rule.after_s >= lost_s:
            default = "" if config is not None and config.worker_lost_timeout_s is not None else ", Kueue's default"
            fix = (
                f"set multiKueue.workerLostTimeout above {span(rule.after_s)} in Kueue's Configuration and restart its "
                f"manager, or `after` below {span(lost_s)}"
            )
            yield found(Code.MOVE_TOO_LATE, where, f"{after}, and workerLostTimeout is {span(lost_s)}{default}", fix)


def _tolerances(policy: Policy) -> Iterator[tuple[Where, Unreachable]]:
    """Every rule that somebody may have written; a queue without its own goes by its jobs' classes."""
    for kind, plan in sorted(policy.classes.items()):
        yield Where(kind="class", name=kind.value), plan.on_unreachable
    for name, queue in sorted(policy.queues.items()):
        if queue.on_unreachable is not None:
            yield Where(kind="queue", name=str(name)), queue.on_unreachable


def _idle(hub: ClusterFacts, policy: Policy) -> Iterator[Finding]:
    if WRITE_WORKLOADS not in hub.not_granted or not any_rule(policy):
        return
    seen = f"an idle_timeout is set, and {_account(hub)} may not {WRITE_WORKLOADS.text()}"
    yield found(Code.IDLE_NOT_ALLOWED, Where(HUB, "ClusterRole", "entrepot-interactive"), seen)


def _stop(worker: ClusterFacts) -> Iterator[Finding]:
    """Surplus copies are stopped wherever a worker allows it: there is no other switch (ADR 22)."""
    if WRITE_WORKLOADS not in worker.not_granted:
        return
    seen = f"{_account(worker)} may not {WRITE_WORKLOADS.text()}"
    fix = f"kubectl apply -k deploy/worker-stop on {worker.name}, where its administrator wants it"
    yield found(Code.STOP_NOT_ALLOWED, Where(worker.name, "ClusterRole", "entrepot-stopper"), seen, fix)


def _account(cluster: ClusterFacts) -> str:
    return cluster.account or "the account of this kubeconfig"
