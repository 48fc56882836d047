"""The field reports of the group POL (residency and policy), each by its number."""

from __future__ import annotations

import random
import re
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from dispatcher.config import BlueprintWatcher, load_blueprint
from dispatcher.core.decision import Reason
from residency.bundle import NO_LAW
from residency.clauses import Clause, Finding, Operator, Quantifier, Truth, evaluate
from residency.facts import Question
from residency.judge import STAYS_HOME, law_of
from residency.verdict import Code
from residency.vocabulary import Answer, Flow
from tests.core_builders import data, decided, egress, policy, reasons, request, uses, worker
from tests.unit import blueprint_files
from tests.unit.res_world import NOW, RULES, SETS, cargo, job, law, one, place, read, ruled, store
from tests.unit.res_world import Hop as Step

ROUTES = [egress("r-onprem", "r-cloud", 0)]


def test_fr_pol_01_what_nobody_classified_stays_where_it_lies() -> None:
    known = law()
    home = cargo("unlabelled", home=("SE",))
    assert ruled(known, job(Step(Flow.PROCESS, home, place("here", "SE")))).allowed
    ruling = ruled(known, job(Step(Flow.PROCESS, home, place("there", "DE"))))
    assert (ruling.answer, ruling.against[0].code) == (Answer.DENY, Code.LABEL_MISSING)
    assert ruling.against[0].because.rule == STAYS_HOME
    for flow in (Flow.REPLICATE, Flow.REPLICATE_SEALED):
        assert ruled(known, job(Step(flow, home, store("s", "SE")))).answer is Answer.DENY, "no further copies"
    nowhere = ruled(known, one(Flow.PROCESS, place("here", "SE"), "unlabelled"))
    assert (nowhere.answer, nowhere.against[0].because.fact) == (Answer.INDETERMINATE, "data.home")


def test_fr_pol_01_a_job_without_data_sets_goes_nowhere_by_default() -> None:
    rules = policy(unlabelled=None, data_sets=[data("d", labels=[], clusters=["onprem"])], egress_prices=ROUTES)
    unnamed = decided(request(), worker(), worker("cloud"), rules=rules)
    assert reasons(unnamed, "cloud") == reasons(unnamed, "onprem") == [Reason.RESIDENCY_INDETERMINATE]
    assert decided(request(data=uses("d")), worker(), worker("cloud"), rules=rules).chosen == "onprem"


def finding(truth: Truth) -> Finding:
    return Finding(Clause("destination.country", Operator.IN), truth)


QUESTION = Question(Flow.PROCESS, NOW, place("here", "SE"))


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_fr_pol_02_any_and_all_have_the_truth_table_of_three_values(size: int) -> None:
    for truths in product(Truth, repeat=size):
        tests = tuple((lambda _, t=t: finding(t)) for t in truths)
        every = evaluate(((Quantifier.ALL, tests),), QUESTION).truth
        either = evaluate(((Quantifier.ANY, tests),), QUESTION).truth
        assert every is min(truths, default=Truth.TRUE), "of nothing all hold"
        assert either is max(truths, default=Truth.FALSE), "of nothing none does"
        assert evaluate(((Quantifier.ALL, tests), (Quantifier.ANY, tests)), QUESTION).truth is min(every, either)


@pytest.mark.parametrize("group", ["any: []", "all: []", "any: [{}]", "any: [{destination.country: {}}]"])
def test_fr_pol_02_a_group_that_asks_nothing_is_an_error(group: str) -> None:
    _, problems = read(f"rules:\n  r: {{labels: [public], flows: [process], effect: permit, when: {{{group}}}}}\n")
    assert all(":2:" in problem for problem in problems)
    assert problems != []


def test_fr_pol_02_a_list_of_conditions_is_asked_and_not_only_read() -> None:
    known = law(
        "rules:\n  r: {labels: [public], flows: [process], effect: forbid, when: {any: "
        "[{destination.country: {in: [FR]}}, {destination.tenancy: {equals: shared}}]}}\n"
    )
    dedicated = {"tenancy": "dedicated"}
    assert ruled(known, one(Flow.PROCESS, place("a", "SE", **dedicated), "public")).allowed
    assert not ruled(known, one(Flow.PROCESS, place("b", "FR", **dedicated), "public")).allowed
    assert not ruled(known, one(Flow.PROCESS, place("c", "SE", tenancy="shared"), "public")).allowed


@pytest.mark.parametrize("emptied", ["", "rules: {}\n", "sets:\n  eu: {members: [DE], source: s}\n"])
def test_fr_pol_03_no_rules_is_not_the_same_as_rules_that_allow(emptied: str, tmp_path: Path) -> None:
    folder = blueprint_files.write(tmp_path, dict(blueprint_files.SMALL))
    watcher = BlueprintWatcher(folder)
    good = watcher.poll(NOW)
    blueprint_files.write(folder, {blueprint_files.R: emptied})
    bad = watcher.poll(NOW)
    assert bad is not None
    assert bad.policy is None
    assert bad.errors, "an alarm has something to say"
    assert watcher.last_good is good
    assert load_blueprint(folder, NOW).policy is None, "at a start it is the same"


def test_fr_pol_03_the_law_of_no_bundle_permits_nothing() -> None:
    known = law_of(NO_LAW)
    for flow in Flow:
        ruling = ruled(known, one(flow, place("here", "SE"), "public"))
        assert [v.code for v in ruling.against] == [Code.NO_RULE]
    assert not ruled(known, job()).allowed, "a plan of nothing is no grant"


def test_fr_pol_04_no_order_of_rules_and_files_shows() -> None:
    rules = [
        rule.rstrip() for rule in re.split(r"^(?=  \S)", RULES.removeprefix("rules:\n"), flags=re.MULTILINE) if rule
    ]
    answers = set()
    for seed in range(100):
        dice = random.Random(seed)
        dice.shuffle(rules)
        cut = dice.randrange(1, len(rules))
        texts = ["rules:\n" + "\n".join(rules[:cut]) + "\n", "rules:\n" + "\n".join(rules[cut:]) + "\n", SETS]
        dice.shuffle(texts)
        bundle, problems = read(*texts)
        assert problems == []
        known = law_of(bundle)
        ruling = ruled(known, one(Flow.PROCESS, place("here", "FR"), "personal-eu", "customer-acme", "ear-tech"))
        answers.add((bundle.digest, ruling.digest, ruling.answer))
    assert len(answers) == 1


def test_fr_pol_04_a_rule_of_one_name_in_two_files_is_an_error() -> None:
    rule = "rules:\n  r: {labels: [public], flows: [process], effect: permit}\n"
    _, problems = read(rule, rule)
    assert problems == [
        "residency/1.yaml:2:3: error: 'r': there already, in residency/0.yaml:2:3; remove or rename one of them"
    ]


def test_a_verdict_lasts_to_the_end_of_what_it_rests_on() -> None:
    here = place("here", "SE")
    ruling = ruled(law(), one(Flow.PROCESS, here, "personal-eu"))
    assert here.attested is not None
    assert ruling.valid_until == here.attested.until
    short = ruled(law("settings: {max_ttl: PT1H}\n"), one(Flow.PROCESS, here, "personal-eu"))
    assert short.valid_until == NOW + timedelta(hours=1)
