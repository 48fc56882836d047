"""Philly in three forms: the common CSV of this project, Gavel's TSV files, and Muri's CSV.

Sources of the schemas: Gavel (stanford-futuredata/gavel, scheduler/traces/msr) and Muri (Rivendile/Muri,
simulator/trace-data); the jobs behind all of them are those of msr-fiddle/philly-traces. Models, and with them run
times of the Gavel form, were assigned by those projects and are not Philly's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from dispatcher.config.problems import TOP, problem_at, shown
from dispatcher.sim.readers.rows import LONGEST_S, TSV_BARE, Rows, Tally, TraceError, table
from dispatcher.sim.readers.schema import Names, Schema, each, usable
from dispatcher.sim.trace import Rule, TraceJob, gang

# --- the common schema ---

COMMON_COLUMNS = (
    "job_id", "submit_s", "gpus", "gpus_per_worker", "workers", "gpu_type", "duration_s", "queue", "user", "class",
)  # fmt: skip
_OTHER_DURATION = ("duration_", "_s")


def read_common(path: Path, tally: Tally) -> Iterator[TraceJob]:
    """The project's own columns. Of the GPUs, `gpus` is the truth: workers and GPUs of each were assumed by whoever
    made the file. Each further column `duration_TYPE_s` tells the run time on another GPU type."""
    with table(path, COMMON_COLUMNS) as rows:
        job, submit, gpus_at, each_at, _, types, duration, queue, user, kind = rows.places(*COMMON_COLUMNS)
        names, others = Names(rows, job), _other_types(rows)
        for row in each(rows, tally):
            name, gpus = names.take(), rows.whole(gpus_at)
            duration_s = rows.lasting(duration) if row[duration] else 0
            if usable(gpus, duration_s, tally):
                yield TraceJob(
                    name,
                    rows.seconds(submit),
                    *_workers(rows, gpus, each_at, tally),
                    duration_s,
                    row[queue],
                    row[user],
                    row[kind],
                    tuple(row[types].split("|")) if row[types] else (),
                    tuple((other, _permille(duration_s, rows.lasting(at))) for other, at in others if row[at]),
                )


def _workers(rows: Rows, gpus: int, each_at: int, tally: Tally) -> tuple[int, int]:
    """(pods, GPUs of each): as the file says where that makes the GPUs of the job, else as few equal ones as fit."""
    per_pod = rows.whole(each_at)
    if per_pod < 1:
        rows.wrong(each_at, "at least 1 where the job has GPUs")
    if gpus % per_pod == 0:
        return gpus // per_pod, per_pod
    tally.adjusted[Rule.SPLIT_EVENLY] += 1
    return gang(gpus, per_pod)


def _other_types(rows: Rows) -> tuple[tuple[str, int], ...]:
    """(GPU type, field) of each further duration."""
    start, end = _OTHER_DURATION
    return tuple(
        (column.removeprefix(start).removesuffix(end), at)
        for at, column in enumerate(rows.columns)
        if column.startswith(start) and column.endswith(end) and len(column) > len(start) + len(end)
    )


def _permille(reference_s: int, other_s: int) -> int:
    return max(1, (2000 * reference_s + other_s) // (2 * other_s)) if other_s else 1000


# --- Gavel ---

THROUGHPUTS = "simulation_throughputs.json"
REFERENCE_TYPE = "v100"
SLOWEST = 1e-9
"""Steps a second, or seconds a step."""
_FOLDERS_UP = 4
_LAYOUTS: Mapping[int, Mapping[str, int]] = {
    7: {"steps": 4, "arrival": 5, "gpus": 6},
    9: {"steps": 4, "gpus": 5, "arrival": 8},
    10: {"steps": 5, "gpus": 6, "arrival": 9},
}
"""Where a field stands, by the number of fields: the project's format grew, and its files were never rewritten."""

Throughputs = Mapping[str, Mapping[tuple[str, int], float]]
"""Steps a second by GPU type, then by (model, GPUs)."""


def read_gavel(path: Path, tally: Tally) -> Iterator[TraceJob]:
    """A `.trace` file (one virtual cluster), or a folder of them. Run time = steps / throughput on the reference type.

    The throughputs stand in `simulation_throughputs.json`, beside the trace or up to four folders above it. Where a
    job has more GPUs than were measured, the figure of the largest count stands in, so that its run time is long.
    """
    measured = _throughputs(path)
    for file in sorted(path.glob("*.trace")) if path.is_dir() else [path]:
        with table(file, form=TSV_BARE) as rows:
            for _ in each(rows, tally):
                job = _gavel_job(rows, measured, tally)
                if job is not None:
                    yield job


