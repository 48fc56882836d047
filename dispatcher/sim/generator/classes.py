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
    (WorkloadClass.TRAINING, (("a100-80gb", 350), ("h100-80gb", 1000), ("l40s-48gb", 180))),
    (WorkloadClass.REINFORCEMENT_LEARNING, (("a100-80gb", 500), ("h100-80gb", 1000), ("l40s-48gb", 500))),
    (WorkloadClass.SIMULATION, (("a100-80gb", 500), ("h100-80gb", 1000), ("l40s-48gb", 1200))),
    (WorkloadClass.DATA_PROCESSING, (("a100-80gb", 750), ("h100-80gb", 1000), ("l40s-48gb", 850))),
    (WorkloadClass.EVALUATION, (("a100-80gb", 500), ("h100-80gb", 1000), ("l40s-48gb", 450))),
    (WorkloadClass.INTERACTIVE, (("a100-80gb", 1000), ("h100-80gb", 1000), ("l40s-48gb", 1000))),
)
"""What the blueprint `three-types` declares as speeds by class. By their makers' sheets an A100 has 0.32 of an H100's
dense BF16 and 0.6 of its memory bandwidth, an L40S 0.37 and 0.26, no fast link between cards, and ray tracing cores
that the others lack: training is bound by the lower of the two, and by links; rendering likes cards that render, and
people at a notebook are as fast on any. Gavel measured the same spread on three older types: half of its models run on
a K80 at less than 0.23 of their speed on a V100, those on eight GPUs at less than 0.13. The numbers are our own
assumption."""
