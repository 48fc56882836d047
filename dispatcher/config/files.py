"""Reading the folder of a blueprint as one consistent set of bytes: its four files and the rule files below it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from dispatcher.config.blueprint import FILES
from dispatcher.config.catalog import Answer
from dispatcher.config.problems import TOP, Problem, did_you_mean, problem_at
from dispatcher.config.residency.manifest import SEAL_FILES
from dispatcher.config.strictyaml import MAX_BYTES

MOUNT_LINK = "..data"
"""The symlink that a mounted ConfigMap swaps to change all of its files at once."""
_ATTEMPTS = 3
RULES = "residency"
MOST_RULE_FILES = 200
"""More than that is no rule book that people review."""


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of each file, and the files that could not be read. `others` are further YAML files beside them, `seal`
    what vouches for all of it (residency/manifest.py). `catalog` is no file: what the endpoint answered that data.yaml
    names, and nobody signs it."""

    files: tuple[tuple[str, bytes], ...]
    problems: tuple[Problem, ...]
    others: tuple[str, ...]
    seal: tuple[tuple[str, bytes], ...] = ()
    catalog: Answer | None = None

    def digest(self) -> str:
        """Of what was read, errors included: it changes when, and only when, a new look may give another answer."""
        catalog = self.catalog.identity() if self.catalog is not None else None
        return hashlib.sha256(repr((self.files, self.problems, self.others, self.seal, catalog)).encode()).hexdigest()


def read_folder(folder: Path) -> Content:
    """Read the four files and those of residency/. Never raises: a missing or unreadable file becomes a problem.

    The folder is resolved through its symlinks once, so that all files come from one side of a swap (FR-CFG-06); when
    the link moved during the reading, it is read again.
    """
    content = _read(_resolved(folder))
    for _ in range(_ATTEMPTS):
        root = _resolved(folder)
        content = _read(root)
        if _resolved(folder) == root:
            break
    return content


def _resolved(folder: Path) -> Path:
    link = folder / MOUNT_LINK
    try:
        return Path(os.path.realpath(link if link.is_symlink() else folder))
    except (OSError, ValueError):
        return folder


def _read(root: Path) -> Content:
    try:
        present = sorted(entry.name for entry in os.scandir(root))
    except (OSError, ValueError) as error:
        problem = problem_at("", TOP, root.name, f"the blueprint's folder cannot be read ({_why(error)})", "mount it")
        return Content((), (problem,), ())
    files: list[tuple[str, bytes]] = []
    problems: list[Problem] = []
    flat = tuple(name for name in present if _is_flat(name))
    others = tuple(n for n in present if n.endswith((".yaml", ".yml")) and n not in FILES and n not in flat)
    for name in FILES:
        _read_file(name, root / name, did_you_mean(name, others, otherwise=f"write {name}"), files, problems)
    for name, path in _rule_files(root, flat, problems):
        _read_file(name, path, "put the file here", files, problems)
    return Content(tuple(files), tuple(problems), others, _seal(root, problems))


def _seal(root: Path, problems: list[Problem]) -> tuple[tuple[str, bytes], ...]:
    """The manifest and its signature, as far as they are there: whether they must be, is not said here."""
    found: list[tuple[str, bytes]] = []
    for name in SEAL_FILES:
        places = (root / name, root / name.replace("/", ".", 1))
        path = next((place for place in places if place.exists()), None)
        if path is not None:
            _read_file(name, path, "put the file here", found, problems)
    return tuple(found)


def _read_file(name: str, path: Path, fix: str, files: list[tuple[str, bytes]], problems: list[Problem]) -> None:
    try:
        if path.is_dir():
            problems.append(problem_at(name, TOP, None, "a folder, where a file is expected", "put the file here"))
            return
        if path.exists() and not path.is_file():  # opening a pipe would wait for ever
            problems.append(problem_at(name, TOP, None, "not a plain file", "put the file here"))
            return
        with open(path, "rb") as stream:
            files.append((name, stream.read(MAX_BYTES + 1)))
    except FileNotFoundError:
        problems.append(problem_at(name, TOP, None, "the file is missing", fix))
    except OSError as error:
        problems.append(problem_at(name, TOP, None, f"the file cannot be read ({_why(error)})", "check its rights"))


def _is_flat(name: str) -> bool:
    """residency.NAME.yaml stands for residency/NAME.yaml: the keys of a ConfigMap know no folders."""
    return name.startswith(f"{RULES}.") and name.endswith(".yaml") and not name.endswith(".test.yaml")


def _rule_files(root: Path, flat: tuple[str, ...], problems: list[Problem]) -> list[tuple[str, Path]]:
    """The rule files with the names by which problems call them, in order: those of residency/ and of the folders in
    it, tests left out."""
    found = {f"{RULES}/{name.removeprefix(f'{RULES}.')}": root / name for name in flat}
    folders = [root / RULES]
    try:
        if folders[0].is_dir():
            folders += [Path(e.path) for e in os.scandir(folders[0]) if e.is_dir() and not e.name.startswith(".")]
        for folder in sorted(folders):
            for entry in sorted(os.listdir(folder)) if folder.is_dir() else ():
                if entry.endswith((".yaml", ".yml")) and not entry.endswith((".test.yaml", ".test.yml")):
                    found.setdefault((folder / entry).relative_to(root).as_posix(), folder / entry)
    except (OSError, ValueError) as error:
        problems.append(problem_at(RULES, TOP, None, f"the folder cannot be read ({_why(error)})", "check its rights"))
    if len(found) > MOST_RULE_FILES:
        said = f"{len(found)} rule files, where at most {MOST_RULE_FILES} are read"
        problems.append(problem_at(RULES, TOP, None, said, "put rules together by law, not by the rule"))
        return []
    return sorted(found.items())


def _why(error: Exception) -> str:
    return (error.strerror or type(error).__name__).lower() if isinstance(error, OSError) else "not a path"
