"""What the commands `entrepot blueprint lint|render` do, without the terminal: folder in, text or data out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dispatcher.config.loader import LoadResult, load_blueprint
from dispatcher.config.problems import Problem
from dispatcher.config.render import Rendered, render, to_yaml
from dispatcher.core.ids import ClusterName


def lint(folder: Path, now: datetime) -> LoadResult:
    """Everything that is wrong with a folder, or probably not meant. A result with errors has no policy."""
    return load_blueprint(folder, now)


def lint_text(result: LoadResult) -> str:
    """One line a finding, with a path that terminals and CI can open, then one line that sums up."""
    lines = [_with_folder(problem, result.folder) for problem in result.problems]
    return "\n".join([*lines, summary(result)]) + "\n"


def summary(result: LoadResult) -> str:
    """The outcome in one line."""
    found = f"{_count(len(result.errors), 'error')}, {_count(len(result.warnings), 'warning')}"
    if result.policy is None:
        return f"{result.folder}: not valid: {found}"
    policy = result.policy
    content = f"{_count(len(policy.clusters), 'cluster')}, {_count(len(policy.queues), 'queue')}, "
    content += f"{_count(len(policy.data_sets), 'data set')}"
    return f"{result.folder}: valid, digest {policy.digest}: {content}; {found}"


def to_json(result: LoadResult) -> dict[str, Any]:
    """The findings as data, for `-o json`; keys are stable."""
    return {
        "folder": result.folder,
        "valid": result.policy is not None,
        "digest": result.policy.digest if result.policy is not None else None,
        "errors": [_finding(problem) for problem in result.errors],
        "warnings": [_finding(problem) for problem in result.warnings],
    }


@dataclass(frozen=True, slots=True)
class RenderedFiles:
    """`texts`: file name to YAML, one for the hub and one a worker. `written`: where they lie, empty when nowhere.

    `result` says why when the blueprint is not valid; then there are no texts.
    """

    result: LoadResult
    texts: tuple[tuple[str, str], ...] = ()
    written: tuple[Path, ...] = ()


def render_files(folder: Path, out_dir: Path | None, only: Sequence[str] | None, now: datetime) -> RenderedFiles:
    """Render a folder's Kueue objects, and write them below `out_dir` when one is given.

    Raises:
        ValueError: `only` names a cluster that the blueprint does not have.
        OSError: `out_dir` cannot be written.
    """
    result = load_blueprint(folder, now)
    if result.blueprint is None:
        return RenderedFiles(result)
    texts = texts_of(render(result.blueprint, only=None if only is None else [ClusterName(name) for name in only]))
    written: list[Path] = []
    if out_dir is not None:
        out_dir.mkdir(parents=True, exist_ok=True)
        for name, text in texts:
            (out_dir / name).write_text(text, encoding="utf-8")
            written.append(out_dir / name)
    return RenderedFiles(result, texts, tuple(written))


def texts_of(rendered: Rendered) -> tuple[tuple[str, str], ...]:
    """hub.yaml, then worker-NAME.yaml in the order of the blueprint."""
    workers = ((f"worker-{name}.yaml", to_yaml(objects)) for name, objects in rendered.workers.items())
    return (("hub.yaml", to_yaml(rendered.hub)), *workers)


def _with_folder(problem: Problem, folder: str) -> str:
    prefix = f"{folder.rstrip('/')}/" if problem.file else f"{folder}: "
    return prefix + problem.text()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _finding(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "severity": str(problem.severity),
        "value": problem.value,
        "rule": problem.rule,
        "fix": problem.fix,
    }
