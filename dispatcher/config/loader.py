"""Load a blueprint folder: valid as a whole, or not at all with every error that was found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dispatcher.config.advice import add_warnings
from dispatcher.config.blueprint import DATA, FLEET, PRICES, QUEUES, Blueprint, Draft, products_of
from dispatcher.config.checks import check_references
from dispatcher.config.compile import compile_policy
from dispatcher.config.data_file import DataFile
from dispatcher.config.files import Content, read_folder
from dispatcher.config.fleet_file import FleetFile
from dispatcher.config.prices_file import PricesFile
from dispatcher.config.problems import TOP, Problem, Severity, in_order, warning_at
from dispatcher.config.queues_file import QueuesFile
from dispatcher.config.reading import M, Read, validate
from dispatcher.config.strictyaml import Node, parse
from dispatcher.core.policy import Policy


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a look at the folder gave: a policy with its source, or errors; warnings in both cases.

    `content` tells one set of bytes from another; it says nothing about meaning (that is `policy.digest`).
    """

    folder: str
    policy: Policy | None
    blueprint: Blueprint | None
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    content: str

    @property
    def ok(self) -> bool:
        return self.policy is not None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Errors and warnings together, in order of place."""
        return in_order([*self.errors, *self.warnings])


def load_blueprint(folder: Path, now: datetime) -> LoadResult:
    """Read, check and compile a folder. Never raises for what stands in the files; `now` judges ages and expiries."""
    return load_content(read_folder(folder), folder, now)


def load_content(content: Content, folder: Path, now: datetime) -> LoadResult:
    """The same from bytes already read: pure."""
    problems = list(content.problems)
    trees: dict[str, Node | None] = {}
    for name, text in content.files:
        trees[name], found = parse(name, text)
        problems += found
    fleet = _read(FleetFile, FLEET, trees, problems)
    queues = _read(QueuesFile, QUEUES, trees, problems)
    data = _read(DataFile, DATA, trees, problems)
    prices = _read(PricesFile, PRICES, trees, problems)
    read = {FLEET: fleet, QUEUES: queues, DATA: data, PRICES: prices}
    draft = Draft(
        full=trees,
        trees={name: found.tree for name, found in read.items() if found is not None},
        fleet=fleet.rest if fleet else None,
        queues=queues.rest if queues else None,
        data=data.rest if data else None,
        prices=prices.rest if prices else None,
        products=products_of(fleet.rest if fleet else None),
        problems=problems,
    )
    check_references(draft)
    for name in content.others:
        draft.problems.append(warning_at(name, TOP, None, "this file is not read", "a blueprint has four YAML files"))
    blueprint = _whole(draft)
    if blueprint is not None:
        add_warnings(draft, blueprint, now)
    errors = _of(draft.problems, Severity.ERROR)
    return LoadResult(
        folder=str(folder),
        policy=compile_policy(blueprint, draft, str(folder), now) if blueprint is not None else None,
        blueprint=blueprint,
        errors=errors,
        warnings=_of(draft.problems, Severity.WARNING),
        content=content.digest(),
    )


def _read(model: type[M], name: str, trees: dict[str, Node | None], problems: list[Problem]) -> Read[M] | None:
    root = trees.get(name)
    if root is None:
        return None
    found = validate(model, name, root)
    problems += found.problems
    return found


def _whole(draft: Draft) -> Blueprint | None:
    """The blueprint, when nothing is wrong with it."""
    fleet, queues, data, prices = draft.fleet, draft.queues, draft.data, draft.prices
    if fleet is None or queues is None or data is None or prices is None or _of(draft.problems, Severity.ERROR):
        return None
    return Blueprint(fleet, queues, data, prices, draft.products)


def _of(problems: Iterable[Problem], severity: Severity) -> tuple[Problem, ...]:
    return in_order([problem for problem in problems if problem.severity is severity])
