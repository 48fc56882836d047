"""Helios and Acme: the job logs of two data centres under Slurm, with nearly the same columns.

Sources of the schemas: the README files of S-Lab-System-Group/HeliosData and of InternLM/AcmeTrace. Jobs that failed
or were cancelled held their GPUs as long as the others, so they count in full.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dispatcher.sim.readers.rows import Tally, table
from dispatcher.sim.readers.schema import Names, Schema, each, usable
from dispatcher.sim.trace import Rule, TraceJob, gang

_SHARED = ("job_id", "user", "node_num", "gpu_num", "submit_time", "duration")
HELIOS_COLUMNS = (*_SHARED, "vc", "state")
ACME_COLUMNS = (*_SHARED, "type", "gpu_time")


def read_helios(path: Path, tally: Tally) -> Iterator[TraceJob]:
    """`cluster_log.csv` of one cluster; the virtual cluster is the queue."""
    return _read(path, tally, HELIOS_COLUMNS, queue="vc")


def read_acme(path: Path, tally: Tally) -> Iterator[TraceJob]:
    """`trace_seren.csv` or `trace_kalos.csv`; the only public trace that says what kind of work a job is."""
    return _read(path, tally, ACME_COLUMNS, kind="type")


def _read(
    path: Path, tally: Tally, columns: tuple[str, ...], queue: str | None = None, kind: str | None = None
) -> Iterator[TraceJob]:
    with table(path, columns) as rows:
        job, user, nodes, gpus_at, submit, duration = rows.places(*_SHARED)
        queue_at = next(rows.places(queue)) if queue else None
        kind_at = next(rows.places(kind)) if kind else None
        names = Names(rows, job)
        for row in each(rows, tally):
            name, gpus = names.take(), rows.whole(gpus_at)
            duration_s = rows.lasting(duration) if row[duration] else 0
            if usable(gpus, duration_s, tally):
                yield TraceJob(
                    name,
                    rows.instant(submit),
                    *_pods(gpus, rows.whole(nodes), tally),
                    duration_s,
                    row[queue_at] if queue_at is not None else "",
                    row[user],
                    row[kind_at] if kind_at is not None else "",
                )


def _pods(gpus: int, nodes: int, tally: Tally) -> tuple[int, int]:
    """One pod a node as it was; where the GPUs do not divide by the nodes, as few equal pods as fit."""
    if nodes > 0 and gpus % nodes == 0:
        return nodes, gpus // nodes
    tally.adjusted[Rule.SPLIT_EVENLY] += 1
    return gang(gpus)


HELIOS = Schema("helios", "Helios traces (SenseTime, S-Lab), CC-BY-4.0", HELIOS_COLUMNS, read_helios)
ACME = Schema("acme", "AcmeTrace (InternLM, Shanghai AI Laboratory), CC-BY-4.0", ACME_COLUMNS, read_acme)
