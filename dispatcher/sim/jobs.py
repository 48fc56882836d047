"""What a simulation runs: jobs, the data they read, and the scenario that holds both. Pure and frozen.

The generator and the trace readers make these values, the engine runs them, the report prints where they came from.
Times are whole seconds from the start of the scenario, sizes whole bytes, factors permille: nothing in here depends on
how a machine rounds.

A job has two durations. `duration_s` is the truth and belongs to the engine's fast clock alone; what a contender may
see is `estimate_s`, which is noisy. Whoever gives a contender the truth must label it as an oracle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dispatcher.core.workload import WorkloadClass

Recipe = tuple[tuple[str, str], ...]
"""How a scenario was made, as printable pairs in the order in which a report shows them."""


@dataclass(frozen=True, slots=True)
class SimDataSet:
    """A data set of the scenario's catalog. `regions`: where a store holds a replica at the start, the home first.

    `labels` are data labels of the blueprint; what the law says of them decides where the data may go.
    """

    name: str
    size_bytes: int
    labels: tuple[str, ...]
    regions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One data set that a job reads, `epochs` times in all."""

    data_set: str
    epochs: int = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a job writes every `interval_s` of running: `size_bytes`, which stops its work for `cost_s`.

    A run that is stopped loses what it did since its last checkpoint.
    """

    size_bytes: int
    interval_s: int
    cost_s: int


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job: a gang of `pods` of `gpus_per_pod` each, which start together.

    `queue` is a ClusterQueue of the blueprint and `priority` one of its priority classes ("" = the queue's own).
    `products` are the canonical GPU products that it accepts (empty = any). `duration_s` is its true run time at speed
    1000; `speeds` says how fast it really is on a product, in permille, in order of product (what is not named runs at
    the speed of the flavor). `estimate_s` is what its owner declares. `home_region` is where its team sits, where its
    outputs go and where a contender that knows no other place would run it.

    Raises:
        ValueError: a count or a duration is not positive, or the submission lies before the start.
    """

    name: str
    submit_s: int
    queue: str
    team: str
    workload_class: WorkloadClass
    pods: int
    gpus_per_pod: int
    duration_s: int
    estimate_s: int
    home_region: str
    priority: str = ""
    products: tuple[str, ...] = ()
    speeds: tuple[tuple[str, int], ...] = ()
    data: tuple[Reading, ...] = ()
    checkpoint: Checkpoint | None = None

    def __post_init__(self) -> None:
        if min(self.pods, self.gpus_per_pod, self.duration_s, self.estimate_s) < 1 or self.submit_s < 0:
            raise ValueError(f"{self.name}: pods, GPUs and durations are at least 1, and no job comes before the start")

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.pods * self.gpus_per_pod

    @property
    def gpu_seconds(self) -> int:
        """True work at speed 1000."""
        return self.gpus * self.duration_s

    def speed_on(self, product: str) -> int | None:
        """Its own speed on a product in permille; None: nothing is known beside the flavor's speed."""
        return next((permille for name, permille in self.speeds if name == product), None)


@dataclass(frozen=True)
class Scenario:
    """Jobs in order of submission (ties by name), the data they read, and everything a report prints of their origin.

    `blueprint` is the folder of the fleet and rules, relative to the repository or absolute. `load_permille` is the
    work of the jobs by the capacity of that fleet over `span_s`, the time within which they are submitted. `sources`
    names each trace with its licence (empty: all is generated).

    Raises:
        ValueError: jobs out of order, two jobs or data sets of one name, or a job that reads what is not there.
    """

    name: str
    blueprint: str
    seed: int
    load_permille: int
    span_s: int
    jobs: tuple[SimJob, ...]
    data_sets: tuple[SimDataSet, ...]
    recipe: Recipe
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        order = [(job.submit_s, job.name) for job in self.jobs]
        if order != sorted(order):
            raise ValueError(f"{self.name}: jobs are in order of submission, then of name")
        if len(self.catalog) != len(self.data_sets) or len({job.name for job in self.jobs}) != len(self.jobs):
            raise ValueError(f"{self.name}: names of jobs and of data sets are unique")
        if not {reading.data_set for job in self.jobs for reading in job.data} <= self.catalog.keys():
            raise ValueError(f"{self.name}: a job reads a data set that the scenario does not hold")

    @cached_property
    def catalog(self) -> Mapping[str, SimDataSet]:
        """Data sets by name."""
        return {data_set.name: data_set for data_set in self.data_sets}
