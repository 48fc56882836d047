"""Exit codes and the form of every error: what, where, fix (docs/cli.md)."""

from __future__ import annotations

import errno
from enum import IntEnum


class ExitCode(IntEnum):
    """What a script may rely on. 0 is also the answer "it waits": that is an answer, not an error."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    INVALID_BLUEPRINT = 5
    FINDINGS = 6
    DIFFERS = 7
    BLUEPRINT_DIFFERS = 8


class CliError(Exception):
    """Ends a command. `what` went wrong, `where` (a URL, a file, an option), and what to do about it."""

    def __init__(self, what: str, *, where: str = "", fix: str = "", code: ExitCode = ExitCode.ERROR) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix
        self.code = code

    def text(self) -> str:
        lines = [f"error: {self.what.removeprefix('error: ')}"]  # a problem without a place begins so itself
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.fix:
            lines.append(f"  fix:   {self.fix}")
        return "\n".join(lines)


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No place is left, whoever asks."""


def unwritable(
    error: OSError, where: str, fix: str = "name a folder that you may write", code: ExitCode = ExitCode.ERROR
) -> CliError:
    """What could not be written, and what helps: another place, or room in this one."""
    helps = "make room there" if error.errno in FULL else fix
    return CliError(f"cannot be written: {error.strerror}", where=where, fix=helps, code=code)


def undecidable(error: Exception) -> str:
    """What a decision stumbled over in a file that somebody has edited: one part of it names what another lacks."""
    missing = error.args[0] if isinstance(error, KeyError) and error.args else None
    if missing is not None:
        return f"it names {str(missing)!r}, which is not in it"
    return " ".join(str(error).split()) or type(error).__name__
