"""`entrepot policy test`: tests beside the rules are read strictly, asked exactly, and told apart when they differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dispatcher.cli.main import run as cli
from dispatcher.config.residency.coverage import cover
from dispatcher.config.residency.mutation import Change, survey
from dispatcher.config.residency.testing import run
from dispatcher.config.residency.testing_files import read_suite, read_tests
from dispatcher.config.residency.testing_show import failure_text
from dispatcher.config.residency.world import World, look
from tests.unit.blueprint_files import NOW, SMALL, write

R, T = "residency/rules.yaml", "residency/rules.test.yaml"
RULES = """\
rules:
  public:
    labels: [public]
    flows: [process, cache, checkpoint, output, logs]
    effect: permit
  personal:
    labels: [personal]
    flows: [process, checkpoint]
    effect: permit
    when:
      destination.country: {in: "@eu"}
      any:
        - destination.tenancy: {equals: dedicated}
        - destination.certifications: {any_of: [c5]}
    obligations: [{record: [image_digest]}]
    exceptable: {approvers: [dpo], max_days: 30}
    on_change: {running: stop_now}
  personal-not-for-dogs:
    labels: [personal]
    flows: [process]
    effect: forbid
    when: {tenant.country: {in: [JP]}}
    mode: shadow
    exceptable: {approvers: [dpo]}
sets:
  eu: {members: [DE, FI, {country: FR, until: 2026-12-15}], source: for tests, verify_by: 2027-06-30}
exceptions:
  trial:
    rules: [personal]
    scope: {data_sets: [crops], queues: [training]}
    reason: A trial.
    ticket: GOV-1
    requested_by: lead
    approved_by: officer
    approver_role: dpo
    valid: {from: 2026-11-20T00:00:00Z, until: 2026-12-10T12:00:00Z}
declassifications:
  blurred:
    transformation: blur
    image: sha256:1111111111111111111111111111111111111111111111111111111111111111
    removes: [personal]
    becomes: [public]
    evidence: GOV-2
    requested_by: lead
    approved_by: officer
    valid: {from: 2026-01-01T00:00:00Z, until: 2027-01-01T00:00:00Z}
"""
HEAD = """\
now: 2026-11-29T12:00:00Z
places:
  berlin: {country: DE, tenancy: dedicated}
  paris: {like: berlin, country: FR}
  oslo: {like: berlin, country: NO}
  shared: {like: berlin, tenancy: shared, certifications: []}
  certified: {like: berlin, tenancy: shared, certifications: [c5]}
  unknown: {}
  unvouched: {like: berlin, vouched: false}
  old: {like: berlin, attested: {by: x, at: 2026-10-20, max_age: P30D}}
tenants:
  own: {country: DE}
  guest: {country: JP}
tests:
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    result, found = look(write(tmp_path / "b", {**SMALL, R: RULES}), NOW)
    assert found is not None, [problem.text() for problem in result.errors]
    return found


def asked(world: World, test: str, head: str = HEAD) -> list[tuple[str, str, str]]:
    """The differences of one test, written below `tests:`."""
    body = "".join(f"    {line}\n" for line in test.strip().splitlines())
    cases, problems = read_tests(T, f"{head}  one:\n{body}".encode(), world)
    assert [problem.text() for problem in problems] == []
    return [(d.what, d.expected, d.got) for f in run(world.law, cases).failures for d in f.differences]


def said(to: str, expect: str, labels: str = "personal", flows: str = "process", **more: str) -> str:
    """The text of one test: what goes where, and what is expected of it; `more` are further keys."""
    keys = {"labels": f"[{labels}]", "flows": f"[{flows}]", "to": to, **more, "expect": f"{{{expect}}}"}
    return "\n".join(f"{key}: {value}" for key, value in keys.items())


