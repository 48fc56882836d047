"""Words for what a queue has free on a worker."""

from __future__ import annotations

from dispatcher.core.headroom import Headroom
from dispatcher.core.resources import is_gpu
from dispatcher.core.units import quantity


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
