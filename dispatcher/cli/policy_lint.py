"""`policy lint`: everything that is wrong with the rules, or probably not meant."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from dispatcher.cli.options import Output
from dispatcher.cli.policy_options import HERE, FolderArgument, NowOption, PolicyExit, folder_of, instant
from dispatcher.cli.printing import emit_data
from dispatcher.config.residency.lint import LintResult, lint_rules
from dispatcher.config.residency.lint_checks import Level
from dispatcher.config.residency.lint_show import to_data, to_github, to_sarif, to_text


class LintOutput(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    SARIF = "sarif"
    GITHUB = "github"


def lint(
    folder: FolderArgument = HERE,
    severity: Annotated[
        Level, typer.Option("--severity", help="show only findings that are at least so bad", case_sensitive=False)
    ] = Level.WARNING,
    strict: Annotated[bool, typer.Option("--strict", help="warnings count as errors do")] = False,
    now: NowOption = None,
    output: Annotated[
        LintOutput, typer.Option("-o", "--output", help="how to print", case_sensitive=False)
    ] = LintOutput.TABLE,
) -> None:
    """Check the rules: every finding with file:line:column and a code.

    Exit codes: 0 no errors (with --strict: no warnings either), 1 there are some, 2 nothing could be looked at.
    """
    result = lint_rules(folder_of(folder), instant(now))
    _print(result, severity, output)
    if not result.ok or (strict and result.of(Level.WARNING)):
        raise typer.Exit(PolicyExit.FOUND)


def _print(result: LintResult, severity: Level, output: LintOutput) -> None:
    if output is LintOutput.TABLE:
        sys.stdout.write(to_text(result, severity))
    elif output is LintOutput.GITHUB:
        sys.stdout.write(to_github(result, severity))
    elif output is LintOutput.SARIF:
        emit_data(to_sarif(result, severity), Output.JSON)
    else:
        emit_data(to_data(result, severity), Output(output.value))
