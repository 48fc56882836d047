"""Reading `*.test.yaml`: from a file to the questions that it asks, with every wrong name at its place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from dataclasses import replace as with_values
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dispatcher.config.compile import place_of
from dispatcher.config.problems import TOP, Mark, Problem, did_you_mean, problem_at
from dispatcher.config.reading import validate
from dispatcher.config.residency.assemble import RESIDENCY, attestation
from dispatcher.config.residency.testing_model import (
    Expected,
    HopFixture,
    PlaceFixture,
    RuleTestFile,
    TenantFixture,
    TestEntry,
)
from dispatcher.config.residency.world import World
from dispatcher.config.strictyaml import MAX_BYTES, Node, locate, parse
from residency.derivation import Artefact, Inherited, Labels, Made, labels_of
from residency.facts import FACTS, Attestation, Place, Tenant
from residency.plans import Cargo, Hop, Plan
from residency.vocabulary import UNLABELLED, At

SUFFIX = ".test.yaml"
BY_THE_TEST = Attestation("the test")
DATA = "the data"
SOURCE = "what it was made from"


@dataclass(frozen=True, slots=True)
class Case:
    """One test, ready to be asked: each plan must have the answer. `flow` names the plan in what is shown."""

    name: str
    at: At
    now: datetime
    plans: tuple[tuple[str, Plan], ...]
    expected: Expected
    expected_at: At


@dataclass(frozen=True, slots=True)
class Suite:
    """All tests of a folder. With errors among the problems it is not run."""

    cases: tuple[Case, ...] = ()
    problems: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()


def is_test_file(name: str) -> bool:
    return name.endswith((SUFFIX, ".test.yml"))


def find_tests(folder: Path) -> tuple[tuple[str, Path], ...]:
    """The test files of residency/ and of the folders in it, with the names by which problems call them, in order."""
    root = folder / RESIDENCY
    if not root.is_dir():
        return ()
    folders = [root, *sorted(Path(e.path) for e in os.scandir(root) if e.is_dir() and not e.name.startswith("."))]
    found = [path / name for path in folders for name in sorted(os.listdir(path)) if is_test_file(name)]
    return tuple((path.relative_to(folder).as_posix(), path) for path in found if path.is_file())


def read_suite(folder: Path, world: World) -> Suite:
    """Read every test file. Never raises for what stands in them."""
    found = find_tests(folder)
    cases: list[Case] = []
    problems: list[Problem] = []
    for name, path in found:
        try:
            with open(path, "rb") as stream:
                data = stream.read(MAX_BYTES + 1)
        except OSError as error:
            why = (error.strerror or type(error).__name__).lower()
            problems.append(problem_at(name, TOP, None, f"the file cannot be read ({why})", "check its rights"))
            continue
        more, wrong = read_tests(name, data, world)
        cases += more
        problems += wrong
    _twice(cases, problems)
    return Suite(tuple(cases), tuple(problems), tuple(name for name, _ in found))


def read_tests(name: str, data: bytes, world: World) -> tuple[list[Case], list[Problem]]:
    """The tests of one file: pure."""
    tree, problems = parse(name, data)
    if tree is None:
        return [], problems
    read = validate(RuleTestFile, name, tree)
    problems += read.problems
    if read.model is None or problems:
        return [], problems
    work = _Reading(name, tree, read.model, world, problems)
    cases = [work.case(key, entry) for key, entry in read.model.tests.items()]
    return ([] if problems else cases), problems


def _twice(cases: Iterable[Case], problems: list[Problem]) -> None:
    first: dict[str, At] = {}
    for case in cases:
        known = first.setdefault(case.name, case.at)
        if known is not case.at:
            said = f"there already, in {known}"
            mark = Mark(case.at.line, case.at.column)
            problems.append(problem_at(case.at.file, mark, case.name, said, "rename one of them"))


@dataclass(slots=True)
class _Reading:
    """One file on its way to its cases. Names that are wrong are problems; the rest is read all the same."""

    name: str
    tree: Node
    model: RuleTestFile
    world: World
    problems: list[Problem]
    _places: dict[str, Place | None] = field(default_factory=dict)

    def at(self, *path: str | int) -> At:
        mark, _ = locate(self.tree, path)
        return At(self.name, mark.line, mark.column)

    def wrong(self, path: tuple[str | int, ...], value: str, rule: str, fix: str) -> None:
        at = self.at(*path)
        self.problems.append(problem_at(self.name, Mark(at.line, at.column), value, rule, fix))

    def known(self, path: tuple[str | int, ...], value: str | None, names: Iterable[str], what: str) -> None:
        listed = tuple(names)
        if value is not None and value not in listed:
            self.wrong(path, value, f"not one of {what}", did_you_mean(value, listed))

    def case(self, key: str, entry: TestEntry) -> Case:
        at: tuple[str | int, ...] = ("tests", key)
        now = entry.now or self.model.now
        for index, label in enumerate(entry.labels):
            self.known((*at, "labels", index), label, self.world.labels, "the labels of data.yaml")
        self._expectation((*at, "expect"), entry.expect)
        asked = Plan(
            hops=(),
            queue=entry.queue or "",
            workload=entry.workload or "",
            tenant=self._tenant((*at, "tenant"), entry),
            products=self._products((*at, "gpus"), entry.gpus),
            expected_end=now + timedelta(seconds=entry.runs_for) if entry.runs_for is not None else None,
        )
        cargo = _cargo(entry, self.world, now)
        plans = tuple(
            (name, with_values(asked, hops=tuple(self._hop(path, one, cargo) for path, one in hops)))
            for name, hops in _plans(at, entry)
        )
        return Case(key, self.at(*at), now, plans, entry.expect, self.at(*at, "expect"))

    def _expectation(self, at: tuple[str | int, ...], expect: Expected) -> None:
        rules = [rule.id for rule in self.world.bundle.rules]
        self.known((*at, "rule"), expect.rule, [*rules, "unlabelled-stays-home"], "the rules of residency/")
        self.known((*at, "fact"), expect.fact, FACTS, "the facts that rules may ask for")
        self.known((*at, "label"), expect.label, self.world.labels, "the labels of data.yaml")
        for index, one in enumerate(expect.would or ()):
            self.known((*at, "would", index, "rule"), one.rule, rules, "the rules of residency/")
        exceptions = [one.id for one in self.world.bundle.exceptions]
        for index, name in enumerate(expect.exceptions or ()):
            self.known((*at, "exceptions", index), name, exceptions, "the exceptions of residency/")

    def _hop(self, at: tuple[str | int, ...], hop: HopFixture, cargo: Cargo) -> Hop:
        nowhere = Place("")
        source = self._place((*at, "from"), hop.source) if hop.source is not None else None
        return Hop(hop.flow, cargo, self._place((*at, "to"), hop.to) or nowhere, source)

    def _place(self, at: tuple[str | int, ...], name: str) -> Place | None:
        """A fixture, else a cluster or a store. One that is like itself, by whatever way, is an error and nowhere."""
        fixture = self.model.places.get(name)
        if fixture is None:
            self.known(
                at, name, [*self.model.places, *self.world.places], "the places of this file, clusters or stores"
            )
            return self.world.places.get(name)
        if name not in self._places:
            self._places[name] = None
            self._places[name] = self._made_up(name, fixture)
        elif self._places[name] is None:
            self.wrong(("places", name, "like"), name, "a place that is like itself", "name another one")
        return self._places[name]

    def _made_up(self, name: str, fixture: PlaceFixture) -> Place:
        at = ("places", name)
        place = place_of(fixture.named or name, fixture.kind, fixture.at_site or name, fixture)
        attested = place.attested or BY_THE_TEST
        if fixture.like is not None:
            base = self._place((*at, "like"), fixture.like) or Place(name)
            place = _over(base, place, fixture)
            attested = place.attested or BY_THE_TEST
        fields = {key: _FIELD.get(key, key) for key in fixture.without}
        for index, key in enumerate(fixture.without):
            self.known((*at, "without", index), key, _FACT_KEYS, "the keys of a site")
        gone: dict[str, Any] = {one: None for one in fields.values() if one in Place.__dataclass_fields__}
        return with_values(place, attested=attested if fixture.vouched else None, **gone)

    def _tenant(self, at: tuple[str | int, ...], entry: TestEntry) -> Tenant | None:
        declared = {tenant.name: tenant for tenant in self.world.bundle.tenants}
        if entry.tenant is None:
            return next((one for one in declared.values() if entry.queue in one.queues), None)
        fixture = self.model.tenants.get(entry.tenant)
        if fixture is not None:
            return _made_up_tenant(entry.tenant, fixture)
        self.known(at, entry.tenant, [*self.model.tenants, *declared], "the tenants of this file or of residency/")
        return declared.get(entry.tenant)

    def _products(self, at: tuple[str | int, ...], names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        spelled = [self.world.spell(name) for name in names]
        for index, (name, known) in enumerate(zip(names, spelled, strict=True)):
            if known is None:
                fix = did_you_mean(name, tuple(str(product) for product in self.world.policy.products))
                self.wrong((*at, index), name, "unknown GPU product", fix)
        return tuple(sorted({known for known in spelled if known is not None}))


_FIELD = {"support_access": "support_countries", "key_custody": "key_holder"}
"""Keys of a site that a place calls otherwise."""
_FACT_KEYS = tuple(key for key in PlaceFixture.model_fields if _FIELD.get(key, key) in Place.__dataclass_fields__)


def _over(base: Place, place: Place, fixture: PlaceFixture) -> Place:
    """A place with the facts of another where it says nothing itself."""
    said = {_FIELD.get(key, key) for key in fixture.model_fields_set} & set(Place.__dataclass_fields__)
    found = with_values(base, name=place.name, **{key: getattr(place, key) for key in said - {"kind"}})
    if "kind" in fixture.model_fields_set:
        found = with_values(found, kind=fixture.kind)
    return with_values(found, site=fixture.at_site or base.site)


def _made_up_tenant(name: str, fixture: TenantFixture) -> Tenant:
    def countries(values: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if values is None else tuple(sorted(values))

    return Tenant(
        name=name,
        country=fixture.country,
        parent_country=fixture.parent_country,
        login_countries=countries(fixture.login_countries),
        login_nationalities=countries(fixture.login_nationalities),
        attested=(attestation(fixture.attested) or BY_THE_TEST) if fixture.vouched else None,
    )


def _cargo(entry: TestEntry, world: World, now: datetime) -> Cargo:
    name = entry.data_set or DATA
    labels = Labels(tuple(Inherited(label, (name,)) for label in sorted(set(entry.labels)) or (UNLABELLED,)))
    if entry.made_by is not None:
        made = Made(entry.made_by.transformation, entry.made_by.image)
        catalog = {
            SOURCE: Artefact(SOURCE, labels=entry.labels),
            name: Artefact(name, derived_from=(SOURCE,), made=made),
        }
        labels = labels_of(name, catalog, world.bundle.declassifications, now)
    return Cargo(name, labels, tuple(sorted(set(entry.home))), entry.persons)


_Hops = list[tuple[tuple[str | int, ...], HopFixture]]


def _plans(at: tuple[str | int, ...], entry: TestEntry) -> Iterator[tuple[str, _Hops]]:
    """Each flow for itself, or the hops together; with the paths at which their ends are written."""
    if entry.hops:
        name = " + ".join(f"{hop.flow.value} to {hop.to}" for hop in entry.hops)
        yield name, [((*at, "hops", index), hop) for index, hop in enumerate(entry.hops)]
        return
    for flow in entry.flows:
        hop = HopFixture.model_construct(flow=flow, to=entry.to or "", source=entry.source)
        yield flow.value, [(at, hop)]
