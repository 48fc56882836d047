"""Clusters and the rules as answers. A cluster that cannot be seen is listed with its error, never left out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dispatcher.core.explain_findings import law_text
from dispatcher.core.explain_room import ghost_text
from dispatcher.core.ghosts import Ghost
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import ClusterPolicy, Policy
from dispatcher.core.rulings import standing_of
from dispatcher.core.seal import stops
from dispatcher.core.snapshot import ClusterQueueView, ClusterSnapshot, NodeView, WorkerView, gpus_of
from dispatcher.state import FleetState
from dispatcher.web.look import Look
from dispatcher.web.models import (
    BlueprintView,
    ClusterView,
    FlavorPlan,
    NodeTotals,
    QuotaView,
    WorkerQueueView,
)
from dispatcher.web.models_law import LawView
from dispatcher.web.models_room import GhostView
from dispatcher.web.rooms import rooms
from dispatcher.web.status import age_s, link_text


def clusters(look: Look) -> tuple[ClusterView, ...]:
    return tuple(_cluster(seen, look) for seen in look.snapshot.clusters)


def _cluster(seen: ClusterSnapshot, look: Look) -> ClusterView:
    worker, kueue = seen.worker, seen.multikueue
    plan = look.state.policy.clusters.get(seen.name)
    holds = [hold for hold in look.snapshot.holds if hold.cluster == seen.name]
    known = worker if worker is not None and worker.synced else None
    return ClusterView(
        name=seen.name,
        in_blueprint=plan is not None,
        provider=plan.provider if plan is not None else None,
        region=plan.region if plan is not None else None,
        country=plan.site.country if plan is not None else None,
        flavors=_flavors(plan),
        link=seen.link,
        text=link_text(seen, look.now),
        observed_at=worker.observed_at if worker is not None else None,
        age_s=age_s(worker.observed_at, look.now) if worker is not None and worker.observed_at is not None else None,
        error=worker.error if worker is not None else None,
        multikueue_active=kueue.active if kueue is not None else None,
        multikueue_reason=(kueue.message or kueue.reason) if kueue is not None and not kueue.active else "",
        nodes=_totals(known.nodes) if known is not None else None,
        queues=tuple(_queue(known.queues[name]) for name in sorted(known.queues)) if known is not None else (),
        running=_admitted(known, ours=True) if known is not None else None,
        local=_admitted(known, ours=False) if known is not None else None,
        holds=len(holds),
        held_gpus=sum(gpus_of(hold.usage) for hold in holds),
        rooms=rooms(known) if known is not None else (),
        ghosts=tuple(_ghost(ghost, look.now) for ghost in look.state.ghosts if ghost.cluster == seen.name),
    )


def _ghost(ghost: Ghost, now: datetime) -> GhostView:
    return GhostView(
        kind=ghost.kind,
        name=ghost.name,
        since=ghost.since,
        age_s=age_s(ghost.since, now),
        pods=ghost.pods,
        gpus=ghost.gpus,
        text=ghost_text(ghost, now),
    )


def _flavors(plan: ClusterPolicy | None) -> tuple[FlavorPlan, ...]:
    if plan is None:
        return ()
    return tuple(
        FlavorPlan(name=name, product=plan.flavors[name].product, purchase=plan.flavors[name].purchase.value)
        for name in sorted(plan.flavors)
    )


def _totals(nodes: Sequence[NodeView]) -> NodeTotals:
    usable = [node for node in nodes if node.ready and node.schedulable and not node.deleting]
    return NodeTotals(
        nodes=len(nodes),
        usable=len(usable),
        gpus=sum(node.allocatable.gpus() for node in usable),
        gpus_free=sum(max(0, node.allocatable.minus(node.requested).gpus()) for node in usable),
        gpus_yielding=sum(node.yielding.gpus() for node in usable),
    )


def _queue(queue: ClusterQueueView) -> WorkerQueueView:
    return WorkerQueueView(
        name=queue.name,
        active=queue.active,
        stop_policy=queue.stop_policy,
        cohort=queue.cohort,
        pending=queue.pending,
        quotas=tuple(
            QuotaView(
                flavor=q.flavor,
                resource=q.resource,
                nominal=q.nominal,
                borrowing_limit=q.borrowing_limit,
                lending_limit=q.lending_limit,
                reserved=q.reserved,
            )
            for q in queue.quotas
        ),
    )


def _admitted(worker: WorkerView, *, ours: bool) -> int:
    copies = (copy for copy in worker.copies.values() if copy.ours is ours)
    return sum(1 for c in copies if c.admitted_at is not None and c.evicted_at is None and not c.finished)


def blueprint(state: FleetState) -> BlueprintView:
    policy, status = state.policy, state.blueprint
    return BlueprintView(
        digest=policy.digest,
        loaded_from=policy.loaded_from,
        loaded_at=status.loaded_at,
        ok=not status.errors,
        errors=status.errors,
        failed_at=status.failed_at,
        law=law(policy, state.dated()),
        clusters=tuple(sorted(policy.clusters)),
        queues=tuple(sorted(policy.queues)),
        data_sets=tuple(sorted(policy.data_sets)),
    )


def law(policy: Policy, now: datetime) -> LawView:
    seal, found = policy.seal, standing_of(policy, now)
    return LawView(
        digest=policy.residency.digest,
        trust=seal.trust.value,
        serial=seal.serial,
        revision=seal.revision,
        actor=seal.actor,
        confirmed_at=seal.confirmed_at,
        stops_at=stops(seal, policy.residency.settings.max_age_s),
        trouble=found.trouble.value if found is not None else None,
        text=law_text(policy, now),
    )


def has_cluster(look: Look, name: ClusterName) -> bool:
    return look.snapshot.cluster(name) is not None
