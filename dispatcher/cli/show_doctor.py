"""How the doctor's findings are shown: grouped for people, flat for scripts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from dispatcher.core.doctor.codes import Severity
from dispatcher.core.doctor.facts import FleetFacts
from dispatcher.core.doctor.findings import Finding

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
_ERASE = "\r\x1b[2K"


@contextlib.contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """One line on a terminal that says what is being looked at, gone at the end; nothing where nobody watches."""
    watched = sys.stderr.isatty()

    def show(text: str) -> None:
        if watched:
            sys.stderr.write(f"{_ERASE}{text} ...")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if watched:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()


def doctor_page(screen: Console, facts: FleetFacts, findings: Sequence[Finding]) -> None:
    """Findings by group, the worst first; what and where in one line, then why, then the fix."""
    for group, members in groupby(findings, key=lambda finding: finding.group):
        screen.print(Text(str(group), style="bold"))
        for finding in members:
            _finding(screen, finding)
        screen.print()
    screen.print(summary(facts, findings))


def _finding(screen: Console, finding: Finding) -> None:
    head = Text()
    head.append(f"{finding.severity.value:<8}", style=_STYLES[finding.severity])
    head.append(finding.where.text(), style="bold")
    head.append(f"  [{finding.code.value}]", style="dim")
    screen.print(Padding(head, (0, 0, 0, 2)))
    for name, value in (
        ("seen", finding.seen),
        ("why", f"{finding.why} ({_source(finding)})"),
        ("fix", finding.fix),
    ):
        line = Text(f"{name:<5} ", style="dim")
        line.append(Text(value, style="none"))
        screen.print(Padding(line, (0, 0, 0, 10)))


def _source(finding: Finding) -> str:
    return f"section {finding.section}" if finding.section[:1].isdigit() else finding.section


def summary(facts: FleetFacts, findings: Sequence[Finding]) -> str:
    """The outcome in one line."""
    counts = [
        f"{number} {severity.value}{'' if number == 1 else 's'}"
        for severity in Severity
        if (number := sum(finding.severity is severity for finding in findings))
    ]
    reached = sum(worker.cluster.reachable for worker in facts.workers)
    looked = f"hub and {reached} of {len(facts.workers)} workers" if facts.hub.cluster.reachable else "hub not reached"
    return f"{looked}: {', '.join(counts) or 'nothing wrong'}"


def to_data(facts: FleetFacts, findings: Sequence[Finding]) -> dict[str, Any]:
    """For scripts: `code`, `severity` and `where` are stable, texts are for people."""
    clusters = [facts.hub.cluster, *(worker.cluster for worker in facts.workers)]
    return {
        "seen_at": facts.seen_at.isoformat(),
        "clusters": [
            {
                "name": cluster.name,
                "reachable": cluster.reachable,
                "error": cluster.error,
                "kubernetes": cluster.kubernetes,
                "kueue": cluster.kueue.text or None,
                "account": cluster.account or None,
            }
            for cluster in clusters
        ],
        "findings": [_data(finding) for finding in findings],
    }


def _data(finding: Finding) -> dict[str, Any]:
    where = finding.where
    return {
        "code": finding.code.value,
        "severity": finding.severity.value,
        "group": finding.group.value,
        "where": {
            "cluster": where.cluster or None,
            "kind": where.kind or None,
            "namespace": where.namespace or None,
            "name": where.name or None,
            "place": where.place or None,
        },
        "seen": finding.seen,
        "why": finding.why,
        "section": finding.section,
        "fix": finding.fix,
    }
