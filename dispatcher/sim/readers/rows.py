"""Delimited files read once, strictly and in a stream: what is wrong is told with its place, and nothing is guessed.

Traces are other people's files of up to millions of rows, so the good path is one pass of the csv module and a few
comparisons a field. The place of a mistake is only worked out when there is one.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Literal, NoReturn

from dispatcher.config.problems import TOP, Mark, Problem, did_you_mean, problem_at
from dispatcher.sim.trace import Counts, Rule

MOST_DIGITS = 15
"""A number of more digits is no count and no time of a trace."""
MOST_S = 10**10
"""Some three hundred years: a time of a trace may count from any year, and none may count from further away."""
LONGEST_S = 10 * 366 * 86_400
"""Ten years, of a run and of a trace from its first submission to its last. Longer is a mistake in a unit or a year."""
MOST_LETTERS = 2**20
"""Of a line. A file of a few kilobytes can be packed so that one line of it fills the memory."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?")


class TraceError(Exception):
    """A trace cannot be read. `problem` says where, which value, which rule and which fix."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text())
        self.problem = problem


@dataclass(slots=True)
class Tally:
    """What happened to the rows."""

    rows: int = 0
    dropped: Counter[Rule] = field(default_factory=Counter)
    adjusted: Counter[Rule] = field(default_factory=Counter)


def counts(counter: Counter[Rule]) -> Counts:
    return tuple((rule, counter[rule]) for rule in Rule if counter[rule])


class Header(Enum):
    """Where the names of the columns come from."""

    FIRST_LINE = "first-line"
    GIVEN = "given"
    """They are fixed; a first line that says just the same is passed over."""
    NONE = "none"
    """There are none, and rows may be of any number of fields."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a file is laid out."""

    delimiter: str = ","
    quoted: bool = True
    header: Header = Header.FIRST_LINE


CSV = Form()
CSV_WITHOUT_HEADER = Form(header=Header.GIVEN)
TSV_BARE = Form(delimiter="\t", quoted=False, header=Header.NONE)


