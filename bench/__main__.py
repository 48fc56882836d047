"""`python -m bench [NAME]`: run one bench or all, keep their rows, exit with 1 when a bar is missed.

A bench is a module with `run(say) -> Sequence[Row]`; `say` prints a line of progress. See README.md to add one.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import rows, tables
from bench.rows import Row

BENCHES = {
    "decide": "decide",
    "dispatch": "dispatch",
    "egress": "egress",
    "flavor": "flavor",
    "memory": "memory",
    "order": "order",
    "policy": "policy",
    "simulate": "simulate",
    "warm": "warm",
}
"""Name of each bench and its module in this folder."""
APART = ("soak",)
"""Run by a command of its own (`python -m bench.soak`): it takes its half hour whatever the machine."""
Say = Callable[[str], None]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", nargs="?", choices=sorted(BENCHES), help="one bench; without it, all")
    parser.add_argument("--results", type=Path, default=rows.RESULTS, help="where the rows are kept")
    options = parser.parse_args()
    missed = 0
    for name in [options.name] if options.name else written():
        measured = measure(name)
        keep(name, measured, options.results)
        own = [row for row in rows.load(options.results) if row["bench"] == name]
        print(f"\n{name}\n{tables.text(own)}\n", flush=True)
        missed += sum(row.holds is False for row in measured)
    if missed:
        print(f"{missed} bar{'s' if missed > 1 else ''} missed", file=sys.stderr)
    return 1 if missed else 0


def written() -> list[str]:
    """The benches whose module exists."""
    folder = Path(__file__).parent
    return [name for name, module in sorted(BENCHES.items()) if (folder / f"{module}.py").exists()]


def measure(name: str) -> Sequence[Row]:
    """Run one bench with its progress on standard error, each line with the seconds since its start."""
    started_s = time.monotonic()

    def say(line: str) -> None:
        print(f"{name} {time.monotonic() - started_s:6.1f} s  {line}", file=sys.stderr, flush=True)

    module = importlib.import_module(f"bench.{BENCHES[name]}")
    measured: Sequence[Row] = module.run(say)
    return measured


def keep(name: str, measured: Sequence[Row], path: Path) -> None:
    """Merge the rows into the file, and show them in README.md when it is the repository's own file."""
    told = f"{time.strftime('%Y-%m-%d', time.gmtime())} on {machine()}"
    kept = rows.merged(rows.load(path), name, [row.record(name, told) for row in measured])
    rows.save(kept, path)
    if path == rows.RESULTS:
        tables.README.write_text(tables.with_tables(tables.README.read_text(), kept))


def machine() -> str:
    """What a reader must know of the machine to compare: cores and memory, nothing that names it."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {gib:.0f} GiB"


if __name__ == "__main__":
    sys.exit(main())
