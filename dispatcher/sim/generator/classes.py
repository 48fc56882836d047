"""Which workload class a job is of: what its trace says, which only one does, else by its GPUs and run time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.trace import TraceJob

Mix = tuple[tuple[WorkloadClass, int], ...]

CLASS_OF_KIND: Mapping[str, WorkloadClass] = {
    "pretrain": WorkloadClass.TRAINING,
    "sft": WorkloadClass.TRAINING,
    "mllm": WorkloadClass.TRAINING,
    "evaluation": WorkloadClass.EVALUATION,
    "debug": WorkloadClass.INTERACTIVE,
}
"""The kinds that Acme names, in small letters; its others go by the rules."""


@dataclass(frozen=True, slots=True)
class ClassRule:
    """Jobs of at least so many GPUs, or that run so long; the first rule that holds draws from its mix (in percent)."""

    least_gpus: int
    least_s: int
    mix: Mix

    def holds(self, job: TraceJob) -> bool:
        return job.gpus >= self.least_gpus or job.duration_s >= self.least_s

    def text(self) -> str:
        """As a report prints it."""
        mix = ", ".join(f"{workload_class} {percent} %" for workload_class, percent in self.mix)
        if self.least_s == 0:
            return f"else {mix}"
        return f"from {self.least_gpus} GPUs or {self.least_s} s {mix}"


CLASS_RULES: tuple[ClassRule, ...] = (
    ClassRule(8, 21_600, ((WorkloadClass.TRAINING, 80), (WorkloadClass.REINFORCEMENT_LEARNING, 20))),
    ClassRule(
        4,
        1_800,
        (
            (WorkloadClass.SIMULATION, 45),
            (WorkloadClass.DATA_PROCESSING, 25),
            (WorkloadClass.REINFORCEMENT_LEARNING, 15),
            (WorkloadClass.EVALUATION, 15),
        ),
    ),
    ClassRule(
        1,
        0,
        ((WorkloadClass.DATA_PROCESSING, 40), (WorkloadClass.EVALUATION, 35), (WorkloadClass.INTERACTIVE, 25)),
    ),
)
"""Large or long is training, small and short is evaluation, curation or somebody at a notebook. Our own assumption.
There is no inference: a trace of batch jobs says nothing of serving."""


def class_mix(job: TraceJob) -> Mix:
    """The mix of the first rule that holds; the last one always does."""
    return next(rule.mix for rule in CLASS_RULES if rule.holds(job))


Affinity = tuple[tuple[WorkloadClass, tuple[tuple[str, int], ...]], ...]
"""How fast the jobs of a class are on a product, in permille: the median of the class."""

TYPE_AFFINITY: Affinity = (
    (WorkloadClass.TRAINING, (("a100-80gb", 550), ("h100-80gb", 1000), ("l40s-48gb", 250))),
    (WorkloadClass.REINFORCEMENT_LEARNING, (("a100-80gb", 700), ("h100-80gb", 1000), ("l40s-48gb", 400))),
    (WorkloadClass.SIMULATION, (("a100-80gb", 600), ("h100-80gb", 1000), ("l40s-48gb", 900))),
    (WorkloadClass.DATA_PROCESSING, (("a100-80gb", 600), ("h100-80gb", 1000), ("l40s-48gb", 800))),
    (WorkloadClass.EVALUATION, (("a100-80gb", 600), ("h100-80gb", 1000), ("l40s-48gb", 600))),
    (WorkloadClass.INTERACTIVE, (("a100-80gb", 600), ("h100-80gb", 1000), ("l40s-48gb", 900))),
)
"""What the blueprint `three-types` declares as speeds by class: rendering likes cards that render, training those with
fast links. Our own assumption."""
