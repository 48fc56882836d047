"""What no public trace tells, drawn once and laid over generated jobs and traces alike: home, data, labels, class,
checkpoint, and what the owner believes of the duration.

Everything is drawn from (seed, name) alone, so that all contenders of a run, and the same trace read on another
machine, get the same. The recipe says all of it in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isqrt

from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.generator.catalog import Catalog, DataMix
from dispatcher.sim.generator.classes import CLASS_OF_KIND, CLASS_RULES, Affinity, class_mix
from dispatcher.sim.generator.draws import Draws
from dispatcher.sim.generator.fleet import FleetShape
from dispatcher.sim.generator.published import CHECKPOINT_BYTES_PER_MODEL_GPU, ESTIMATE_SIGMA_PERMILLE
from dispatcher.sim.generator.quantiles import Quantiles
from dispatcher.sim.jobs import Checkpoint, Recipe, SimJob
from dispatcher.sim.trace import TraceJob

_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,48}[a-z0-9])?")
_GPUS_OF_A_MODEL = 8


@dataclass(frozen=True, slots=True)
class Overlay:
    """How it is drawn. `home_weights`: of the fleet's regions, the largest first; the last one holds for all further.

    `checkpoint_cost_s` and `mean_up_s` (of eight GPUs) give the interval by Young's rule, sqrt(2 x cost x mean up).
    `products` says which products stand for a trace's GPU types; a type without them is taken as any. With `affinity`
    a job whose trace tells no speeds has its own on each product: the median of its class times a lognormal factor.
    """

    home_weights: tuple[int, ...] = (40, 27, 20, 13)
    data: DataMix = field(default_factory=DataMix)
    estimate_sigma_permille: int = ESTIMATE_SIGMA_PERMILLE
    checkpoint_bytes: int = CHECKPOINT_BYTES_PER_MODEL_GPU
    checkpoint_cost_s: int = 60
    mean_up_s: int = 86_400
    checkpointed: tuple[WorkloadClass, ...] = (WorkloadClass.TRAINING, WorkloadClass.REINFORCEMENT_LEARNING)
    urgent_permille: int = 0
    urgent_priority: str = "production"
    teams: int = 8
    products: tuple[tuple[str, tuple[str, ...]], ...] = ()
    affinity: Affinity = ()
    affinity_sigma_permille: int = 250

    def homes(self, fleet: FleetShape) -> tuple[tuple[str, int], ...]:
        """(region, weight), the largest region first."""
        last = len(self.home_weights) - 1
        return tuple((region, self.home_weights[min(at, last)]) for at, region in enumerate(fleet.regions))

    def recipe(self, fleet: FleetShape) -> Recipe:
        """What a report prints of it."""
        homes = ", ".join(f"{region} {weight}" for region, weight in self.homes(fleet))
        classes = "; ".join(rule.text() for rule in CLASS_RULES)
        pairs = [
            ("home region", f"by weight: {homes}"),
            *self.data.recipe(fleet),
            ("class", classes),
            ("checkpoint", self._checkpoint_text()),
            (
                "estimates",
                f"true duration x lognormal(median 1, sigma {self.estimate_sigma_permille / 1000:g}); "
                "the truth is seen by no contender",
            ),
        ]
        if self.urgent_permille:
            pairs.append(("priority", f"{self.urgent_permille} permille of jobs are {self.urgent_priority}"))
        if self.products:
            types = "; ".join(f"{name} = {' or '.join(products)}" for name, products in self.products)
            pairs.append(("GPU types", types))
        if self.affinity:
            pairs.append(("speeds", self._speeds_text()))
        return tuple(pairs)

    def _speeds_text(self) -> str:
        of_classes = (
            f"{workload_class} " + ", ".join(f"{product} {permille}" for product, permille in speeds)
            for workload_class, speeds in self.affinity
        )
        return f"permille x lognormal(median 1, sigma {self.affinity_sigma_permille / 1000:g}): {'; '.join(of_classes)}"

    def _checkpoint_text(self) -> str:
        groups = f"{_GPUS_OF_A_MODEL} GPUs"
        return (
            f"{self.checkpoint_bytes} bytes for each {groups} begun, costs {self.checkpoint_cost_s} s, interval by "
            f"Young's rule for {self.mean_up_s} s between failures of {groups}; {' and '.join(self.checkpointed)} only"
        )


class Overlaid:
    """Lays one overlay over jobs of one fleet and seed."""

    def __init__(self, overlay: Overlay, fleet: FleetShape, seed: int) -> None:
        self._overlay = overlay
        self._fleet = fleet
        self._seed = seed
        self._homes = overlay.homes(fleet)
        self._products: Mapping[str, tuple[str, ...]] = dict(overlay.products)
        self._errors = Quantiles.lognormal(1000, overlay.estimate_sigma_permille)
        self._affinity = dict(overlay.affinity)
        self._spread = Quantiles.lognormal(1000, overlay.affinity_sigma_permille)
        self._teams = tuple((f"team-{number + 1}", 1000 // (number + 1)) for number in range(overlay.teams))
        self.catalog = Catalog(overlay.data, fleet, seed)

    def jobs(self, found: Iterable[TraceJob]) -> tuple[SimJob, ...]:
        """All of them, in order of submission and name. Names that no Kubernetes object could bear get new ones."""
        made = [self._job(job, f"job-{at}") for at, job in enumerate(found)]
        return tuple(sorted(made, key=lambda job: (job.submit_s, job.name)))

    def _job(self, job: TraceJob, spare_name: str) -> SimJob:
        draws = Draws(self._seed, "overlay", job.name)
        workload_class = CLASS_OF_KIND.get(job.kind.lower()) or draws.weighted(class_mix(job))
        home, data = self.catalog.reading(workload_class, self._homes, draws)
        team = draws.weighted(self._teams)
        queues = self._fleet.queues_of(workload_class)
        error = self._errors.at(draws.even())
        urgent = draws.chance(self._overlay.urgent_permille)
        return SimJob(
            name=job.name if _DNS_LABEL.fullmatch(job.name) else spare_name,
            submit_s=job.submit_s,
            queue=queues[draws.below(len(queues))],
            team=_safe(job.user or job.queue) or team,
            workload_class=workload_class,
            pods=job.pods,
            gpus_per_pod=job.gpus_per_pod,
            duration_s=job.duration_s,
            estimate_s=max(1, (job.duration_s * error + 500) // 1000),
            home_region=home,
            priority=self._overlay.urgent_priority if urgent else "",
            products=self._accepted(job),
            speeds=self._told_speeds(job) or self._drawn_speeds(job.name, workload_class),
            data=data,
            checkpoint=self._checkpoint(job.gpus) if workload_class in self._overlay.checkpointed else None,
        )

    def _told_speeds(self, job: TraceJob) -> tuple[tuple[str, int], ...]:
        return tuple(sorted((product, s) for kind, s in job.speeds for product in self._products.get(kind, ())))

    def _drawn_speeds(self, name: str, workload_class: WorkloadClass) -> tuple[tuple[str, int], ...]:
        draws = Draws(self._seed, "speeds", name)
        medians = self._affinity.get(workload_class, ())
        return tuple((product, max(1, median * self._spread.at(draws.even()) // 1000)) for product, median in medians)

    def _accepted(self, job: TraceJob) -> tuple[str, ...]:
        known = [self._products.get(kind) for kind in job.gpu_types]
        return () if None in known else tuple(sorted({name for names in known if names for name in names}))

    def _checkpoint(self, gpus: int) -> Checkpoint:
        models = -(-gpus // _GPUS_OF_A_MODEL)
        cost = self._overlay.checkpoint_cost_s
        return Checkpoint(
            size_bytes=self._overlay.checkpoint_bytes * models,
            interval_s=max(1, isqrt(2 * cost * self._overlay.mean_up_s // models)),
            cost_s=cost,
        )


def _safe(name: str) -> str:
    """A team's name as a label value; "" for what cannot be one."""
    lowered = name.lower()
    return lowered if _DNS_LABEL.fullmatch(lowered) else ""
