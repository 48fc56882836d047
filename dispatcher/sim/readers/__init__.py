"""Readers for the column schemas of public traces, by path: the repository carries none of them (docs/simulate.md).

`read_trace` recognises the schema by what is there; a wrong file is refused with its place, value, rule and fix.
"""

from __future__ import annotations

from pathlib import Path

from dispatcher.config.problems import TOP, did_you_mean, problem_at
from dispatcher.sim.readers.alibaba import JOB_TABLE, OPENB, PAI, TASK_TABLE
from dispatcher.sim.readers.philly import COMMON, GAVEL, MURI
from dispatcher.sim.readers.rows import TraceError, table
from dispatcher.sim.readers.schema import Schema, collect
from dispatcher.sim.readers.slurm import ACME, HELIOS
from dispatcher.sim.trace import Trace

SCHEMAS: tuple[Schema, ...] = (COMMON, GAVEL, MURI, HELIOS, ACME, PAI, OPENB)

__all__ = ["SCHEMAS", "TraceError", "read_trace", "schema_of"]


def read_trace(path: Path, schema: str | None = None) -> Trace:
    """All usable jobs of a trace. `schema` names one of `SCHEMAS`; None: what the file looks like.

    Raises:
        TraceError: there is no such file or schema, or something in the file breaks the schema.
    """
    if schema is None:
        return collect(path, schema_of(path))
    named = next((known for known in SCHEMAS if known.name == schema), None)
    if named is None:
        names = [known.name for known in SCHEMAS]
        fix = did_you_mean(schema, names, f"one of {', '.join(names)}")
        raise TraceError(problem_at(path.name, TOP, schema, "no schema of this name", fix))
    return collect(path, named)


def schema_of(path: Path) -> Schema:
    """The schema that a file or a folder is of.

    Raises:
        TraceError: it is of none.
    """
    if path.suffix == ".trace" or (path.is_dir() and any(path.glob("*.trace"))):
        return GAVEL
    if path.is_dir() or path.name.removesuffix(".gz") in (JOB_TABLE, TASK_TABLE):
        return PAI
    with table(path) as rows:
        header = set(rows.columns)
    for schema in SCHEMAS:
        if schema.columns and header.issuperset(schema.columns):
            return schema
    rule = "the header line is that of no schema that can be read"
    raise TraceError(problem_at(path.name, TOP, ",".join(rows.columns), rule, "see docs/simulate.md for the columns"))
