"""What is wrong with a blueprint, said so that a person can mend it: where, which value, which rule, which fix."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum


class Severity(StrEnum):
    """ERROR: the blueprint is not taken. WARNING: it is taken, and something in it is probably not meant."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file, both numbers from 1, as editors count.

    What came as JSON has no lines that anybody sees: `pointer` (RFC 6901) says where its value stands, and `line` only
    keeps the order.
    """

    line: int
    column: int
    pointer: str = ""


TOP = Mark(1, 1)
CATALOG = "catalog"
"""The name by which problems call the answer of a catalog's endpoint."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. `value` is what stands there, `rule` what it breaks, `fix` what to write instead (may be empty)."""

    file: str
    line: int
    column: int
    value: str
    rule: str
    fix: str = ""
    severity: Severity = Severity.ERROR
    code: str = ""
    """A stable word for what is wrong, where there is one (`entrepot policy lint`)."""
    pointer: str = ""
    """Where it stands in an answer of the catalog, instead of line and column."""

    def text(self) -> str:
        """`file:line:column: severity: value: rule; fix`, the form that editors and CI turn into links.

        Without a file (the folder itself cannot be read) it begins with the severity; what the catalog answered is
        placed by pointer, as in `catalog#/data_sets/NAME/size: error: ...`.
        """
        place = f"{self.file}#{self.pointer}" if self.pointer else f"{self.file}:{self.line}:{self.column}"
        parts = [f"{place}: " if self.file else "", f"{self.severity}: "]
        parts.append(f"{self.value}: {self.rule}" if self.value else self.rule)
        parts.append(f"; {self.fix}" if self.fix else "")
        return "".join(parts)


def problem_at(file: str, mark: Mark, value: object, rule: str, fix: str = "") -> Problem:
    """An error at a place; `value` is shown as written, shortened."""
    return _at(file, mark, value, rule, fix, Severity.ERROR)


def warning_at(file: str, mark: Mark, value: object, rule: str, fix: str = "") -> Problem:
    return _at(file, mark, value, rule, fix, Severity.WARNING)


def _at(file: str, mark: Mark, value: object, rule: str, fix: str, severity: Severity) -> Problem:
    file = CATALOG if mark.pointer else file  # what the catalog answered is judged as a part of data.yaml
    return Problem(file, mark.line, mark.column, shown(value), rule, fix, severity, pointer=mark.pointer)


def in_order(problems: list[Problem]) -> tuple[Problem, ...]:
    """Files by name, then the order of the lines: the order in which a person mends them."""
    return tuple(sorted(problems, key=lambda p: (p.file, p.line, p.column, p.rule, p.value)))


def shown(value: object) -> str:
    """A value for a message: quoted when it is text, shortened, never more than one line."""
    if value is None or value == "":
        return ""
    text = str(value)
    text = "".join(c if c.isprintable() else "?" for c in text)
    return f"'{text[:57]}...'" if len(text) > 60 else f"'{text}'"


def did_you_mean(word: str, known: list[str] | tuple[str, ...], otherwise: str = "") -> str:
    """A suggestion when one of the known words is close, else `otherwise`, else the list when it is short."""
    close = get_close_matches(word.lower(), [name.lower() for name in known], n=1, cutoff=0.6)
    if close:
        return f"did you mean {shown(next(name for name in sorted(known) if name.lower() == close[0]))}?"
    if otherwise:
        return otherwise
    if not known:
        return ""
    listed = ", ".join(sorted(known)[:12])
    return f"known: {listed}{', ...' if len(known) > 12 else ''}"