RIGHT = [
    pytest.param(said("berlin", "answer: allow, rule: personal"), id="allow"),
    pytest.param(
        said(
            "oslo",
            "answer: deny, code: no-permit, rule: personal, clause: destination.country in @eu, running: stop_now",
            flows="process, checkpoint",
        ),
        id="deny with code, rule, clause and what becomes of running work",
    ),
    pytest.param(
        said("unknown", "answer: indeterminate, code: fact-unknown, fact: destination.country, gap: missing"),
        id="a fact that is missing",
    ),
    pytest.param(
        said("unvouched", "answer: indeterminate, code: fact-unknown, gap: unattested"),
        id="a fact that nobody vouches for",
    ),
    pytest.param(
        said("old", "answer: indeterminate, code: fact-unknown, gap: expired"),
        id="a fact that is too old (residency.md case 25)",
    ),
    pytest.param(said("old", "answer: allow", labels="public"), id="public data all the same"),
    pytest.param(
        said("berlin", "answer: allow, obligations: [record: [image_digest]]", flows="checkpoint"),
        id="exactly these obligations",
    ),
    pytest.param(
        said(
            "berlin",
            "answer: allow, would: [{rule: personal-not-for-dogs, mode: shadow, clause: tenant.country in JP}]",
            tenant="guest",
        ),
        id="what a shadow rule would do",
    ),
    pytest.param(
        said("paris", "answer: allow, valid_until: 2026-12-15"),
        id="until when it holds",
    ),
    pytest.param(
        said("paris", "answer: deny, code: no-permit, rule: personal", now="2026-12-15T00:00:00Z"),
        id="another instant",
    ),
    pytest.param(
        said(
            "oslo",
            "answer: allow, exceptions: [trial], valid_until: 2026-12-10T12:00:00Z",
            data_set="crops",
            queue="training",
        ),
        id="an exception, and its end",
    ),
    pytest.param(
        said(
            "oslo",
            "answer: deny, code: no-permit, rule: personal, exceptions: []",
            now="2026-12-10T12:00:00Z",
            data_set="crops",
            queue="training",
        ),
        id="an exception at the instant of its expiry (residency.md case 9)",
    ),
    pytest.param(
        "labels: [personal]\nmade_by: {transformation: blur, image: sha256:"
        + "1" * 64
        + "}\nflows: [process]\nto: oslo\nexpect: {answer: allow, rule: public}",
        id="a declassification by its image",
    ),
    pytest.param(
        "labels: [personal]\nmade_by: {transformation: blur, image: sha256:"
        + "2" * 64
        + "}\nflows: [process]\nto: oslo\nexpect: {answer: deny, code: no-permit, rule: personal}",
        id="another image stays what it was (residency.md case 22)",
    ),
    pytest.param(
        "labels: [personal]\nhops: [{flow: process, to: berlin}, {flow: checkpoint, to: oslo, from: berlin}]\n"
        "expect: {answer: deny, code: no-permit, rule: personal, flow: checkpoint}",
        id="a plan of hops (residency.md case 7)",
    ),
    pytest.param(
        said("oslo", "answer: deny, code: no-permit, rule: personal, label: personal", labels="public, personal"),
        id="the label that refuses (residency.md case 2)",
    ),
    pytest.param(
        said("cloud", "answer: indeterminate, code: fact-unknown, rule: personal"),
        id="a cluster of the fleet",
    ),
]


@pytest.mark.parametrize("test", RIGHT)
def test_what_is_expected_rightly_passes(world: World, test: str) -> None:
    assert asked(world, test) == []


WRONG = [
    pytest.param(
        said("oslo", "answer: allow, rule: personal"),
        [("answer", "allow", "deny")],
        id="another answer",
    ),
    pytest.param(
        said("oslo", "answer: deny, code: no-rule"),
        [("code", "no-rule", "no-permit")],
        id="another code",
    ),
    pytest.param(
        said("oslo", "answer: deny, code: no-permit, rule: personal, clause: destination.tenancy equals dedicated"),
        [("clause", "destination.tenancy equals dedicated", "destination.country in @eu")],
        id="another clause",
    ),
    pytest.param(
        said("berlin", "answer: allow, rule: public"),
        [("rule", "public", "personal")],
        id="another rule",
    ),
    pytest.param(
        said("berlin", "answer: allow, rule: personal, mode: warn"),
        [("mode", "warn of personal", "enforce")],
        id="another mode",
    ),
    pytest.param(
        said("berlin", "answer: allow, obligations: [{record: [image_digest, driver_version]}]"),
        [("obligations", "record driver_version image_digest", "record image_digest")],
        id="other obligations",
    ),
    pytest.param(
        said("berlin", "answer: allow, would: []", tenant="guest"),
        [("would", "nothing", "personal-not-for-dogs would deny")],
        id="a shadow rule that was not expected",
    ),
    pytest.param(
        said("berlin", "answer: allow, would: [{rule: personal-not-for-dogs, mode: shadow}]", tenant="own"),
        [("would", "personal-not-for-dogs", "nothing")],
        id="a shadow rule that said nothing",
    ),
    pytest.param(
        said("paris", "answer: allow, valid_until: 2027-01-01"),
        [("valid_until", "2027-01-01T00:00:00+00:00", "2026-12-15T00:00:00+00:00")],
        id="another end",
    ),
    pytest.param(
        said("oslo", "answer: deny, code: no-permit, rule: personal, running: drain"),
        [("running", "drain", "stop_now")],
        id="another fate of running work",
    ),
]


