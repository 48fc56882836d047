"""The shape of answers about what is free on workers."""

from __future__ import annotations

from datetime import datetime

from dispatcher.core.ghosts import GhostKind
from dispatcher.web.wire import Wire


class RoomView(Wire):
    """What a queue has free of one accelerator in one flavor, by its quota and by the nodes."""

    queue: str
    flavor: str
    resource: str
    free: int
    """The smaller of the two."""
    by_quota: int
    """With what it may borrow."""
    by_nodes: int
    """On nodes of the flavor that are present; what pods hold that yield to anyone is free."""
    yielding: int
    """The part of `by_nodes` that such pods hold now."""
    used_by_queues: int
    used_by_pods: int
    """Another account of the same as `used_by_queues`; what yields is not in it."""
    gap: str | None
    """What the two accounts say, where they disagree and leave another amount."""


class GapView(Wire):
    """Where queues and pods give different accounts of what is in use on a cluster."""

    cluster: str
    text: str


class GhostView(Wire):
    """Room that is charged on a cluster for something that is not there, for longer than goes well."""

    kind: GhostKind
    name: str
    """The workload's namespace/name, or the node's."""
    since: datetime
    age_s: int
    pods: int
    gpus: int | None
    text: str
