"""What a scenario must know of the fleet that it is made for: how much it can do, where, and through which queues."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.policy import ClusterPolicy, FlavorPolicy, Policy
from dispatcher.core.resources import WHOLE_GPU
from dispatcher.core.workload import WorkloadClass

_FALLBACK: dict[WorkloadClass, WorkloadClass] = {
    WorkloadClass.REINFORCEMENT_LEARNING: WorkloadClass.TRAINING,
    WorkloadClass.EVALUATION: WorkloadClass.SIMULATION,
    WorkloadClass.DATA_PROCESSING: WorkloadClass.SIMULATION,
    WorkloadClass.SIMULATION: WorkloadClass.TRAINING,
    WorkloadClass.INTERACTIVE: WorkloadClass.TRAINING,
    WorkloadClass.INFERENCE: WorkloadClass.TRAINING,
}
"""Where a class goes that no queue has as its default."""


@dataclass(frozen=True, slots=True)
class Site:
    """The whole GPUs of one cluster; MIG slices are none. `speed_milli` is their sum weighted by speed: 1000 a GPU of
    the speed for which durations are told. `widest` is the largest gang that fits on one of its flavors."""

    cluster: str
    region: str
    gpus: int
    speed_milli: int
    widest: int


@dataclass(frozen=True, slots=True)
class FleetShape:
    """A fleet by its blueprint. `queues` are (queue, default class) in order of name."""

    name: str
    digest: str
    sites: tuple[Site, ...]
    queues: tuple[tuple[str, WorkloadClass], ...]
    labels: frozenset[str]

    def text(self) -> str:
        """As a report prints it: without the folder, which differs from machine to machine."""
        name = self.name.rstrip("/").rpartition("/")[2]
        gpus = sum(site.gpus for site in self.sites)
        return f"{name}, {len(self.sites)} clusters, {gpus} GPUs, rules {self.digest[:16]}"

    @property
    def speed_milli(self) -> int:
        """What all GPUs together do, in thousandths of a GPU of speed 1000."""
        return sum(site.speed_milli for site in self.sites)

    @property
    def widest(self) -> int:
        """GPUs of the largest gang that any cluster could run."""
        return max(site.widest for site in self.sites)

    @property
    def regions(self) -> tuple[str, ...]:
        """Regions with GPUs, the largest first, then by name."""
        gpus: dict[str, int] = {}
        for site in self.sites:
            gpus[site.region] = gpus.get(site.region, 0) + site.gpus
        return tuple(sorted(gpus, key=lambda region: (-gpus[region], region)))

    def queues_of(self, workload_class: WorkloadClass) -> tuple[str, ...]:
        """The queues that take this class: those whose default it is, else those of a class near it, else all."""
        wanted: WorkloadClass | None = workload_class
        while wanted is not None:
            found = tuple(queue for queue, default in self.queues if default is wanted)
            if found:
                return found
            wanted = _FALLBACK.get(wanted)
        return tuple(queue for queue, _ in self.queues)


def fleet_shape(name: str, policy: Policy) -> FleetShape:
    """The shape of a compiled blueprint.

    Raises:
        ValueError: it has no whole GPU, or no queue.
    """
    sites = tuple(site for cluster in sorted(policy.clusters.values(), key=lambda c: c.name) for site in _site(cluster))
    queues = tuple((str(queue.name), queue.default_class) for _, queue in sorted(policy.queues.items()))
    if not sites or not queues:
        raise ValueError(f"{name}: a scenario needs a fleet with whole GPUs and a queue")
    return FleetShape(name, policy.digest, sites, queues, frozenset(map(str, policy.labels)))


def _site(cluster: ClusterPolicy) -> tuple[Site, ...]:
    flavors = [(flavor, _gpus(flavor)) for flavor in cluster.flavors.values()]
    gpus = sum(count for _, count in flavors)
    speed = sum(count * flavor.speed_permille for flavor, count in flavors)
    widest = max((count for _, count in flavors), default=0)
    return (Site(str(cluster.name), str(cluster.region), gpus, speed, widest),) if gpus else ()


def _gpus(flavor: FlavorPolicy) -> int:
    nodes = flavor.nodes
    return nodes.count * nodes.allocatable.get(WHOLE_GPU) if nodes is not None and flavor.product is not None else 0
