"""The blueprint as read: four checked files, the rules and the product table, before it is compiled to a policy.

Rendering and later features read from here what no decision needs yet: shares, budgets, windows, access, node pools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dispatcher.config.data_file import DataFile
from dispatcher.config.fleet_file import Flavor, FleetFile
from dispatcher.config.prices_file import PricesFile
from dispatcher.config.problems import Mark, Problem, problem_at, warning_at
from dispatcher.config.queues_file import QueuesFile, Share
from dispatcher.config.residency.assemble import RuleFile
from dispatcher.config.strictyaml import Node, keys_of, locate
from dispatcher.core.ids import ProductName
from dispatcher.core.policy import Catalog, Product
from dispatcher.core.products import BUILTIN_PRODUCTS, normalise, table
from dispatcher.core.resources import CPU, PODS, Resources, is_gpu
from residency.bundle import NO_LAW, Bundle

FLEET, QUEUES, DATA, PRICES = "fleet.yaml", "queues.yaml", "data.yaml", "prices.yaml"
FILES: tuple[str, ...] = (FLEET, QUEUES, DATA, PRICES)


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All files, each valid against its schema and every reference between them checked."""

    fleet: FleetFile
    queues: QueuesFile
    data: DataFile
    prices: PricesFile
    products: Mapping[ProductName, Product]
    residency: Bundle = NO_LAW
    catalog: Catalog | None = None
    """The endpoint that some of `data`'s data sets came from, where the file names one."""


@dataclass(slots=True)
class Draft:
    """A blueprint while it is checked: models, trees for the places, and the findings.

    Models and `trees` are without the parts whose schema does not hold, so that the rest is checked all the same.
    References are looked up in the `full` trees: a mistake in an entry does not make its name unknown.
    """

    full: Mapping[str, Node | None]
    trees: Mapping[str, Node]
    fleet: FleetFile | None
    queues: QueuesFile | None
    data: DataFile | None
    prices: PricesFile | None
    products: Mapping[ProductName, Product]
    problems: list[Problem] = field(default_factory=list)
    rule_files: tuple[RuleFile, ...] = ()
    catalog_unread: bool = False
    """Data sets are missing that an endpoint would answer: a name that is not known may be one of them."""

    def names(self, file: str, *path: str) -> tuple[str, ...]:
        return keys_of(self.full.get(file), *path)

    def readable(self, file: str) -> bool:
        """Whether the file parsed, so that names missing from it are really missing."""
        return self.full.get(file) is not None

    def mark(self, file: str, *path: str | int, of_key: bool = False) -> Mark:
        """The place of the value at a path, or of its key."""
        mark, node = locate(self.trees[file], path)
        return mark if of_key else node.mark

    def line(self, file: str, *path: str | int) -> str:
        """`file:line:column` of the key at a path, for records of decisions."""
        mark = self.mark(file, *path, of_key=True)
        return f"{file}:{mark.line}:{mark.column}"

    def error(self, file: str, path: tuple[str | int, ...], value: object, said: tuple[str, str]) -> None:
        """An error at the value of a path; `said` is (rule, fix)."""
        self.problems.append(problem_at(file, self.mark(file, *path), value, *said))

    def key_error(self, file: str, path: tuple[str | int, ...], said: tuple[str, str]) -> None:
        """An error at the key of a path, which is the value shown."""
        self.problems.append(problem_at(file, self.mark(file, *path, of_key=True), path[-1], *said))

    def warn(self, file: str, path: tuple[str | int, ...], value: object, said: tuple[str, str]) -> None:
        self.problems.append(warning_at(file, self.mark(file, *path, of_key=True), value, *said))


def products_of(fleet: FleetFile | None) -> Mapping[ProductName, Product]:
    """The built-in table with the fleet's own products and spellings added."""
    if fleet is None or not fleet.products:
        return BUILTIN_PRODUCTS
    known = dict(BUILTIN_PRODUCTS)
    for name, own in fleet.products.items():
        old = known.get(ProductName(name))
        aliases = (*(old.aliases if old else ()), *(normalise(alias) for alias in own.aliases))
        known[ProductName(name)] = Product(
            ProductName(name), own.memory_gib, tuple(sorted(set(aliases))), old.mig_profile if old else own.mig_profile
        )
    return table(known.values())


def gpu_resource(flavor: Flavor) -> str | None:
    """The accelerator resource of a flavor's nodes, or None for CPU nodes."""
    return next((name for name in sorted(flavor.nodes.capacity) if is_gpu(name)), None)


def share_of(flavor: Flavor, pieces: int, unit: str) -> Resources:
    """What a share of `pieces` GPUs (unit "gpus") or nodes (unit "nodes") is in resources, without the pod limit.

    CPU and memory go with the GPUs in proportion, rounded down to whole millicores and MiB, so that shares never sum
    to more than the nodes have.
    """
    node = flavor.nodes.resources()
    gpu = gpu_resource(flavor)
    per = node.get(gpu) if unit == "gpus" and gpu is not None else 1
    amounts: dict[str, int] = {}
    for name, amount in node:
        if name == PODS:
            continue
        part = amount * pieces // per
        amounts[name] = part if name == CPU or is_gpu(name) else part // 2**20 * 2**20
    return Resources.of(amounts)


def unit_of(share: Share) -> str:
    return "gpus" if share.gpus is not None else "nodes"
