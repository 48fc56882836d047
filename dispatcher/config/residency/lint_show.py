"""Findings as text, as data, as SARIF and as annotations of a pull request. Same findings, same bytes."""

from __future__ import annotations

from typing import Any

from dispatcher.config.residency.lint import RANK, LintResult
from dispatcher.config.residency.lint_checks import Finding, Level

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ANNOTATION = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}


def shown(result: LintResult, least: Level) -> tuple[Finding, ...]:
    """Findings that are at least so bad."""
    return tuple(finding for finding in result.findings if RANK[finding.level] <= RANK[least])


def to_text(result: LintResult, least: Level) -> str:
    """One line a finding, `file:line:column: level code subject: what; fix`, then one that sums up."""
    lines = [line(finding, result.folder) for finding in shown(result, least)]
    return "\n".join([*lines, summary(result)]) + "\n"


def line(finding: Finding, folder: str) -> str:
    subject = f" {finding.subject}" if finding.subject else ""
    fix = f"; {finding.fix}" if finding.fix else ""
    return f"{_path(finding, folder)}: {finding.level.value} {finding.code}{subject}: {finding.says}{fix}"


def summary(result: LintResult) -> str:
    counts = ", ".join(_count(len(result.of(level)), level.value) for level in Level)
    if not result.ok:
        other = f"; {_count(result.elsewhere, 'error')} in other files: entrepot blueprint lint"
        return f"{result.folder}: not valid: {counts}{other if result.elsewhere else ''}"
    return f"{result.folder}: {_count(result.rules, 'rule')}, digest {result.digest}: {counts}"


def to_data(result: LintResult, least: Level) -> dict[str, Any]:
    """For `-o json`; keys are stable."""
    return {
        "folder": result.folder,
        "valid": result.ok,
        "digest": result.digest or None,
        "rules": result.rules,
        "errors_elsewhere": result.elsewhere,
        "counts": {level.value: len(result.of(level)) for level in Level},
        "findings": [
            {
                "file": finding.at.file,
                "line": finding.at.line,
                "column": finding.at.column,
                "level": finding.level.value,
                "code": finding.code,
                "subject": finding.subject,
                "text": finding.says,
                "fix": finding.fix,
            }
            for finding in shown(result, least)
        ],
    }


def to_sarif(result: LintResult, least: Level) -> dict[str, Any]:
    """SARIF 2.1.0, as code hosts read it."""
    found = shown(result, least)
    codes = sorted({finding.code for finding in found})
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "entrepot policy lint", "rules": [{"id": code} for code in codes]}},
                "results": [_sarif(finding, codes, result.folder) for finding in found],
            }
        ],
    }


def _sarif(finding: Finding, codes: list[str], folder: str) -> dict[str, Any]:
    region = {"startLine": max(finding.at.line, 1), "startColumn": max(finding.at.column, 1)}
    place = {"artifactLocation": {"uri": _file(finding, folder)}, "region": region}
    return {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": finding.level.value,
        "message": {"text": _message(finding)},
        "locations": [{"physicalLocation": place}],
    }


def to_github(result: LintResult, least: Level) -> str:
    """Workflow commands: each becomes an annotation at its line of the pull request."""
    return "".join(_annotation(finding, result.folder) for finding in shown(result, least))


def _annotation(finding: Finding, folder: str) -> str:
    where = f"file={_escaped(_file(finding, folder), ':,')},line={finding.at.line},col={finding.at.column}"
    title = f"title={_escaped(finding.code, ':,')}"
    return f"::{_ANNOTATION[finding.level]} {where},{title}::{_escaped(_message(finding), '')}\n"


def _escaped(text: str, more: str) -> str:
    """As workflow commands want it: percent first, then line ends, then what separates properties."""
    for char in ("%", "\r", "\n", *more):
        text = text.replace(char, f"%{ord(char):02X}")
    return text


def _message(finding: Finding) -> str:
    fix = f"; {finding.fix}" if finding.fix else ""
    return f"{finding.subject}: {finding.says}{fix}" if finding.subject else f"{finding.says}{fix}"


def _file(finding: Finding, folder: str) -> str:
    return f"{folder.rstrip('/')}/{finding.at.file}" if finding.at.file else folder


def _path(finding: Finding, folder: str) -> str:
    return f"{folder.rstrip('/')}/{finding.at}" if finding.at.file else folder


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
