"""Words for what a queue has free on a worker."""

from __future__ import annotations

from datetime import datetime

from dispatcher.core.ghosts import Ghost, GhostKind
from dispatcher.core.headroom import Headroom
from dispatcher.core.resources import is_gpu
from dispatcher.core.units import quantity, span


def gap_text(found: Headroom) -> str:
    """Where the accounts of the queues and of the pods disagree, and which of them counts."""

    def amount(of: int) -> str:
        return quantity(found.resource, of)

    what = found.flavor if is_gpu(found.resource) else f"{found.resource} of {found.flavor}"
    return (
        f"queue {found.queue} has {amount(found.by_quota)} {what} free by quota and {amount(found.by_nodes)} by nodes, "
        f"and the smaller counts: queues account for {amount(found.used_by_queues)} in use, pods for "
        f"{amount(found.used_by_pods)}"
    )


def ghost_text(ghost: Ghost, now: datetime) -> str:
    """What is charged, and what has been missing for how long."""
    lasts = span(int((now - ghost.since).total_seconds()))
    if ghost.kind is GhostKind.NODE_GONE:
        return f"{ghost.pods} pods are on node {ghost.name}, which has not been there for {lasts}"
    room = f"{ghost.gpus} GPUs" if ghost.gpus else f"room for {ghost.pods} pods"
    if ghost.kind is GhostKind.NO_COPY:
        return f"{room} are promised to {ghost.name}, of which no copy has come for {lasts}"
    return f"{room} are taken by {ghost.name}, of which no pod has been on a node for {lasts}"
