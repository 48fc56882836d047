"""`entrepot policy lint`: everything that is wrong with the rules, or probably not meant, in order of place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dispatcher.config.problems import Problem, Severity
from dispatcher.config.residency import lint_checks as checks
from dispatcher.config.residency.assemble import is_rule_file
from dispatcher.config.residency.lint_checks import Code, Finding, Level
from dispatcher.config.residency.testing_files import is_test_file, read_suite
from dispatcher.config.residency.world import World, look
from residency.soundness import Flaw
from residency.vocabulary import At

RANK = {Level.ERROR: 0, Level.WARNING: 1, Level.NOTE: 2}
SAID_BETTER = frozenset({Flaw.EXPIRES_SOON.value})
"""Warnings of the bundle that the checks here say with more."""


@dataclass(frozen=True, slots=True)
class LintResult:
    """`digest` names the rules that were looked at (empty: not valid). `elsewhere` counts errors of other files: with
    any, only what stands in the rule files was looked at, and not what it means for the fleet."""

    folder: str
    digest: str
    rules: int
    findings: tuple[Finding, ...]
    elsewhere: int = 0

    def of(self, level: Level) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level is level)

    @property
    def ok(self) -> bool:
        return bool(self.digest)


def lint_rules(folder: Path, now: datetime) -> LintResult:
    """Look at the rules of a blueprint's folder. Never raises for what stands in the files."""
    result, world = look(folder, now)
    found = [_finding(problem) for problem in result.problems if _is_ours(problem)]
    elsewhere = sum(1 for problem in result.errors if not _is_ours(problem))
    if world is None:
        return LintResult(str(folder), "", 0, in_order(found), elsewhere)
    found = [finding for finding in found if finding.code not in SAID_BETTER]
    found += lint_world(world, folder, now)
    return LintResult(str(folder), world.bundle.digest, len(world.bundle.rules), in_order(found))


def lint_world(world: World, folder: Path, now: datetime) -> Iterator[Finding]:
    """What the rules mean, for the fleet and the catalog, and which of them the tests guard."""
    yield from checks.unreachable(world)
    yield from checks.dead_permits(world, now)
    yield from checks.contradictions(world, now)
    yield from checks.conflicting_obligations(world, now)
    yield from checks.ending_exceptions(world, now)
    yield from checks.idle_exceptions(world, now)
    yield from checks.sets(world)
    suite = read_suite(folder, world)
    for problem in suite.problems:
        yield _finding(problem)
    yield from checks.untested(world, suite.cases)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(dict.fromkeys(findings), key=lambda f: (f.at, RANK[f.level], f.code, f.subject, f.says)))


def _is_ours(problem: Problem) -> bool:
    return is_rule_file(problem.file) or problem.file == "residency" or bool(problem.code)


def _finding(problem: Problem) -> Finding:
    level = Level.ERROR if problem.severity is Severity.ERROR else Level.WARNING
    code = problem.code or (Code.BAD_TEST.value if is_test_file(problem.file) else Code.UNREADABLE.value)
    at = At(problem.file, problem.line, problem.column)
    return Finding(at, level, code, problem.value.strip("'"), problem.rule, problem.fix)
