"""Words for what a queue has free on a worker."""

from __future__ import annotations

from datetime import datetime

from dispatcher.core.ghosts import Ghost, GhostKind
from dispatcher.core.headroom import Headroom
from dispatcher.core.resources import is_gpu
from dispatcher.core.units import counted, quantity, span


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
        are = f"{counted(ghost.pods, 'pod')} {_be(ghost.pods)}"
        return f"{are} on node {ghost.name}, which has not been there for {lasts}"
    room = f"room for {counted(ghost.pods, 'pod')} is"
    if ghost.gpus:
        room = f"{counted(ghost.gpus, 'GPU')} {_be(ghost.gpus)}"
    if ghost.kind is GhostKind.NO_COPY:
        return f"{room} promised to {ghost.name}, of which no copy has come for {lasts}"
    return f"{room} taken by {ghost.name}, of which no pod has been on a node for {lasts}"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"
