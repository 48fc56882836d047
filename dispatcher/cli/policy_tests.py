"""`policy test`: run the tests beside the rules, and say how much of the rules they see."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dispatcher.cli.options import Output, OutputOption
from dispatcher.cli.policy_options import HERE, FolderArgument, PolicyExit, folder_of, instant, world_at
from dispatcher.cli.printing import console, emit_data, grid
from dispatcher.config.residency import testing_show as show
from dispatcher.config.residency.coverage import cover
from dispatcher.config.residency.mutation import survey
from dispatcher.config.residency.testing import run
from dispatcher.config.residency.testing_files import Suite, read_suite


def run_tests(
    folder: FolderArgument = HERE,
    min_coverage: Annotated[
        int, typer.Option("--min-coverage", min=0, max=100, help="percent that the tests must see", metavar="N")
    ] = 0,
    mutate: Annotated[
        bool,
        typer.Option("--mutate", help="also take each clause, obligation, flow and label out: does a test notice?"),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run the tests beside the rules (*.test.yaml). Their time is written in them: the same answer every day.

    With -o wide coverage is shown by rule, and what no test sees.

    Exit codes: 0 all pass, 1 a test fails, coverage is too small or a change goes unnoticed, 2 nothing could be run.
    """
    world = world_at(folder_of(folder), instant(None))
    suite = read_suite(folder, world)
    _unreadable(suite, str(folder))
    outcome = run(world.law, suite.cases)
    mutants = survey(world.bundle, suite.cases) if mutate and outcome.ok else None
    report = show.Report(str(folder), outcome, cover(world.law, suite.cases), min_coverage, mutants)
    if output in (Output.JSON, Output.YAML):
        emit_data(show.to_data(report), output)
    else:
        _print(report, output is Output.WIDE)
    if not report.ok:
        raise typer.Exit(PolicyExit.FOUND)


def _unreadable(suite: Suite, folder: str) -> None:
    """Tests that do not read are no tests: nothing is run. Neither is there anything to run without any."""
    for problem in suite.problems:
        sys.stderr.write(f"{folder.rstrip('/')}/{problem.text()}\n")
    if not suite.files:
        sys.stderr.write(f"{folder}: there are no tests; write residency/NAME.test.yaml\n")
    if suite.problems or not suite.files:
        raise typer.Exit(PolicyExit.NOT_READ)


def _print(report: show.Report, wide: bool) -> None:
    lines = [line for failure in report.outcome.failures for line in show.failure_text(failure, report.folder)]
    if wide:
        table = grid("rule", "permit", "deny", "unknown", "", right=frozenset({"permit", "deny", "unknown"}))
        for row in show.sides(report.coverage):
            table.add_row(*row)
        console().print(table)
    if wide or report.coverage.percent < report.wanted:
        lines += show.missing_text(report.coverage, report.folder)
    if report.survey is not None:
        lines += show.survey_text(report.survey, report.folder)
    sys.stdout.write("".join(f"{line}\n" for line in (*lines, show.summary(report))))