@pytest.mark.parametrize(("test", "differences"), WRONG)
def test_what_is_expected_wrongly_is_told_apart(
    world: World, test: str, differences: list[tuple[str, str, str]]
) -> None:
    assert asked(world, test) == differences


def test_a_failure_is_shown_with_its_place_and_what_the_law_says(world: World) -> None:
    text = f"{HEAD}  one:\n    labels: [personal]\n    flows: [process]\n    to: oslo\n    expect: {{answer: allow}}\n"
    cases, _ = read_tests(T, text.encode(), world)
    failure, *_ = run(world.law, cases).failures
    assert list(failure_text(failure, "config")) == [
        "config/residency/rules.test.yaml:15:3: FAIL one (process)",
        "    answer  expected allow",
        "            got      deny",
        "    it says: deny, no-permit by personal: destination.country in @eu, saw NO (residency/rules.yaml:11:7), "
        "for label personal",
    ]


def lone(test: str) -> str:
    return HEAD + "  one: " + test + "\n"


UNREADABLE = [
    pytest.param(
        lone("{flows: [process], to: oslo}").replace("now: 2026-11-29T12:00:00Z\n", ""),
        "'now' is missing",
        id="now is mandatory",
    ),
    pytest.param(HEAD.replace("2026-11-29T12:00:00Z", "1969-01-01T00:00:00Z") + "  {}\n", "before 1970", id="1969"),
    pytest.param(lone("{flows: [process], to: olso, expect: {answer: allow}}"), "did you mean 'oslo'", id="a place"),
    pytest.param(
        lone("{labels: [personel], flows: [process], to: oslo, expect: {answer: allow}}"),
        "did you mean 'personal'",
        id="a label",
    ),
    pytest.param(
        lone("{flows: [process], to: oslo, expect: {answer: allow, rule: publik}}"),
        "did you mean 'public'",
        id="a rule",
    ),
    pytest.param(
        lone("{flows: [process], to: oslo, expect: {answer: deny}}"),
        "without its code",
        id="a refusal without its code",
    ),
    pytest.param(
        lone("{flows: [process], to: oslo, expect: {answer: deny, code: no-permit}}"),
        "without its rule",
        id="a code without its rule",
    ),
    pytest.param(
        lone("{flows: [process], to: oslo, expect: {answer: allow, clause: x}}"),
        "an allow has no",
        id="an allow with a clause",
    ),
    pytest.param(lone("{flows: [proces], to: oslo, expect: {answer: allow}}"), "did you mean 'process'", id="a flow"),
    pytest.param(lone("{to: oslo, expect: {answer: allow}}"), "asks of flows, or of hops", id="no flow at all"),
    pytest.param(lone("{flows: [process], expect: {answer: allow}}"), "flows that go nowhere", id="no destination"),
    pytest.param(
        lone("{flows: [process], to: oslo, gpus: [h1000], expect: {answer: allow}}"), "unknown GPU product", id="a GPU"
    ),
    pytest.param(
        lone("{flows: [process], to: oslo, tenant: ownn, expect: {answer: allow}}"), "did you mean 'own'", id="a tenant"
    ),
    pytest.param(
        lone("{flows: [process], to: a, expect: {answer: allow}}").replace(
            "  unknown: {}", "  a: {like: b}\n  b: {like: a}"
        ),
        "like itself",
        id="a ring of places",
    ),
    pytest.param(
        lone("{flows: [process], to: oslo, expect: {answer: allow}}") * 2, "there twice", id="a duplicate key"
    ),
    pytest.param(
        lone("{flows: [process], to: x, expect: {answer: allow}}").replace("  unknown: {}", "  x: {country: UK}"),
        "did you mean 'GB'",
        id="UK",
    ),
    pytest.param("#" * (5 * 1024 * 1024), "more than the 524288 bytes", id="5 MB"),
]


