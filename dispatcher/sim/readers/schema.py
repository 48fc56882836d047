"""What a reader of one column schema is, and the small steps that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dispatcher.config.problems import TOP, problem_at
from dispatcher.sim.readers.rows import LONGEST_S, Rows, Tally, TraceError, counts
from dispatcher.sim.trace import Rule, Trace, TraceJob

Read = Callable[[Path, Tally], Iterator[TraceJob]]
"""Reads the jobs of a file or folder in any order, with submissions on the trace's own clock, and counts its rows."""


@dataclass(frozen=True, slots=True)
class Schema:
    """One column schema. `columns` are those that must be there; by them a file with a header line is recognised.

    `licence` is that of the public trace of this schema: whoever reads another one knows better.
    """

    name: str
    licence: str
    columns: tuple[str, ...]
    read: Read


def collect(path: Path, schema: Schema) -> Trace:
    """All jobs of a trace, from its first submission on.

    Raises:
        TraceError: the file cannot be read, or nothing in it can be used.
    """
    tally = Tally()
    found = sorted(schema.read(path, tally), key=lambda job: (job.submit_s, job.name))
    if not found:
        rule = f"none of its {tally.rows} rows can be used"
        raise TraceError(problem_at(path.name, TOP, "", rule, f"is this a trace of the schema {schema.name}?"))
    start = found[0].submit_s
    longest = max(found, key=lambda job: job.duration_s)
    for seconds, what in (
        (found[-1].submit_s - start, "between its first submission and its last"),
        (longest.duration_s, f"of run time of '{longest.name}'"),
    ):
        if seconds > LONGEST_S:
            rule = f"{seconds // (365 * 86_400)} years {what}"
            raise TraceError(problem_at(path.name, TOP, "", rule, "ten years are the most: correct units or years"))
    jobs = tuple(replace(job, submit_s=job.submit_s - start) for job in found) if start else tuple(found)
    return Trace(
        name=path.name,
        schema=schema.name,
        licence=schema.licence,
        rows=tally.rows,
        jobs=jobs,
        dropped=counts(tally.dropped),
        adjusted=counts(tally.adjusted),
    )


class Names:
    """Job names of one file: each once."""

    def __init__(self, rows: Rows, at: int) -> None:
        self._rows = rows
        self._at = at
        self._seen: set[str] = set()

    def take(self) -> str:
        """The name in the row that came last."""
        name = self._rows.row[self._at]
        if not name or name in self._seen:
            self._rows.wrong(self._at, "a name that no other row has", "leave out one of the two rows")
        self._seen.add(name)
        return name


def usable(gpus: int, duration_s: int, tally: Tally) -> bool:
    """Whether a row asks for GPUs and ran; otherwise it is counted as left out."""
    if gpus < 1:
        tally.dropped[Rule.NO_GPU] += 1
        return False
    if duration_s < 1:
        tally.dropped[Rule.NO_RUN_TIME] += 1
        return False
    return True


def each(rows: Iterable[list[str]], tally: Tally) -> Iterator[list[str]]:
    """The rows themselves, counted."""
    for row in rows:
        tally.rows += 1
        yield row
