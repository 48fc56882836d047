"""What the catalog's endpoint answered, data sets and what routes carry, added to data.yaml before anything is checked.

The union rules: an answer adds data sets, and can neither change nor hide one of the file. A name that is in both is
fine as long as both say the same of it; otherwise the answer is wrong, whoever is right (docs/data.md). Measurements
cannot contradict each other: the newest of a route counts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import ValidationError

from dispatcher.config.data_file import DataSetEntry
from dispatcher.config.problems import CATALOG, Mark, Problem, did_you_mean, problem_at
from dispatcher.config.strictjson import parse_json
from dispatcher.config.strictyaml import Mapping, Node, Scalar, Sequence, plain
from dispatcher.core.policy import CatalogStanding

SETS, BANDWIDTH = "data_sets", "bandwidth"
_NEEDED = '{"data_sets": {...}}'


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the endpoint at `url`, last confirmed at `read_at`. `old`: that is longer ago than it may be."""

    url: str
    body: bytes = field(repr=False)
    read_at: datetime
    old: bool = False

    def identity(self) -> tuple[str, ...]:
        """Changes when, and only when, a look at the blueprint with it may give another result."""
        since = self.read_at.isoformat() if self.old else ""
        return self.url, hashlib.sha256(self.body).hexdigest(), since


@dataclass(frozen=True, slots=True)
class Merged:
    """data.yaml with the catalog's data sets in it; `names` are those that only the catalog has."""

    tree: Node | None
    standing: CatalogStanding | None = None
    names: tuple[str, ...] = ()
    read_at: datetime | None = None


def merged(root: Node | None, answer: Answer | None) -> tuple[Merged, list[Problem]]:
    """Add an answer to the tree of data.yaml, if it is the answer of the endpoint that the file names.

    Marks of what comes from the answer carry JSON pointers, so every later check says where it stands there.
    """
    url = _url(root)
    if url is None or not isinstance(root, Mapping):
        return Merged(root), []
    if answer is None or answer.url != url:
        return Merged(root, CatalogStanding.UNREAD), []
    sets, measured, problems = _parts(answer.body)
    own = root.entries.get(SETS)
    mark, mine = own if own is not None else (root.mark, None)
    if sets is None or not isinstance(mine, Mapping):
        return Merged(root, CatalogStanding.UNREAD), problems
    both = dict(mine.entries)
    names: list[str] = []
    for name, (place, entry) in sets.entries.items():
        if name not in mine.entries:
            both[name] = (place, entry)
            names.append(name)
        elif not _same(mine.entries[name][1], entry):
            line = mine.entries[name][0].line
            rule = f"another data set than the one of this name in data.yaml, line {line}"
            problems.append(problem_at(CATALOG, place, name, rule, "say the same in both, or remove one"))
    entries = {**root.entries, SETS: (mark, Mapping(mine.mark, both))}
    if measured is not None:
        entries[BANDWIDTH] = _rows(root.entries.get(BANDWIDTH), measured)
    standing = CatalogStanding.OLD if answer.old else CatalogStanding.READ
    since = answer.read_at if answer.old else None
    return Merged(Mapping(root.mark, entries), standing, tuple(sorted(names)), since), problems


def _url(root: Node | None) -> str | None:
    """The URL of the catalog as written; None: the file names none."""
    if not isinstance(root, Mapping) or "catalog" not in root.entries:
        return None
    node = root.entries["catalog"][1]
    url = node.entries.get("url") if isinstance(node, Mapping) else None
    return url[1].text if url is not None and isinstance(url[1], Scalar) else ""


def _rows(own: tuple[Mark, Node] | None, theirs: tuple[Mark, Node]) -> tuple[Mark, Node]:
    """The rows of the file and those of the answer. What is no list is left for whoever checks the file to tell."""
    if own is None or not isinstance(own[1], Sequence) or not isinstance(theirs[1], Sequence):
        return theirs if own is None or isinstance(own[1], Sequence) else own
    return own[0], Sequence(own[1].mark, [*own[1].items, *theirs[1].items])


_Parts = tuple[Mapping | None, tuple[Mark, Node] | None, list[Problem]]


def _parts(body: bytes) -> _Parts:
    """Data sets and measured bandwidths of an answer."""
    tree, problems = parse_json(CATALOG, body)
    if tree is None:
        return None, None, problems
    if not isinstance(tree, Mapping):
        return None, None, [*problems, problem_at(CATALOG, tree.mark, None, "not an object", f"answer {_NEEDED}")]
    for key, (mark, _) in tree.entries.items():
        if key not in (SETS, BANDWIDTH):
            problems.append(problem_at(CATALOG, mark, key, "unknown key", did_you_mean(key, (SETS, BANDWIDTH))))
    found = tree.entries.get(SETS)
    if found is None or not isinstance(found[1], Mapping):
        rule = "the key 'data_sets' is missing" if found is None else "a mapping of keys is expected here"
        mark = tree.mark if found is None else found[0]
        return None, None, [*problems, problem_at(CATALOG, mark, None, rule, f"answer {_NEEDED}")]
    return found[1], tree.entries.get(BANDWIDTH), problems


def _same(mine: Node, theirs: Node) -> bool:
    """Whether two entries mean the same, however they are written (40TB, 40000000000000)."""
    if plain(mine) == plain(theirs):
        return True
    try:
        return DataSetEntry.model_validate(plain(mine)) == DataSetEntry.model_validate(plain(theirs))
    except ValidationError:
        return False
