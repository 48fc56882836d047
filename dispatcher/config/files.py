"""Reading the folder of a blueprint as one consistent set of bytes."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from dispatcher.config.blueprint import FILES
from dispatcher.config.problems import TOP, Problem, did_you_mean, problem_at
from dispatcher.config.strictyaml import MAX_BYTES

MOUNT_LINK = "..data"
"""The symlink that a mounted ConfigMap swaps to change all of its files at once."""
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of each file, and the files that could not be read. `others` are further YAML files beside them."""

    files: tuple[tuple[str, bytes], ...]
    problems: tuple[Problem, ...]
    others: tuple[str, ...]

    def digest(self) -> str:
        """Of what was read, errors included: it changes when, and only when, a new look may give another answer."""
        return hashlib.sha256(repr((self.files, self.problems, self.others)).encode()).hexdigest()


def read_folder(folder: Path) -> Content:
    """Read the four files. Never raises: a missing or unreadable file becomes a problem.

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
    others = tuple(name for name in present if name.endswith((".yaml", ".yml")) and name not in FILES)
    files: list[tuple[str, bytes]] = []
    problems: list[Problem] = []
    for name in FILES:
        path = root / name
        try:
            if path.is_dir():
                problems.append(problem_at(name, TOP, None, "a folder, where a file is expected", "put the file here"))
                continue
            if path.exists() and not path.is_file():  # opening a pipe would wait for ever
                problems.append(problem_at(name, TOP, None, "not a plain file", "put the file here"))
                continue
            with open(path, "rb") as stream:
                files.append((name, stream.read(MAX_BYTES + 1)))
        except FileNotFoundError:
            fix = did_you_mean(name, others, otherwise=f"write {name}")
            problems.append(problem_at(name, TOP, None, "the file is missing", fix))
        except OSError as error:
            problems.append(problem_at(name, TOP, None, f"the file cannot be read ({_why(error)})", "check its rights"))
    return Content(tuple(files), tuple(problems), others)


def _why(error: Exception) -> str:
    return (error.strerror or type(error).__name__).lower() if isinstance(error, OSError) else "not a path"
