"""The example rule pack in config/residency: valid, guarded by its tests clause by clause, sourced and dated."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from dispatcher.config.residency.coverage import cover
from dispatcher.config.residency.lint import lint_rules
from dispatcher.config.residency.lint_checks import Level
from dispatcher.config.residency.mutation import Change, survey
from dispatcher.config.residency.testing import run
from dispatcher.config.residency.testing_files import Suite, read_suite
from dispatcher.config.residency.world import World, look
from dispatcher.config.schema import RESIDENCY_FILE, RULE_TESTS, schema_name
from residency.vocabulary import Effect, Flow, Mode
from tests.repo.test_schema_current import complaints

CONFIG = Path(__file__).parents[2] / "config"
FILES = sorted((CONFIG / "residency").glob("*.yaml"))
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
BACKGROUND_ONLY = ("adequate", "us-dpf", "eu001", "ear-d5", "ear-d5-and-macau", "ear-3a090")
"""Sets of which the project does not have every member from the source itself."""


@pytest.fixture(scope="module")
def world() -> World:
    result, found = look(CONFIG, NOW)
    assert found is not None, [problem.text() for problem in result.errors]
    return found


@pytest.fixture(scope="module")
def suite(world: World) -> Suite:
    found = read_suite(CONFIG, world)
    assert [problem.text() for problem in found.problems] == []
    return found


def test_nothing_is_wrong_with_it() -> None:
    result = lint_rules(CONFIG, NOW)
    assert [finding for finding in result.findings if finding.level is not Level.NOTE] == []
    assert result.ok


def test_every_test_beside_the_rules_passes(world: World, suite: Suite) -> None:
    outcome = run(world.law, suite.cases)
    assert outcome.failures == ()
    assert outcome.tests == len(suite.cases) > 100


def test_the_tests_see_every_clause_let_through_refuse_and_not_know(world: World, suite: Suite) -> None:
    assert cover(world.law, suite.cases).missing == ()


@pytest.mark.slow
def test_dropping_any_clause_or_anything_else_turns_a_test_red(world: World, suite: Suite) -> None:
    found = survey(world.bundle, suite.cases)
    assert [(m.change.value, m.rule.id, m.what) for m in found.survivors] == []
    clauses = sum(len(group.clauses) for rule in world.bundle.rules for group in rule.when)
    assert found.tried > clauses > 40


def test_a_clause_that_no_test_guards_is_found(world: World, suite: Suite) -> None:
    fewer = [case for case in suite.cases if case.expected.rule != "ear-us-persons-operate"]
    survivors = survey(world.bundle, fewer, frozenset({Change.CLAUSE})).survivors
    assert Counter(m.rule.id for m in survivors) == {"ear-us-persons-operate": 1}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_file_names_its_schema_and_holds_against_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    name = schema_name(RULE_TESTS if ".test." in path.name else RESIDENCY_FILE)
    assert text.startswith(f"# yaml-language-server: $schema=../schema/{name}\n")
    assert complaints(path.name, text, name) == []


@pytest.mark.parametrize(
    "path", [path for path in FILES if ".test." not in path.name and "tenants" not in path.name], ids=lambda p: p.name
)
def test_each_file_says_that_it_is_no_legal_advice(path: Path) -> None:
    assert "Not legal advice" in path.read_text(encoding="utf-8")


def test_every_rule_names_its_law_and_every_set_its_source(world: World) -> None:
    assert [rule.id for rule in world.bundle.rules if not rule.law] == []
    assert [one.id for one in world.bundle.sets if not one.source] == []
    assert [one.id for one in world.bundle.sets if one.verify_by is None and any(m.name for m in one.members)] == []


def test_what_is_known_from_background_only_is_looked_up_soon(world: World) -> None:
    days = {one.id: one.verify_by for one in world.bundle.sets}
    late = [name for name in BACKGROUND_ONLY if (days[name] or date.max) > date(2027, 1, 31)]
    assert late == []


MEMBERS = [
    pytest.param("eea", {"NO", "IS", "LI", "DE", "RE"}, {"CH", "GB", "FO"}, id="the EEA is wider than the EU"),
    pytest.param(
        "eu27", {"RE", "GP", "MQ", "GR", "CY"}, {"NO", "GL", "FO", "GB"}, id="outermost regions are in the EU"
    ),
    pytest.param(
        "eu-customs", {"DE", "FR"}, {"NO", "CH", "IS", "LI", "GB"}, id="Norway is outside the customs territory"
    ),
    pytest.param("doj-concern", {"CN", "HK", "MO"}, {"TW"}, id="Hong Kong by its own code, and not Taiwan"),
    pytest.param("ear-d5", {"CN", "HK", "RU"}, {"TW", "MO"}, id="Macau is beside D:5"),
    pytest.param("ear-d5-and-macau", {"CN", "MO"}, {"TW"}, id="the set with Macau has it"),
    pytest.param("eea-plus-adequate", {"NO", "GB", "BR", "NZ", "DE"}, {"US", "IN", "CN"}, id="the US is not adequate"),
    pytest.param("us-dpf", {"US"}, {"PR", "GU"}, id="the framework is of the US"),
]


@pytest.mark.parametrize(("name", "members", "strangers"), MEMBERS)
def test_sets_hold_whom_they_should_and_nobody_else(
    world: World, name: str, members: set[str], strangers: set[str]
) -> None:
    found = set(world.law.sets[name].names(NOW))
    assert members <= found
    assert found.isdisjoint(strangers)


def test_the_united_kingdom_leaves_on_the_day_its_decision_ends(world: World) -> None:
    ends = datetime(2031, 12, 27, tzinfo=UTC)
    assert world.law.sets["adequate"].next_change("GB", NOW) == ends
    assert not world.law.sets["adequate"].holds("GB", ends)


def test_what_is_not_law_yet_only_watches(world: World) -> None:
    modes = {rule.id: rule.mode for rule in world.bundle.rules}
    assert modes["gpu-remote-access"] is Mode.SHADOW
    assert modes["gpu-tenant-red-flag"] is Mode.ENFORCE
    hard = [rule.id for rule in world.bundle.rules if rule.effect is Effect.FORBID and rule.hard]
    assert all(modes[name] is Mode.ENFORCE for name in hard)


def test_every_flow_of_every_label_is_spoken_of(world: World) -> None:
    """What nothing speaks of is denied as "no rule": in the pack each gap is one that somebody meant."""
    permits = [rule for rule in world.bundle.rules if rule.effect is Effect.PERMIT]
    gaps = {
        (label, flow.value)
        for label in world.labels
        for flow in Flow
        if not any(rule.speaks_of(label, flow) for rule in permits)
    }
    assert gaps == {
        ("unlabelled", "replicate"),
        ("unlabelled", "replicate_sealed"),
        ("customer-acme", "replicate_sealed"),
        ("export-controlled", "replicate_sealed"),
    }