@pytest.mark.parametrize(("text", "says"), UNREADABLE)
def test_a_test_that_does_not_read_is_an_error_with_its_place(world: World, text: str, says: str) -> None:
    cases, problems = read_tests(T, text.encode(), world)
    assert cases == []
    assert any(says in problem.text() for problem in problems), [problem.text() for problem in problems]
    assert all(problem.line >= 1 and problem.file == T for problem in problems)


def test_norway_reads_as_norway(world: World) -> None:
    cases, problems = read_tests(T, lone("{flows: [process], to: oslo, expect: {answer: allow}}").encode(), world)
    assert problems == []
    assert cases[0].plans[0][1].hops[0].destination.country == "NO"


def test_a_name_that_two_files_have_is_an_error(tmp_path: Path, world: World) -> None:
    text = lone("{labels: [public], flows: [process], to: oslo, expect: {answer: allow}}")
    folder = write(tmp_path / "b", {T: text, "residency/more.test.yaml": text})
    suite = read_suite(folder, world)
    assert [problem.text() for problem in suite.problems] == [
        "residency/rules.test.yaml:15:3: error: 'one': there already, in residency/more.test.yaml:15:3; "
        "rename one of them"
    ]


# --- coverage and mutation ---------------------------------------------------------------------------------------

HALF = lone("{labels: [personal], flows: [process], to: berlin, tenant: own, expect: {answer: allow, rule: personal}}")


def test_coverage_counts_each_clause_by_what_it_does(world: World) -> None:
    cases, _ = read_tests(T, HALF.encode(), world)
    found = {rule.rule: rule for rule in cover(world.law, cases).rules}
    assert (found["personal"].seen, found["personal"].cells) == (3, 9)
    assert sorted({(m.cell.clause, m.cell.side.value) for m in found["personal-not-for-dogs"].missing}) == [
        ("tenant.country in JP", "deny"),
        ("tenant.country in JP", "unknown"),
    ]
    assert [(m.cell.clause, m.cell.side.value) for m in found["public"].missing] == [("", "permit")]


def test_mutants_that_no_test_notices_survive(world: World) -> None:
    cases, _ = read_tests(T, HALF.encode(), world)
    survivors = survey(world.bundle, cases, frozenset({Change.CLAUSE, Change.OBLIGATION})).survivors
    assert {(m.change, m.what) for m in survivors if m.rule.id == "personal"} == {
        (Change.CLAUSE, "destination.country in @eu"),
        (Change.CLAUSE, "destination.certifications any_of c5"),
        (Change.OBLIGATION, "record image_digest"),
    }


def test_a_slip_of_mode_is_noticed_where_the_rule_is_named(world: World) -> None:
    cases, _ = read_tests(T, HALF.encode(), world)
    survivors = survey(world.bundle, cases, frozenset({Change.MODE})).survivors
    assert {m.rule.id for m in survivors} == {"public", "personal-not-for-dogs"}


# --- the command -------------------------------------------------------------------------------------------------


def test_exit_codes_0_1_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "b", {**SMALL, R: RULES, T: HALF})
    assert cli(["policy", "test", str(folder)]) == 0
    assert "1 tests, 1 questions, 0 failed" in capsys.readouterr().out
    assert cli(["policy", "test", str(folder), "--min-coverage", "90"]) == 1
    assert "less than the 90% wanted" in capsys.readouterr().out
    assert cli(["policy", "test", str(folder), "--mutate", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["unnoticed"] != []
    write(folder, {T: HALF.replace("answer: allow", "answer: indeterminate, code: fact-unknown")})
    assert cli(["policy", "test", str(folder), "-o", "json"]) == 1
    failures = json.loads(capsys.readouterr().out)["failures"]
    assert (failures[0]["line"], failures[0]["differences"][0]["got"]) == (15, "allow")
    write(folder, {T: "now: yesterday\n"})
    assert cli(["policy", "test", str(folder)]) == 2
    (folder / T).unlink()
    assert cli(["policy", "test", str(folder)]) == 2
    assert "there are no tests" in capsys.readouterr().err
    write(folder, {R: "rules: {}\n"})
    assert cli(["policy", "test", str(folder)]) == 2
    assert cli(["policy", "test", str(tmp_path / "nowhere")]) == 2


def test_wide_shows_coverage_by_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "b", {**SMALL, R: RULES, T: HALF})
    assert cli(["policy", "test", str(folder), "-o", "wide"]) == 0
    out = capsys.readouterr().out
    assert "personal-not-for-dogs" in out
    assert "not seen by any test: personal: destination.country in @eu: deny, unknown" in out