@contextmanager
def table(path: Path, columns: Sequence[str] = (), form: Form = CSV) -> Iterator[Rows]:
    """The rows of a file, whose columns must be among those of its header. Blank lines are passed over.

    Raises:
        TraceError: here, from the iteration or from a method of `Rows`: the file or a field breaks the form.
    """
    rows = Rows(path, form)
    try:
        with _opened(path) as text:
            rows.start(text, columns)
            yield rows
    except csv.Error as error:
        rows.refuse_next(f"not a row of the form that the file has ({error})", "mend the line or leave it out")
    except UnicodeDecodeError:
        rows.refuse_next("from here on the file is not UTF-8", "convert the file to UTF-8")
    except (OSError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        rows.refuse_next(f"the file cannot be read ({reason})", "check the path")


class Rows:
    """The rows of one file, one after another; the field methods speak of the row that came last.

    Raises:
        TraceError: from every method, with the place.
    """

    def __init__(self, path: Path, form: Form) -> None:
        self.path = path
        self.form = form
        self.line = 0
        self.row: list[str] = []
        self.columns: tuple[str, ...] = ()
        self._rest: Iterator[list[str]] = iter(())

    def start(self, text: IO[str], columns: Sequence[str]) -> None:
        """Learn the columns; the rows follow."""
        lines = self._lines(text)
        self._rest = lines
        if self.form.header is Header.NONE:
            return
        first = next(lines, [])
        if self.form.header is Header.FIRST_LINE:
            self._take_header(first, columns)
        else:
            self.columns = tuple(columns)
            if first and tuple(first) != self.columns:
                self._rest = chain((first,), lines)

    def __iter__(self) -> Iterator[list[str]]:
        width = len(self.columns)
        for row in self._rest:
            if len(row) != width and self.columns:
                fix = "mend the line or leave it out"
                self._refuse(f"a row has {width} fields, this one has {len(row)}", fix)
            yield row

    def places(self, *columns: str) -> Iterator[int]:
        """Where named columns stand."""
        return map(self.columns.index, columns)

    # --- fields ---

    def whole(self, at: int) -> int:
        """A count of zero or more; "8.0" is 8, "8.5" is a mistake."""
        text = self.row[at]
        if text.isdigit() and text.isascii() and len(text) <= MOST_DIGITS:
            return int(text)
        number = self._number(at, "a whole number of zero or more")
        if number != int(number):
            self.wrong(at, "a whole number of zero or more")
        return int(number)

    def seconds(self, at: int) -> int:
        """A time span, rounded half up to whole seconds."""
        text = self.row[at]
        if text.isdigit() and text.isascii() and len(text) < len(str(MOST_S)):
            return int(text)
        rule = f"a number of seconds, zero or more and at most {MOST_S}"
        found = int(self._number(at, rule) + 0.5)
        return found if found <= MOST_S else self.wrong(at, rule)

    def lasting(self, at: int) -> int:
        """How long something ran, in whole seconds."""
        found = self.seconds(at)
        return found if found <= LONGEST_S else self.wrong(at, f"a run of at most {LONGEST_S} s, ten years")

    def milliseconds(self, at: int, most_s: int = MOST_S) -> int:
        """A time span in milliseconds, rounded half up to whole seconds."""
        rule = f"a number of milliseconds, zero or more and at most {1000 * most_s}"
        found = (int(self._number(at, rule) + 0.5) + 500) // 1000
        return found if found <= most_s else self.wrong(at, rule)

    def rounded_up(self, at: int) -> int:
        """An amount, rounded up to a whole one."""
        number = self._number(at, "a number of zero or more")
        return int(number) + (number > int(number))

    def instant(self, at: int) -> int:
        """A date with time, with or without an offset (then UTC: only differences matter), in seconds since 1970."""
        try:
            moment = datetime.fromisoformat(self.row[at])
        except ValueError:
            self.wrong(at, "a date and a time", "write it like 2020-06-09 18:41:01")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int((moment - _EPOCH).total_seconds())

    def filled(self, at: int) -> str:
        """Text that must not be empty."""
        return self.row[at] or self.wrong(at, "may not be empty")

    def wrong(self, at: int, rule: str, fix: str = "") -> NoReturn:
        """Refuse the field `at` of the row that came last."""
        name = self.columns[at] if at < len(self.columns) else f"field {at + 1}"
        mark = Mark(self.line, _column(_line_of(self.path, self.line), at, self.form))
        raise TraceError(problem_at(self.path.name, mark, self.row[at], f"{name} is {rule}", fix))

    # --- inside ---

    def _number(self, at: int, rule: str) -> float:
        text = self.row[at]
        if len(text) <= 2 * MOST_DIGITS and _NUMBER.fullmatch(text):
            number = float(text)
            if number < 10**MOST_DIGITS:
                return number
        return self.wrong(at, rule)

    def _lines(self, text: IO[str]) -> Iterator[list[str]]:
        quote = '"' if self.form.quoted else None
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
        reader = csv.reader(
            self._bounded(text), delimiter=self.form.delimiter, quotechar=quote, quoting=quoting, strict=True
        )
        for row in reader:
            self.line += 1
            if reader.line_num != self.line:
                self._refuse("a field goes on over the end of its line", "close the quotation mark on the same line")
            if row:
                self.row = row
                yield row

    def _bounded(self, text: IO[str]) -> Iterator[str]:
        """The lines, none of them read further than it may be long."""
        while line := text.readline(MOST_LETTERS):
            if len(line) == MOST_LETTERS:
                self.refuse_next(f"a line of more than {MOST_LETTERS} letters", "is this a trace at all?")
            yield line

    def _take_header(self, first: list[str], wanted: Sequence[str]) -> None:
        if not first:
            self._refuse("the file is empty", "give the file with its header line")
        self.columns = tuple(first)
        twice = next((name for name in first if first.count(name) > 1), None)
        if twice is not None:
            self.wrong(len(first) - 1 - first[::-1].index(twice), "named twice", "give each column a name of its own")
        for name in wanted:
            if name not in self.columns:
                fix = did_you_mean(name, self.columns, f"the columns here are {', '.join(self.columns)}")
                raise TraceError(problem_at(self.path.name, TOP, name, "the schema needs a column of this name", fix))

    def refuse_next(self, rule: str, fix: str) -> NoReturn:
        """Refuse the line after the one that was read last."""
        self.line += 1
        self._refuse(rule, fix)

    def _refuse(self, rule: str, fix: str) -> NoReturn:
        raise TraceError(problem_at(self.path.name, Mark(max(self.line, 1), 1), "", rule, fix))


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    if path.suffix == ".gz":
        with gzip.open(path, "rb") as packed, io.TextIOWrapper(packed, encoding="utf-8-sig", newline="") as text:
            yield text
    else:
        with path.open(encoding="utf-8-sig", newline="") as text:
            yield text


def _line_of(path: Path, number: int) -> str:
    with _opened(path) as text:
        return next(islice(iter(partial(text.readline, MOST_LETTERS), ""), number - 1, None), "")


def _column(line: str, at: int, form: Form) -> int:
    """Where field `at` of a line begins, from 1."""
    quoted = False
    for position, letter in enumerate(line):
        if at == 0:
            return position + 1
        if letter == '"' and form.quoted:
            quoted = not quoted
        elif letter == form.delimiter and not quoted:
            at -= 1
    return len(line.rstrip("\r\n")) + 1
