"""The keys of design section 6, read strictly."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dispatcher.core.declaration import PREFIX, parse_declaration
from dispatcher.core.explain import problem_text
from dispatcher.core.ids import StoreName
from dispatcher.core.literals import LiteralError, parse_count, parse_duration, parse_instant, parse_usd
from dispatcher.core.workload import Declaration, Destination, WorkloadClass
from tests.core_builders import data, policy, store, uses

POLICY = policy(
    data_sets=[data("radar-2026"), data("lidar-raw")],
    stores=[store("eu-store", "DE", region="r")],
)


def read(**keys: str) -> Declaration:
    """`_` in a keyword is `-` in the key. Fails when there are problems."""
    declared, problems = parse_declaration(tuple((PREFIX + k.replace("_", "-"), v) for k, v in keys.items()), POLICY)
    assert problems == ()
    return declared


def problem(key: str, value: str):  # type: ignore[no-untyped-def]
    _, problems = parse_declaration(((PREFIX + key, value),), POLICY)
    assert len(problems) == 1
    return problems[0]


def test_every_key_of_the_design_is_read() -> None:
    declared = read(
        team="perception",
        project="radar",
        workload_class="simulation",
        datasets="radar-2026, lidar-raw:2",
        outputs="eu-store/runs/7",
        checkpoint="eu-store",
        checkpoint_interval="PT20M",
        expected_duration="P1DT2H",
        deadline="2027-02-03T12:00:00+01:00",
        clusters="onprem, cloud",
        group="rollouts-1",
        group_size="3",
        max_cost="120.50",
        simulated_duration="PT5S",
    )
    assert declared == Declaration(
        team="perception",
        project="radar",
        workload_class=WorkloadClass.SIMULATION,
        data=uses("radar-2026", ("lidar-raw", 2)),
        outputs=Destination(StoreName("eu-store"), "runs/7"),
        checkpoint=Destination(StoreName("eu-store"), ""),
        checkpoint_interval_s=1200,
        expected_duration_s=26 * 3600,
        deadline=datetime(2027, 2, 3, 11, 0, tzinfo=UTC),
        clusters=("cloud", "onprem"),  # type: ignore[arg-type]
        group="rollouts-1",
        group_size=3,
        max_cost_usd_micro=120_500_000,
    )


def test_keys_of_others_are_skipped() -> None:
    assert parse_declaration((("kueue.x-k8s.io/queue-name", "main"), ("team", "x")), POLICY) == (Declaration(), ())


@pytest.mark.parametrize(
    ("key", "value", "rule", "fix"),
    [
        ("dataset", "radar-2026", "not known", "did you mean 'entrepot.dev/datasets'?"),
        ("datasets", "radar-2062", "'radar-2062' is not in the catalog", "did you mean 'radar-2026'?"),
        ("datasets", "radar-2026,,lidar-raw", "without empty places", "radar-2026, lidar-raw:2"),
        ("datasets", "radar-2026:0", "1 or more", "entrepot.dev/datasets"),
        ("datasets", "radar-2026:-1", "1 or more", "entrepot.dev/datasets"),
        ("datasets", "radar-2026, radar-2026:2", "named twice", "radar-2026:2"),
        ("workload-class", "trainign", "'trainign' is not a workload class", "did you mean 'training'?"),
        ("outputs", "us-store/x", "'us-store' is not in the catalog", "did you mean 'eu-store'?"),
        ("checkpoint", "", "'' is not in the catalog", "known: eu-store"),
        ("expected-duration", "90", "ISO 8601", "entrepot.dev/expected-duration"),
        ("expected-duration", "P1M", "no fixed length", "entrepot.dev/expected-duration"),
        ("expected-duration", "-PT5M", "ISO 8601", "entrepot.dev/expected-duration"),
        ("checkpoint-interval", "PT0S", "longer than zero", "entrepot.dev/checkpoint-interval"),
        ("deadline", "2027-02-03T12:00:00", "offset", "entrepot.dev/deadline"),
        ("max-cost", "-5", "amount in USD", "entrepot.dev/max-cost"),
        ("max-cost", "1e3", "amount in USD", "entrepot.dev/max-cost"),
        ("max-cost", "NaN", "amount in USD", "entrepot.dev/max-cost"),
        ("group-size", "two", "1 or more", "entrepot.dev/group-size"),
        ("clusters", "", "without empty places", "onprem-eu, cloud-a-fi"),
        ("team", "", "must have a name", "remove the key"),
    ],
)
def test_what_does_not_read_is_a_problem_with_its_fix(key: str, value: str, rule: str, fix: str) -> None:
    found = problem(key, value)
    assert (found.key, found.value) == (PREFIX + key, value)
    assert rule in found.rule
    assert fix in found.fix


def test_all_problems_are_told_not_only_the_first() -> None:
    _, problems = parse_declaration(
        ((PREFIX + "max-cost", "x"), (PREFIX + "colour", "red"), (PREFIX + "datasets", "nope")), POLICY
    )
    assert [p.key for p in problems] == [PREFIX + "colour", PREFIX + "datasets", PREFIX + "max-cost"]


def test_a_group_size_needs_its_group() -> None:
    assert "needs a group" in problem("group-size", "2").rule


def test_the_text_of_a_problem_names_key_value_and_fix() -> None:
    text = problem_text(problem("datasets", "radar-2062"))
    assert text.startswith("entrepot.dev/datasets = 'radar-2062'")
    assert "did you mean 'radar-2026'?" in text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT90M", 5400), ("P2W", 14 * 86400), ("P1DT1H1M1S", 90061), ("PT1S", 1), (" PT1H ", 3600), ("P36525D", None)],
)
def test_durations_are_exact_seconds(text: str, seconds: int | None) -> None:
    if seconds is None:
        with pytest.raises(LiteralError):
            parse_duration(text)
    else:
        assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1H", "PT1.5H", "PT1H30", "p1d", "PT٣M", "P1Y", "P1D1W", "PT1M1H"]
)
def test_no_other_text_is_a_duration(text: str) -> None:
    with pytest.raises(LiteralError):
        parse_duration(text)


@pytest.mark.parametrize(("text", "micro"), [("0", 0), ("120.50", 120_500_000), ("0.000001", 1), ("7", 7_000_000)])
def test_money_is_exact(text: str, micro: int) -> None:
    assert parse_usd(text) == micro


@pytest.mark.parametrize("text", ["", "1,000", "$5", "1.", ".5", "1.0000001", "inf", "-0", "0x10", "٣", "9" * 14])
def test_no_other_text_is_money(text: str) -> None:
    with pytest.raises(LiteralError):
        parse_usd(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "tomorrow", "2027-13-01T00:00:00Z"])
def test_no_other_text_is_an_instant(text: str) -> None:
    with pytest.raises(LiteralError):
        parse_instant(text)


@pytest.mark.parametrize("text", ["²", "1.0", "+1", "", "9" * 10])
def test_no_other_text_is_a_count(text: str) -> None:
    with pytest.raises(LiteralError):
        parse_count(text)
