"""Alert rules speak of metrics that exist, with labels and values that the daemon really sets."""

from __future__ import annotations

import re
from typing import Any

import pytest
from prometheus_client import Metric

from dispatcher.core.errors import Refused
from dispatcher.core.footing import Mode
from dispatcher.core.snapshot import Link
from dispatcher.core.watchdog import FindingCode
from dispatcher.logs import PROBLEMS
from dispatcher.loops.asking import result_of
from dispatcher.metrics import Metrics
from tests.unit.deploy_files import ROOT, one

RULES: list[dict[str, Any]] = one("monitoring", "PrometheusRule")["spec"]["groups"][0]["rules"]
SERIES = re.compile(r"(entrepot_[a-z_]+)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)(=~|!=|=)"([^"]*)"')
DURATION = re.compile(r"\d+[smhd]")
OF_THE_SCRAPE = {"job", "namespace", "pod", "instance", "container"}


def exposed() -> dict[str, set[str]]:
    """Sample name to its labels, as an exposition has them."""
    found: dict[str, set[str]] = {}
    metrics = Metrics()
    for name in Metrics.__dataclass_fields__:
        metric = getattr(metrics, name)
        if name == "registry":
            continue
        family: Metric = next(iter(metric.describe()))
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        for suffix in suffixes:
            found[family.name + suffix] = set(metric._labelnames) | ({"le"} if suffix == "_bucket" else set())
    return found


def series() -> list[tuple[str, str, str]]:
    return [(rule["alert"], *match) for rule in RULES for match in SERIES.findall(rule["expr"])]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_can_be_acted_on(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"Entrepot[A-Za-z]+", rule["alert"])
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description"}
    assert DURATION.fullmatch(rule.get("for", "1m"))
    assert f"`{rule['alert']}`" in (ROOT / "docs" / "install.md").read_text(), "docs/install.md says what to do first"


@pytest.mark.parametrize(("alert", "name", "matchers"), series())
def test_an_alert_asks_for_series_that_exist(alert: str, name: str, matchers: str) -> None:
    labels = {label for label, _, _ in MATCHER.findall(matchers)}
    assert name in exposed()
    assert labels - OF_THE_SCRAPE <= exposed()[name]
    assert 'job="entrepot"' in matchers, "or another program's series of that name would count"


def test_no_metric_of_ours_is_asked_for_without_its_job() -> None:
    for rule in RULES:
        assert len(re.findall(r"entrepot_\w+", rule["expr"])) == len(SERIES.findall(rule["expr"]))


def test_labels_that_are_summed_by_exist() -> None:
    for rule in RULES:
        names = [name for name, _ in SERIES.findall(rule["expr"])]
        for labels in re.findall(r"by \(([^)]*)\)", rule["expr"]):
            assert all(label.strip() in exposed()[names[0]] for label in labels.split(","))


def test_links_of_clusters_are_words_of_the_code() -> None:
    words = re.findall(r'link="(\w+)"', " ".join(rule["expr"] for rule in RULES))
    assert words
    assert set(words) <= {str(link) for link in Link}


def test_modes_of_footing_are_words_of_the_code() -> None:
    words = re.findall(r'mode="(\w+)"', " ".join(rule["expr"] for rule in RULES))
    assert words
    assert set(words) <= {str(mode) for mode in Mode}


def test_results_of_nominations_are_words_of_the_loop_that_counts_them() -> None:
    source = (ROOT / "dispatcher" / "loops" / "writing.py").read_text()
    found = re.findall(r'result=~?"([^"]*)"', " ".join(rule["expr"] for rule in RULES))
    words = {word for text in found for word in text.split("|")}
    assert words >= {"refused", "store", "unknown", "written"}
    assert [word for word in sorted(words) if f'"{word}"' not in source] == []


async def test_the_result_of_idle_writes_that_alarms_is_what_a_refusal_is_counted_as() -> None:
    """Both by the code that counts: the loop's own words for courses, and what becomes of a refused write."""

    async def refuse() -> None:
        raise Refused("workloads is forbidden")

    (rule,) = (rule for rule in RULES if rule["alert"] == "EntrepotIdleRefused")
    result, _ = await result_of(refuse())
    ((_, matchers),) = SERIES.findall(rule["expr"])
    assert {label: value for label, _, value in MATCHER.findall(matchers)}["result"] == result


def test_every_finding_has_an_alert_or_a_reason_for_none() -> None:
    asked = " ".join(rule["expr"] for rule in RULES)
    words = {word for text in re.findall(r'code=~"([^"]*)"', asked) for word in text.split("|")}
    quiet = {FindingCode.COPY_EVICTED, FindingCode.COPY_RECLAIMED, FindingCode.HUB_PREEMPTED}
    """Preemption is ordinary, and the job is dispatched again."""
    assert words == {code.value for code in FindingCode} - quiet


def test_kinds_of_problems_are_events_of_the_code() -> None:
    named = re.findall(r'kind!="([^"]*)"', " ".join(rule["expr"] for rule in RULES))
    assert named
    assert set(named) <= set(PROBLEMS)


def test_what_must_wake_somebody_is_there() -> None:
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in RULES}
    assert {name for name, severity in severities.items() if severity == "critical"} == {
        "EntrepotDown",
        "EntrepotLoopFailing",
        "EntrepotHubSilent",
        "EntrepotNoCluster",
        "EntrepotFleetFrozen",
        "EntrepotNominationsRefused",
        "EntrepotNobodyLeads",
        "EntrepotSeveralLead",
        "EntrepotJobInDanger",
        "EntrepotIllegalWork",
        "EntrepotIllegalNotEnded",
        "EntrepotRulesUnusable",
    }
    assert set(severities) >= {
        "EntrepotClusterStale",
        "EntrepotBlueprintRefused",
        "EntrepotInputProblemsGrowing",
        "EntrepotHoldsStuck",
    }
