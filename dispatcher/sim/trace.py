"""A job as a trace or the generator tells it, before anything is added that no public trace has. Pure and frozen.

Both are made into `SimJob`s by the same overlay, so that a trace and a generated scenario differ in nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """Why a row of a trace is left out, or taken in another form. Each is counted; docs/simulate.md explains them."""

    NO_GPU = "no-gpu"
    NO_RUN_TIME = "no-run-time"
    NO_THROUGHPUT = "no-throughput"
    OUTSIDE_WINDOW = "outside-window"
    LARGER_THAN_ANY_CLUSTER = "larger-than-any-cluster"
    ROUNDED_UP = "rounded-up"
    LARGEST_MEASURED = "largest-measured"
    SPLIT_EVENLY = "split-evenly"


Counts = tuple[tuple[Rule, int], ...]
"""How many rows met a rule, in the order of `Rule`; a rule that none met is left out."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job. `submit_s` counts from the trace's own first submission.

    `kind` is what the trace calls its sort of work ("" = nothing), `gpu_types` the trace's names of the types that it
    accepts (empty = any). `duration_s` is on the trace's reference type, and `speeds` how fast it is on others, in
    permille of that.
    """

    name: str
    submit_s: int
    pods: int
    gpus_per_pod: int
    duration_s: int
    queue: str = ""
    user: str = ""
    kind: str = ""
    gpu_types: tuple[str, ...] = ()
    speeds: tuple[tuple[str, int], ...] = ()

    @property
    def gpus(self) -> int:
        return self.pods * self.gpus_per_pod

    @property
    def gpu_seconds(self) -> int:
        return self.gpus * self.duration_s


@dataclass(frozen=True, slots=True)
class Trace:
    """All usable jobs of a trace in order of submission, then of name.

    `name` is the file's own, without its folder, so that a report reads the same on every machine. `rows` counts what
    was read; each of them is a job, or was dropped by a rule, or belongs to a job of several rows. `adjusted` counts
    rows that were taken in another form.
    """

    name: str
    schema: str
    licence: str
    rows: int
    jobs: tuple[TraceJob, ...]
    dropped: Counts = ()
    adjusted: Counts = ()


GPUS_PER_NODE = 8


def gang(gpus: int, per_pod: int = GPUS_PER_NODE) -> tuple[int, int]:
    """(pods, GPUs of each) of a job that is only known by its GPUs: as few equal pods as fit on nodes of `per_pod`.

    12 GPUs on nodes of 8 are two pods of 6. The product is exactly the GPUs asked for.
    """
    each = next(size for size in range(min(gpus, per_pod), 0, -1) if gpus % size == 0)
    return gpus // each, each
