"""What queues have free on workers, as answers: by quota, by nodes, and where the two accounts disagree."""

from __future__ import annotations

from dispatcher.core.decision import Decision
from dispatcher.core.explain_room import gap_text
from dispatcher.core.headroom import Headroom, headroom, room_of
from dispatcher.core.resources import is_gpu
from dispatcher.core.snapshot import WorkerView
from dispatcher.core.workload import HubWorkload
from dispatcher.web.look import Look
from dispatcher.web.models_room import GapView, RoomView


def rooms(worker: WorkerView) -> tuple[RoomView, ...]:
    """Of all queues there, and of accelerators only: that is what people look for."""
    room = room_of(worker)
    each = (found for name in sorted(worker.queues) for found in headroom(worker, room, name))
    return tuple(_view(found) for found in each if is_gpu(found.resource))


def gaps(look: Look, workload: HubWorkload, decision: Decision) -> tuple[GapView, ...]:
    """Where the accounts disagree about what a workload asks for, on the clusters that were weighed for it."""
    asked = {name for pod_set in workload.pod_sets for name, amount in pod_set.per_pod if amount > 0}
    found: list[GapView] = []
    for candidate in decision.candidates:
        seen = look.snapshot.cluster(candidate.cluster)
        worker = seen.worker if seen is not None else None
        if worker is None or not worker.synced or candidate.queue is None:
            continue
        for each in headroom(worker, room_of(worker), candidate.queue):
            if each.gap and each.resource in asked:
                found.append(GapView(cluster=candidate.cluster, text=gap_text(each)))
    return tuple(found)


def _view(found: Headroom) -> RoomView:
    return RoomView(
        queue=found.queue,
        flavor=found.flavor,
        resource=found.resource,
        free=found.free,
        by_quota=found.by_quota,
        by_nodes=found.by_nodes,
        yielding=found.reclaimable,
        used_by_queues=found.used_by_queues,
        used_by_pods=found.used_by_pods,
        gap=gap_text(found) if found.gap else None,
    )
