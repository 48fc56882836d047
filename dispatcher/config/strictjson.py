"""JSON as strictly as YAML, and into the same tree: what the catalog answers is checked by the models of data.yaml.

Places are JSON pointers (RFC 6901), since an answer of one line has no lines that anybody could look at. Duplicate
keys, NaN and values that are nested too deep are errors; size, depth and number of values are bounded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from dispatcher.config.problems import Mark, Problem, problem_at
from dispatcher.config.strictyaml import MAX_DEPTH, MAX_PROBLEMS, Mapping, Node, Scalar, Sequence

MAX_VALUES = 500_000
"""Keys and values of one answer: some forty thousand data sets."""
WHOLE = Mark(1, 1, "/")
"""The answer itself; strictly "" in RFC 6901, which nobody would see."""


class _Pairs(list[tuple[str, object]]):
    """An object as its text has it, duplicate keys included."""


class _NotNumber(ValueError):
    pass


def parse_json(file: str, data: bytes) -> tuple[Node | None, list[Problem]]:
    """Read one answer; never raises on any input. As strictyaml.parse: None with at least one problem, or the tree."""
    try:
        read = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_Pairs,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_refuse,
        )
    except UnicodeDecodeError:
        return None, [problem_at(file, WHOLE, None, "not UTF-8", "answer JSON in UTF-8")]
    except RecursionError:
        return None, [problem_at(file, WHOLE, None, f"nested deeper than {MAX_DEPTH} levels", "flatten it")]
    except _NotNumber as error:
        return None, [problem_at(file, WHOLE, str(error), "not a number of JSON", "leave the key out")]
    except ValueError as error:
        where = f" at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        return None, [problem_at(file, WHOLE, None, f"not JSON{where}", "answer JSON")]
    builder = _Builder(file)
    root = builder.node(read, "", 1)
    return (None, builder.problems) if builder.stopped else (root, builder.problems)


class _Number(str):
    """A number as written: the schema decides what it may be."""


def _refuse(text: str) -> object:
    raise _NotNumber(text)


@dataclass(slots=True)
class _Builder:
    file: str
    problems: list[Problem] = field(default_factory=list)
    stopped: bool = False
    _values: int = 0

    def node(self, value: object, pointer: str, depth: int) -> Node:
        self._values += 1
        mark = Mark(self._values, 1, pointer or WHOLE.pointer)
        if self._values > MAX_VALUES or depth > MAX_DEPTH or len(self.problems) > MAX_PROBLEMS:
            self._stop(mark, depth)
            return Scalar(mark, "", False)
        if isinstance(value, _Pairs):
            return self._mapping(mark, value, pointer, depth)
        if isinstance(value, list):
            sequence = Sequence(mark)
            for index, item in enumerate(value):
                if self.stopped:
                    break
                sequence.items.append(self.node(item, f"{pointer}/{index}", depth + 1))
            return sequence
        if isinstance(value, bool):
            return Scalar(mark, "true" if value else "false", False)
        if value is None:
            return Scalar(mark, "null", False)
        return Scalar(mark, str(value), not isinstance(value, _Number))

    def _mapping(self, mark: Mark, pairs: _Pairs, pointer: str, depth: int) -> Mapping:
        mapping = Mapping(mark)
        for key, value in pairs:
            if self.stopped:
                break
            at = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            if key in mapping.entries:
                place = Mark(self._values, 1, at)
                self.problems.append(problem_at(self.file, place, key, "the key is there twice", "answer it once"))
                continue
            child = self.node(value, at, depth + 1)
            mapping.entries[key] = (child.mark, child)
        return mapping

    def _stop(self, mark: Mark, depth: int) -> None:
        if self.stopped:
            return
        self.stopped = True
        if depth > MAX_DEPTH:
            rule, fix = f"nested deeper than {MAX_DEPTH} levels", "flatten it"
        else:
            rule, fix = f"more than {MAX_VALUES} values, or too many mistakes", "answer less"
        self.problems.append(problem_at(self.file, mark, None, rule, fix))
