"""Which queues are dispatched, and which clusters they may reach: what several checks ask of the same facts."""

from __future__ import annotations

from collections.abc import Iterator

from dispatcher.core.doctor.facts import CheckOn, FleetFacts, HubFacts, WorkerFacts
from dispatcher.core.snapshot import LocalQueueView

DEFAULT_LOST_TIMEOUT_S = 900
DEFAULT_ORIGIN = "multikueue"


def multikueue_checks_of(hub: HubFacts, queue: str) -> tuple[str, ...]:
    """The MultiKueue checks that a hub ClusterQueue names, as often as it names them."""
    rules = hub.cluster.queue_checks.get(queue)
    checks = hub.checks or {}
    if rules is None:
        return ()
    return tuple(name for name, _ in rules.checks if name in checks and checks[name].controller == CheckOn.MULTIKUEUE)


def dispatched_queues(hub: HubFacts) -> tuple[str, ...]:
    """Hub ClusterQueues with a MultiKueue check, by name."""
    return tuple(name for name in sorted(hub.cluster.queues or {}) if multikueue_checks_of(hub, name))


def clusters_of(hub: HubFacts, queue: str) -> tuple[str, ...]:
    """The clusters that work of a hub ClusterQueue may go to, by name."""
    names: set[str] = set()
    for check in multikueue_checks_of(hub, queue):
        config = (hub.checks or {})[check].config
        names.update((hub.configs or {}).get(config or "", ()))
    return tuple(sorted(names))


def dispatched_local_queues(hub: HubFacts) -> Iterator[LocalQueueView]:
    """Hub LocalQueues that lead into a dispatched ClusterQueue, by namespace and name."""
    queues = set(dispatched_queues(hub))
    for _, local in sorted((hub.cluster.local_queues or {}).items()):
        if str(local.cluster_queue) in queues:
            yield local


def seen_workers(facts: FleetFacts) -> dict[str, WorkerFacts]:
    """Workers that could be read, by name."""
    return {worker.cluster.name: worker for worker in facts.workers if worker.cluster.reachable}


def lost_timeout_s(hub: HubFacts) -> int:
    """How long Kueue sits out a worker's absence."""
    config = hub.cluster.config
    set_s = config.worker_lost_timeout_s if config is not None else None
    return set_s if set_s is not None else DEFAULT_LOST_TIMEOUT_S
