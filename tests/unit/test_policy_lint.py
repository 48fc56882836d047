"""`entrepot policy lint`: each finding with its place, code and fix; what files may look like at their worst."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dispatcher.cli.main import run
from dispatcher.config.residency.lint import LintResult, lint_rules
from dispatcher.config.residency.lint_checks import Code, Level
from dispatcher.config.residency.lint_show import to_data, to_github, to_sarif, to_text
from tests.unit.blueprint_files import NOW, SMALL, write

R = "residency/rules.yaml"
RULES = """\
rules:
  public:
    labels: [public]
    flows: [process, replicate, cache, checkpoint, output, logs, remote_access]
    effect: permit
  personal:
    labels: [personal]
    flows: [process, cache]
    effect: permit
    when: {destination.country: {in: "@eu"}}
    exceptable: {approvers: [dpo], max_days: 30}
sets:
  eu: {members: [DE, FI, FR], source: for tests, verify_by: 2027-06-30}
"""
TESTS = """\
now: 2026-11-29T12:00:00Z
places:
  berlin: {country: DE}
  tokyo: {country: JP}
tests:
  public-goes-anywhere:
    labels: [public]
    flows: [process, replicate, cache, checkpoint, output, logs, remote_access]
    to: tokyo
    expect: {answer: allow, rule: public}
  personal-stays-in-the-eu:
    labels: [personal]
    flows: [process, cache]
    to: berlin
    expect: {answer: allow, rule: personal}
  personal-does-not-leave:
    labels: [personal]
    flows: [process]
    to: tokyo
    expect: {answer: deny, code: no-permit, rule: personal}
"""
EXCEPTION = """\
exceptions:
  crops-abroad:
    rules: [personal]
    scope: {data_sets: [crops], queues: [training]}
    reason: A trial.
    ticket: GOV-1
    requested_by: lead
    approved_by: officer
    approver_role: dpo
    valid: {from: 2026-11-20T00:00:00Z, until: UNTIL}
"""


def linted(folder: Path, rules: str = RULES, tests: str = TESTS, now: datetime = NOW) -> LintResult:
    files: dict[str, str | bytes] = {**SMALL, R: rules, "residency/rules.test.yaml": tests}
    return lint_rules(write(folder / "b", files), now)


def lines(result: LintResult) -> list[str]:
    return [f"{f.at}: {f.level} {f.code} {f.subject}: {f.says}; {f.fix}" for f in result.findings]


def test_a_good_bundle_has_no_findings(tmp_path: Path) -> None:
    result = linted(tmp_path)
    assert lines(result) == []
    assert to_text(result, Level.NOTE).endswith(f"2 rules, digest {result.digest}: 0 errors, 0 warnings, 0 notes\n")


def changed(old: str, new: str) -> str:
    """The rules with one place of them changed; the place must be there exactly once."""
    assert RULES.count(old) == 1, f"{old!r} is {RULES.count(old)} times in the rules"
    return RULES.replace(old, new)


def added(more: str) -> str:
    """The rules with further ones, above the sets."""
    return changed("sets:\n", f"{more}sets:\n")


FORBID_EU = """\
  none-in-the-eu:
    labels: ["*"]
    flows: [process, cache]
    effect: forbid
    when: {destination.country: {in: [DE, FI, FR, IT]}}
"""
REQUIRE_JP = """\
  only-japan:
    labels: [personal]
    flows: [process, cache]
    effect: require
    when: {destination.country: {in: [JP]}}
"""
UNREACHED = """\
  never-sealed-to-japan:
    labels: [personal]
    flows: [replicate_sealed]
    effect: forbid
    when: {destination.country: {in: [JP]}}
"""
DEAD = """\
  personal-in-japan:
    labels: [personal]
    flows: [process]
    effect: permit
    when: {destination.country: {in: [JP]}}
"""
UNKNOWN_DEAD = """\
  personal-dedicated:
    labels: [personal]
    flows: [process]
    effect: permit
    when: {destination.tenancy: {equals: dedicated}}
"""
KEPT = """\
  public-is-kept:
    labels: [public]
    flows: [cache]
    effect: require
    obligations: [{retain: P7D}]
  public-is-gone-soon:
    labels: [public]
    flows: [cache]
    effect: require
    obligations: [{cache_ttl: PT1H}]
"""
UNTESTED = """\
  public-watched:
    labels: [public]
    flows: [logs]
    effect: forbid
    when: {destination.country: {in: [US]}}
    mode: shadow
    exceptable: {approvers: [dpo]}
