"""`entrepot policy facts`: what is not attested, or soon no longer, and what hangs on it; the worst first."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dispatcher.cli.main import run as cli
from dispatcher.config.residency.facts_report import Row, State, Subject, facts_report
from dispatcher.config.residency.world import look
from tests.unit.blueprint_files import FLEET, NOW, SMALL, write

R = "residency/rules.yaml"
RULES = """\
rules:
  public:
    labels: [public, unlabelled]
    flows: [process, replicate, cache, checkpoint, output, logs, remote_access]
    effect: permit
  personal:
    labels: [personal]
    flows: [process, replicate]
    effect: permit
    when:
      destination.country: {in: "@eu"}
      provider.parent_country: {in: "@eu"}
  personal-by-whom:
    labels: [personal]
    flows: [process]
    effect: forbid
    when: {tenant.parent_country: {in: [JP]}}
sets:
  eu: {members: [DE, FI], source: for tests, verify_by: 2026-12-20}
  outer: {members: ["@eu"], source: for tests}
tenants:
  own: {queues: [training], attested: {by: legal, until: 2027-06-30}}
"""


def report(tmp_path: Path, rules: str = RULES, fleet: str = FLEET, now: datetime = NOW, days: int = 30) -> list[Row]:
    result, world = look(write(tmp_path / "b", {**SMALL, "fleet.yaml": fleet, R: rules}), now)
    assert world is not None, [problem.text() for problem in result.errors]
    return list(facts_report(world, now, timedelta(days=days)))


def short(rows: list[Row]) -> list[tuple[str, str, str, State, int]]:
    return [(row.subject.value, row.name, row.fact, row.state, row.blocks) for row in rows]


def test_missing_facts_come_with_the_rules_that_ask_and_what_they_keep_from_going(tmp_path: Path) -> None:
    rows = report(tmp_path)
    tenant = next(row for row in rows if row.fact == "tenant.parent_country")
    assert (tenant.name, tenant.state, tenant.data_sets) == ("own", State.MISSING, ("crops",))
    assert tenant.rules == ("personal-by-whom",)
    assert ("cluster", "home", "provider.parent_country", State.MISSING, 1) in short(rows)
    assert ("store", "lake", "provider.parent_country", State.MISSING, 1) in short(rows)
    parents = [row for row in rows if row.fact == "provider.parent_country"]
    assert {row.rules for row in parents} == {("personal",)}


def test_what_more_data_waits_for_comes_first(tmp_path: Path) -> None:
    rows = report(tmp_path)
    weights = [(-len(row.data_sets), -row.blocks, -len(row.rules)) for row in rows]
    assert weights == sorted(weights)


def test_a_fact_that_is_known_is_not_listed(tmp_path: Path) -> None:
    rows = report(tmp_path, RULES.replace("own: {queues", "own: {parent_country: DE, queues"))
    assert [row for row in rows if row.fact.startswith("tenant.")] == []


def test_a_place_that_nobody_vouches_for_is_one_row(tmp_path: Path) -> None:
    fleet = FLEET.replace("country: FI\n      attested: {by: security, until: 2027-06-30}", "country: FI")
    rows = [row for row in report(tmp_path, fleet=fleet) if row.name == "cloud"]
    assert [(row.fact, row.state, row.rules) for row in rows] == [("attestation", State.UNATTESTED, ("personal",))]


def test_an_attestation_that_has_ended_is_one_row(tmp_path: Path) -> None:
    rows = [row for row in report(tmp_path, now=datetime(2027, 8, 1, tzinfo=UTC)) if row.name == "home"]
    assert [(row.fact, row.state) for row in rows] == [("attestation", State.EXPIRED)]


def test_an_attestation_that_ends_says_what_it_takes_with_it(tmp_path: Path) -> None:
    fleet = FLEET.replace("country: DE\n      attested", "country: DE\n      parent_country: DE\n      attested")
    rules = RULES.replace("own: {queues", "own: {parent_country: DE, queues")
    soon = datetime(2027, 6, 20, tzinfo=UTC)
    rows = [row for row in report(tmp_path, rules, fleet, soon) if row.name == "home"]
    assert [(r.fact, r.state, r.ends, r.blocks, r.data_sets, r.rules) for r in rows] == [
        ("attestation", State.ENDS, datetime(2027, 7, 1, tzinfo=UTC), 1, ("crops",), ("personal",))
    ]


def test_a_record_that_ends_says_what_it_takes_with_it(tmp_path: Path) -> None:
    fleet = FLEET.replace("country: DE\n", "country: DE\n      certifications: [{name: c5, until: 2026-12-15}]\n")
    rules = RULES.replace(
        '      provider.parent_country: {in: "@eu"}\n', "      destination.certifications: {any_of: [c5]}\n"
    )
    rules = rules.replace("own: {queues", "own: {parent_country: DE, queues")
    rows = [row for row in report(tmp_path, rules, fleet) if row.fact == "record c5"]
    assert [(r.name, r.ends, r.blocks, r.rules) for r in rows] == [
        ("home", datetime(2026, 12, 16, tzinfo=UTC), 1, ("personal",))
    ]


def test_sets_to_look_up_again_come_with_the_rules_that_ask_for_them(tmp_path: Path) -> None:
    rows = [row for row in report(tmp_path) if row.subject is Subject.SET]
    assert [(row.name, row.rules) for row in rows] == [("eu", ("personal",))]
    assert [row for row in report(tmp_path / "2", days=5) if row.subject is Subject.SET] == []


def test_queues_without_a_tenant_are_told_where_rules_ask_for_one(tmp_path: Path) -> None:
    rows = [row for row in report(tmp_path) if row.subject is Subject.QUEUE]
    assert [(row.name, row.rules) for row in rows] == [("curation", ("personal-by-whom",))]


def test_the_command_prints_tables_and_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "b", {**SMALL, R: RULES})
    at = ["--now", "2026-11-29T12:00:00Z"]
    assert cli(["policy", "facts", str(folder), *at]) == 0
    assert "tenant.parent_country" in capsys.readouterr().out
    assert cli(["policy", "facts", str(folder), *at, "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["facts"][0]["state"] == "missing"
    assert data["facts"][0]["ends"] is None
    assert cli(["policy", "facts", str(folder), *at, "-o", "yaml"]) == 0
    assert "within_days: 30" in capsys.readouterr().out
    write(folder, {R: "rules: {}\n"})
    assert cli(["policy", "facts", str(folder), *at]) == 2


def test_where_all_is_known_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = "rules:\n  public: {labels: [public, personal], flows: [process], effect: permit}\n"
    folder = write(tmp_path / "b", {**SMALL, R: rules})
    assert cli(["policy", "facts", str(folder), "--now", "2026-11-29T12:00:00Z"]) == 0
    assert "every fact that a rule asks for is attested" in " ".join(capsys.readouterr().out.split())
