"""YAML read strictly, with the place of every key and value (docs/adr/0006-strict-yaml.md).

Every scalar stays the text that was written: `NO` is Norway, `22:00` a time of day, `010` and `2026-11-01` what they
look like. The schema decides which field is a number. Duplicate keys, tags, merge keys and more than one document are
errors. The tree is built from the parser's events without recursion, and its depth and its size with aliases expanded
are bounded, so no file can exhaust the daemon.

Two parsers make the same events, one of them ten times as fast (libyaml, where PyYAML was built with it). It reads the
files that nothing is wrong with. What it refuses, or what says something that may not be said, is read once more by the
parser in Python, which is the same everywhere: so are its errors and their places.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Protocol

import yaml

from dispatcher.config.problems import TOP, Mark, Problem, problem_at

MAX_BYTES = 512 * 1024
"""A ConfigMap holds 1 MiB in all; half of that for one file is far more than people review."""
MAX_DEPTH = 24
MAX_NODES = 50_000
"""Nodes of one file after aliases are expanded: "billion laughs" ends here, not in memory."""
MAX_PROBLEMS = 100
"""Beyond that a file is no blueprint, and a longer list helps nobody."""
REMEMBERED = 64
"""Files whose newest tree is kept: an edit changes one file of a blueprint, and all of them are read again."""

_FAST: type[yaml.SafeLoader] | None = getattr(yaml, "CSafeLoader", None)
_UNLIKE = re.compile(r"!|[|>][-+0-9]*#")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(slots=True)
class Scalar:
    mark: Mark
    text: str
    quoted: bool

    @property
    def is_null(self) -> bool:
        return not self.quoted and self.text in _NULLS


@dataclass(slots=True)
class Sequence:
    mark: Mark
    items: list[Node] = field(default_factory=list)
    size: int = 1
    depth: int = 1


@dataclass(slots=True)
class Mapping:
    mark: Mark
    entries: dict[str, tuple[Mark, Node]] = field(default_factory=dict)
    size: int = 1
    depth: int = 1


Node = Scalar | Sequence | Mapping


class Quoted(str):
    """A scalar that stood in quotes, so that a field for a number can refuse it."""


def parse(file: str, data: bytes) -> tuple[Node | None, list[Problem]]:
    """Read one file; never raises on any input.

    Returns the tree as far as it can be read past duplicate keys, tags and the like (all of them in the problems), or
    None with at least one problem. Trees are shared by all who read the same bytes, and nobody changes them.
    """
    known = _newest.get(file)
    if known is None or known[0] != data:
        _newest.pop(file, None)
        known = _newest[file] = (data, *_parsed(file, data))
        for oldest in [*_newest][:-REMEMBERED]:
            _newest.pop(oldest, None)
    return known[1], list(known[2])


_newest: dict[str, tuple[bytes, Node | None, list[Problem]]] = {}
"""By file: what stood before an edit is not kept."""


def _parsed(file: str, data: bytes) -> tuple[Node | None, list[Problem]]:
    text, refused = _decode(file, data)
    if refused is not None:
        return None, [refused]
    if _FAST is not None and _is_plain(text):
        builder = _Builder(file)
        root, problems = _built(builder, text, _FAST)
        if root is not None and not problems and not builder.has_empty:
            return root, problems
    return _built(_Builder(file), text, yaml.SafeLoader)


def _is_plain(text: str) -> bool:
    """Whether both parsers read a text alike, but for where an empty value stands: they differ in tabs, in rare line
    breaks, in tags, and in a comment that touches the sign of a block."""
    return text.replace("\n", "").isprintable() and _UNLIKE.search(text) is None


def _built(builder: _Builder, text: str, parser: type[yaml.SafeLoader]) -> tuple[Node | None, list[Problem]]:
    file = builder.file
    try:
        for event in yaml.parse(text, Loader=parser):
            builder.feed(event)
            if builder.stopped:
                return None, builder.problems
    except yaml.MarkedYAMLError as error:
        return None, [*builder.problems, _syntax(file, text, error)]
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: PyYAML computes code points of escapes and version numbers without checking their range.
        return None, [*builder.problems, problem_at(file, TOP, None, f"not YAML: {_one_line(str(error))}")]
    if builder.root is None:
        return None, [*builder.problems, problem_at(file, TOP, None, "the file is empty", "write the file's keys")]
    return builder.root, builder.problems


def plain(node: Node) -> object:
    """Dicts, lists, `str`, `Quoted` and None, as the models read it. The tree is bounded, and so is this recursion."""
    if isinstance(node, Mapping):
        return {key: plain(value) for key, (_, value) in node.entries.items()}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    if node.is_null:
        return None
    return Quoted(node.text) if node.quoted else node.text


def locate(root: Node, path: tuple[str | int, ...]) -> tuple[Mark, Node]:
    """The mark of the key (or list item) at a path and the node below it, as far as the path exists."""
    mark, node = root.mark, root
    for part in path:
        if isinstance(node, Mapping) and isinstance(part, str) and part in node.entries:
            mark, node = node.entries[part]
        elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            mark = node.mark
        else:
            break
    return mark, node


def keys_of(root: Node | None, *path: str) -> tuple[str, ...]:
    """The keys of the mapping at a path, or nothing: for looking up names in a file that has other errors."""
    node = root
    for part in path:
        if not isinstance(node, Mapping) or part not in node.entries:
            return ()
        node = node.entries[part][1]
    return tuple(node.entries) if isinstance(node, Mapping) else ()


def _decode(file: str, data: bytes) -> tuple[str, Problem | None]:
    if len(data) > MAX_BYTES:
        return "", problem_at(
            file, TOP, None, f"the file has more than the {MAX_BYTES} bytes allowed", "split or shorten it"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        mark = _mark_of(data[: error.start].decode("utf-8", "replace"))
        value = f"0x{data[error.start]:02x}"
        return "", problem_at(file, mark, value, "not UTF-8", "save the file as UTF-8")
    text = text.removeprefix(_BYTE_ORDER_MARK)
    for index, char in enumerate(text):
        if (char < " " and char not in "\t\n\r") or char == "\x7f":
            mark = _mark_of(text[:index])
            return "", problem_at(file, mark, f"0x{ord(char):02x}", "a control character", "remove it")
    if not text.strip():
        return "", problem_at(file, TOP, None, "the file is empty", "write the file's keys")
    return text, None


def _mark_of(before: str) -> Mark:
    return Mark(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


class _ParserMark(Protocol):
    line: int
    column: int


def _mark(mark: _ParserMark | None) -> Mark:
    return Mark(mark.line + 1, mark.column + 1) if mark is not None else TOP


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def _syntax(file: str, text: str, error: yaml.MarkedYAMLError) -> Problem:
    mark = _mark(error.problem_mark or error.context_mark)
    lines = text.splitlines()
    line = lines[mark.line - 1] if mark.line <= len(lines) else ""
    rule = _one_line(f"{error.problem or 'not YAML'}{f' ({error.context})' if error.context else ''}")
    if "\t" in line[: mark.column]:
        return problem_at(file, mark, None, f"a tab in the indentation ({rule})", "indent with spaces")
    return problem_at(file, mark, None, f"not YAML: {rule}", "check the indentation, colons and quotes around here")


class _Builder:
    """Builds the tree from events. Goes on after a wrong key or tag, so that all of them are reported."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self.stopped = False
        self.has_empty = False
        """A value was left out."""
        self._open: list[tuple[Sequence | Mapping, str | None]] = []
        self._keys: list[tuple[str | None, Mark] | None] = []
        self._anchors: dict[str, Node | None] = {}
        self._documents = 0

    def feed(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._stop(event, None, "a second document", "keep one document in a file: remove the '---'")
        elif isinstance(event, yaml.ScalarEvent):
            self._tag(event, "" if event.tag == "!" else event.tag)
            scalar = Scalar(_mark(event.start_mark), event.value, bool(event.style))
            self.has_empty |= not (scalar.text or scalar.quoted)
            self._add(event, scalar, event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._start(event)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            node, anchor = self._open.pop()
            self._keys.pop()
            if anchor is not None:
                self._anchors[anchor] = node
            self._attach(event, node)

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        self._tag(event, event.tag)
        if len(self._open) >= MAX_DEPTH:
            self._stop(event, None, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
            return
        mark = _mark(event.start_mark)
        if event.anchor is not None:
            self._anchors[event.anchor] = None  # open: an alias to it from inside would never end
        node = Sequence(mark) if isinstance(event, yaml.SequenceStartEvent) else Mapping(mark)
        self._open.append((node, event.anchor))
        self._keys.append(None)

    def _alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            self._stop(event, f"*{event.anchor}", "an alias to nothing", f"define &{event.anchor} above it")
            return
        node = self._anchors[event.anchor]
        if node is None:
            self._stop(event, f"*{event.anchor}", "an alias to something that contains it", "write the value out")
            return
        self._add(event, node, None)

    def _add(self, event: yaml.Event, node: Node, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        self._attach(event, node)

    def _attach(self, event: yaml.Event, node: Node) -> None:
        """Put a finished node where it belongs: the root, a list item, a key or the value of the waiting key."""
        if not self._open:
            self.root = node
            return
        parent = self._open[-1][0]
        if not isinstance(node, Scalar):
            parent.depth = max(parent.depth, node.depth + 1)
        parent.size += 1 if isinstance(node, Scalar) else node.size
        if len(self.problems) > MAX_PROBLEMS:
            self.stopped = True
        elif parent.size > MAX_NODES:
            self._stop(event, None, f"more than {MAX_NODES} values with aliases expanded", "shorten the file")
        elif parent.depth > MAX_DEPTH:
            self._stop(event, None, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
        elif isinstance(parent, Sequence):
            parent.items.append(node)
        elif self._keys[-1] is None:
            self._keys[-1] = self._key(event, node)
        else:
            key, mark = self._keys[-1]
            self._keys[-1] = None
            self._entry(parent, key, mark, node)

    def _key(self, event: yaml.Event, node: Node) -> tuple[str | None, Mark]:
        mark = _mark(event.start_mark)
        if isinstance(node, Scalar):
            return node.text, mark
        self.problems.append(problem_at(self.file, node.mark, None, "a key must be one word", "write 'key: value'"))
        return None, mark

    def _entry(self, parent: Mapping, key: str | None, mark: Mark, node: Node) -> None:
        if key is None:
            return
        if key == "<<":
            self.problems.append(problem_at(self.file, mark, key, "merge keys are not read", "write the keys out"))
        elif key in parent.entries:
            first = parent.entries[key][0]
            rule = f"the key is there twice, first on line {first.line}"
            self.problems.append(problem_at(self.file, mark, key, rule, "remove or rename one of them"))
        else:
            parent.entries[key] = (mark, node)

    def _tag(self, event: yaml.NodeEvent, tag: str | None) -> None:
        if tag:
            mark = _mark(event.start_mark)
            self.problems.append(problem_at(self.file, mark, tag, "tags are not read", "remove the tag"))

    def _stop(self, event: yaml.Event, value: str | None, rule: str, fix: str) -> None:
        self.problems.append(problem_at(self.file, _mark(event.start_mark), value, rule, fix))
        self.stopped = True
