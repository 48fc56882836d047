"""From a tree of one file to its model, with every schema error turned into a place, a rule and a fix."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dispatcher.config.problems import Mark, Problem, did_you_mean, problem_at
from dispatcher.config.strictyaml import Mapping, Node, Scalar, Sequence, locate, plain
from dispatcher.core.explain_shapes import shape_text, words_of

M = TypeVar("M", bound=BaseModel)
Path = tuple[str | int, ...]
_SALVAGE_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Read(Generic[M]):
    """What a file gave: its model, or what is left of it without the parts in error, with the tree of just that.

    `rest` is there so that one look at a file shows its wrong references too, and not only its wrong shapes.
    """

    model: M | None
    rest: M | None
    tree: Node
    problems: tuple[Problem, ...]


def validate(model: type[M], file: str, root: Node) -> Read[M]:
    """Check a tree against a model, reporting all schema errors of the file."""
    if not isinstance(root, Mapping):
        problem = problem_at(file, root.mark, None, "a mapping of keys is expected", "write 'key: value' lines")
        return Read(None, None, root, (problem,))
    try:
        found = model.model_validate(plain(root))
        return Read(found, found, root, ())
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems = tuple(_problem(model, file, root, detail) for detail in details)
        rest, tree = _salvage(model, root, details)
        return Read(None, rest, tree, problems)


def _salvage(model: type[M], root: Node, details: list[ErrorDetails]) -> tuple[M | None, Node]:
    """Leave out the parts in error, then whatever does not hold without them, for a few rounds."""
    tree = root
    for _ in range(_SALVAGE_ROUNDS):
        drops = {_part_in_error(model, detail) for detail in details}
        if () in drops:
            return None, root
        tree = _without(tree, drops, ())
        try:
            return model.model_validate(plain(tree)), tree
        except ValidationError as error:
            details = error.errors(include_url=False)
    return None, root


def _part_in_error(model: type[BaseModel], detail: ErrorDetails) -> Path:
    """The smallest part that can be left out: an unknown key, or the nearest entry of a list or a map of names."""
    location: Path = tuple(part for part in detail["loc"] if part != "[key]")
    if detail["type"] == "extra_forbidden":
        return location
    kind: Any = model
    part: Path = ()
    for index, step in enumerate(location):
        if _is_model(kind):
            field = kind.model_fields.get(str(step))
            if field is None:
                break
            kind = _inside(field.annotation)
            if not field.is_required():
                part = location[: index + 1]
        else:
            part = location[: index + 1]
            kind = _element(kind)
    return part


def _without(node: Node, drops: set[Path], path: Path) -> Node:
    """A copy of a tree without the parts at some paths; what stays keeps its marks."""
    if isinstance(node, Mapping):
        kept = {k: (m, _without(v, drops, (*path, k))) for k, (m, v) in node.entries.items() if (*path, k) not in drops}
        return Mapping(node.mark, kept)
    if isinstance(node, Sequence):
        items = enumerate(node.items)
        return Sequence(node.mark, [_without(v, drops, (*path, i)) for i, v in items if (*path, i) not in drops])
    return node


def _problem(model: type[BaseModel], file: str, root: Node, detail: ErrorDetails) -> Problem:
    location: Path = tuple(part for part in detail["loc"] if part != "[key]")
    of_key = "[key]" in detail["loc"]
    kind, context = detail["type"], detail.get("ctx", {})
    mark, node = locate(root, location)
    if kind == "extra_forbidden":
        key = str(location[-1])
        return problem_at(file, mark, key, "unknown key", _place_of(model, location[:-1], key))
    if kind == "missing":
        rule = f"the key '{location[-1]}' is missing"
        return problem_at(file, mark, _last(location[:-1]), rule, f"add '{location[-1]}:'")
    where = mark if of_key or not isinstance(node, Scalar) else node.mark
    value = _last(location) if of_key or not isinstance(node, Scalar) or node.is_null else node.text
    if kind == "blueprint":
        return problem_at(file, where, value, str(context["rule"]), str(context["fix"]))
    if kind == "enum":
        known = words_of(str(context["expected"]))
        return problem_at(file, where, value, "not one of the words allowed here", did_you_mean(str(value), known))
    return _structural(file, where, value, node, detail)


def _structural(file: str, where: Mark, value: str, node: Node, detail: ErrorDetails) -> Problem:
    kind = detail["type"]
    if isinstance(node, Scalar) and node.is_null:
        return problem_at(file, where, value, "a value is missing", "write it, or remove the key")
    if kind in ("model_type", "dict_type"):
        return problem_at(file, where, value, "a mapping of keys is expected here", "write 'key: value' lines below it")
    if kind in ("list_type", "tuple_type"):
        return problem_at(file, where, value, "a list is expected here", "write [one, two], or '- ' lines below it")
    if kind == "too_short":
        return problem_at(file, where, value, "an empty list", "name at least one")
    return problem_at(file, where, value, shape_text(kind, detail.get("ctx", {})))


def _last(location: Path) -> str:
    """The name nearest to a place: a key, or the list that an item stands in."""
    names = [str(part) for part in location if isinstance(part, str)]
    return names[-1] if names else ""


def _place_of(model: type[BaseModel], parent: Path, key: str) -> str:
    """Where an unknown key may belong: the nearest key of its level, else the level that has it (FR-CFG-05)."""
    here = _model_at(model, parent)
    siblings = list(here.model_fields) if here is not None else []
    guess = did_you_mean(key, siblings, otherwise="-")
    if guess != "-":
        return guess
    places = sorted({place for place, name in _places(model) if name == key})
    if places:
        return f"'{key}' is a key of {' or '.join(places[:3])}: check the indentation"
    everywhere = sorted({name for _, name in _places(model)})
    far = did_you_mean(key, everywhere, otherwise="-")
    return far if far != "-" else did_you_mean(key, siblings)


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model that checks the mapping at a path."""
    kind: Any = model
    for part in path:
        if _is_model(kind):
            field = kind.model_fields.get(str(part))
            if field is None:
                return None
            kind = _inside(field.annotation)
        else:
            kind = _element(kind)
    return kind if _is_model(kind) else None


def _element(kind: Any) -> Any:
    """What a map of names or a list holds."""
    arguments = typing.get_args(kind)
    if not arguments:
        return None
    return _inside(arguments[-1] if typing.get_origin(kind) is dict else arguments[0])


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _inside(annotation: Any) -> Any:
    """An annotation without Annotated, Optional and the None in it."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _inside(typing.get_args(annotation)[0])
    parts = [part for part in typing.get_args(annotation) if part is not type(None)]
    if len(parts) == 1 and typing.get_origin(annotation) not in (dict, tuple, list):
        return _inside(parts[0])
    return annotation


def _places(model: type[BaseModel], at: str = "") -> Iterator[tuple[str, str]]:
    """Every key of a file's schema with where it stands, such as ("clusters.NAME.flavors.NAME", "product")."""
    for name, field in model.model_fields.items():
        yield at or "the file itself", name
        below = f"{at}.{name}" if at else name
        kind = _inside(field.annotation)
        while typing.get_origin(kind) in (dict, tuple):
            below += ".NAME" if typing.get_origin(kind) is dict else "[]"
            kind = _element(kind)
        if _is_model(kind):
            yield from _places(kind, below)
