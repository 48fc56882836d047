"""Load a blueprint folder: valid as a whole, or not at all with every error that was found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from dispatcher.config.advice import add_warnings
from dispatcher.config.blueprint import DATA, FLEET, PRICES, QUEUES, Blueprint, Draft, products_of
from dispatcher.config.catalog import Merged, merged
from dispatcher.config.checks import check_references
from dispatcher.config.compile import catalog_of, compile_policy
from dispatcher.config.data_file import DataFile
from dispatcher.config.files import Content, read_folder
from dispatcher.config.fleet_file import FleetFile
from dispatcher.config.prices_file import PricesFile
from dispatcher.config.problems import TOP, Problem, Severity, in_order, warning_at
from dispatcher.config.queues_file import QueuesFile
from dispatcher.config.reading import M, Read, validate
from dispatcher.config.residency.advice import advise
from dispatcher.config.residency.assemble import RuleFile, assemble, is_rule_file
from dispatcher.config.residency.check import check_law
from dispatcher.config.residency.manifest import UNSEALED, Sealed, sealed
from dispatcher.config.residency.model import ResidencyFile
from dispatcher.config.strictyaml import Node, parse
from dispatcher.core.policy import CatalogStanding, Policy
from dispatcher.core.products import product_of
from residency.bundle import Bundle

NOTHING_READ = Content((), (), ())


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
    sealed: Sealed = UNSEALED
    """What vouches for these files; whether it is good, `residency/trust.py` says."""
    source: Content = field(default=NOTHING_READ, repr=False)
    """The very bytes."""

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
    with_catalog, found = merged(trees.get(DATA), content.catalog)
    if DATA in trees:
        trees[DATA] = with_catalog.tree
    problems += found
    fleet = _read(FleetFile, FLEET, trees, problems)
    queues = _read(QueuesFile, QUEUES, trees, problems)
    data = _read(DataFile, DATA, trees, problems)
    prices = _read(PricesFile, PRICES, trees, problems)
    read = {FLEET: fleet, QUEUES: queues, DATA: data, PRICES: prices}
    rule_files = _rule_files(trees, problems)
    draft = Draft(
        full=trees,
        trees={name: found.tree for name, found in read.items() if found is not None},
        fleet=fleet.rest if fleet else None,
        queues=queues.rest if queues else None,
        data=data.rest if data else None,
        prices=prices.rest if prices else None,
        products=products_of(fleet.rest if fleet else None),
        problems=problems,
        rule_files=rule_files,
        catalog_unread=with_catalog.standing is CatalogStanding.UNREAD,
    )
    check_references(draft)
    law = _law(draft, now)
    for name in content.others:
        said = ("this file is not read", "a blueprint has four YAML files, and rules in residency/")
        draft.problems.append(warning_at(name, TOP, None, *said))
    blueprint = _whole(draft, law, with_catalog)
    policy = None
    if blueprint is not None:
        add_warnings(draft, blueprint, now)
        policy = compile_policy(blueprint, draft, str(folder), now)
        advise(draft, policy, now)
    errors = _of(draft.problems, Severity.ERROR)
    return LoadResult(
        folder=str(folder),
        policy=policy,
        blueprint=blueprint,
        errors=errors,
        warnings=_of(draft.problems, Severity.WARNING),
        content=content.digest(),
        sealed=sealed(content.files, content.seal),
        source=content,
    )


def _read(model: type[M], name: str, trees: dict[str, Node | None], problems: list[Problem]) -> Read[M] | None:
    root = trees.get(name)
    if root is None:
        return None
    found = validate(model, name, root)
    problems += found.problems
    return found


def _rule_files(trees: dict[str, Node | None], problems: list[Problem]) -> tuple[RuleFile, ...]:
    """The files of residency/, as far as they read."""
    found = []
    for name in sorted(name for name in trees if is_rule_file(name)):
        read = _read(ResidencyFile, name, trees, problems)
        if read is not None and read.rest is not None:
            found.append(RuleFile(name, read.rest, read.tree))
    return tuple(found)


def _law(draft: Draft, now: datetime) -> Bundle:
    """The bundle of all rule files. Checked only when all of them read: what is missing is not wrong twice."""
    bundle, problems = assemble(draft.rule_files, lambda text: product_of(text, draft.products) or text)
    draft.problems += problems
    unread = any(p.severity is Severity.ERROR and is_rule_file(p.file) for p in draft.problems)
    if draft.full and not unread:
        check_law(draft, bundle, now)
    return bundle


def _whole(draft: Draft, law: Bundle, with_catalog: Merged) -> Blueprint | None:
    """The blueprint, when nothing is wrong with it."""
    fleet, queues, data, prices = draft.fleet, draft.queues, draft.data, draft.prices
    if fleet is None or queues is None or data is None or prices is None or _of(draft.problems, Severity.ERROR):
        return None
    return Blueprint(fleet, queues, data, prices, draft.products, law, catalog_of(data, with_catalog))


def _of(problems: Iterable[Problem], severity: Severity) -> tuple[Problem, ...]:
    return in_order([problem for problem in problems if problem.severity is severity])