"""

FINDINGS = [
    pytest.param(
        added(UNREACHED),
        "residency/rules.yaml:12:3: warning unreachable-rule never-sealed-to-japan: never decides: no permit speaks of "
        "personal on its flows, and what nothing permits is denied; write a permit, or remove the rule",
        id="a forbid where nothing is permitted",
    ),
    pytest.param(
        added(FORBID_EU),
        "residency/rules.yaml:6:3: warning permit-always-forbidden personal: never grants: rule 'none-in-the-eu' "
        "(residency/rules.yaml:12:3) forbids all that it permits; change one of the two",
        id="a permit wholly inside a forbid",
    ),
    pytest.param(
        added(REQUIRE_JP),
        "residency/rules.yaml:6:3: warning permit-against-requirement personal: never grants: what rule 'only-japan' "
        "(residency/rules.yaml:12:3) requires cannot hold where it does; change one of the two",
        id="a permit that a requirement excludes",
    ),
    pytest.param(
        changed('in: "@eu"', "in: [JP]"),
        "residency/rules.yaml:6:3: warning dead-permit personal: no cluster or store that is known satisfies it; "
        "data with label personal goes nowhere",
        id="a permit that no cluster satisfies, with data that waits for it",
    ),
    pytest.param(
        added(DEAD),
        "residency/rules.yaml:12:3: note dead-permit personal-in-japan: no cluster or store that is known "
        "satisfies it; nothing waits for it now",
        id="a permit that no cluster satisfies beside one that some do",
    ),
    pytest.param(
        added(UNKNOWN_DEAD),
        "residency/rules.yaml:12:3: note dead-permit personal-dedicated: no cluster or store that is known "
        "satisfies it; facts are missing of cloud, home; nothing waits for it now",
        id="a permit that no cluster is known to satisfy",
    ),
    pytest.param(
        added(KEPT),
        "residency/rules.yaml:17:3: warning obligations-conflict public-is-gone-soon: cache_ttl and retain cannot be "
        "fulfilled together: the other is of rule 'public-is-kept' (residency/rules.yaml:12:3); change one of the two",
        id="two rules whose obligations contradict",
    ),
    pytest.param(
        added(UNTESTED),
        "residency/rules.yaml:12:3: warning rule-without-test public-watched: no test notices when it is removed; "
        "write one beside it (*.test.yaml)",
        id="a rule that no test guards",
    ),
    pytest.param(
        changed("[DE, FI, FR], source", "[DE, FI, FR, UK], source"),
        "residency/rules.yaml:13:30: error not-as-written UK: not an ISO 3166-1 country; did you mean 'GB'?",
        id="UK is not a country",
    ),
    pytest.param(
        changed("[DE, FI, FR], source", "[DE, FI, FR, XI], source"),
        "residency/rules.yaml:13:30: error not-as-written XI: a customs territory, not a country; "
        "write GB, and ask for the customs_territory where it matters",
        id="XI needs an explicit mapping",
    ),
    pytest.param(
        changed('in: "@eu"', 'in: "@euu"'),
        "residency/rules.yaml:10:12: error unknown-set euu: not one of the sets of residency/; did you mean 'eu'?",
        id="an unknown set",
    ),
    pytest.param(
        changed("labels: [personal]", "labels: [personel]"),
        "residency/rules.yaml:6:3: error unknown-label personel: not one of the labels of data.yaml; "
        "did you mean 'personal'?",
        id="an unknown label",
    ),
    pytest.param(
        changed("labels: [personal]", "labels: [public]"),
        "data.yaml:5:3: warning label-without-rule personal: no rule permits it anything: such data goes nowhere; "
        "write a permit",
        id="a label without a rule",
    ),
    pytest.param(
        changed("verify_by: 2027-06-30", "verify_by: 2026-11-01"),
        "residency/rules.yaml:13:3: warning verify-source eu: was to be verified by 2026-11-01; "
        "look it up again (for tests)",
        id="a set that was to be looked up again",
    ),
    pytest.param(
        changed(", verify_by: 2027-06-30", ""),
        "residency/rules.yaml:13:3: warning set-without-verify-by eu: nobody is told to look its source up again; "
        "add verify_by:",
        id="a set that nobody is to look up again",
    ),
    pytest.param(
        RULES + "  spare: {members: [JP], source: for tests, verify_by: 2027-06-30}\n",
        "residency/rules.yaml:14:3: note unused-set spare: no rule and no set asks for it; remove it",
        id="a set that nobody asks for",
    ),
    pytest.param(
        RULES + '  a: {members: ["@b"], source: x}\n  b: {members: ["@a"], source: x}\n',
        "residency/rules.yaml:14:3: error ring-of-sets a: a ring of sets: @a -> @b -> @a; remove one link of it",
        id="a ring of sets",
    ),
    pytest.param(
        RULES + '  self: {members: ["@self"], source: x}\n',
        "residency/rules.yaml:14:3: error ring-of-sets self: a ring of sets: @self -> @self; remove one link of it",
        id="a set that contains itself",
    ),
    pytest.param(
        changed("  personal:\n", "  public:\n"),
        "residency/rules.yaml:6:3: error not-as-written public: the key is there twice, first on line 2; "
        "remove or rename one of them",
        id="a duplicate key",
    ),
    pytest.param(
        changed("verify_by: 2027-06-30", "verify_by: 1969-12-31"),
        "residency/rules.yaml:13:61: error not-as-written 1969-12-31: a day before 1970; correct the year",
        id="a date before 1970",
    ),
    pytest.param(
        RULES + "#" * (5 * 1024 * 1024),
        "residency/rules.yaml:1:1: error not-as-written : the file has more than the 524288 bytes allowed; "
        "split or shorten it",
        id="a rule file of 5 MB",
    ),
    pytest.param(
        "",
        "residency/rules.yaml:1:1: error not-as-written : the file is empty; write the file's keys",
        id="an empty rule file",
    ),
]


@pytest.mark.parametrize(("rules", "expected"), FINDINGS)
def test_each_finding_has_its_place_code_and_fix(tmp_path: Path, rules: str, expected: str) -> None:
    found = lines(linted(tmp_path, rules))
    assert expected in found, "\n".join(found)


def test_norway_is_a_country_with_quotes_or_without(tmp_path: Path) -> None:
    result = linted(tmp_path, changed("[DE, FI, FR], source", "[DE, NO, 'NO'], source"))
    assert result.ok
    assert not result.of(Level.ERROR)


ENDS = [
    pytest.param("2026-11-30T06:00:00Z", Level.WARNING, "within a day", id="one day"),
    pytest.param("2026-12-02T06:00:00Z", Level.WARNING, "within 3 days", id="three days"),
    pytest.param("2026-12-10T06:00:00Z", Level.NOTE, "within 14 days", id="fourteen days"),
]


@pytest.mark.parametrize(("until", "level", "says"), ENDS)
def test_an_exception_that_ends_is_told_of_in_time(tmp_path: Path, until: str, level: Level, says: str) -> None:
    result = linted(tmp_path, RULES + EXCEPTION.replace("UNTIL", until))
    found = [f for f in result.findings if f.code == Code.EXPIRES_SOON]
    assert [(f.subject, f.level) for f in found] == [("crops-abroad", level)]
    assert says in found[0].says
    assert "training, crops is under the rule again" in found[0].says


def test_an_exception_of_yesterday_is_kept_and_told_of(tmp_path: Path) -> None:
    result = linted(tmp_path, RULES + EXCEPTION.replace("UNTIL", "2026-11-28T00:00:00Z"))
    assert [f.code for f in result.findings] == ["expired"]


def test_an_exception_that_a_hard_rule_defeats_has_no_effect(tmp_path: Path) -> None:
    """residency.md case 11: the exception lifts one rule, and a hard one hits too."""
    rules = added(FORBID_EU).replace('in: "@eu"', "in: [IT]") + EXCEPTION.replace("UNTIL", "2026-12-19T00:00:00Z")
    found = [f for f in linted(tmp_path, rules).findings if f.code == Code.NO_EFFECT]
    assert [(f.subject, f.says) for f in found] == [
        (
            "crops-abroad",
            "has no effect: rule 'none-in-the-eu' (residency/rules.yaml:12:3) denies all the same",
        )
    ]


def test_an_exception_that_changes_nothing_is_not_needed(tmp_path: Path) -> None:
    text = EXCEPTION.replace("UNTIL", "2026-12-19T00:00:00Z").replace("[crops]", "[roads]")
    found = linted(tmp_path, RULES + text).findings
    assert [(f.code, f.says) for f in found] == [
        (Code.NOT_NEEDED, "is not needed: nothing in its scope is refused by its rules")
    ]


GOVERNANCE = [
    pytest.param("approved_by: officer", "approved_by: lead", "self-approved", id="approved by who asked"),
    pytest.param("approver_role: dpo", "approver_role: cto", "not-an-approver", id="not an approver of the rule"),
    pytest.param("from: 2026-11-20", "from: 2026-10-01", "too-long", id="longer than the rule allows"),
    pytest.param("data_sets: [crops], ", "", "scope-too-wide", id="a scope of one part"),
    pytest.param("rules: [personal]", "rules: [personel]", "unknown-rule", id="an unknown rule"),
]


@pytest.mark.parametrize(("old", "new", "code"), GOVERNANCE)
def test_an_exception_against_the_rules_refuses_the_whole_bundle(tmp_path: Path, old: str, new: str, code: str) -> None:
    text = EXCEPTION.replace("UNTIL", "2026-12-15T00:00:00Z")
    assert old in text
    result = linted(tmp_path, RULES + text.replace(old, new))
    assert code in {f.code for f in result.of(Level.ERROR)}
    assert not result.ok


def test_a_mode_that_may_slip_unseen_is_told_of(tmp_path: Path) -> None:
    unnamed = TESTS.replace("{answer: allow, rule: personal}", "{answer: allow}")
    unnamed = unnamed.replace(
        "{answer: deny, code: no-permit, rule: personal}", "{answer: indeterminate, code: no-rule}"
    )
    result = linted(tmp_path, tests=unnamed)
    codes = {(f.code, f.subject) for f in result.findings}
    assert (Code.FAILING_TEST, "personal-does-not-leave") in codes
    assert (Code.MODE_SLIP, "personal") in codes


def test_errors_elsewhere_are_counted_and_rules_are_looked_at_all_the_same(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {**SMALL, R: changed('"@eu"', '"@ue"'), "prices.yaml": "surprise: 1\n"}
    result = lint_rules(write(tmp_path / "b", files), NOW)
    assert (result.ok, result.elsewhere > 0, [f.code for f in result.findings]) == (False, True, ["unknown-set"])
    assert "in other files: entrepot blueprint lint" in to_text(result, Level.NOTE)


def test_the_same_findings_whatever_the_order_of_files(tmp_path: Path) -> None:
    text = added(FORBID_EU + UNREACHED)
    rules, sets = text.split("sets:\n")
    split: dict[str, str | bytes] = {**SMALL, R: rules, "residency/a-sets.yaml": f"sets:\n{sets}"}
    one = lint_rules(write(tmp_path / "1", split), NOW)
    other = lint_rules(write(tmp_path / "2", dict(reversed(split.items()))), NOW)
    assert (lines(one), one.digest) == (lines(other), other.digest)
    assert one.digest == linted(tmp_path / "3", text).digest


# --- outputs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write(tmp_path / "b", {**SMALL, R: changed('"@eu"', '"@ue"')})


def test_json_has_places_codes_and_counts(tmp_path: Path) -> None:
    data = to_data(linted(tmp_path, added(UNREACHED)), Level.WARNING)
    assert data["counts"] == {"error": 0, "warning": 2, "note": 0}
    assert data["findings"][0]["code"] in ("unreachable-rule", "rule-without-test")
    assert data["valid"] is True


def test_sarif_names_each_code_once_and_each_place(tmp_path: Path) -> None:
    sarif = to_sarif(linted(tmp_path, changed('"@eu"', '"@ue"')), Level.NOTE)
    run_, *_ = sarif["runs"]
    assert sarif["version"] == "2.1.0"
    assert run_["tool"]["driver"]["rules"] == [{"id": "unknown-set"}]
    place = run_["results"][0]["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 10, "startColumn": 12}
    assert place["artifactLocation"]["uri"].endswith("/b/residency/rules.yaml")


def test_annotations_escape_what_would_end_them(tmp_path: Path) -> None:
    result = linted(tmp_path, changed('"@eu"', '"@ue"'))
    text = to_github(result, Level.NOTE)
    assert text.startswith("::error file=")
    assert "line=10,col=12,title=unknown-set::ue: not one of the sets" in text
    assert text.count("\n") == 1


def test_exit_codes_0_1_2(tmp_path: Path, broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path / "g", {**SMALL, R: RULES, "residency/rules.test.yaml": TESTS})
    at = ["--now", "2026-11-29T12:00:00Z"]
    assert run(["policy", "lint", str(good), *at]) == 0
    assert run(["policy", "lint", str(good), *at, "--strict"]) == 0
    (good / "residency" / "rules.test.yaml").unlink()
    assert run(["policy", "lint", str(good), *at]) == 0
    assert run(["policy", "lint", str(good), *at, "--strict"]) == 1
    assert run(["policy", "lint", str(broken), *at]) == 1
    assert run(["policy", "lint", str(tmp_path / "nowhere")]) == 2
    assert run(["policy", "lint", str(good), "--now", "1969-12-31T23:59:59Z"]) == 2
    assert "before 1970" in capsys.readouterr().err
    assert run(["policy", "lint", str(broken), "-o", "sarif"]) == 1
    assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"


def test_a_day_later_the_verdict_on_ages_is_another(tmp_path: Path) -> None:
    late = datetime(2027, 7, 1, tzinfo=UTC)
    assert "verify-source" in {f.code for f in linted(tmp_path / "1", now=late).findings}
    assert "verify-source" not in {f.code for f in linted(tmp_path / "2", now=late - timedelta(days=1)).findings}
