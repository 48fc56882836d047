"""Alibaba's cluster traces: PAI of 2020 (jobs of several tasks) and openb of 2023 (single pods).

Sources of the schemas: the README of alibaba/clusterdata, cluster-trace-gpu-v2020, and the header lines of its tables;
cluster-trace-gpu-v2023, csv/openb_pod_list_*.csv.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd
from pathlib import Path

from dispatcher.config.problems import TOP, problem_at
from dispatcher.sim.readers.rows import CSV_WITHOUT_HEADER, Tally, TraceError, table
from dispatcher.sim.readers.schema import Names, Schema, each, usable
from dispatcher.sim.trace import GPUS_PER_NODE, Rule, TraceJob, gang

# --- PAI 2020 ---

JOB_TABLE, TASK_TABLE = "pai_job_table.csv", "pai_task_table.csv"
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK_COLUMNS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
_PERCENT = 100


@dataclass(slots=True)
class _Tasks:
    """The tasks with GPUs of one job, folded while they are read."""

    start_s: int | None = None
    end_s: int = 0
    gpus: int = 0
    each: int = 0
    types: list[str] = field(default_factory=list)

    def add(self, instances: int, gpus: int, gpu_type: str) -> None:
        self.gpus += instances * gpus
        self.each = gcd(self.each, gpus)
        if gpu_type and gpu_type not in self.types:
            self.types.append(gpu_type)

    def ran(self, start_s: int, end_s: int) -> None:
        self.start_s = start_s if self.start_s is None else min(self.start_s, start_s)
        self.end_s = max(self.end_s, end_s)

    @property
    def duration_s(self) -> int:
        return self.end_s - self.start_s if self.start_s is not None else 0


_NO_TASKS = _Tasks()
"""What is known of a job that has no task with a GPU."""


def read_pai(path: Path, tally: Tally) -> Iterator[TraceJob]:
    """The folder with `pai_job_table.csv` and `pai_task_table.csv`.

    A job is submitted when its job row says, and runs from the first start to the last end of its tasks with GPUs, in
    pods of the size that divides them all. `plan_gpu` is percent of a GPU: parts of one are taken as whole ones.
    """
    tasks = _tasks(_file(path, TASK_TABLE), tally)
    with table(_file(path, JOB_TABLE), JOB_COLUMNS, CSV_WITHOUT_HEADER) as rows:
        job, _, user, _, start, _ = rows.places(*JOB_COLUMNS)
        names = Names(rows, job)
        for row in each(rows, tally):
            name = names.take()
            found = tasks.get(name, _NO_TASKS)
            if usable(found.gpus, found.duration_s if row[start] else 0, tally):
                yield TraceJob(
                    name,
                    rows.seconds(start),
                    *gang(found.gpus, min(found.each, GPUS_PER_NODE)),
                    found.duration_s,
                    user=row[user],
                    gpu_types=tuple(found.types),
                )


def _tasks(path: Path, tally: Tally) -> dict[str, _Tasks]:
    found: dict[str, _Tasks] = {}
    with table(path, TASK_COLUMNS, CSV_WITHOUT_HEADER) as rows:
        job, _, count, _, start, end, _, _, gpu, gpu_type = rows.places(*TASK_COLUMNS)
        for row in each(rows, tally):
            percent = rows.rounded_up(gpu) if row[gpu] else 0
            if not percent or not row[count]:
                continue
            of = found.setdefault(rows.filled(job), _Tasks())
            tally.adjusted[Rule.ROUNDED_UP] += percent % _PERCENT > 0
            of.add(rows.whole(count), -(-percent // _PERCENT), row[gpu_type])
            if row[start] and row[end]:
                of.ran(rows.seconds(start), rows.seconds(end))
    return found


def _file(path: Path, name: str) -> Path:
    folder = path if path.is_dir() else path.parent
    packed = folder / f"{name}.gz"
    file = packed if packed.is_file() else folder / name
    if not file.is_file():
        raise TraceError(problem_at(name, TOP, "", f"the schema needs this table in {folder.name}", "unpack it there"))
    return file


# --- openb 2023 ---

OPENB_COLUMNS = ("name", "num_gpu", "gpu_milli", "gpu_spec", "qos", "creation_time", "deletion_time", "scheduled_time")
_WHOLE_GPU_MILLI = 1000


def read_openb(path: Path, tally: Tally) -> Iterator[TraceJob]:
    """Single pods. One that was never scheduled did not run; one with a part of a GPU is taken as one with a whole."""
    with table(path, OPENB_COLUMNS) as rows:
        pod, gpus_at, milli, spec, qos, created, deleted, scheduled = rows.places(*OPENB_COLUMNS)
        names = Names(rows, pod)
        for row in each(rows, tally):
            name, gpus = names.take(), rows.whole(gpus_at)
            ran = rows.seconds(deleted) - rows.seconds(scheduled) if row[scheduled] and row[deleted] else 0
            if usable(gpus, ran, tally):
                tally.adjusted[Rule.ROUNDED_UP] += rows.whole(milli) < _WHOLE_GPU_MILLI
                types = tuple(row[spec].split("|")) if row[spec] else ()
                yield TraceJob(name, rows.seconds(created), *gang(gpus), ran, kind=row[qos], gpu_types=types)


PAI = Schema("pai", "Alibaba Cluster Trace Program, cluster-trace-gpu-v2020, CC-BY-4.0", (), read_pai)
OPENB = Schema(
    "openb",
    "Alibaba Cluster Trace Program, cluster-trace-gpu-v2023, for research and study only",
    OPENB_COLUMNS,
    read_openb,
)