def _gavel_job(rows: Rows, measured: Throughputs, tally: Tally) -> TraceJob | None:
    layout = _LAYOUTS.get(len(rows.row))
    if layout is None:
        rows.wrong(0, f"the start of a row of {len(rows.row)} fields, and none of 7, 9 or 10")
    model, gpus, steps = rows.filled(0), rows.whole(layout["gpus"]), rows.whole(layout["steps"])
    reference = measured[REFERENCE_TYPE]
    count = _measured(reference, model, gpus)
    speed = reference[model, count] if count else 0.0
    if gpus and not speed:
        tally.dropped[Rule.NO_THROUGHPUT] += 1
        return None
    duration_s = int(steps / speed + 0.5) if speed else 0
    if duration_s > LONGEST_S:
        rows.wrong(layout["steps"], f"more than {THROUGHPUTS} lets it do in ten years")
    if not usable(gpus, duration_s, tally):
        return None
    tally.adjusted[Rule.LARGEST_MEASURED] += count < gpus
    queue = rows.path.stem
    return TraceJob(
        f"{queue}-{rows.line - 1}",
        rows.seconds(layout["arrival"]),
        *gang(gpus),
        duration_s,
        queue,
        kind=model,
        speeds=_speeds(measured, model, count),
    )


def _measured(of: Mapping[tuple[str, int], float], model: str, gpus: int) -> int:
    """The GPU count whose figure stands for a job: its own, or the largest where it has more; 0: there is none."""
    if (model, gpus) in of:
        return gpus
    largest = max((count for name, count in of if name == model), default=0)
    return largest if largest < gpus else 0


def _speeds(measured: Throughputs, model: str, count: int) -> tuple[tuple[str, int], ...]:
    """How fast the other types are, at the same count."""
    reference = measured[REFERENCE_TYPE][model, count]
    found = [(kind, of[model, count]) for kind, of in sorted(measured.items()) if of.get((model, count))]
    return tuple((kind, max(1, int(1000 * speed / reference + 0.5))) for kind, speed in found if kind != REFERENCE_TYPE)


def _throughputs(path: Path) -> Throughputs:
    """The measured throughputs of jobs that have their GPUs for themselves.

    Raises:
        TraceError: there is no such file, or it has another form.
    """
    home = path.resolve() if path.is_dir() else path.resolve().parent
    file = next((f / THROUGHPUTS for f in (home, *home.parents[:_FOLDERS_UP]) if (f / THROUGHPUTS).is_file()), None)
    if file is None:
        fix = f"put Gavel's {THROUGHPUTS} beside the trace"
        raise TraceError(problem_at(path.name, TOP, "", "the run times need measured throughputs", fix))
    try:
        written = json.loads(file.read_text())
        measured = {
            kind: {_key(key): _throughput(entry["null"]) for key, entry in of.items() if "null" in entry}
            for kind, of in written.items()
            if "unconsolidated" not in kind
        }
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        rule = f"throughputs are {{type: {{(model, GPUs): {{null: steps a second}}}}}} ({error})"
        raise TraceError(problem_at(THROUGHPUTS, TOP, "", rule)) from error
    if REFERENCE_TYPE not in measured:
        raise TraceError(problem_at(THROUGHPUTS, TOP, "", f"figures of {REFERENCE_TYPE} are missing"))
    return measured


def _throughput(written: object) -> float:
    """Steps a second; 0: it was not measured."""
    if isinstance(written, bool) or not isinstance(written, int | float):
        raise ValueError(f"{shown(written)} is no number")
    if written and not SLOWEST <= written <= 1 / SLOWEST:
        raise ValueError(f"{written} is no number of steps a second")
    return float(written)


def _key(written: str) -> tuple[str, int]:
    """('ResNet-18 (batch size 16)', 4), as Gavel writes a pair."""
    model, _, gpus = written.strip("()").rpartition(", ")
    if len(model) < 3 or model[0] not in "'\"" or model[-1] != model[0]:
        raise ValueError(f"{shown(written)} is no pair of model and GPUs")
    return model[1:-1], int(gpus)


# --- Muri ---

MURI_COLUMNS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")


def read_muri(path: Path, tally: Tally) -> Iterator[TraceJob]:
    """Muri's columns; its times are milliseconds. One file is one virtual cluster, so the file's name is the queue."""
    with table(path, MURI_COLUMNS) as rows:
        job, gpus_at, submit, kind, duration = rows.places(*MURI_COLUMNS)
        names, queue = Names(rows, job), path.name.partition(".")[0]
        for row in each(rows, tally):
            name, gpus = names.take(), rows.whole(gpus_at)
            duration_s = rows.milliseconds(duration, LONGEST_S)
            if usable(gpus, duration_s, tally):
                yield TraceJob(name, rows.milliseconds(submit), *gang(gpus), duration_s, queue, kind=row[kind])


_PHILLY = "Philly traces (Microsoft), CC-BY-4.0"
COMMON = Schema("common", "see the file's own note", COMMON_COLUMNS, read_common)
GAVEL = Schema("gavel", f"Gavel (Stanford Future Data Systems), MIT; {_PHILLY}", (), read_gavel)
MURI = Schema("muri", f"Muri, Apache-2.0; {_PHILLY}", MURI_COLUMNS, read_muri)
